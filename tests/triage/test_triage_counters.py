"""Ranks without a timeout of their own are placed by their counters: in the collective, past or before it."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import pytest
from say import caught, culprits, judged, raised, status

SEQ = 48211
SYMMETRIC = ("ALLREDUCE", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE", "ALLTOALL_BASE")
COUNTERS = {
    "the same": (SEQ, SEQ - 1),
    "more behind it": (SEQ + 2, SEQ - 1),
    "some not noticed yet": (SEQ, SEQ - 3),
}
AHEAD = {"completed": (SEQ, SEQ), "far ahead": (SEQ + 49, SEQ + 48)}
BEHIND = {
    "the last one": (SEQ - 1, SEQ - 1),
    "busy before it": (SEQ - 1, SEQ - 2),
    "long ago": (SEQ - 6, SEQ - 6),
}
PLACES = [(size, rank) for size in (3, 4, 8, 16) for rank in range(size)]


def dumped(rank: int, enqueued: int, completed: int, group: str = "0(default_pg)") -> str:
    """What a rank prints that another one's timeout told to write its dump, torch 2.5 and later."""
    return (
        f"[rank{rank}]:[E1121 10:20:31.500000000 ProcessGroupNCCL.cpp:1743] [PG ID 0 PG GUID {group} "
        f"Rank {rank}] Received a dump signal due to a collective timeout from  rank 1 and we will try our "
        f"best to dump the debug info. Last enqueued NCCL work: {enqueued}, last completed NCCL work: "
        f"{completed}.This is most likely caused by incorrect usages of collectives\n"
    )


def timeouts(ranks: Iterable[int], op: str, *, statuses: bool = True) -> str:
    return "".join(
        caught(rank, seq=SEQ, op=op, numel=112) + (status(rank, SEQ, SEQ, SEQ - 1) if statuses else "")
        for rank in ranks
    )


def others(size: int, *ranks: int) -> list[int]:
    return [rank for rank in range(size) if rank not in ranks]


@pytest.mark.slow
@pytest.mark.parametrize("statuses", [True, False])
@pytest.mark.parametrize("op", ["BROADCAST", *SYMMETRIC])
@pytest.mark.parametrize("counters", COUNTERS)
def test_a_rank_with_the_counters_of_a_waiter_waits(
    counters: str, op: str, statuses: bool, tmp_path: Path
) -> None:
    for size, rank in PLACES:
        log = timeouts(others(size, rank), op, statuses=statuses) + dumped(rank, *COUNTERS[counters])
        examined = judged(tmp_path, log)
        assert (examined.verdict.cause, culprits(examined)) == ("undetermined", []), (size, rank)
        assert [who.rank for who in examined.verdict.victims] == list(range(size))


@pytest.mark.slow
@pytest.mark.parametrize("statuses", [True, False])
@pytest.mark.parametrize("counters", AHEAD)
def test_a_rank_that_is_ahead_is_not_the_missing_one(counters: str, statuses: bool, tmp_path: Path) -> None:
    for size, rank in PLACES:
        for op in ("BROADCAST", "REDUCE", *SYMMETRIC):
            log = timeouts(others(size, rank), op, statuses=statuses) + dumped(rank, *AHEAD[counters])
            verdict = judged(tmp_path, log).verdict
            cause = "collective_mismatch" if op in SYMMETRIC else "undetermined"
            assert (verdict.cause, verdict.culprits) == (cause, ()), (size, rank, op)
            assert f"rank {rank} had" in verdict.headline.lower()


def test_a_rank_that_is_thousands_ahead_may_count_in_another_group(tmp_path: Path) -> None:
    """The watchdog's own line names no group."""
    for rank in range(8):
        log = timeouts(others(8, rank), "ALLREDUCE", statuses=False) + dumped(rank, SEQ + 9000, SEQ + 9000)
        verdict = judged(tmp_path, log).verdict
        assert (verdict.cause, verdict.culprits, verdict.parties) == ("undetermined", (), ())


