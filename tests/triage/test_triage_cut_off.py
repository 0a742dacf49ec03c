"""A line that ends before it says how a process ended still says that it ended, and which one."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import judged, steps

LOADER = "RuntimeError: DataLoader worker (pid {pid}) is killed by signal: Killed."
SPAWNED = "torch.multiprocessing.spawn.ProcessExitedException: process {rank} terminated with {how}"


@pytest.mark.parametrize("before", ["", "[rank2]: ", "2026-11-07 10:41:25 "])
@pytest.mark.parametrize(
    "end", ["is killed", "is killed by", "is killed by sig", "is killed by signal:", "exited", "exited unexp"]
)
def test_a_loader_whose_end_is_cut_off_is_no_error_of_the_program(
    end: str, before: str, tmp_path: Path
) -> None:
    whole = LOADER.format(pid=4177)
    cut = f"{whole[: whole.index('is killed')]}{end}"
    full = judged(tmp_path, f"{steps(1, 9)}{before}{whole}\n").verdict
    verdict = judged(tmp_path, f"{steps(1, 9)}{before}{cut}\n").verdict
    assert (verdict.cause, verdict.outcome) == ("peer_died", "failure") == (full.cause, full.outcome)
    assert [who.rank for who in verdict.culprits] in ([], [who.rank for who in full.culprits])
    assert "SIG" not in verdict.headline


@pytest.mark.parametrize("line", ["DataLoader worker (pid 4177) exited its loop", "DataLoader workers: 8"])
def test_a_loader_that_says_more_is_not_cut_off(line: str, tmp_path: Path) -> None:
    assert judged(tmp_path, f"{steps(1, 9)}{line}\n{steps(9, 19)}").verdict.cause == "none"


@pytest.mark.parametrize("rank", [0, 3, 7])
@pytest.mark.parametrize("how", ["signal SIGSEGV", "exit code 3"])
def test_a_spawned_process_whose_end_is_cut_off_is_named_as_in_the_whole_line(
    how: str, rank: int, tmp_path: Path
) -> None:
    whole = judged(tmp_path, f"{steps(1, 9)}{SPAWNED.format(rank=rank, how=how)}\n").verdict
    for cut in ("", how.split()[0], how.rsplit(" ", 1)[0]):
        line = SPAWNED.format(rank=rank, how=cut)
        verdict = judged(tmp_path, f"{steps(1, 9)}{line}\n").verdict
        named = [who.rank for who in (*verdict.culprits, *verdict.parties)]
        assert named == [rank] == [who.rank for who in (*whole.culprits, *whole.parties)]
        assert "SIG" not in verdict.headline and "exit code" not in verdict.headline


FINGERPRINT = (
    "CollectiveFingerPrint(SequenceNumber=34, OpType=BROADCAST, TensorShape=[{}], TensorDtypes=Long,"
    " TensorDeviceTypes=TensorOptions(dtype=float (default), device=cuda, layout=Strided (default)))"
)


@pytest.mark.parametrize("share", [0.3, 0.5, 0.7, 0.85])
def test_of_a_comparison_that_is_cut_off_only_what_is_there_is_told(share: float, tmp_path: Path) -> None:
    first = "RuntimeError: Detected mismatch between collectives on ranks. Rank 4 is running collective: "
    whole = f"{first}{FINGERPRINT.format(1)}, but Rank 2 is running collective: {FINGERPRINT.format(7)}."
    assert (
        "ranks 2 and 4 called BROADCAST with different tensors"
        in judged(tmp_path, whole + "\n").verdict.headline
    )
    cut = whole[: len(first) + int(share * len(FINGERPRINT))]
    verdict = judged(tmp_path, cut + "\n").verdict
    assert (verdict.cause, [who.rank for who in verdict.parties]) == ("collective_mismatch", [4])
    assert verdict.headline == "rank 4 and another rank called different things"


TRACE = (
    'Traceback (most recent call last):\n  File "/job/train.py", line 31, in main\n    step(batch)\n'
    '{}  File "/job/train.py", line 12, in step\n    {}\n'
)
WARNED = 'DeprecationWarning: the environment variable behind "CUDA out of memory" is old\n'


def test_a_warning_in_the_middle_of_a_traceback_is_not_its_exception(tmp_path: Path) -> None:
    plain = TRACE.format("", "loss.backward()")
    for text in (TRACE.format(WARNED, "loss.backward()"), plain + WARNED):
        assert "line 12, before the line that names" in judged(tmp_path, text).verdict.headline
        whole = judged(tmp_path, text + "ValueError: a shard is empty\n").verdict
        assert "raised ValueError: a shard is empty" in whole.headline


@pytest.mark.parametrize("source", ["warnings.warn(text)", "raise DeprecationWarning(text)"])
def test_a_warning_that_was_raised_is_one(source: str, tmp_path: Path) -> None:
    verdict = judged(tmp_path, TRACE.format("", source) + WARNED).verdict
    assert "raised DeprecationWarning" in verdict.headline
