"""The changes that `make mutations` makes can be made: what they change is there, and so are their tests."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

TOP = Path(__file__).parents[2]
MUTATIONS = runpy.run_path(str(TOP / "tools" / "mutations" / "run.py"))["MUTATIONS"]


@pytest.mark.parametrize("row", MUTATIONS, ids=lambda row: row.what)
def test_a_change_changes_one_place_and_names_tests(row: Any) -> None:
    assert (TOP / row.file).read_text(encoding="utf-8").count(row.old) == 1
    assert row.new != row.old and all((TOP / test).exists() for test in row.tests.split())


def test_no_change_is_there_twice() -> None:
    assert len({(row.file, row.old, row.new) for row in MUTATIONS}) == len(MUTATIONS) >= 11
