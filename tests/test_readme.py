"""What the README and the pages promise: examples run, subjects and exit codes are ours, options exist."""

import json
import re
from html import unescape
from pathlib import Path

import pytest
from doc_files import load
from test_plugins import nodedoctor, results

from nodedoctor.cli.exit_codes import Exit
from nodedoctor.engine.plugins import discover
from nodedoctor.knowledge.ownership import owner_column

ROOT = Path(__file__).parent.parent
BLOCKS = load("blocks")
blocks, pages = BLOCKS.blocks, BLOCKS.pages
README = (ROOT / "README.md").read_text(encoding="utf-8")
COMMANDS = ("", "triage", "read", "mcp", "fleet", "arm", "run", "watch", "expect", "compare")


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def test_the_example_check_runs(tmp_path):
    (example,) = re.findall(r"```python\n(.*?)```", page("writing-checks.md"), re.DOTALL)
    (tmp_path / "site_memory.py").write_text(example)
    done = nodedoctor("--json", "--checks", str(tmp_path), "site")
    (finding,) = results(done)["site.memory"]["findings"]
    assert finding["status"] in ("pass", "warn")
    assert "GiB of memory" in finding["summary"]


def test_every_subject_is_named():
    subjects = {check.subject for check in discover().checks.values()}
    missing = [subject for subject in sorted(subjects) if f"`{subject}.*`" not in page("subjects.md")]
    assert not missing


def test_every_exit_code_is_in_the_table():
    rows = re.findall(r"^\| ([\d, ]+) \|", page("gating.md"), re.MULTILINE)
    told = {int(number) for row in rows for number in row.split(",")}
    assert told == {int(code) for code in Exit}


def test_every_option_in_an_example_exists():
    """Of the command that it follows, in every block of every page."""
    known = {name: options(nodedoctor(*name.split(), "--help").stdout) for name in COMMANDS}
    shell = [
        block.text.replace("\\\n", " ") for path in pages() for block in blocks(path) if block.kind == "sh"
    ]
    lines = [
        line for text in [*shell, README] for line in re.findall(r"\bnodedoctor(?:\.pyz)? .*$", text, re.M)
    ]
    used = 0
    for line in lines:
        words = line.partition("#")[0].partition(" -- ")[0].split("|")[0].split()[1:]
        command = words[0] if words and words[0] in COMMANDS else ""
        for option in options(" ".join(words)):
            assert option in known[command], line
            used += 1
    assert used > 40


def options(text: str) -> set[str]:
    return set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text))


@pytest.mark.parametrize("name", ["report", "triage", "fleet", "pairs", "snapshot"])
def test_the_documents_are_of_the_versions_that_are_promised(name):
    schema = json.loads(nodedoctor("schema", name).stdout)
    assert f"nodedoctor.{name}/1" in page("contracts.md")
    assert f"nodedoctor.{name}/1" in json.dumps(schema["properties"]["schema"]).replace("\\", "")


@pytest.mark.parametrize("kind", ["dark", "light"])
def test_the_picture_shows_what_is_printed(kind):
    svg = page(f"checks-{kind}.svg")
    shown = unescape(" ".join(re.findall(r">([^<]+)</text>", svg))).replace("\xa0", " ")
    owner, _, broken = nodedoctor("demo", "nvlinks-down", "--summary").stdout.strip().partition(": ")
    assert broken in shown and owner_column(owner) in shown
    assert f"docs/checks-{kind}.svg" in README
    assert "http" not in svg.replace("http://www.w3.org/2000/svg", "").replace(
        "https://www.textualize.io", ""
    )
