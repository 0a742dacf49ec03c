"""What the check of links finds in a built site, and what it lets be."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

LINKS = Path(__file__).parents[2] / "tools" / "site" / "links.py"
GOOD = """
<link rel="canonical" href="https://docs.example/"><link rel="stylesheet" href="a/style.css">
<a href="https://elsewhere.example">out</a> <a href="b.html#place">in</a> <a href="#here" id="here">here</a>
<a href="a/">folder</a> <a href="mailto:a@example">mail</a> <img src="data:image/png;base64,AA">
"""


def checked(folder: Path, page: str) -> tuple[int, str]:
    (folder / "a").mkdir()
    (folder / "a" / "style.css").touch()
    (folder / "a" / "index.html").touch()
    (folder / "b.html").write_text('<h2 id="place">Place</h2>')
    (folder / "index.html").write_text(page)
    done = subprocess.run([sys.executable, LINKS, folder], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout.strip()


def test_a_site_without_a_dead_link(tmp_path: Path) -> None:
    assert checked(tmp_path, GOOD) == (0, "no dead link")


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ('<a href="c.html">', "c.html leads nowhere"),
        ('<img src="a/none.svg">', "a/none.svg leads nowhere"),
        ('<a href="b.html#other">', "names a place that b.html does not have"),
        ('<a href="#nowhere">', "names a place that index.html does not have"),
        ('<script src="https://cdn.example/x.js"></script>', "is loaded from elsewhere"),
        ('<link rel="stylesheet" href="//fonts.example/css">', "is loaded from elsewhere"),
    ],
)
def test_what_is_broken_is_named(tmp_path: Path, page: str, said: str) -> None:
    code, output = checked(tmp_path, page)
    assert code == 1 and output.startswith("index.html: ") and said in output
