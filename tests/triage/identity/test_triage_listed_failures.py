"""A local rank's rank by the list of failures that its node's agent prints."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import caught, culprits, elastic

from nodedoctor.triage.job import examine_job

FULL = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."


def raised_by(local: int, error: str) -> str:
    lines = ("Traceback (most recent call last):", '  File "/job/t.py", line 31, in main', error)
    return "".join(f"[default{local}]:{line}\n" for line in lines)


def listed(rank: int, local: int) -> str:
    """torchelastic's list, with one entry."""
    return elastic([(rank, 1)], rank).replace(f"local_rank: {rank}", f"local_rank: {local}")


def said(folder: Path, logs: dict[str, str]) -> list[int | None]:
    for name, text in logs.items():
        (folder / name).write_text(text)
    return [rank for rank in culprits(examine_job([str(folder)])) if rank is not None]


@pytest.mark.parametrize("error", ["KeyError: 'x'", FULL])
@pytest.mark.parametrize(("node", "local"), [(1, 3), (2, 0), (3, 7)])
def test_an_exception_of_a_second_node_has_its_rank(
    node: int, local: int, error: str, tmp_path: Path
) -> None:
    rank = 8 * node + local
    first = "".join(caught(other, at=f"10:20:30.{other:09}") for other in range(8))
    second = raised_by(local, error) + listed(rank, local)
    assert said(tmp_path, {"node0.log": first, "node1.log": second}) == [rank]


def test_the_lists_of_two_nodes_in_one_log_leave_a_local_rank_open(tmp_path: Path) -> None:
    log = raised_by(3, "KeyError: 'x'") + listed(3, 3) + listed(11, 3)
    assert said(tmp_path, {"job.log": log}) in ([], [3, 11])
