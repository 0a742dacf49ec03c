"""The 38 published categories of NVIDIA's resiliency extension as situations: each has an answer here.

Their numbers and decisions are facts of attribution/restart_agent/l1/categories.json (`theirs`; '' where they
decide nothing). The logs are our own, in the words of the programs that print such lines. Where the answers
differ, the table of kinds says why.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from say import as_document, judged

from nodedoctor.knowledge.kinds import kind

FILE = Path(__file__).with_name("failure_categories.jsonl")
SITUATIONS: list[dict[str, Any]] = [json.loads(line) for line in FILE.read_text().splitlines()]
each_situation = pytest.mark.parametrize(
    "situation", SITUATIONS, ids=lambda situation: f"{situation['category']}-{situation['kind']}"
)


@pytest.mark.sampled(6)
@each_situation
def test_each_situation_has_an_answer(situation: dict[str, Any], tmp_path: Path) -> None:
    document = as_document(judged(tmp_path, situation["log"]))
    answer = (document["kind"], document["decision"])
    assert answer == (situation["kind"], situation["decision"]), document["decision_line"]


@each_situation
def test_where_we_decide_otherwise_the_table_says_why(situation: dict[str, Any]) -> None:
    row = kind(situation["kind"])
    assert row is not None
    if situation["theirs"] not in ("", situation["decision"]):
        assert row.differs.startswith("NVIDIA's resiliency extension ")


def test_none_of_the_categories_is_left_out() -> None:
    assert {situation["category"] for situation in SITUATIONS} == set(range(1, 39))


def test_no_restart_where_the_same_is_expected_again() -> None:
    restarted = [s["category"] for s in SITUATIONS if s["decision"] == "restart"]
    assert sorted(restarted) == [1, 14]  # preempted, and a port that was taken
