"""A few lines, as people paste them, and the cause that is in them. One row of lines.jsonl each."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from say import judged

ROWS = [json.loads(row) for row in (Path(__file__).parents[1] / "lines.jsonl").read_text().splitlines()]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("row", ROWS, ids=[row["text"][:40] for row in ROWS])
def test_lines(row: dict[str, Any], tmp_path: Path) -> None:
    verdict = judged(tmp_path, row["text"]).verdict
    assert verdict.cause == row["cause"]
    assert [who.rank for who in verdict.culprits if who.rank is not None] == row["ranks"]
