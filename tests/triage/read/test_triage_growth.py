"""What triage costs grows with what it reads: no line, and no number of lines, takes its square."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest
from say import caught

from nodedoctor.triage.job import examine_job
from nodedoctor.triage.lines import prefixes
from nodedoctor.triage.lines.prefix.info import Reader
from nodedoctor.triage.lines.prefixes import LONGEST
from nodedoctor.triage.patterns import progress, unclassified
from nodedoctor.triage.patterns.log_pattern import LogPattern
from nodedoctor.triage.patterns.signs import SIGNS

UNITS = (
    " ", "0", "a", "A", "_", ".", "-", "/", ",", ", ", ":", "=", "[", "]", "(", "{", "<", '"', "'", "|", "#",
    "%", "0:", "a=1 ", "1:", 'File "x"', "\x1b[0m", "\t", "x ", "rank 1 ", "timeout.", "pid=1 ",
)  # fmt: skip
"""Runs of what patterns repeat."""
FRONTS = ("", "[", "[a", "[a:0]: [a", "(", "(a", '"a":""', "2026-11-21 ", "a", " ")
"""What prefixes begin with."""
AT_MOST = 1.0
"""Seconds of CPU for one pattern and one line of LONGEST characters: what is linear takes some 10 ms, and the
square of LONGEST a second or more where each character counts."""


def took(work: Callable[[], object]) -> float:
    """Seconds of CPU, the least of three where once is too much: who shares a processor counts its misses."""
    return min(_once(work) for _ in range(3)) if (seconds := _once(work)) >= AT_MOST / 2 else seconds


def _once(work: Callable[[], object]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began


def pumped(word: str) -> list[str]:
    """Lines in which a word that a pattern needs stands again and again, or before a run."""
    runs = [(word + unit) * (LONGEST // len(word + unit)) for unit in ("", " ", "a", "0", ".")]
    ends = [word + gap + unit * (LONGEST // len(unit)) for unit in UNITS for gap in ("", " ")]
    return [text[:LONGEST] for text in (*runs, *ends)]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("sign", SIGNS, ids=lambda sign: sign.expression[:40])
def test_no_sign_takes_the_square_of_a_line(sign: LogPattern) -> None:
    for word in sign.needles:
        for text in pumped(word):
            assert took(lambda text=text: sign.read(text)) < AT_MOST, text[:60]


@pytest.mark.parametrize("reader", prefixes._READERS, ids=lambda reader: reader[0].pattern[:40])
def test_no_prefix_takes_the_square_of_a_line(reader: Reader) -> None:
    for text in (front + unit * (LONGEST // len(unit)) for front in FRONTS for unit in UNITS):
        assert took(lambda text=text: reader[0].match(text)) < AT_MOST, text[:60]


@pytest.mark.slow
@pytest.mark.parametrize("front", ["", "Saving ", "Downloading ", "100%|[", "timeout", "error ", "\x1b[0m"])
def test_no_sign_of_life_and_no_complaint_takes_the_square_of_a_line(front: str) -> None:
    for text in (front * 2 + unit * (LONGEST // len(unit)) + "\x01" for unit in (*UNITS, front or "*")):
        assert took(lambda text=text: progress.read_liveness(text)) < AT_MOST, text[:60]
        assert took(lambda text=text: unclassified._REQUESTED.search(text)) < AT_MOST, text[:60]


LINES = 10_000
MANY: dict[str, Callable[[int], str]] = {
    "exceptions of as many ranks": lambda n: f"[rank{n}]: ValueError: x{n}\n",
    "waits of many ranks": lambda n: caught(n % 512, seq=n),
    "equal lines": lambda n: "step 1 loss: 2.0\n",
    "tracebacks": lambda n: (
        f'Traceback (most recent call last):\n  File "a{n}.py", line {n}, in f\nValueError: {n}\n'
    ),
    "closed connections": lambda n: f"[rank{n % 64}]: RuntimeError: Connection reset by peer [n{n}]:29500\n",
    "tracebacks that never end": lambda n: "Traceback (most recent call last):\n",
    "pids": lambda n: f"(Worker pid={n}) ValueError: x{n}\n",
    "hosts": lambda n: f"gpu-{n}: ValueError: x{n}\n",
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", MANY)
def test_no_number_of_lines_takes_its_square(kind: str, tmp_path: Path) -> None:
    """Ten thousand ranks that ended, each asked about every other one, once took a quarter of a minute."""
    path = tmp_path / "log"
    path.write_text("".join(map(MANY[kind], range(LINES))))
    assert _once(lambda: examine_job([str(path)], look_here=False)) < 8
