"""What speaks for a hang besides the time: each sign on its own, in two looks at the same ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from nodedoctor.blackbox.capture import Capture
from nodedoctor.blackbox.samples.confirm import at_work
from nodedoctor.blackbox.samples.sample import RankSample
from nodedoctor.blackbox.samples.signs import signs
from nodedoctor.blackbox.samples.suspected_hang import Activity
from nodedoctor.blackbox.stacks import CapturedStack
from nodedoctor.triage.live.activity import long_work
from nodedoctor.triage.live.running_job import LiveJob, PythonThread, RankProcess
from nodedoctor.triage.patterns.stacks import StackFrame

WAITS = "/v/torch/distributed/distributed_c10d.py"


def process(number: int, function: str = "all_reduce", file: str = WAITS, **more: Any) -> RankProcess:
    main = PythonThread(
        (StackFrame(file, 10, function), StackFrame("/job/train.py", 20, "main")), active=True
    )
    return RankProcess(100 + number, number, 3, 3, more.pop("states", ("S", "S")), threads=(main,), **more)


def look(*processes: RankProcess, moment: float = 0.0, bytes_: int = 0, ras: str = "") -> Capture:
    samples = tuple(RankSample(one.pid, 1, one.rank, 3, bytes=bytes_) for one in processes)
    return Capture(LiveJob("n", processes, (ras, ras)), samples, time=moment, seconds=2.5)


STUCK = (process(0), process(1, "load", "/job/data.py"), process(2))


def test_a_hang_shows_no_progress_and_the_same_stacks() -> None:
    found = signs(look(*STUCK), look(*STUCK, moment=60.0))
    assert (found.progress, found.stacks, found.met) == ("", "", 2)
    assert found.against == "the kernel calls no rank stopped, frozen, stuck or gone"


@pytest.mark.parametrize(
    ("now", "stepped", "why"),
    [
        (look(*STUCK, moment=60.0), True, "a step came"),
        (look(*STUCK, moment=60.0, bytes_=1 << 20), False, "moved bytes"),
        (look(*STUCK[:2], replace(STUCK[2], threads=(), ticks=90)), False, "rank 2 uses CPU"),
    ],
    ids=["step", "bytes", "cpu"],
)
def test_progress(now: Capture, stepped: bool, why: str) -> None:
    assert why in signs(look(*STUCK), now, stepped=stepped).progress


def test_the_stacks_that_a_rank_was_asked_to_write_are_no_progress() -> None:
    written = tuple(CapturedStack(one.pid, "signal", text="x" * 20_000) for one in STUCK)
    before = replace(look(*STUCK), stacks=written)
    assert signs(before, look(*STUCK, moment=10.0, bytes_=40_000)).progress == ""
    assert "moved bytes" in signs(before, look(*STUCK, moment=10.0, bytes_=1 << 20)).progress


def test_operations_that_nccl_counts_are_progress() -> None:
    one, other = (f"  4 ranks have launched up to operation {n}\n" for n in (17, 18))
    assert "counts rise" in signs(look(*STUCK, ras=one), look(*STUCK, ras=other)).progress
    assert signs(look(*STUCK, ras=one), look(*STUCK, ras=one)).progress == ""


WORK = (
    "evaluate",
    "save_checkpoint",
    "generate",
    "compile_fx",
    "download_shards",
    "validation_step",
    "rollout",
)


@pytest.mark.parametrize("work", WORK)
def test_work_that_takes_long_is_no_standstill(work: str) -> None:
    """Neither may a job be ended because of it, nor be said to hang."""
    ranks = (process(0), process(1, work, "/job/train.py"), process(2))
    found = signs(look(*ranks), look(*ranks, moment=60.0))
    assert found.stacks == f"rank 1 is in {work}, which may take long"
    assert found.met == 1
    assert [rank.rank for rank in at_work(look(*ranks), lambda _: Activity())] == [1]


@pytest.mark.parametrize(
    ("function", "file", "wchan"),
    [
        ("checkpoint", "/v/lib/python3.11/site-packages/torch/utils/checkpoint.py", ""),
        ("compile_wrapper", "/v/torch/_dynamo/eval_frame.py", ""),
        ("train_and_evaluate", "/job/train.py", ""),
        ("save_checkpoint", "/job/train.py", "fifo_pipe_write"),
        ("load_batch", "/job/data.py", ""),
    ],
)
def test_what_only_sounds_like_long_work(function: str, file: str, wchan: str) -> None:
    assert long_work(process(1, function, file, wchan=wchan)) == ""


def test_stacks_that_change_or_are_not_known() -> None:
    elsewhere = (process(0), process(1, "decode", "/job/data.py"), process(2))
    assert "rank 1 changes" in signs(look(*STUCK), look(*elsewhere)).stacks
    unread = (*STUCK[:2], replace(STUCK[2], threads=()))
    assert signs(look(*STUCK), look(*unread)).stacks == "no Python stack of rank 2 could be read"


@pytest.mark.parametrize("state", ["T", "D", "Z"])
def test_what_the_kernel_calls_abnormal(state: str) -> None:
    ranks = (*STUCK[:2], replace(STUCK[2], states=(state, state)))
    assert signs(look(*STUCK), look(*ranks)).state == ""
    once = (*STUCK[:2], replace(STUCK[2], states=("S", state)))
    assert signs(look(*STUCK), look(*once)).state
