"""The shell blocks of the documentation: which there are, and what they print.

A block is fenced as `sh`. It is run as it is printed, in a folder of its page that has `examples/` and
`recipes/` in it, and must end with 0. A comment right above says otherwise:

    <!-- exit 2 -->                 it must end so
    <!-- output: NAME -->           `make docs` keeps what it prints, for `--8<-- "NAME.txt"` in the page
    <!-- not run: the reason -->    it is not run
    <!-- file: PATH -->             a block of any kind: it is this file of the folder

`docs/blocks.py FOLDER` writes the outputs that pages show.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
SECONDS = 120
"""Time for one block; a hang guard."""

_FENCE = re.compile(
    r"(?P<notes>(?:^[ ]*<!--[^>]*-->\n)*)^(?P<indent>[ ]*)```(?P<kind>[^\n`]*)\n(?P<body>.*?)^(?P=indent)```",
    re.M | re.S,
)


@dataclass(frozen=True)
class Block:
    """A fenced block of a page."""

    page: Path
    line: int
    kind: str
    text: str
    exit: int = 0
    output: str = ""
    not_run: str = ""
    file: str = ""


def pages() -> list[Path]:
    """Every document that people read, by hand written."""
    return [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))]


def blocks(page: Path) -> Iterator[Block]:
    """The blocks of a page, in order."""
    text = page.read_text(encoding="utf-8")
    for found in _FENCE.finditer(text):
        notes = found["notes"]
        code, output, reason, file = (
            re.search(rf"<!-- {word} (.+?) -->", notes) for word in ("exit", "output:", "not run:", "file:")
        )
        yield Block(
            page,
            text.count("\n", 0, found.start("kind")) + 1,
            found["kind"].strip(),
            re.sub(rf"^{found['indent']}", "", found["body"], flags=re.M),
            int(code[1]) if code else 0,
            output[1] if output else "",
            reason[1] if reason else "",
            file[1] if file else "",
        )


def to_run(page: Path) -> list[Block]:
    """The shell blocks of a page that can be run anywhere, and the files that they need."""
    return [block for block in blocks(page) if block.file or (block.kind == "sh" and not block.not_run)]


def run(found: list[Block], folder: Path, python: str = sys.executable) -> Iterator[tuple[Block, int, str]]:
    """Run the blocks of one page after each other; each with its exit code and output."""
    tools = folder / "bin"
    tools.mkdir()
    (tools / "nodedoctor").write_text(f'#!/bin/sh\nexec "{python}" -m nodedoctor "$@"\n')
    (tools / "nodedoctor").chmod(0o755)
    work = folder / "checkout"
    shutil.copytree(DOCS / "examples", work / "examples")
    shutil.copytree(DOCS / "recipes", work / "recipes")
    env = {
        "PATH": f"{tools}:{os.environ['PATH']}",
        "HOME": str(folder),
        "LANG": "C.UTF-8",
    }
    for block in found:
        if block.file:
            (work / block.file).parent.mkdir(parents=True, exist_ok=True)
            (work / block.file).write_text(block.text)
            continue
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block.text],
            cwd=work,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        yield block, done.returncode, done.stdout


def outputs() -> Iterator[tuple[str, str]]:
    """What pages show of what their blocks print: only the blocks that this needs are run."""
    for page in pages():
        needed = to_run(page)
        while needed and not needed[-1].output:
            needed.pop()
        with tempfile.TemporaryDirectory() as scratch:
            for block, code, text in run(needed, Path(scratch)):
                if code != block.exit:
                    raise SystemExit(f"{block.page}:{block.line}: exit {code}, not {block.exit}\n{text}")
                if block.output:
                    yield block.output, text.replace(f"{scratch}/checkout/", "")


def main(folder: Path) -> None:
    """Write every output."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in outputs():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
