"""NCCL's RAS names the rank that launched fewer collectives, where it was asked twice and nothing moved."""

from __future__ import annotations

import json
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from nodedoctor.triage.job import examine_job
from nodedoctor.triage.live.examine import judge_live
from nodedoctor.triage.live.running_job import LiveJob, RankProcess
from nodedoctor.triage.model import Verdict

HEAD = (
    "Job summary\n===========\n\n  Nodes  Processes         GPUs  Processes     GPUs\n"
    "(total)   per node  per process    (total)  (total)\n"
    "      1          {size}            1          {size}        {size}\n\n"
    "Communicators... (0.00s)\n=============\n\n"
    "Group     Comms     Nodes     Ranks     Ranks     Ranks    Status  Errors\n"
    "    #  in group  per comm  per node  per comm  in group\n"
    "    0         1         1         {size}         {size}         {size}   RUNNING  {wrong}\n\n"
)
PLACE = "GPU {rank} managed by process {pid} on node 192.0.2.7"


def counts(size: int, behind: int, operation: int, op: str = "AllReduce", number: str = "#0-0") -> str:
    """One rank behind, in the words of NCCL's client_support.cc."""
    place = PLACE.format(rank=behind, pid=100 + behind)
    done = f"launched up to operation {operation - 1}" if operation > 1 else "not launched any operations"
    return (
        f"{number} (27a079b828ff1a75) MISMATCH\n  Communicator ranks have different {op} operation counts\n"
        f"  {size - 1} ranks have launched up to operation {operation}\n"
        f"  Rank {behind} has {done} -- {place}\n\n"
    )


def answer(size: int, *parts: str) -> str:
    """RAS's whole answer."""
    head = HEAD.format(size=size, wrong="MISMATCH")
    return head + "Errors\n======\n\nWarnings\n========\n\n" + "".join(parts)


def judged(size: int, first: str, second: str) -> Verdict:
    """The verdict on ranks that all compute, and RAS's two answers."""
    ranks = (
        RankProcess(100 + rank, rank, size, size, ("R", "R"), "", local_rank=rank, ticks=200)
        for rank in range(size)
    )
    return judge_live(LiveJob("node-1", tuple(ranks), (first, second))).verdict


@given(st.integers(3, 64), st.integers(0, 63), st.integers(1, 99999))
def test_the_rank_behind_is_named(size: int, behind: int, operation: int) -> None:
    text = answer(size, counts(size, behind % size, operation))
    verdict = judged(size, text, text)
    assert (verdict.cause, verdict.confidence) == ("cpu_stuck_or_slow_rank", "medium")
    assert [who.rank for who in verdict.culprits] == [behind % size]


@given(st.integers(3, 16), st.integers(0, 15), st.integers(2, 999))
def test_a_job_that_goes_on_has_no_rank_behind(size: int, behind: int, operation: int) -> None:
    first, second = (answer(size, counts(size, behind % size, n)) for n in (operation, operation + 1))
    assert judged(size, first, second).outcome == "clean"


def test_one_answer_alone_decides_nothing(tmp_path: Path) -> None:
    path = tmp_path / "ras.txt"
    path.write_text(answer(4, counts(4, 2, 6)))
    assert examine_job([str(path)]).verdict.outcome in ("undetermined", "nothing")


def test_several_communicators_do_not_show_who_waits_for_whom() -> None:
    text = answer(8, counts(8, 2, 6), counts(4, 3, 9, number="#1-0"))
    assert judged(8, text, text).outcome == "undetermined"


def test_a_rank_in_another_collective() -> None:
    place = PLACE.format(rank=3, pid=103)
    gathers = (
        "  Communicator ranks have different AllGather operation counts\n"
        f"  3 ranks have not launched any operations\n  Rank 3 has launched up to operation 1 -- {place}\n\n"
    )
    text = answer(4, counts(4, 3, 6), gathers)
    verdict = judged(4, text, text)
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("collective_mismatch", [3])


def test_ranks_that_are_not_listed_keep_it_open() -> None:
    text = answer(
        8,
        "#0-0 (27a079b828ff1a75) MISMATCH\n  Communicator ranks have different AllReduce operation counts\n"
        "  4 ranks have launched up to operation 6\n  4 ranks have launched up to operation 5\n",
    )
    assert judged(8, text, text).outcome == "undetermined"


def test_a_rank_that_does_not_answer_is_named_by_its_process() -> None:
    place = PLACE.format(rank=1, pid=101)
    head = HEAD.format(size=4, wrong="INCOMPLETE")
    text = (
        f"{head}Errors\n======\n\n#0-0 (27a079b828ff1a75) INCOMPLETE\n"
        f"  Missing communicator data from 1 rank\n  Rank 1 -- {place}\n\n"
    )
    verdict = judged(4, text, text)
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("peer_died", [1])


def test_what_ras_says_of_one_job_is_not_said_of_another() -> None:
    """RAS's port is one for the node: the larger of two jobs is not judged by the smaller one's answer."""
    text = answer(4, counts(4, 2, 6))
    large = (RankProcess(500 + n, n, 8, 8, ("R", "R"), local_rank=n, ticks=200, job="a") for n in range(8))
    small = (RankProcess(100 + n, n, 4, 4, ("R", "R"), local_rank=n, ticks=200, job="b") for n in range(4))
    verdict = judge_live(LiveJob("node-1", (*large, *small), (text, text))).verdict
    assert [(who.rank, who.pid) for who in verdict.culprits] == [(2, 102)]


def test_a_document_of_ras_has_no_lines_and_names_the_rank(tmp_path: Path) -> None:
    ranks = [{"rank": 0, "host": "192.0.2.7", "pid": 100}]
    missing = [{"rank": 1, "host": "192.0.2.8", "pid": 101, "considered_dead": False, "unresponsive": True}]
    sizes = {"size": 2, "ranks_count": 1, "missing_ranks_count": 1}
    group = {"hash": "0x1", **sizes, "ranks": ranks, "missing_ranks": missing}
    path = tmp_path / "ras.log"
    document = {"nccl_version": "2.29.1", "communicators_count": 1, "communicators": [group]}
    path.write_text(json.dumps(document, indent=2))
    verdict = examine_job([str(path)]).verdict
    assert [(who.rank, who.host) for who in verdict.culprits] == [(1, "192.0.2.8")]
