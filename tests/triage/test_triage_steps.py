"""A rank whose steps end while the others' go on: evidence where ranks tell their steps, else nothing."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import as_document, caught, culprits, judged, raised, status

FORMS = (
    "[rank{rank}]: step {step} loss: 2.31",
    "[rank{rank}]: iteration {step}/ 90000 | lm loss: 2.3",
    "[rank{rank}]: {{'step': {step}, 'loss': 2.31}}",
    "[rank{rank}]: Epoch 3 step {step} loss 2.31",
)
"""How programs tell a step."""


def told(last: dict[int, int], form: str = FORMS[0], every: int = 1) -> str:
    """Steps of ranks, each to its last one, in the order of time."""
    lines = [
        form.format(rank=rank, step=step) + "\n"
        for step in range(0, max(last.values()) + 1, every)
        for rank, end in last.items()
        if step <= end
    ]
    return "".join(lines)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("ranks", [3, 4, 8])
@pytest.mark.parametrize("every", [1, 10])
def test_who_stopped_counting_is_named(form: str, ranks: int, every: int, tmp_path: Path) -> None:
    """One timeout is in the log, so that the missing ones say nothing."""
    slow = ranks - 1
    last = {rank: 20 * every - (5 * every if rank == slow else 0) for rank in range(ranks)}
    found = judged(tmp_path, told(last, form, every) + caught(0))
    assert found.verdict.cause == "cpu_stuck_or_slow_rank"
    assert culprits(found) == [slow]
    assert found.verdict.confidence != "high"
    assert f"step {15 * every}" in found.verdict.headline


def test_the_last_step_of_each_rank_is_told(tmp_path: Path) -> None:
    found = as_document(judged(tmp_path, told({0: 9, 1: 9, 2: 9, 3: 4}) + caught(0)))
    assert {row["rank"]: row["step"] for row in found["ranks"]} == {0: 9, 1: 9, 2: 9, 3: 4}


SILENT = {
    "rank 0 tells alone": {0: 40},
    "two ranks tell": {0: 40, 1: 30},
    "all come as far": {0: 40, 1: 40, 2: 40, 3: 40},
    "half are behind": {0: 40, 1: 40, 2: 30, 3: 30},
    "no two at one place": {0: 40, 1: 37, 2: 33, 3: 28},
    "one told hardly any": {0: 40, 1: 40, 2: 40, 3: 2},
}


@pytest.mark.parametrize("name", SILENT)
def test_nobody_is_named_where_steps_tell_nothing(name: str, tmp_path: Path) -> None:
    assert culprits(judged(tmp_path, told(SILENT[name]) + caught(0))) == []


def test_who_waited_or_raised_is_not_the_one_that_is_stuck(tmp_path: Path) -> None:
    behind = told({0: 40, 1: 40, 2: 40, 3: 30})
    assert culprits(judged(tmp_path, behind + caught(3))) == []
    died = judged(tmp_path, behind + raised(3, "ValueError: boom") + caught(0))
    assert (died.verdict.cause, culprits(died)) == ("user_code_exception", [3])


def test_a_job_that_goes_on_names_nobody(tmp_path: Path) -> None:
    """Logs of ranks may end anywhere: only who gave up tells that they waited."""
    found = judged(tmp_path, told({0: 40, 1: 40, 2: 40, 3: 10}))
    assert (found.verdict.outcome, culprits(found)) == ("clean", [])


def test_another_epoch_is_no_distance(tmp_path: Path) -> None:
    text = told({0: 20, 1: 20, 2: 20, 3: 15}) + "".join(
        f"[rank{rank}]: step {step} loss: 2.1\n" for step in range(4) for rank in range(3)
    )
    found = judged(tmp_path, text + caught(0))
    assert culprits(found) == []


@pytest.mark.parametrize("ranks", [4, 8])
def test_a_rank_s_own_status_counts_where_no_timeout_names_its_group(ranks: int, tmp_path: Path) -> None:
    """One group is named in all of the log: the waits are its own."""
    waits = "".join(caught(rank, seq=88) for rank in range(ranks) if rank != 2)
    behind = status(2, 88, 87, 87)
    found = judged(tmp_path, waits + behind)
    assert (found.verdict.cause, culprits(found)) == ("cpu_stuck_or_slow_rank", [2])
