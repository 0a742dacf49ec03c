"""Several numbers in front of each line: the rank is the one that is called so, or that tells the others."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import culprits

from nodedoctor.triage.job import examine_job

BOOM = 'Traceback (most recent call last):\n  File "/job/train.py", line 4, in f\n    g()\nKeyError: "x"\n'
PER_NODE = 4
CALLED = [
    "[node{node}:rank{rank}] ", "[gpu-{node}.cluster:rank{rank}]: ", "[local_rank {local} rank {rank}] ",
    "<LR{local}|GR{rank}> ", "[n{node}g{local}] rank{rank}: ", "[dp{dp} tp{tp} rank{rank}] ",
    "[tp_rank={tp} dp_rank={dp} rank={rank}] ", "(world_rank={rank}, local_rank={local}, node_rank={node}) ",
    "[global rank {rank} of 8, local rank {local}] ", "R {node} | {local} | rank {rank} | ",
]  # fmt: skip
UNNAMED = ["[gpu{node}:{rank}] ", "{node}/{rank} > ", "[{rank} {node}] ", "<{tp}|{dp}|{rank}> "]
NO_RANK = [
    "[n{node}g{local}] ", "{node}/{local} > ", "[tp{tp} dp{dp}] ", "[local_rank {local}] ", "[node {node}] ",
    "(tp_rank={tp}) ", "[n{node}:lr{local}] ", "n{node}: ", "[node{node}g{local}] ",
]  # fmt: skip
SHORT = [
    "r0{rank} | ", "(r{rank}) ", "[r{rank}] ", "rk{rank}> ", "R{rank}/8 ", "<R{rank}> ", "[R{rank}/8] ",
    "2026-12-12 03:01:39 [INFO] (r{rank}) ", "R{rank}/8 | ",
]  # fmt: skip


def prefixed(prefix: str, guilty: int, ranks: int = 8) -> str:
    """Steps of all ranks, and the traceback of one, with this prefix."""

    def front(rank: int) -> str:
        node, local = divmod(rank, PER_NODE)
        return prefix.format(rank=rank, node=node, local=local, tp=rank % 2, dp=rank // 2)

    lines = [f"{front(rank)}step {n} loss: 2.{n}\n" for n in range(9) for rank in range(ranks)]
    return "".join(lines + [f"{front(guilty)}{line}\n" for line in BOOM.splitlines()])


def said(folder: Path, content: str) -> list[int | None]:
    path = folder / "job.log"
    path.write_text(content)
    return [rank for rank in culprits(examine_job([str(path)])) if rank is not None]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("guilty", [0, 5, 6])
@pytest.mark.parametrize("prefix", CALLED + UNNAMED)
def test_the_rank_among_several_numbers(prefix: str, guilty: int, tmp_path: Path) -> None:
    assert said(tmp_path, prefixed(prefix, guilty)) == [guilty]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("guilty", [0, 5])
@pytest.mark.parametrize("prefix", SHORT)
def test_a_short_word_for_a_rank(prefix: str, guilty: int, tmp_path: Path) -> None:
    """A few ranks of a world that is not known are enough, among lines that have none."""
    content = prefixed(prefix, guilty, 8)
    assert said(tmp_path, content) == [guilty]
    lines = [line for line in content.splitlines(keepends=True) if any(f"{n}" in line[:34] for n in (0, 5))]
    others = [f"loading shard {n} of 400\n" for n in range(90)]
    assert said(tmp_path, "".join([*others, *lines])) == [guilty]


@pytest.mark.parametrize("prefix", ["(r{0}) ", "[R{0}] ", "r{0} | "])
def test_rounds_and_a_single_number_are_no_ranks(prefix: str, tmp_path: Path) -> None:
    rounds = [f"{prefix.format(n // 6)}step {n} loss: 2.{n}\n" for n in range(54)]
    end = [f"{prefix.format(8)}{line}\n" for line in BOOM.splitlines()]
    assert said(tmp_path, "".join(rounds + end)) == []
    lone = [f"{prefix.format(3)}step {n} loss: 2.{n}\n" for n in range(54)]
    assert said(tmp_path, "".join(lone + [line.replace("8", "3", 1) for line in end])) == []


@pytest.mark.sampled(6)
@pytest.mark.parametrize("prefix", NO_RANK)
def test_numbers_that_share_a_process_name_no_rank(prefix: str, tmp_path: Path) -> None:
    assert said(tmp_path, prefixed(prefix, 5)) == []


@pytest.mark.parametrize("guilty", [1, 2])
def test_a_rank_that_is_named_counts_in_few_lines(guilty: int, tmp_path: Path) -> None:
    """As many ranks as lines: nothing repeats, and the word says it."""
    others = "".join(
        f"2026-10-03T05:30:0{rank}Z rank={rank} RuntimeError: NCCL communicator was aborted on rank {rank}.\n"
        for rank in range(4)
        if rank != guilty
    )
    own = "".join(f"2026-10-03T05:00:03Z rank={guilty} {line}\n" for line in BOOM.splitlines())
    assert said(tmp_path, others + own) == [guilty]
