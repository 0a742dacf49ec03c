"""What Horovod says of ranks that do not do the same."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from say import culprits, judged

from nodedoctor.triage.verdict.result import TriageResult

DIFFER = {
    "shapes": "Mismatched allreduce tensor shapes: One rank sent a tensor of shape [8, 4], but another rank"
    " sent a tensor of shape [8, 3].",
    "dimensions": "Mismatched allgather tensor shapes: One rank sent a tensor of rank 2, but another rank"
    " sent a tensor of rank 3.",
    "types": "Mismatched data types: One rank had type float32, but another rank had type float16.",
    "operations": "Mismatched MPI operations: One rank did an allreduce, but another rank did an allgather.",
    "newer": "Mismatched operations: One rank did an broadcast, but another rank did an allreduce.",
    "roots": "Mismatched broadcast root ranks: One rank specified root rank 0, but another rank specified"
    " root rank 1.",
    "devices": "Mismatched allreduce CPU/GPU device selection: One rank specified device GPU, but another"
    " rank specified device CPU.",
}
STEPS = "".join(f"[1,0]<stdout>:step {n} loss {2 - n / 100}\n" for n in range(30))
REPORT = (
    "[1,0]<stderr>:[2026-03-04 05:0{n}:07.1: W /tmp/horovod/common/stall_inspector.cc:107] One or more"
    " tensors were submitted to be reduced, gathered or broadcasted by subset of ranks and are waiting for"
    " remainder of ranks for more than {n}0 seconds. \n[1,0]<stderr>:Missing ranks:\n"
)


def parties(examined: TriageResult) -> list[int | None]:
    return [who.rank for who in examined.verdict.parties]


def stalled(missing: Mapping[int, str], reports: int = 3) -> str:
    rows = "".join(f"[1,0]<stderr>:{rank}: [{tensors}]\n" for rank, tensors in missing.items())
    return STEPS + "".join(REPORT.format(n=n) + rows for n in range(1, reports + 1))


@pytest.mark.parametrize("error", ["RuntimeError", "horovod.common.exceptions.HorovodInternalError"])
@pytest.mark.parametrize("what", DIFFER)
def test_what_ranks_disagree_about_is_no_fault_of_all_of_them(what: str, error: str, tmp_path: Path) -> None:
    log = STEPS + "".join(
        f"[1,{rank}]<stderr>:Traceback (most recent call last):\n"
        f'[1,{rank}]<stderr>:  File "/job/train.py", line 41, in <module>\n'
        f"[1,{rank}]<stderr>:    hvd.allreduce(x)\n[1,{rank}]<stderr>:{error}: {DIFFER[what]}\n"
        for rank in range(4)
    )
    examined = judged(tmp_path, log)
    assert examined.verdict.cause == "collective_mismatch", examined.verdict.headline
    assert culprits(examined) == parties(examined) == []


@pytest.mark.parametrize("pair", [(0, 3), (2, 5)])
def test_the_two_that_it_names_are_the_parties(pair: tuple[int, int], tmp_path: Path) -> None:
    text = (
        "RuntimeError: Mismatched allreduce tensor shapes: One rank sent a tensor of shape [8, 4] on rank"
        f" {pair[0]}, but another rank sent a tensor of shape [8, 3] on rank {pair[1]}.\n"
    )
    examined = judged(tmp_path, STEPS + "".join(f"[1,{rank}]<stderr>:{text}" for rank in range(6)))
    assert (examined.verdict.cause, parties(examined)) == ("collective_mismatch", list(pair))


@pytest.mark.parametrize("odd", [0, 2, 3])
def test_ranks_that_wait_for_each_other_do_not_do_the_same(odd: int, tmp_path: Path) -> None:
    missing = {rank: "allreduce.a, allreduce.b" if rank == odd else "broadcast.c" for rank in range(4)}
    examined = judged(tmp_path, stalled(missing))
    assert (examined.verdict.cause, culprits(examined)) == ("collective_mismatch", [odd])


def test_of_two_none_is_the_odd_one(tmp_path: Path) -> None:
    examined = judged(tmp_path, stalled({1: "allreduce.a", 2: "allreduce.b"}))
    assert (examined.verdict.cause, culprits(examined)) == ("collective_mismatch", [])
    assert parties(examined) == [1, 2]


@pytest.mark.parametrize("missing", [{1: "allreduce.a"}, {1: "allreduce.a", 3: "allreduce.a, allreduce.b"}])
def test_ranks_that_are_only_late_are_waited_for(missing: dict[int, str], tmp_path: Path) -> None:
    examined = judged(tmp_path, stalled(missing))
    assert (examined.verdict.cause, culprits(examined)) == ("cpu_stuck_or_slow_rank", [*missing])


def test_of_a_list_that_is_cut_nothing_is_known_to_be_submitted(tmp_path: Path) -> None:
    examined = judged(tmp_path, stalled({1: "allreduce.a, allreduce.b ...", 2: "broadcast.c"}))
    assert (examined.verdict.cause, culprits(examined)) == ("cpu_stuck_or_slow_rank", [1, 2])


def test_a_stall_that_passed_is_none(tmp_path: Path) -> None:
    stall = stalled({0: "allreduce.a", 1: "broadcast.c"}, reports=1)
    assert judged(tmp_path, stall + STEPS.replace("step ", "step 1")).verdict.outcome == "clean"
