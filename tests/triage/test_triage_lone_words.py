"""Ends of helpers, words of monitors, and a scheduler's own kills: what they say of a job that counts."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import caught, culprits, judged, steps

ENDS = (
    "loader: worker 11 (pid 844) died with exit code -9 (Killed)",
    "(raylet) A worker died or was killed while executing a task by an unexpected system error. Worker ID:"
    " aa, Worker PID: 9991, Worker exit type: SYSTEM_ERROR",
    caught(3).strip(),
    "srun: error: gpu-04: task 1: Killed",
    "./clean.sh: line 9: 30417 Segmentation fault      (core dumped) ./index",
)
"""Each a word on an end that no rank survives."""


@pytest.mark.parametrize("end", ENDS)
def test_an_end_with_many_steps_behind_it_was_no_ranks(end: str, tmp_path: Path) -> None:
    log = steps(1, 20) + end + "\n" + steps(21, 40)
    assert judged(tmp_path, log).verdict.outcome == "clean"


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("behind", [0, 2])
def test_an_end_with_few_steps_behind_it_counts(end: str, behind: int, tmp_path: Path) -> None:
    log = steps(1, 20) + end + "\n" + steps(21, behind)
    assert judged(tmp_path, log).verdict.outcome != "clean"


@pytest.mark.parametrize("end", ENDS)
def test_the_last_of_several_ends_keeps_the_first(end: str, tmp_path: Path) -> None:
    log = steps(1, 20) + end + "\n" + steps(21, 40) + end + "\n"
    assert judged(tmp_path, log).verdict.outcome != "clean"


SLURM = "slurmstepd: error: *** {what} ON h11 CANCELLED AT 2026-03-08T01:40:00{why} ***\n"


@pytest.mark.parametrize("why", [" DUE TO TIME LIMIT", " DUE TO PREEMPTION", ""])
@pytest.mark.parametrize(
    "end",
    ["tasks 0-7: Killed", "task 0: Killed", "task 0: Exited with exit code 137", "tasks 0-7: Terminated"],
)
def test_who_slurm_stops_is_killed_when_it_does_not_end(why: str, end: str, tmp_path: Path) -> None:
    stop = SLURM.format(what="JOB 661234", why=why) + SLURM.format(what="STEP 661234.0", why=why)
    log = steps(1, 20) + stop + f"srun: error: h11: {end}\n"
    assert judged(tmp_path, log).verdict.outcome == "clean"


def test_a_step_that_slurm_stops_for_a_failed_task_is_not_stopped_from_outside(tmp_path: Path) -> None:
    log = steps(1, 20) + SLURM.format(what="STEP 661234.0", why="") + "srun: error: h11: task 3: Killed\n"
    assert judged(tmp_path, log).verdict.outcome != "clean"


MONITORS = (
    "[watchdog] rank 7 has not reported for 1230 s > 1200 s => killing process group, exit 99",
    "[sentinel] ranks without heartbeat: [7] (1230s). Aborting.",
    "JobMonitor: detected hang on global_rank=7 (no step for 20 min). Terminating job.",
    "HEARTBEAT LOST rank=7 last_step=29 age=1230s action=abort",
    "NVRx: hang detected on rank 7, restarting workload",
    "hang-guard: rank 7 made no progress for 1205s (limit 1200s)",
    "[sentinel] stale: r7 (age 1230 s) > 1200 s => killing process group, requeue",
    "monitor: rank 7 stale for 1230 s, killing job",
    "[hb] r7 missed 20 heartbeats, terminating job",
)


@pytest.mark.parametrize("words", MONITORS)
def test_a_monitor_names_the_rank_that_it_misses(words: str, tmp_path: Path) -> None:
    examined = judged(tmp_path, steps(1, 20) + words + "\n")
    assert (examined.verdict.cause, culprits(examined)) == ("cpu_stuck_or_slow_rank", [7])


@pytest.mark.parametrize("words", MONITORS)
def test_a_monitor_that_was_wrong_is_outlived(words: str, tmp_path: Path) -> None:
    assert judged(tmp_path, steps(1, 20) + words + "\n" + steps(21, 20)).verdict.outcome == "clean"


@pytest.mark.parametrize(
    "words",
    [
        "[sentinel] sent SIGKILL to 8 workers; exit 99",
        "Training stalled: slowest rank is 7, waiting 1230s; giving up",
        "monitor: terminating the remaining 7 workers",
    ],
)
def test_a_job_that_is_ended_on_purpose_makes_no_progress(words: str, tmp_path: Path) -> None:
    assert judged(tmp_path, steps(1, 20) + words + "\n").verdict.outcome == "undetermined"


@pytest.mark.parametrize("how", ["Killed", "Segmentation fault", "Bus error"])
def test_what_a_shell_says_right_behind_a_bar(how: str, tmp_path: Path) -> None:
    bar = "".join(f"\r{n}%|#  | {n * 12}/1200 [08:{n}<2:34:02,  8.10s/it]" for n in range(10, 30))
    log = f"{bar}./go.sh: line 9: 30417 {how}                  python -u sft.py\n"
    assert judged(tmp_path, log).verdict.cause == "peer_died"


BOOM = 'Traceback (most recent call last):\n  File "/job/reward.py", line 31, in score\n    run(code)\n{}\n'


def rewards(count: int, error: str) -> str:
    """Steps, each with one error of a sandbox before it."""
    return "".join(BOOM.format(error) + f"step {number} reward 0.4\n" for number in range(1, count))


@pytest.mark.parametrize("behind", ["step 30 reward 0.4\n", "step 30 reward 0.4\nstep 31 reward 0.4\n"])
def test_an_error_that_the_job_outlived_often_is_outlived_once_more(behind: str, tmp_path: Path) -> None:
    error = "ZeroDivisionError: division by zero"
    log = rewards(30, error) + BOOM.format(error) + behind
    assert judged(tmp_path, log).verdict.outcome == "clean"


@pytest.mark.parametrize("last", ["ZeroDivisionError: division by zero", "KeyError: 'answer'"])
def test_the_last_words_of_a_log_are_not_outlived(last: str, tmp_path: Path) -> None:
    log = rewards(30, "ZeroDivisionError: division by zero") + BOOM.format(last)
    assert judged(tmp_path, log).verdict.cause == "user_code_exception"


def test_who_came_late_is_no_reason_where_another_never_came(tmp_path: Path) -> None:
    ends = (caught(rank, at=f"10:2{2 if rank == 3 else 0}:30.000000000") for rank in range(8) if rank != 6)
    examined = judged(tmp_path, *(steps(1, 20) + end for end in ends), "[rank6]: step 20 loss: 2.2\n")
    assert (examined.verdict.cause, culprits(examined)) == ("cpu_stuck_or_slow_rank", [6])


@pytest.mark.parametrize("name", ["rank", "global_rank", "world_rank"])
def test_an_actor_says_which_rank_its_process_is(name: str, tmp_path: Path) -> None:
    log = (
        f"(PolicyActor pid=5012, ip=10.0.0.6) {name}=12 local_rank=4\n"
        f"(PolicyActor pid=5013, ip=10.0.0.6) {name}=13 local_rank=5\n"
        "kernel: Out of memory: Killed process 5012 (ray::PolicyActor) total-vm:901234567kB,"
        " anon-rss:412345678kB\n"
    )
    assert culprits(judged(tmp_path, log)) == [12]
