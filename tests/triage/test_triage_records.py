"""Records of structured loggers: steps, ends and exceptions that are in fields of their own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from say import culprits, judged

TRACE = 'Traceback (most recent call last):\n  File "/w/roll.py", line 9, in gen\n    post(url)\nTimeoutError'


def written(form: str, number: int, **fields: Any) -> str:
    """One record, as JSON loggers, logfmt or a table's rows have it."""
    at = f"2026-11-21T10:{number // 60:02}:{number % 60:02}Z"
    record = {"timestamp": at, "level": "info", "rank": 0, **fields}
    if form == "logfmt":
        return " ".join(f"{key}={json.dumps(item)}" for key, item in record.items()) + "\n"
    return json.dumps(record) + "\n"


def counted(form: str, *, event: str = "train_step", name: str = "step", measure: str = "loss") -> str:
    """Steps whose number and measure are in fields."""
    return "".join(written(form, at, event=event, **{name: at, measure: 2 - at / 100}) for at in range(1, 21))


@pytest.mark.parametrize("form", ["json", "logfmt"])
@pytest.mark.parametrize("name", ["step", "global_step", "iteration"])
@pytest.mark.parametrize("measure", ["loss", "train/reward", "lr", "tokens_per_second"])
def test_a_step_beside_what_it_measured_is_progress(
    form: str, name: str, measure: str, tmp_path: Path
) -> None:
    verdict = judged(tmp_path, counted(form, name=name, measure=measure)).verdict
    assert verdict.outcome == "clean" and "progress" in verdict.headline


def test_metrics_in_an_object_of_the_record_count(tmp_path: Path) -> None:
    log = "".join(written("json", n, event="log", metrics={"step": n, "loss": 1.5}) for n in range(1, 21))
    assert judged(tmp_path, log).verdict.outcome == "clean"


def test_a_step_that_measures_nothing_may_be_one_of_anything(tmp_path: Path) -> None:
    assert judged(tmp_path, counted("json", event="tick", measure="waited")).verdict.outcome != "clean"


@pytest.mark.parametrize("event", ["training_complete", "train_done", "training_finished"])
def test_the_name_of_an_event_is_an_end(event: str, tmp_path: Path) -> None:
    verdict = judged(tmp_path, counted("json") + written("json", 60, event=event, exit_code=0)).verdict
    assert verdict.headline.startswith("no failure: the job came to its end")
    unfinished = judged(tmp_path, counted("json") + written("json", 60, event=event, exit_code=3)).verdict
    assert "came to its end" not in unfinished.headline


def test_a_code_of_the_job_is_an_end_and_one_of_a_tool_is_none(tmp_path: Path) -> None:
    ends = {
        event: judged(tmp_path, counted("json") + written("json", 60, event=event, exit_code=0)).verdict
        for event in ("job ended", "sandbox ended")
    }
    assert "came to its end" in ends["job ended"].headline
    assert "came to its end" not in ends["sandbox ended"].headline


@pytest.mark.parametrize(
    "event", ["generation failed, will retry", "reward timed out; retrying in 5 s", "skipping prompt 7"]
)
@pytest.mark.parametrize("field", ["exception", "exc_info", "stack_trace"])
def test_an_exception_of_a_record_that_says_how_it_goes_on_is_handled(
    event: str, field: str, tmp_path: Path
) -> None:
    failed = written("json", 9, level="error", event=event, **{field: TRACE})
    log = written("json", 1, event="rollout begins") + failed + written("json", 12, event="sampled 64")
    assert judged(tmp_path, log).verdict.outcome != "failure"


@pytest.mark.parametrize("event", ["generation failed, giving up", "attempt 3/3 failed", "step failed"])
@pytest.mark.parametrize("level", ["error", "critical"])
def test_an_exception_of_the_last_record_is_the_end(event: str, level: str, tmp_path: Path) -> None:
    failed = written("json", 40, level=level, rank=3, event=event, exception=TRACE)
    examined = judged(tmp_path, counted("json") + failed)
    assert examined.verdict.cause == "user_code_exception" and culprits(examined) == [3]
