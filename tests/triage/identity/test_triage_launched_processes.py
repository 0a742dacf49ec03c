"""How many ranks a job has, where only its launcher lists their processes."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import culprits, judged, steps

WORLD = 4


def waited(rank: int) -> str:
    """A watchdog of torch 1.13, which has no rank in front."""
    return (
        f"[E ProcessGroupNCCL.cpp:821] [Rank {rank}] Watchdog caught collective operation timeout:"
        " WorkNCCL(SeqNum=77, OpType=ALLREDUCE, TensorShape=[4096], Timeout(ms)=1800000) ran for 1800071"
        " milliseconds before timing out.\n"
    )


def ended(failed: int) -> str:
    """What torchrun of that time says of its processes."""
    name = "torch.distributed.elastic.multiprocessing.api"
    others = (local for local in range(WORLD) if local != failed)
    return "".join(
        f"WARNING:{name}:Sending process {700 + local} closing signal SIGTERM\n" for local in others
    ) + (
        f"ERROR:{name}:failed (exitcode: -6) local_rank: {failed} (pid: {700 + failed}) of binary:"
        " /bin/python\n"
    )


def hung(silent: set[int], failed: int) -> str:
    return steps(1, 30) + "".join(waited(rank) for rank in range(WORLD) if rank not in silent) + ended(failed)


@pytest.mark.parametrize(("silent", "failed"), [(3, 0), (0, 2), (1, 3)])
def test_the_only_process_that_is_not_heard_did_not_come(silent: int, failed: int, tmp_path: Path) -> None:
    examined = judged(tmp_path, hung({silent}, failed))
    assert (culprits(examined), examined.verdict.confidence) == ([silent], "low")


@pytest.mark.parametrize("silent", [set(), {2, 3}])
def test_of_several_that_are_not_heard_none_is_named(silent: set[int], tmp_path: Path) -> None:
    assert culprits(judged(tmp_path, hung(silent, 0))) == []
