"""A rank that comes late to its steps, in a look at a job that runs: with what its GPU and NCCL say of it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nodedoctor.triage.live import saved
from nodedoctor.triage.live.examine import judge_live
from nodedoctor.triage.live.gpu_use import GpuUse
from nodedoctor.triage.live.lateness import Lateness
from nodedoctor.triage.live.running_job import LiveJob, RankProcess

LATE = Lateness(0.18, 0.94, 50, 0.01, 0.5)
STEP = "arrives 180 ms late in 94 % of steps"


def answer(behind: int, operation: int) -> str:
    """What RAS says of four processes, of which one has launched fewer operations."""
    return (
        "#0-0 (27a079b828ff1a75) MISMATCH\n  Communicator ranks have different AllReduce operation counts\n"
        f"  3 ranks have launched up to operation {operation}\n  Rank {behind} has launched up to operation "
        f"{operation - 1} -- GPU {behind} managed by process {100 + behind} on node 192.0.2.7\n\n"
    )


def look(late: int | None = 2, *, ras: tuple[str, str] = ("", ""), clock: float | None = None) -> LiveJob:
    processes = tuple(
        RankProcess(
            100 + rank,
            rank,
            4,
            4,
            ("S", "S"),
            gpu=None if clock is None else GpuUse(rank, 100, 600, 700, clock if rank == late else 1980),
            late=LATE if rank == late else None,
        )
        for rank in range(4)
    )
    return LiveJob("gpu-7", processes, ras, steps=9)


@pytest.mark.parametrize(
    ("live", "sentence"),
    [
        (look(), STEP),
        (look(clock=1410), f"{STEP}; its GPU 2 runs at 1410 MHz, its peers at 1980 MHz"),
        (look(clock=1975), STEP),
        (look(ras=(answer(2, 17), answer(2, 29))), f"{STEP}; NCCL counted fewer operations of it both times"),
        (look(ras=(answer(2, 17), answer(1, 29))), STEP),
        (look(ras=("", answer(2, 29))), STEP),
    ],
)
def test_the_sentence_about_a_late_rank(live: LiveJob, sentence: str) -> None:
    found = judge_live(live).verdict
    assert (found.outcome, found.cause, found.confidence) == ("failure", "cpu_stuck_or_slow_rank", "medium")
    assert found.headline == f"rank 2 on gpu-7 {sentence}"
    assert [who.rank for who in found.culprits] == [2]


def test_a_job_that_steps_names_nobody_else() -> None:
    """Whatever its ranks are in while they are looked at."""
    live = look(late=None)
    asleep = replace(live.processes[1], states=("D", "D"), wchan="nfs_wait")
    stepping = replace(live, processes=(live.processes[0], asleep, *live.processes[2:]))
    assert judge_live(stepping).verdict.outcome == "clean"
    assert judge_live(replace(stepping, steps=0)).verdict.outcome == "failure"


numbers = st.none() | st.floats(0, 1e6)


@given(
    use=st.builds(GpuUse, st.integers(0, 15), *[numbers] * 6, st.just(("hw_slowdown",))),
    late=st.builds(
        Lateness, st.floats(0, 9), st.floats(0, 1), st.integers(20, 99), st.floats(0, 9), st.floats(0, 9)
    ),
    steps=st.integers(0, 99),
)
def test_what_is_saved_is_read_again(use: GpuUse, late: Lateness, steps: int) -> None:
    live = LiveJob("n", (RankProcess(7, 0, states=("S", "S"), gpu=use, late=late, host="n"),), steps=steps)
    again = saved.read_look(json.dumps(saved.look_document(live)).encode())
    assert again is not None
    assert (again.processes[0].gpu, again.processes[0].late, again.steps) == (use, late, steps)
