"""Whole jobs of several groups, nodes and runs: who is waited for in the end, and what was no failure."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import WORK, caught, culprits, judged, status, steps

GROUPS = {"tp": "TENSOR_MODEL_PARALLEL_GROUP", "dp": "DATA_PARALLEL_GROUP", "pp": "PIPELINE_PARALLEL_GROUP"}
TRACE = (
    "ERROR:2026-11-07 10:41:{second:02d},123:Traceback (most recent call last):\n"
    '  File "/job/agent.py", line 88, in act\n'
    "    action = parse(answer)\n"
    "ValueError: no action in answer {second}\n"
)


def wait(rank: int, kind: str, name: int, members: list[int], seq: int) -> str:
    """What one rank says that waits in a group: its number there is not that in the job."""
    inner = members.index(rank)
    sizes = {"op": "_REDUCE_SCATTER_BASE", "numel": 4096 * len(members), "out": 4096} if kind == "dp" else {}
    said = caught(rank, seq, **sizes) + status(rank, seq, seq + 1, seq - 1, f"{name}({GROUPS[kind]})")  # type: ignore[arg-type]
    return said.replace(f"[Rank {rank}]", f"[Rank {inner}]").replace(f" Rank {rank}] ", f" Rank {inner}] ")


def again(inner: int, group: str, seq: int, numel: int, out: int) -> str:
    """What C++ prints when the watchdog's exception ends a process, without a global rank."""
    work = WORK.format(seq=seq, op="_ALLGATHER_BASE", numel=numel, out=out, ms=600000)
    return (
        "terminate called after throwing an instance of 'c10::DistBackendError'\n"
        f"  what():  [PG ID 1 PG GUID {group} Rank {inner}] Process group watchdog thread terminated with"
        f" exception: [Rank {inner}] Watchdog caught collective operation timeout: {work} ran for 600017"
        " milliseconds before timing out.\n"
    )


