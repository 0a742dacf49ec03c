"""Lines pumped with what expressions repeat: none takes the cube of its length, or long where it is cut."""

from __future__ import annotations

import re
import time

import pytest
from expression_sources import expressions
from expressions import Machine

from nodedoctor.triage.lines.prefixes import LONGEST, parse_line
from nodedoctor.triage.model import Place
from nodedoctor.triage.patterns import read_events

KINDS = (
    "{}",
    "RuntimeError: {}",
    "[rank1]:[E1121 10:30:00.000000 3 P.cpp:632] {}",
    "2026-11-21 10:30:00,000 - INFO - {}",
    "step 1 {} loss: 1.0",
    "{} 5/10 [00:01<00:05, 1.0it/s]",
    "h:1:1 [0] NCCL WARN {}",
)
GROWTH = 6.0
"""How much more a line of twice the length may cost: 2 where it is linear, 4 its square, 8 its cube. Words of
some length in front of `.*` take the square, which ends where lines are cut."""
AT_MOST = 1.5
"""CPU seconds of the longest line; the dearest takes 0.6. A block of 64 KiB has four of them."""
LITTLE = 0.05
"""CPU seconds of a line below which nothing is concluded, and which is not read again."""


def pumped() -> list[str]:
    """The words over which two repeats of an expression can be divided, and its own literals."""
    words = {" ", "a", "0", "_", ".", "-", ":", "=", "[", "(", "/", "\t", ", ", "a.", "<p >", "█"}
    for expression, flags, where, _ in expressions():
        if "triage" in where and isinstance(expression, str):
            words.update(Machine(expression, flags).degree()[1])
            words.update(re.findall(r"[A-Za-z][A-Za-z ]{3,20}", expression)[:3])
    return sorted(words)


def cost(line: str) -> float:
    """CPU seconds to read a line, the least of five."""

    def once() -> float:
        began = time.process_time()
        list(read_events(parse_line(line, Place("log", 0))))
        return time.process_time() - began

    least = once()
    return least if least < LITTLE else min(least, *(once() for _ in range(4)))


@pytest.mark.nightly
@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_no_pumped_line_takes_the_cube_of_its_length(kind: str) -> None:
    dear = []
    for word in pumped():
        full, half = (kind.format(word * (size // len(word)) + "\x01") for size in (LONGEST, LONGEST // 2))
        seconds = cost(full)
        if seconds > AT_MOST or (seconds > LITTLE and seconds > GROWTH * cost(half)):
            dear.append((word, round(seconds, 2)))
    assert not dear
