"""Hosts in names of files: named where all files of the same form prove it, and else nobody."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from in_turn import in_turn
from say import caught, steps

from nodedoctor.triage.identity.hosts import hosts_of
from nodedoctor.triage.identity.labels import SourceStats
from nodedoctor.triage.identity.world import RankLocation
from nodedoctor.triage.job import examine_job
from nodedoctor.triage.model import Identity
from nodedoctor.triage.verdict.document import make_document

HOSTS = [
    "rank_{r}_gpu-{h:03}.log", "rank{r}.gpu-{h:03}.out", "gpu-{h:03}/rank_{r}.log", "gpu{h:02}-rank-{r}.log",
    "train-node{h}-rank{r}.log", "slurm-48151_node-{h}_rank{r}.err", "2026-11-14_dgx-h100-{h:02}_rank{r}.log",
    "rank_{r}_ip-10-0-1-{h}.log", "nccl.n{h}.rank{r}.txt", "worker-{h}_rank_{r}.log", "rank{r}_cn{h:04}.log",
    "exp-7_rank{r}_abc{h}.log",
]  # fmt: skip
NO_HOSTS = [
    "rank_{r}_stage-{h}.log", "pp{h}_rank{r}.log", "rank_{r}_gpu{l}.log", "rank_{r}_gpu_{l}.log",
    "run-{h:03}_rank_{r}.log", "rank_{r}.log", "rank_{r}_2026-11-1{h}.log", "attempt_{h}/rank_{r}.log",
    "rank_{r}_llama-70b.log", "seed{r}_rank{r}.log", "rank_{r}_pid-{p}.log", "job-48{h}_rank{r}.log",
    "rank_{r}_local-rank-{l}.log", "worker-{r}.log", "train-worker-{r}.txt", "tp{l}_rank{r}.log",
    "rank{r}_group-{h}.log", "rank_{r}_0{h}.log",
]  # fmt: skip


def heard(names: Mapping[int, str]) -> tuple[dict[str, SourceStats], dict[str, Identity]]:
    """Files of ranks, in whose lines nothing names a host."""
    return {name: SourceStats() for name in names.values()}, {
        name: Identity(rank=rank) for rank, name in names.items()
    }


def named(form: str, ranks: int, per_host: int) -> dict[int, str]:
    return {
        rank: form.format(r=rank, h=rank // per_host + 1, l=rank % per_host, p=4000 + 7 * rank)
        for rank in range(ranks)
    }


@in_turn("per_host", [2, 4, 8])
@in_turn("form", HOSTS)
def test_a_word_that_ranks_share_in_blocks_is_their_host(form: str, per_host: int):
    files = named(form, 4 * per_host, per_host)
    found = hosts_of(*heard(files))
    assert len(set(found.values())) == 4 and set(found) == set(files.values())
    for rank, name in files.items():
        assert found[name] in name and found[name] == found[files[rank // per_host * per_host]]


@in_turn("per_host", [2, 4, 8])
@in_turn("form", NO_HOSTS)
def test_other_words_and_numbers_are_no_hosts(form: str, per_host: int):
    assert hosts_of(*heard(named(form, 4 * per_host, per_host))) == {}


def test_ranks_dealt_out_in_turns():
    files = {rank: f"rank_{rank}_gpu-{rank % 4:03}.log" for rank in range(16)}
    assert hosts_of(*heard(files))[files[5]] == "gpu-001"


def test_the_same_rank_with_two_words_is_of_two_runs():
    names = [f"gpu-{host:03}_rank_{rank}.log" for host in range(2) for rank in range(4)]
    sources = {name: SourceStats() for name in names}
    assert hosts_of(sources, {name: Identity(rank=number % 4) for number, name in enumerate(names)}) == {}


def test_one_word_in_all_names_proves_nothing():
    assert hosts_of(*heard({rank: f"rank_{rank}_gpu-005.log" for rank in range(8)})) == {}


def test_ranks_in_no_order_are_of_something_else():
    blocks = [0, 1, 0, 2, 1, 1, 2, 0, 2]
    assert hosts_of(*heard({rank: f"rank_{rank}_gpu-{at:03}.log" for rank, at in enumerate(blocks)})) == {}


def test_lines_that_name_another_host_refute_the_name():
    sources, owners = heard(named("rank_{r}_gpu-{h:03}.log", 16, 4))
    sources["rank_3_gpu-001.log"].locations.add(RankLocation(rank=3, host="login-1"))
    found = hosts_of(sources, owners)
    assert found == {"rank_3_gpu-001.log": "login-1"}


def test_the_host_that_the_lines_of_a_rank_name_is_that_of_its_other_lines():
    sources, owners = heard({0: "a.log", 1: "b.log", 2: "c.log"})
    sources["a.log"].locations.add(RankLocation(rank=0, host="gpu-7"))
    sources["b.log"].locations |= {RankLocation(rank=1, host="gpu-7"), RankLocation(host="gpu-8")}
    sources["c.log"].locations |= {RankLocation(rank=2), RankLocation(host="gpu-8")}
    assert hosts_of(sources, owners) == {"a.log": "gpu-7", "b.log": "gpu-7"}


IN_FRONT = ["n0{}", "nid00123{}", "gpu01{}", "host{}.cluster.local"]


@pytest.mark.parametrize("name", IN_FRONT)
def test_the_host_in_front_of_each_line_is_that_of_who_was_killed(name: str, tmp_path: Path):
    texts = [f"{name.format(host)}: {line}" for host in range(4) for line in steps(1, 4).splitlines()]
    killed = "run.sh: line 14: 28811 Killed                  RANK=2 WORLD_SIZE=4 python train.py"
    waits = [f"{name.format(rank)}: {caught(rank)}" for rank in (0, 1, 3)]
    text = "\n".join([*texts, f"{name.format(2)}: {killed}", *waits])
    (tmp_path / "job.log").write_text(text)
    verdict = examine_job([str(tmp_path)]).verdict
    assert [(who.rank, who.host) for who in verdict.culprits] == [(2, name.format(2))]


@pytest.mark.parametrize("name", ["shard00{}", "rank00{}", "seed10{}", "gpu{}"])
def test_what_is_counted_in_front_of_each_line_may_be_no_host(name: str, tmp_path: Path):
    texts = [f"{name.format(host)}: {line}" for host in range(4) for line in steps(1, 4).splitlines()]
    killed = "run.sh: line 14: 28811 Killed                  python train.py"
    (tmp_path / "job.log").write_text("\n".join([*texts, f"{name.format(2)}: {killed}"]))
    assert {who.host for who in examine_job([str(tmp_path)]).verdict.culprits} <= {None}


def test_the_verdict_names_the_host(tmp_path: Path):
    for rank in range(16):
        name = f"rank_{rank}_gpu-{rank // 4:03}.log"
        (tmp_path / name).write_text(steps(1, 4) + (BOOM if rank == 9 else caught(rank)))
    examined = examine_job([str(tmp_path)])
    found = make_document(examined.verdict, examined.lines.line_of)
    assert [(who["rank"], who["host"]) for who in found["culprits"]] == [(9, "gpu-002")]
    assert [rank["host"] for rank in found["ranks"]] == [f"gpu-{rank // 4:03}" for rank in range(16)]


BOOM = 'Traceback (most recent call last):\n  File "/job/train.py", line 4, in f\n    g()\nValueError: boom\n'