@pytest.mark.parametrize("guilty", range(8))
def test_the_rank_that_all_groups_wait_for_in_the_end(tmp_path: Path, guilty: int) -> None:
    """Pairs of tensor parallelism, two columns of four over them: one rank is stuck before its first call."""
    text = steps(1, 9)
    mate = guilty ^ 1
    for rank in range(8):
        if rank == mate:
            pair = sorted((guilty, mate))
            text += wait(rank, "tp", 10 + guilty // 2, pair, 7000)
        elif rank != guilty:
            text += wait(rank, "dp", 20 + rank % 2, list(range(rank % 2, 8, 2)), 90)
    examined = judged(tmp_path, text)
    assert (examined.verdict.cause, culprits(examined)) == ("cpu_stuck_or_slow_rank", [guilty])


def test_a_stage_that_nobody_waits_in_is_no_cycle(tmp_path: Path) -> None:
    """The four ranks of one node are gone: the others wait for them, one of them in its pipeline."""
    text = "".join(f"[rank{rank}]: ready\n" for rank in range(8))
    text += wait(4, "pp", 30, [0, 4], 12)
    text += "".join(wait(rank, "dp", 21, [4, 5, 6, 7], 90) for rank in (5, 6, 7))
    examined = judged(tmp_path, text)
    assert examined.verdict.cause != "collective_mismatch"
    assert examined.verdict.confidence == "low"


def test_an_exception_told_again_is_no_other_rank(tmp_path: Path) -> None:
    sizes = {"op": "_ALLGATHER_BASE", "numel": 1024, "out": 4096}
    text = "".join(caught(rank, seq=9, **sizes) for rank in (0, 1, 3))  # type: ignore[arg-type]
    text += again(1, "1(fsdp)", 9, 1024, 4096)
    examined = judged(tmp_path, text)
    assert (examined.verdict.cause, culprits(examined)) == ("cpu_stuck_or_slow_rank", [2])


def test_groups_that_share_a_name_are_not_compared(tmp_path: Path) -> None:
    """Up to torch 2.4 the name is a number of each process: all pairs of tensor parallelism are `PG 1`."""
    text = ""
    for rank in range(4):
        inner, seq = rank % 2, 70 + rank // 2
        text += caught(rank, seq).replace(f"[Rank {rank}]", f"[Rank {inner}]")
        text += (
            f"[rank{rank}]:[E1121 10:20:30.500000000 ProcessGroupNCCL.cpp:1664] [PG 1 Rank {inner}] Timeout"
            f" at NCCL work: {seq}, last enqueued NCCL work: {seq}, last completed NCCL work: {seq - 1}.\n"
        )
    assert judged(tmp_path, text).verdict.cause != "collective_mismatch"


def test_a_local_rank_of_a_second_node_is_not_that_of_the_job(tmp_path: Path) -> None:
    row = (
        "[{number}]:\n  time      : 2026-11-21_10:30:00\n  host      : node-2\n"
        "  rank      : {rank} (local_rank: {local})\n  exitcode  : {code} (pid: {pid})\n"
        "  error_file: <N/A>\n  traceback : Signal {signal}\n"
    )
    others = "".join(
        row.format(number=number, rank=4 + local, local=local, code=-15, pid=4000 + local, signal=15)
        for number, local in enumerate((0, 1, 3), 1)
    )
    text = (
        "E1121 10:30:00.000000 3999 torch/distributed/elastic/multiprocessing/api.py:882] failed (exitcode:"
        " -9) local_rank: 2 (pid: 4002) of binary: /usr/bin/python3\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        f"{'=' * 60}\ntrain.py FAILED\n{'-' * 60}\nFailures:\n{others}{'-' * 60}\n"
        "Root Cause (first observed failure):\n"
        f"{row.format(number=0, rank=6, local=2, code=-9, pid=4002, signal=9)}{'=' * 60}\n"
    )
    examined = judged(tmp_path, text)
    assert (examined.verdict.cause, culprits(examined)) == ("peer_died", [6])


def test_what_a_program_logs_again_and_again_ends_nothing(tmp_path: Path) -> None:
    text = "".join(TRACE.format(second=n) + TRACE.format(second=n + 1) + steps(n, 1) for n in range(1, 9, 2))
    text += TRACE.format(second=30)
    assert judged(tmp_path, text).verdict.outcome == "clean"
    text += "Traceback (most recent call last):\n" + TRACE.partition("\n")[2].format(second=31)
    assert judged(tmp_path, text.replace("ERROR:2026", "2026")).verdict.outcome == "failure"


def test_the_log_of_an_earlier_job_is_not_judged(tmp_path: Path) -> None:
    ended = "slurmstepd: error: *** JOB {} ON node-1 CANCELLED AT 2026-11-07T10:41:22 DUE TO PREEMPTION ***\n"
    failed = TRACE.partition("\n")[2].format(second=1)
    text = "Traceback (most recent call last):\n" + failed + steps(1, 9) + ended.format(71)
    text += steps(1, 9) + ended.format(72)
    assert judged(tmp_path, text).verdict.outcome in ("clean", "recovered")


SIGNAL = "torch.distributed.elastic.multiprocessing.api.SignalException: Process 75 got signal: {}\n"
CHAIN = (
    "Traceback (most recent call last):\n"
    '  File "/py/torch/distributed/elastic/agent/server/api.py", line 709, in run\n'
    "    result = self._invoke_run(role)\n" + SIGNAL + "\n"
    "During handling of the above exception, another exception occurred:\n\n"
    "Traceback (most recent call last):\n"
    '  File "/py/selectors.py", line 75, in __getitem__\n'
    "    return self._selector._fd_to_key[fd]\n"
    "KeyError: 30\n"
)


@pytest.mark.parametrize(
    ("text", "outcome", "cause"),
    [
        (f"{steps(1, 9)}{CHAIN.format(2)}", "clean", "none"),
        (f"{steps(1, 9)}{CHAIN.format(1)}", "failure", "peer_died"),
        (
            f"{steps(1, 9)}KeyboardInterrupt: stopped\nWorker WorkerProcess pid 4 died, exit code: -15\n",
            "clean",
            "none",
        ),
        (f"{steps(1, 9)}Found another job, sleeping for 30 seconds...\n", "clean", "none"),
        (
            "Traceback (most recent call last):\n"
            '  File "/job/train.py", line 5, in step\n    xm.mark_step()\n'
            "RuntimeError: compile permanent error. Ran out of memory in memory space hbm. Used 40.1G of"
            " 31.7G hbm.\n",
            "failure",
            "peer_cuda_oom",
        ),
        (
            "[Gloo] Rank 3 is connected to 6 peer ranks. Expected number of connected peer ranks is : 7\n"
            "[Gloo] Rank 3 is NOT connected to: [5]\n"
            "Traceback (most recent call last):\n"
            '  File "/job/serve.py", line 5, in start\n    wait(process)\n'
            "TimeoutError: Server failed to start within 600 s\n",
            "failure",
            "network_socket_interface",
        ),
    ],
)
def test_how_it_ended(tmp_path: Path, text: str, outcome: str, cause: str) -> None:
    verdict = judged(tmp_path, text).verdict
    assert (verdict.outcome, verdict.cause) == (outcome, cause)
