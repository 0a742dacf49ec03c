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


ETA = "".join(
    f"  [{done:2d}/79]  eta: 0:00:06    time: 0.1665  max mem: {done * done}\n" for done in range(0, 79, 10)
)
"""Rows of torchvision's MetricLogger without a name."""
STEPS_OF_A_PART = steps(1, 9) + steps(1, 1)
"""A counter that went on and began again: nothing else is said between its parts."""
LOADED = "".join(
    f"Loading checkpoint shards: {25 * n}%|##| {n}/4 [00:0{n}<00:0{4 - n},  1.00s/it]\n" for n in range(5)
)
COUNTED = "".join(f"Requests: {n}%|##| {n}/300 [00:{n:02d}<05:00,  1.00s/it]\n" for n in range(60))
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
            f"{steps(1, 9)}KeyboardInterrupt\n"
            '  File "/job/launch.py", line 548, in sigkill_handler\n    run(command)\n'
            "NameError: name 'command' is not defined\n",
            "clean",
            "none",
        ),
        (
            f"{steps(1, 9)}/job/run.sh: line 11: 5120 Hangup                  python train.py\n",
            "failure",
            "peer_died",
        ),
        (
            f"{STEPS_OF_A_PART}{steps(1, 9)}{STEPS_OF_A_PART}Dividing by 0 is not supported.\n",
            "clean",
            "none",
        ),
        (f"Loaded 40 files\nERROR: choice failed\n{ETA}", "clean", "none"),
        (
            f"Loaded 40 files\nwandb: ERROR Error while calling W&B API: deadline exceeded\n{ETA}",
            "clean",
            "none",
        ),
        (
            "node-1:75:96 [1] NCCL INFO dlvsym failed on mlx5dv_reg - libmlx5.so: undefined symbol: mlx5dv\n"
            + steps(1, 2),
            "clean",
            "none",
        ),
        (
            "E1122 02:07:21.091000 75 torch/_inductor/select_algorithm.py:2100] [7/0] Runtime error during"
            " autotuning: \nTotal time: 6033.5\n",
            "clean",
            "none",
        ),
        (
            ':::MLLOG {"time_ms": 17, "key": "status", "value": "success", "metadata": {"lineno": 891}}\n',
            "clean",
            "none",
        ),
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


def test_a_script_goes_on_after_a_program_was_killed(tmp_path: Path) -> None:
    """The next program reads its model and counts from the start; else it may be a rank left alone."""
    killed = "run.sh: line 18: 5120 Killed                  python evaluate.py --task=${TASK}\n"
    verdict = judged(tmp_path, LOADED + COUNTED + killed + LOADED + COUNTED).verdict
    assert (verdict.outcome, verdict.cause) == ("recovered", "none")
    assert judged(tmp_path, LOADED + COUNTED + killed).verdict.cause == "peer_died"
    assert judged(tmp_path, LOADED + COUNTED + killed + COUNTED).verdict.cause == "peer_died"


def test_a_script_kills_its_monitor_when_the_job_is_done(tmp_path: Path) -> None:
    done = steps(1, 9) + "{'train_runtime': 33.2, 'train_loss': 1.9}\n"
    killed = "run.sh: line 219: 5120 Killed                  python monitor.py --output gpu.csv\n"
    assert judged(tmp_path, done + killed).verdict.outcome == "clean"
    assert judged(tmp_path, done + LOADED + killed).verdict.cause == "peer_died"


@pytest.mark.parametrize(
    "command",
    [
        "CUDA_VISIBLE_DEVICES=0,1 $ACCEL scripts/sweep.py --seed 43",
        "python evaluate.py --server a",
        "torchrun a.py",
        "",
    ],
)
def test_a_program_that_is_killed_behind_one_that_came_to_its_end_is_no_helper(
    command: str, tmp_path: Path
) -> None:
    done = steps(1, 9) + "{'train_runtime': 33.2, 'train_loss': 1.9}\n"
    killed = f">>> seed 43\nrun.sh: line 219: 5120 Killed                  {command}\n"
    assert judged(tmp_path, done + killed).verdict.cause == "peer_died"


@pytest.mark.parametrize("rank", [0, 3])
def test_a_program_that_calls_mpi_abort_ends_the_others(rank: int, tmp_path: Path) -> None:
    said = (
        f"Abort(15) on node {rank} (rank {rank} in comm 0): application called MPI_Abort(MPI_COMM_WORLD, 15)"
    )
    ends = "".join(f"gpu-1: rank {other} died from signal 9\n" for other in range(4) if other != rank)
    verdict = judged(tmp_path, steps(1, 9) + said + f" - process {rank}\n" + ends).verdict
    assert {who.rank for who in (*verdict.culprits, *verdict.parties)} == {rank}
    assert verdict.outcome != "clean" and "SIGKILL" not in verdict.headline


@pytest.mark.parametrize(
    ("bar", "cause"), [("[00:01<00:00", "undetermined"), ("[24:51<06:40", "timeout_too_short_legit_work")]
)
def test_work_that_would_have_been_done_at_once_held_nobody_up(bar: str, cause: str, tmp_path: Path) -> None:
    drawn = f"Map:  97%|#########7| 12671/13029 {bar}, 8192.54 examples/s]\n"
    verdict = judged(tmp_path, drawn + caught(1, ms=1800000)).verdict
    assert verdict.cause == cause


def test_a_traceback_that_a_supervisor_shows_indented(tmp_path: Path) -> None:
    shown = TRACE.partition("\n")[2].format(second=7).replace("\n", "\n  ").rstrip(" ")
    text = (
        f"The actor <root> has failed:\n  actor aborted due to: Traceback (most recent call last):\n  {shown}"
    )
    verdict = judged(tmp_path, text).verdict
    assert (verdict.cause, "no action in answer 7" in verdict.headline) == ("user_code_exception", True)
    bar = "".join(f"Work: {n}it [00:{n}, 1.00it/s]\n" for n in range(30, 36))
    assert judged(tmp_path, text + bar).verdict.outcome == "failure"


def test_what_a_library_only_mentions_begins_no_new_run(tmp_path: Path) -> None:
    banner = "Setting OMP_NUM_THREADS environment variable for each process to be 1 in default\n"
    warned = "n1:7:9 [1] NCCL INFO dlvsym failed on mlx5dv_x - libmlx5.so: undefined symbol: mlx5dv_x\n"
    text = steps(1, 9) + "Training time 0:27:31\n" + banner
    assert (
        judged(tmp_path, text).verdict.outcome == judged(tmp_path, text + warned).verdict.outcome == "clean"
    )
