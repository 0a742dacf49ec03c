"""Processes that were killed: by their launcher for another one, or as helpers of a rank."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import caught, culprits, judged, steps

ABORTED = (
    "srun: error: gpu-03: tasks 0-1: Aborted (core dumped)\n"
    "srun: error: gpu-04: task 3: Aborted (core dumped)\n"
)
KILLED = "srun: error: gpu-04: task 2: Killed\n"
WAITS = "".join(caught(rank) for rank in (0, 1, 3))


@pytest.mark.parametrize("between", ["", "srun: Terminating StepId=661.0\n"])
def test_a_task_killed_behind_those_that_gave_up_is_the_silent_rank(between: str, tmp_path: Path) -> None:
    examined = judged(tmp_path, steps(1, 20) + WAITS + ABORTED + between + KILLED)
    assert (examined.verdict.cause, culprits(examined)) == ("cpu_stuck_or_slow_rank", [2])


@pytest.mark.parametrize("log", [KILLED + WAITS + ABORTED, WAITS + KILLED + ABORTED])
def test_a_task_killed_before_the_others_ended_was_killed(log: str, tmp_path: Path) -> None:
    examined = judged(tmp_path, steps(1, 20) + log)
    assert (examined.verdict.cause, culprits(examined)) == ("peer_died", [2])
