"""What a list says is of whom it lists: torchelastic's tracebacks by rank, and Slurm's tasks."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import culprits, judged, steps

NOT_RECORDED = "To enable traceback see: https://pytorch.org/docs"
FRAMES = (
    "Traceback (most recent call last):\n"
    '    File "/opt/lib/python3.12/site-packages/torch/distributed/elastic/errors.py", line 362, in w\n'
    "      return f(*args, **kwargs)\n"
    '    File "/job/train.py", line 41, in main\n'
    "      loss = model(batch)\n"
)


def entry(number: int, rank: int, code: int, said: str, indent: str = "  ") -> str:
    """One entry of the list, of a program that records its errors."""
    rows = (
        f"time      : 2026-11-21_10:30:00\nhost      : node-1\nrank      : {rank} (local_rank: {rank})\n"
        f"exitcode  : {code} (pid: {4000 + rank})\nerror_file: /tmp/torchelastic/{rank}/error.json\n"
        f"traceback : {said}\n"
    )
    lines = [indent + row if row[:1] != " " else row for row in rows.splitlines()]
    return f"[{number}]:\n" + "\n".join(lines) + "\n"


def listed(root: str, *others: str) -> str:
    """The whole list, as the launcher prints it."""
    bar, thin = "=" * 60, "-" * 60
    return (
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        f"{bar}\ntrain.py FAILED\n{thin}\nFailures:\n{''.join(others)}{thin}\n"
        f"Root Cause (first observed failure):\n{root}{bar}\n"
    )


@pytest.mark.parametrize("error", ["ValueError: label 17 is out of range", "KeyError: 'tokens'"])
def test_a_traceback_in_the_list_is_of_its_rank(error: str, tmp_path: Path) -> None:
    said = FRAMES + f"  {error}"
    text = listed(entry(0, 5, 1, said), entry(1, 2, -15, "Signal 15 (SIGTERM) received by PID 4002"))
    examined = judged(tmp_path, steps(1, 9) + text)
    assert (examined.verdict.cause, culprits(examined)) == ("user_code_exception", [5])
    assert error.partition(":")[0] in examined.verdict.headline


def test_ranks_with_the_same_exception_are_guilty_together(tmp_path: Path) -> None:
    error = "  torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total"
    said = FRAMES + error + " capacity of 79.15 GiB of which 1.06 GiB is free."
    text = listed(entry(0, 3, 1, said), entry(1, 1, 1, said), entry(2, 6, -15, NOT_RECORDED))
    examined = judged(tmp_path, steps(1, 9) + text)
    assert (examined.verdict.cause, culprits(examined)) == ("peer_cuda_oom", [1, 3])


def test_what_follows_the_list_is_of_nobody_in_it(tmp_path: Path) -> None:
    text = listed(entry(0, 5, -9, NOT_RECORDED), entry(1, 2, -15, FRAMES + "  SystemExit: 143"))
    behind = (
        'Traceback (most recent call last):\n  File "/job/sweep.py", line 3, in <module>\nOSError: no way\n'
    )
    rows = judged(tmp_path, steps(1, 9) + text + behind).verdict
    assert 2 not in [who.rank for who in rows.culprits]


@pytest.mark.parametrize(
    ("tasks", "ranks"), [("task 2", [2]), ("tasks 1-3", [1, 2, 3]), ("tasks 0,4-5", [0, 4, 5])]
)
def test_all_tasks_that_slurm_lists_ran_out_of_memory(tasks: str, ranks: list[int], tmp_path: Path) -> None:
    examined = judged(tmp_path, steps(1, 9) + f"srun: error: n4: {tasks}: Out Of Memory\n")
    assert (examined.verdict.cause, culprits(examined)) == ("peer_host_oom", ranks)


@pytest.mark.parametrize(
    "line",
    [
        "TIMEOUT(ms): 31536000000\n",
        "  rendezvous_timeout = 600 s\n",
        "+ docker exec -it --env=FAILED_NODES --env=TIMEOUT trainer bash\n",
    ],
)
def test_what_was_asked_for_is_no_failure(line: str, tmp_path: Path) -> None:
    assert judged(tmp_path, "loading the configuration\n" + line).verdict.evidence == ()


def test_the_end_of_a_phase_is_not_that_of_the_job(tmp_path: Path) -> None:
    for phase in ("warmup", "epoch 3", "stage one"):
        assert "came to its end" not in judged(tmp_path, f"Finished training {phase}\n").verdict.headline
    assert "came to its end" in judged(tmp_path, "Finished training\n").verdict.headline
