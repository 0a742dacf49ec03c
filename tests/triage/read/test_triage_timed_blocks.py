"""No line takes an hour: what takes long is ended, read again cut short, and counted as unread."""

from __future__ import annotations

import re
import signal
from pathlib import Path

import pytest
from test_triage_hostile import small

from nodedoctor.triage.lines.normal import RawLine
from nodedoctor.triage.model import Place
from nodedoctor.triage.read.limits import BlockTimeout, TimedBlocks

CUBIC = re.compile(rb"step\s*\s*\s*loss")
"""What takes minutes over a few thousand blanks."""


@pytest.mark.slow
def test_what_takes_long_is_ended_read_again_and_counted() -> None:
    before = signal.getsignal(signal.SIGVTALRM)
    lines = [b"a", b"step" + b" " * 8000 + b"x", b"b"]
    read: list[int] = []
    with TimedBlocks(RawLine(Place("log", n), line) for n, line in enumerate(lines)) as blocks:
        with pytest.raises(BlockTimeout):
            for line in blocks.lines():
                CUBIC.search(line.data)
        blocks.give_up()
        for line in blocks.lines():
            read.append(len(line.data))
    assert read == [1, 1024, 1] and blocks.unread == 1
    assert signal.getsignal(signal.SIGVTALRM) == before


def test_what_takes_long_cut_short_too_is_left_out() -> None:
    with TimedBlocks(RawLine(Place("log", n), b"x" * 9000) for n in range(3)) as blocks:
        for _ in range(2):
            next(blocks.lines())
            blocks.give_up()
        assert list(blocks.lines()) == []
    assert blocks.unread == 6  # cut short once, and left out then


PUMPED = {
    "blanks between a word and its number": "step " + " " * 16000 + " loss: 1.0",
    "digits before a bar": "1" * 16000 + " 5/10 [00:01<00:05, 1.0it/s]",
    "a word behind an exception": "RuntimeError: " + "_" * 16000,
    "tags of a page that close nothing": "<p >" * 4000,
    "a limit and dots": "timeout" + "." * 16000 + "=" * 16000,
    "names of an exception": "pydantic.Valid" * 1100,
    "an element of XML": "<msg>" * 3200 + "</msg> <",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", PUMPED)
def test_a_pumped_line_costs_no_more_than_a_few_seconds(kind: str, tmp_path: Path) -> None:
    """Once the first of them took hours."""
    log = tmp_path / "log"
    log.write_text(f"{PUMPED[kind]}\n" * 2 + "[rank1]: ValueError: x\n")
    done = small(str(log), seconds=10)
    assert done.returncode == 2, done.stderr
