"""From dumps to candidate causes: ranks that are missing, differ, or left no dump."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from nodedoctor.record import record
from nodedoctor.triage.describe import describe_identities, identities_of, rank_ranges
from nodedoctor.triage.flight import pipeline_waits
from nodedoctor.triage.flight.compare_ranks import GroupAlignment, align_groups, wait_sinks
from nodedoctor.triage.flight.dump import RankDump
from nodedoctor.triage.flight.records import CollectiveRecord
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import (
    Candidate,
    Cause,
    CollectiveCall,
    Confidence,
    Event,
    Identity,
    Place,
    ProcessGroup,
)
from nodedoctor.triage.patterns.progress import WorldSize

FEW = 3
"""Of ranks without a dump at most one in so many is blamed; more are dumps that were not collected."""


@record
class FlightReport:
    """What all dumps together say. `calm`: no rank waited."""

    ranks: tuple[int, ...] = ()
    calm: bool = False
    events: tuple[Event[Any], ...] = ()
    candidates: tuple[Candidate, ...] = ()
    notes: tuple[str, ...] = ()


def judge_dumps(dumps: Sequence[RankDump], notes: Sequence[str] = ()) -> FlightReport:
    """Judge dumps of one job, one per rank."""
    groups = align_groups(dumps)
    by_rank = {dump.rank: dump for dump in dumps}
    edges = pipeline_waits.peer_waits(dumps)
    busy = frozenset(rank for group in groups for rank in group.waiting)
    candidates = (
        list(_find_mismatches(groups, by_rank))
        or list(_find_missing(groups, by_rank, edges))
        or list(pipeline_waits.pipeline_candidates(edges, dumps, busy))
    )
    members = {rank for dump in dumps for ranks in dump.members.values() for rank in ranks}
    more = [*notes, *_find_remarks(dumps, groups), *pipeline_waits.transfer_notes(dumps, edges)]
    waiting = ((group, *pair) for group in groups[:8] for pair in islice(group.waiting.items(), 4))
    events = tuple(_wait_event(by_rank[rank], group, op) for group, rank, op in waiting)
    events += tuple(islice(pipeline_waits.wait_events(edges, dumps), 8))
    if members:
        size = WorldSize(max(members) + 1)
        events += (Event(size, Place(dumps[0].path, 0), Identity(), None, f"{size.ranks} ranks"),)
    unseen = members - set(by_rank)  # a rank without a dump may be the one that never came
    still = not groups and not any(dump.transfers for dump in dumps)
    return FlightReport(
        tuple(sorted(rank for rank in by_rank if rank is not None)),
        calm=still and any(dump.entries for dump in dumps) and all(d.complete for d in dumps) and not unseen,
        events=events,
        candidates=tuple(candidates),
        notes=tuple(more),
    )


def _find_mismatches(
    groups: Sequence[GroupAlignment], dumps: dict[int | None, RankDump]
) -> Iterator[Candidate]:
    for group in groups:
        mismatch = group.mismatch
        if mismatch is None:
            continue
        culprits = identities_of(mismatch.ranks)
        parties = () if culprits else tuple(Identity(rank=rank) for rank, _ in mismatch.shown)
        shown = dict(mismatch.shown)
        picked = [*mismatch.ranks[:2], *[rank for rank in shown if rank not in mismatch.ranks][:2]]
        evidence = tuple(
            _record_event(
                dumps[rank], f"rank {rank}, {group.title}, collective {mismatch.seq}: {shown[rank]}"
            )
            for rank in picked
        )
        who = describe_identities(culprits) if culprits else f"ranks {rank_ranges(shown)}"
        others = " and the others" if culprits else ""
        headline = f"collective {mismatch.seq} of {group.title}: {who}{others} {mismatch.what}"
        ours = {shown[rank] for rank in mismatch.ranks}
        theirs = {call for rank, call in shown.items() if rank not in mismatch.ranks}
        different = "different collectives" in mismatch.what
        if different and len(ours) == len(theirs) == 1:
            calls = f"called {ours.pop()}, the others {theirs.pop()}"
            headline = f"collective {mismatch.seq} of {group.title}: {who} {calls}"
        victims = identities_of(rank for rank in group.members if rank not in mismatch.ranks)
        sure: Confidence = "high" if culprits and different else "medium"
        people = (culprits, victims if culprits else (), parties)
        call = _collective_call(group)
        yield Candidate("collective_mismatch", "compared", sure, headline, evidence, *people, collective=call)


def _find_missing(
    groups: Sequence[GroupAlignment], dumps: dict[int | None, RankDump], edges: pipeline_waits.Edges
) -> Iterator[Candidate]:
    ends = wait_sinks(groups, edges)
    root = next((p for p in groups if set(ends) & {*p.behind, *p.without_dump}), None)
    if root is None:
        return
    dumped = [rank for rank in ends if rank in dumps]
    absent = [rank for rank in ends if rank not in dumps]
    if not dumped and len(absent) * FEW > len(root.members) + FEW - 1:
        return
    culprits = identities_of(dumped or absent)
    waiting = sorted({rank for group in groups for rank in group.waiting if rank not in ends})
    first = root.waiting[min(root.waiting)]
    inside = f"{first.name} (collective {root.stuck} of {root.title})"
    who, others = describe_identities(culprits), f"ranks {rank_ranges(waiting)}"
    headline = f"{who} left no dump, and {others} wait for it in {inside}"
    if dumped:
        headline = f"{who} never entered {inside}; {others} wait in it"
    cause: Cause = "cpu_stuck_or_slow_rank" if dumped else "peer_died"
    confidence: Confidence = "low" if not dumped else "medium" if absent else "high"
    last_records = (_last_record(dumps[rank], root) for rank in dumped[:3])
    evidence = (*last_records, _wait_event(dumps[min(root.waiting)], root, first))
    people, call = (culprits, identities_of(waiting)), _collective_call(root)
    yield Candidate(cause, "absence", confidence, headline, evidence, *people, collective=call)


def _find_remarks(dumps: Sequence[RankDump], groups: Sequence[GroupAlignment]) -> list[str]:
    """What keeps the dumps from deciding: recorders off or too short, missing ranks."""
    remarks: list[str] = []
    empty = [dump.rank for dump in dumps if not dump.entries and dump.rank is not None]
    if empty:
        remarks.append(
            f"the recorder of ranks {rank_ranges(empty)} was off (no entries): that does not mean "
            "they did nothing"
        )
    for group in groups:
        short = [
            dump.rank for dump in dumps
            if dump.rank is not None and (state := dump.groups.get(group.name)) is not None
            and group.stuck is not None and state.first > group.stuck
        ]  # fmt: skip
        if short:
            begins = f"it begins after collective {group.stuck}"
            remarks.append(f"the recorder of ranks {rank_ranges(short)} is too short: {begins}")
        if group.without_dump:
            remarks.append(f"{group.title}: no dump of ranks {rank_ranges(group.without_dump)}")
        if group.mismatch is None and not group.behind and not group.without_dump:
            done = f", ranks {rank_ranges(group.finished)} have finished it" if group.finished else ""
            remarks.append(
                f"{group.title}: all ranks came to collective {group.stuck} with the same sizes{done}:"
                " the data path between their GPUs, or an earlier operation on one of them, holds it"
            )
    return remarks


def _collective_call(group: GroupAlignment) -> CollectiveCall:
    op = group.waiting[min(group.waiting)]
    return CollectiveCall(op=op.name, seq=group.stuck, group=ProcessGroup(group.name, group.desc))


def _last_record(dump: RankDump, group: GroupAlignment) -> Event[Any]:
    """The last thing a missing rank did in the group."""
    state = dump.groups.get(group.name)
    if state is None:
        return _record_event(dump, f"rank {dump.rank} recorded nothing in {group.title}")
    op = state.ops.get(state.enqueued)
    doing = f": {op.name}" + (f" from {op.site}" if op.site else "") if op else ""
    return _record_event(
        dump, f"rank {dump.rank} ended at collective {state.enqueued} of {group.title}{doing}"
    )


def _wait_event(dump: RankDump, group: GroupAlignment, op: CollectiveRecord) -> Event[Any]:
    site = f" from {op.site}" if op.site else ""
    text = f"rank {dump.rank} waits in {op.name} (collective {op.seq} of {group.title}, {op.state}){site}"
    return _record_event(dump, text)


def _record_event(dump: RankDump, text: str) -> Event[Any]:
    return Event(Mark.RECORDED_CALL, Place(dump.path, 0), Identity(rank=dump.rank), None, text)