@pytest.mark.slow
@pytest.mark.parametrize("statuses", [True, False])
@pytest.mark.parametrize("counters", BEHIND)
def test_a_rank_that_is_behind_is_the_missing_one(counters: str, statuses: bool, tmp_path: Path) -> None:
    for size, rank in PLACES:
        log = timeouts(others(size, rank), "ALLREDUCE", statuses=statuses) + dumped(rank, *BEHIND[counters])
        examined = judged(tmp_path, log)
        assert (examined.verdict.cause, culprits(examined)) == ("cpu_stuck_or_slow_rank", [rank])
        assert f"had not enqueued collective {SEQ}" in examined.verdict.headline


def test_the_rank_without_counters_is_the_missing_one(tmp_path: Path) -> None:
    """Beside ranks that waited by their counters, one without any is the one that never came."""
    for size, rank in PLACES:
        if size < 8:
            continue
        waiter = (rank + 3) % size
        log = timeouts(others(size, rank, waiter), "ALLREDUCE") + dumped(waiter, *COUNTERS["the same"])
        examined = judged(tmp_path, f"world_size={size}\n" + log)
        assert (examined.verdict.cause, culprits(examined)) == ("cpu_stuck_or_slow_rank", [rank])


def test_counters_of_another_group_place_no_rank(tmp_path: Path) -> None:
    """A number of another group is no number of this one, and names no one as behind or ahead."""
    for counters in ((SEQ + 9, SEQ + 8), (5, 5)):
        log = timeouts(others(8, 2), "ALLREDUCE") + dumped(2, *counters, group="7(tensor_parallel)")
        verdict = judged(tmp_path, log).verdict
        assert "counters" not in verdict.headline and "completed" not in verdict.headline
        assert "had not enqueued" not in verdict.headline


def test_an_error_outweighs_the_counters_of_its_rank(tmp_path: Path) -> None:
    """Work that was enqueued before the rank's GPU failed is never completed, and the others wait in it."""
    error = "RuntimeError: CUDA error: an illegal memory access was encountered"
    for rank in range(8):
        log = raised(rank, error) + timeouts(others(8, rank), "ALLREDUCE")
        examined = judged(tmp_path, log + dumped(rank, *COUNTERS["more behind it"]))
        assert culprits(examined) == [rank]
        assert culprits(examined) == culprits(judged(tmp_path, log))


ABORTED = {
    "aborted": "torch.distributed.DistBackendError: NCCL communicator was aborted on rank {rank}.",
    "timeout": "RuntimeError: [Rank {rank}] Caught collective operation timeout: WorkNCCL(OpType=ALLREDUCE)",
    "remote": "torch.distributed.DistBackendError: NCCL error in: ProcessGroupNCCL.cpp:2027, remote process"
    " exited or there was a network error, NCCL version 2.21.5",
}
CALLS = ("barrier", "all_reduce", "broadcast", "all_gather_into_tensor", "reduce_scatter_tensor")


def left_call(
    rank: int, call: str, error: str, library: str = "torch/distributed/distributed_c10d.py"
) -> str:
    """The traceback of a rank whose call of the library raised an error."""
    lines = (
        "Traceback (most recent call last):",
        '  File "/job/train.py", line 9, in main',
        f"    dist.{call}(x)",
        f'  File "/opt/{library}", line 4556, in {call}',
        "    work.wait()" if "torch" in library else "    return self.file.read(size)",
        error.format(rank=rank),
    )
    return "".join(f"[rank{rank}]: {line}\n" for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize("statuses", [True, False])
@pytest.mark.parametrize("ended", ABORTED)
def test_a_rank_whose_call_was_aborted_waited_too(ended: str, statuses: bool, tmp_path: Path) -> None:
    for number, (size, rank) in enumerate(PLACES):
        trace = left_call(rank, CALLS[number % len(CALLS)], ABORTED[ended])
        log = timeouts(others(size, rank), "ALLREDUCE", statuses=statuses) + trace
        examined = judged(tmp_path, log)
        assert (examined.verdict.cause, culprits(examined)) == ("undetermined", []), (size, rank)
        assert rank in [who.rank for who in examined.verdict.victims]


def test_a_rank_that_left_another_call_is_still_missing(tmp_path: Path) -> None:
    """What timed out outside of the collectives kept its rank from them."""
    for rank in range(8):
        trace = left_call(rank, "read", "TimeoutError: timed out", "data/remote_file.py")
        examined = judged(tmp_path, timeouts(others(8, rank), "ALLREDUCE") + trace)
        assert culprits(examined) == [rank]
