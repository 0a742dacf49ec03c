"""Every test is in one tier: what leaves the fast tests is run by another target."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from in_turn import in_turn
from share_of_tests import share_of

TOP = Path(__file__).parents[2]
CHOSEN = re.findall(r'pytest -m "([^"]+)"', (TOP / "Makefile").read_text(encoding="utf-8"))
TIERS = [one for one in CHOSEN if "race" not in one]
MARKS = ("slow", "nightly", "lint", "real", "alone", "hypothesis")


def test_every_share_is_one_of_them_and_none_is_empty() -> None:
    shares = [share_of(f"tests/test_{number}.py::test", 8) for number in range(400)]
    assert set(shares) == set(range(1, 9))


@in_turn("number", range(2 ** len(MARKS)))
def test_whatever_its_marks_a_test_is_run_by_a_target(number: int) -> None:
    marks = {mark: bool(number >> place & 1) for place, mark in enumerate(MARKS)}
    assert [one for one in TIERS if eval(one, marks)], marks


@pytest.mark.lint
def test_laws_are_where_make_lint_looks_for_them() -> None:
    elsewhere = (path for path in (TOP / "tests").rglob("*.py") if path.parent != Path(__file__).parent)
    assert [path for path in elsewhere if "mark.lint" in path.read_text(encoding="utf-8")] == []
