"""Programs that tell only of some of their steps, of their settings, or of their end as a benchmark."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import judged, steps

SCARES = (
    "g1:31:31 [0] misc/ibvwrap.cc:212 NCCL WARN Call to ibv_modify_qp failed\n",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n",
    "RuntimeError: unable to open shared memory object </torch_31_2> in read-write mode\n",
)


def told(every: int, count: int, begin: int = 0) -> str:
    """A counter of which every so many-th step is told, as Megatron's, Swift's and PaddleOCR's are."""
    first = begin + every
    return "".join(
        f"epoch: [0/90], iter: {n}, 'lr': 0.0004, 'loss': 2.5\n"
        for n in range(first, first + count * every, every)
    )


@pytest.mark.parametrize("every", [1, 2, 10, 50, 1000])
@pytest.mark.parametrize("scare", SCARES)
def test_a_scary_line_of_the_start_is_survived_however_seldom_steps_are_told(
    scare: str, every: int, tmp_path: Path
) -> None:
    verdict = judged(tmp_path, scare + scare.replace("31", "32") + told(every, 60)).verdict
    assert (verdict.cause, verdict.outcome) == ("none", "clean")


@pytest.mark.parametrize("every", [2, 10, 50])
def test_a_few_steps_show_nothing(every: int, tmp_path: Path) -> None:
    """They may be of another program, which began after the first one had died."""
    text = SCARES[1] + SCARES[1].replace("2.00", "3.00") + told(every, 12)
    assert judged(tmp_path, text).verdict.cause == "peer_cuda_oom"


@pytest.mark.parametrize("every", [10, 50])
def test_a_counter_in_the_middle_of_its_way_is_another_log(every: int, tmp_path: Path) -> None:
    text = SCARES[1] + SCARES[1].replace("2.00", "3.00") + told(every, 60, begin=90 * every)
    assert judged(tmp_path, text).verdict.cause == "peer_cuda_oom"


LEFT_OUT = "g1:31:31 [0] misc/ibvwrap.cc:212 NCCL WARN Call to {call} failed\n"
UNOPENED = "g1:31:31 [0] transport/net_ib.cc:117 NCCL WARN NET/IB : Unable to open device mlx5_0\n"


@pytest.mark.parametrize("call", ["ibv_open_device", "ibv_query_device", "ibv_query_port"])
@pytest.mark.parametrize("behind", ["", steps(1, 5), told(50, 3)])
def test_an_adapter_that_nccl_leaves_out_ends_no_job(call: str, behind: str, tmp_path: Path) -> None:
    verdict = judged(tmp_path, LEFT_OUT.format(call=call) + UNOPENED + behind).verdict
    assert verdict.cause in ("none", "undetermined")


TRACKER = (
    "/opt/lib/python3.12/resource_tracker.py:279: UserWarning: resource_tracker: There appear to "
    "be 3 leaked semaphore objects to clean up at shutdown\n"
    "  warnings.warn('resource_tracker: There appear to be %d '\n"
)


def bar(done: int, total: int) -> str:
    """A bar of tqdm."""
    return f"Loading shards:  {100 * done // total}%|##  | {done}/{total} [00:{done:02}<00:07,  1.50s/it]"


@pytest.mark.parametrize("between", ["\n", ""], ids=["a line of its own", "behind the bar"])
def test_a_program_that_is_gone_before_its_bar_is_full_is_not_running(between: str, tmp_path: Path) -> None:
    loaded = "".join(bar(n, 49) + "\r" for n in range(1, 47)) + bar(47, 49) + between
    verdict = judged(tmp_path, loaded + TRACKER).verdict
    assert (verdict.cause, verdict.outcome) == ("undetermined", "undetermined")
    assert "47 of 49" in verdict.headline
    assert judged(tmp_path, loaded).verdict.outcome == "clean"


@pytest.mark.parametrize(
    "end", [bar(49, 49) + "\n", "Training completed\n", "***** train metrics\ntrain_runtime = 5\n"]
)
def test_a_full_bar_or_a_told_end_is_one(end: str, tmp_path: Path) -> None:
    loaded = "".join(bar(n, 49) + "\r" for n in range(1, 48))
    assert judged(tmp_path, loaded + "\n" + end + TRACKER).verdict.outcome == "clean"


SETTINGS = (
    "2026-02-11 10:04:51,007 INFO    MainThread:173 [start.py:begin():61] talking with 45.0 second timeout",
    "Timeout set to: 5400 seconds",
    "connecting with a 30s timeout",
    "the timeout is set to 600",
)
DONE = (
    "All tests completed!",
    "All tasks completed successfully!",
    "all benchmarks finished",
    "2026-02-11 10:04:51,007 - judge - INFO - Finished evaluation for gemma-3-27b on ['data']",
)


@pytest.mark.parametrize("line", SETTINGS)
def test_a_timeout_that_is_set_is_none_that_passed(line: str, tmp_path: Path) -> None:
    assert not judged(tmp_path, line + "\n").verdict.evidence
    assert judged(tmp_path, steps(1, 30) + line + "\n").verdict.outcome == "clean"


@pytest.mark.parametrize("line", DONE)
def test_what_measures_comes_to_an_end_too(line: str, tmp_path: Path) -> None:
    verdict = judged(tmp_path, "Found 4 GPU(s)\n" + line + "\n").verdict
    assert (verdict.cause, verdict.outcome) == ("none", "clean")


@pytest.mark.parametrize(
    "said",
    [
        "Caught signal 11 (Segmentation fault). Server aborting",
        "/dev/dri/card0: failed to set DRM interface version 1.2: Permission denied",
        "NVIDIA(GPU-0): Failed to acquire modesetting permission.",
    ],
)
def test_the_screen_of_a_workstation_is_no_part_of_the_job(said: str, tmp_path: Path) -> None:
    for text in (f"[    81.204] (EE) {said}\n", f"(EE) {said}\n"):
        assert judged(tmp_path, text).verdict.cause == "undetermined"
        assert judged(tmp_path, steps(1, 30) + text).verdict.cause == "none"
