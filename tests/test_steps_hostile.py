"""Whatever a node says, nothing of it becomes shell code in a command that somebody copies."""

from __future__ import annotations

import json
import re
import shutil
from functools import cache
from pathlib import Path

import pytest
from fixes import NODES, folders, judged, of_report, reports, sources

from nodedoctor.model import Report
from nodedoctor.report.json import document

HOSTILE = "$(touch PWNED)`PWNED`;PWNED|PWNED&PWNED>PWNED 'PWNED\" \nPWNED"
_WORD = re.compile(r"[A-Za-z0-9_.:/+-]{3,80}")
_QUOTED = re.compile(r"\$'(?:\\.|[^'\\])*'|'[^']*'|\"'\"")


def unharmed(report: Report) -> int:
    """How many commands were looked at; none has a hostile word outside its quotes."""
    seen = 0
    for where, fix in of_report(report):
        for step in fix.plan:
            seen += 1
            assert "PWNED" not in _QUOTED.sub("", step.command), (where, step.command)
            assert step.command.isprintable(), (where, step.command)
    return seen


@cache
def ours() -> frozenset[str]:
    """Every word of our own sources."""
    return frozenset(word for source in sources() for word in _WORD.findall(source.read_text()))


def fed(name: str) -> list[str]:
    """The words of a node's own texts that came into commands of its fixes."""
    texts = "".join(path.read_text(errors="replace") for path in folders()[name].glob("probes/*.txt"))
    said = {
        word for _, fix in of_report(reports()[name]) for step in fix.plan for word in _pieces(step.command)
    }
    return sorted(word for word in said - ours() if word in texts and not word.isdecimal())


def _pieces(command: str) -> set[str]:
    """Words, and what they are made of: a version behind a path, a name behind `=`."""
    words = set(_WORD.findall(command))
    return words | {
        piece for word in words for piece in re.findall(r"\d+(?:\.\d+)+|[A-Za-z][\w.-]+|/[\w./-]+", word)
    }


def hostile(source: Path, target: Path, word: str) -> None:
    """A copy of a recorded node in which a word goes on with shell code, wherever it stands."""
    shutil.copytree(source, target)
    for path in target.glob("probes/*.txt"):
        text = path.read_text(encoding="utf-8", errors="replace")
        bad = json.dumps(HOSTILE)[1:-1] if text.lstrip().startswith("{") else HOSTILE
        path.write_text(text.replace(word, word + bad), encoding="utf-8", errors="replace")


def test_words_of_nodes_come_into_commands():
    assert sum(len(fed(name)) for name in folders()) > 10


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", sorted(folders()))
def test_a_word_that_comes_into_a_command_turned_hostile(tmp_path: Path, name: str):
    for number, word in enumerate(fed(name)[:12]):
        hostile(folders()[name], tmp_path / str(number), word)
        unharmed(judged(tmp_path / str(number)))


@pytest.mark.parametrize("key", ["cuda", "version", "hip"])
def test_a_version_that_is_none_is_not_kept(tmp_path: Path, key: str):
    source = NODES / "environment-of-six-mistakes" / "probes" / "target-python.txt"
    told = json.loads(source.read_text())
    told["torch"] = {**(told["torch"] or {}), key: f"12.8{HOSTILE}"}
    for package in told["distributions"][:20]:
        package["version"] = f"1.0{HOSTILE}"
    node = tmp_path / "node"
    shutil.copytree(source.parent.parent, node)
    (node / "probes" / source.name).write_text(json.dumps(told))
    report = judged(node)
    assert unharmed(report) > 10
    facts = json.dumps({name: document(report)["facts"].get(name) for name in ("torch", "target-python")})
    assert "PWNED" not in facts
