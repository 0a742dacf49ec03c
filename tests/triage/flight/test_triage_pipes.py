"""Sends and receives in dumps: the end of the chain is named, and an open one is never called healthy."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from say import culprits
from test_triage_flight import Entry, dump, entry, write

from nodedoctor.triage.flight.records import open_transfers
from nodedoctor.triage.job import examine_job
from nodedoctor.triage.verdict.result import TriageResult


def transfer(number: int, words: str, state: str = "started") -> Entry:
    """A send or a receive, as torch records it."""
    return entry(number, words, state=state, is_p2p=True, collective_seq_id=0, p2p_seq_id=number)


def judged(folder: Path, ranks: int, **last: list[Entry]) -> TriageResult:
    """All ranks did one all_reduce; then each did what is given for it."""
    dumps: dict[int, dict[str, Any]] = {
        rank: dump([entry(1), *last.get(f"r{rank}", [])], list(range(ranks))) for rank in range(ranks)
    }
    return examine_job([write(folder, dumps)])


def test_a_chain_ends_at_the_rank_that_never_sent(tmp_path: Path) -> None:
    """Stage 2 waits for 1, 1 for 0, and 0 is somewhere else."""
    told = judged(tmp_path, 3, r1=[transfer(2, "recv 1<-0")], r2=[transfer(2, "recv 2<-1")])
    assert (told.verdict.cause, culprits(told)) == ("cpu_stuck_or_slow_rank", [0])
    assert "recv 1<-0" in told.verdict.headline


def test_who_waits_in_a_receive_is_not_blamed_for_missing_a_collective(tmp_path: Path) -> None:
    waiting = [entry(2, state="started")]
    told = judged(tmp_path, 4, r0=waiting, r1=waiting, r2=[transfer(2, "recv 2<-3")])
    assert culprits(told) == [3]


def test_both_sides_have_begun(tmp_path: Path) -> None:
    told = judged(tmp_path, 2, r0=[transfer(2, "send 0->1")], r1=[transfer(2, "recv 1<-0")])
    assert told.verdict.outcome == "undetermined"
    assert any("their peers have begun" in note for note in told.verdict.coverage.notes)


def test_two_that_receive_from_each_other(tmp_path: Path) -> None:
    told = judged(tmp_path, 2, r0=[transfer(2, "recv 0<-1")], r1=[transfer(2, "recv 1<-0")])
    assert (told.verdict.cause, culprits(told)) == ("collective_mismatch", [])
    assert [who.rank for who in told.verdict.parties] == [0, 1]


def test_a_peer_without_a_dump_is_only_mentioned(tmp_path: Path) -> None:
    dumps = {0: dump([entry(1), transfer(2, "recv 0<-1")], [0, 1])}
    told = examine_job([write(tmp_path, dumps)])
    assert told.verdict.outcome == "undetermined" and culprits(told) == []


def test_ranks_of_a_group_are_translated(tmp_path: Path) -> None:
    """Rank 1 of the group is global rank 6."""
    waits = transfer(2, "recv 0<-1") | {"process_group": ("pp", "pipe")}
    dumps = {
        2: dump([entry(1), waits], list(range(8)), pp=[2, 6]),
        6: dump([entry(1)], list(range(8)), pp=[2, 6]),
    }
    assert culprits(examine_job([write(tmp_path, dumps)])) == [6]


def test_a_batch_that_completed_leaves_nothing_open() -> None:
    """The members of a batch stay scheduled; the record behind them completes."""
    batch = [transfer(2, "send 0->1", "scheduled"), transfer(3, "coalesced", "completed")]
    assert open_transfers(batch) == ()
