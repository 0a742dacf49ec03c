"""What a verdict says of a rank is one thing, and its sentences are words, never keys for scripts."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
from in_turn import in_turn
from say import as_document

from nodedoctor.triage.job import examine_job
from nodedoctor.triage.model import Cause

LOGS = Path(__file__).parent / "logs"
CASES = sorted([*LOGS.glob("*.log"), *(LOGS / "cases").iterdir()])
KEYS = [cause for cause in get_args(Cause) if "_" in cause]


@cache
def document(case: Path) -> dict[str, Any]:
    return as_document(examine_job([str(case)]))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_who_waits_is_in_a_known_state(case: Path) -> None:
    told = document(case)
    states = {(row["world"], row["rank"]): row["state"] for row in told["ranks"]}
    for who in told["victims"]:
        assert states.get((who["world"], who["rank"])) not in ("unknown", "running"), who
    guilty = {(who["world"], who["rank"]) for who in told["culprits"]}
    assert not guilty & {(who["world"], who["rank"]) for who in told["victims"]}


@pytest.mark.slow
@in_turn("case", CASES, ids=[case.name for case in CASES])
def test_sentences_have_no_keys_in_them(case: Path) -> None:
    told = document(case)
    sentences = [told["headline"], told["weighed"], *(fix["text"] for fix in (*told["fixes"], *told["next"]))]
    sentences += [pair["why"] for pair in told["not_the_cause"]]
    sentences += [pair["why_less_likely"] for pair in told["alternatives"]]
    assert not [(key, text) for text in sentences for key in KEYS if key in text]
    assert not [text for text in sentences if text.endswith("...") and not text.endswith(" ...")]
