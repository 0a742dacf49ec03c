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


LOADER = (
    "[rank2]: Traceback (most recent call last):\n"
    '[rank2]:   File "/job/train.py", line 41, in <module>\n'
    "[rank2]:     batch = next(batches)\n"
    "[rank2]: RuntimeError: DataLoader worker (pid 8123) is killed by signal: Killed. \n"
)
KERNEL = (
    "Jan 12 04:10:11 gpu-07 kernel: Memory cgroup out of memory: Killed process {pid} (python3)"
    " total-vm:61234412kB, anon-rss:28811212kB\n"
)
BEHIND = (
    "",
    "ERROR: resources failed with non-zero exit code: container failed with non-zero exit code: 1\n",
    "Trial 7 was terminated: allocation failed: container failed with non-zero exit code: 1 (exit code 1)\n",
    "srun: error: gpu-07: task 0: Exited with exit code 1\n",
)


@pytest.mark.parametrize("behind", BEHIND)
@pytest.mark.parametrize("log", [LOADER + KERNEL, KERNEL + LOADER])
def test_the_kernel_killed_the_loader_of_a_rank(log: str, behind: str, tmp_path: Path) -> None:
    examined = judged(tmp_path, steps(1, 20) + log.format(pid=8123) + behind)
    assert (examined.verdict.cause, culprits(examined)) == ("peer_host_oom", [2])
