"""Every expression of the project is linear in what it reads, by its parse tree."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from typing import Any

import pytest
from expression_sources import ROOT, put_together, written_expressions
from expressions import Machine

pytestmark = pytest.mark.lint
APART = 4
"""Characters in front of a repeat that it takes too, from which a search may begin in it. Lines are cut at
16 KiB, the kernel's at 4: to search the rest behind every fourth character takes some 50 ms. Ours."""

SAFE = {
    r"lib(?:nccl|nccl-net|rccl|cuda|nvidia-ml|torch_cuda)": "a line of /proc/PID/maps: a path of 4096 bytes",
    r"^(?:[A-Za-z]+=.*\n)*Id=": "what `systemctl show` prints of units that we name",
    r"\n(?:(?![> \t]*hca_id:).*\n)*?": "begins at the name of one adapter, and ends before the next one",
    r" *(\d+)[-:]\ ": "what all lines of a log begin with: it is matched there, and not searched for",
}
"""Expressions, by a part of each, that are not linear, and why that does no harm."""

KNOWN = {
    r"step\s*[:=#]?\s*[\[(\"]?\s*\d": 3,
    r"\d+(?:\.\d+)?%.*": 2,
    r"\w*Config\w*(?:Error|Exception)\b": 3,
    r"^(?=.{1,200}$)\W*(?:[\w.-]+ )?[\w.-]*(?i:time_?out)": 2,
    r"\s*\[repeated \d\]": 2,
    r"(?:x )?.*taking the process down": 2,
    r"^(?:x )?.*taking the process down": 1,
    r"(?<!\d)\d+(?:\.\d+)?%.*": 1,
    r"\b[a-z]+_[0-9]+\b": 1,
    r"[a-z]+: (.*)$": 2,
}
"""Of which power of a text's length a search is, in the worst case."""


@pytest.mark.parametrize("expression", KNOWN)
def test_the_power_of_an_expression_is_read_from_its_tree(expression: str) -> None:
    assert Machine(expression).degree()[0] == KNOWN[expression]


def test_a_loop_that_takes_one_word_in_two_ways_is_seen() -> None:
    assert Machine(r"^(?:</?p(?: [^<>]{0,200})? ?/?>)*<b").many() and not Machine(r"^(?:</?p>)*<b").many()


def test_no_repeat_in_an_f_string_is_taken_for_a_value() -> None:
    r"""`rf"[ \t]{0,20}"` is `[ \t](0, 20)`, which matches nothing that anybody meant."""
    wrong = [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for folder in ("nodedoctor", "checks", "tests")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FormattedValue) and isinstance(node.value, ast.Tuple)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    "found", [written_expressions, pytest.param(put_together, marks=pytest.mark.nightly)]
)
def test_every_expression_is_linear_in_what_it_reads(found: Callable[[], Iterable[Any]]) -> None:
    wrong = []
    for expression, flags, where, used in sorted(found(), key=lambda one: one[2]):
        text = expression if isinstance(expression, str) else expression.decode("latin-1")
        anchored = used <= {"match", "fullmatch"}
        machine = Machine(text, flags, search=not anchored, full=used == {"fullmatch"})
        degree, words = machine.degree()
        twice = machine.many()
        if (degree > 2 or twice or (words and len(words[0]) < APART)) and not any(p in text for p in SAFE):
            wrong.append(f"{where}: {text[:80]!r} takes {words or [twice]} in many ways")
    assert not wrong, "\n".join(wrong)
