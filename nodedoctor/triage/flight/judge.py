"""From dumps to candidate causes: who never came, who differs, who left no dump."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

from nodedoctor.record import record
from nodedoctor.triage.describe import describe_identities, rank_ranges
from nodedoctor.triage.flight import pipeline_waits
from nodedoctor.triage.flight.align import GroupAlignment, align_groups, wait_sinks
from nodedoctor.triage.flight.dump import RankDump
from nodedoctor.triage.flight.records import CollectiveRecord
from nodedoctor.triage.model import (
    Candidate,
    CollectiveCall,
    Confidence,
    Event,
    Identity,
    Place,
    ProcessGroup,
)

FEW = 3
"""Without a dump, at most one rank in this many is blamed for it; more are dumps that were not collected."""


@record
class RecordedCall:
    """What a dump shows about one rank, in words."""

    name: str


@record
class FlightReport:
    """What all dumps together say. `calm`: nobody waited for anything."""

    dumps: int
    ranks: tuple[int, ...]
    expected: int | None
    calm: bool
    empty: bool
    events: tuple[Event[Any], ...]
    candidates: tuple[Candidate, ...]
    notes: tuple[str, ...]


def judge_dumps(dumps: Sequence[RankDump], notes: Sequence[str] = ()) -> FlightReport:
    """Judge dumps of one job, one per rank."""
    told = align_groups(dumps)
    by_rank = {dump.rank: dump for dump in dumps}
    edges = pipeline_waits.peer_waits(dumps)
    busy = frozenset(rank for picture in told for rank in picture.waiting)
    found = list(_find_mismatches(told, by_rank)) or _find_missing(told, by_rank, edges)
    found = found or list(pipeline_waits.pipeline_candidates(edges, dumps, busy))
    members = {rank for dump in dumps for ranks in dump.members.values() for rank in ranks}
    more = [*notes, *_find_remarks(dumps, told), *pipeline_waits.transfer_notes(dumps, edges)]
    events = tuple(
        e
        for p in told[:8]
        for rank, op in list(p.waiting.items())[:4]
        for e in [_find_waits(by_rank[rank], p, op)]
    )
    events += tuple(islice(pipeline_waits.wait_events(edges, dumps), 8))
    unseen = members - set(by_rank)  # a rank without a dump may be the one that never came
    still = not told and not any(dump.transfers for dump in dumps)
    return FlightReport(
        len(dumps),
        tuple(sorted(rank for rank in by_rank if rank is not None)),
        max(members) + 1 if members else None,
        calm=still and any(dump.entries for dump in dumps) and all(d.whole for d in dumps) and not unseen,
        empty=bool(dumps) and not any(dump.entries for dump in dumps),
        events=events,
        candidates=tuple(found),
        notes=tuple(more),
    )


def _find_mismatches(told: Sequence[GroupAlignment], dumps: dict[int | None, RankDump]) -> list[Candidate]:
    found: list[Candidate] = []
    for picture in told:
        odd = picture.odd
        if odd is None:
            continue
        culprits = tuple(Identity(rank=rank) for rank in odd.ranks)
        parties = () if culprits else tuple(Identity(rank=rank) for rank, _ in odd.shown)
        shown = dict(odd.shown)
        picked = [*odd.ranks[:2], *[rank for rank in shown if rank not in odd.ranks][:2]]
        evidence = tuple(
            _describe_record(
                dumps[rank], f"rank {rank}, {picture.title}, collective {odd.seq}: {shown[rank]}"
            )
            for rank in picked
        )
        who = describe_identities(culprits) if culprits else f"ranks {rank_ranges(shown)}"
        headline = f"{who} and the others {odd.what} at number {odd.seq} of {picture.title}"
        ours, theirs = {shown[r] for r in odd.ranks}, {shown[r] for r in shown if r not in odd.ranks}
        different = "different collectives" in odd.what
        if different and len(ours) == len(theirs) == 1:
            call, other = ours.pop(), theirs.pop()
            headline = f"collective {odd.seq} of {picture.title}: {who} called {call}, the others {other}"
        found.append(
            Candidate(
                "collective_mismatch",
                "compared",
                "high" if culprits and different else "medium",
                headline,
                evidence,
                culprits,
                tuple(Identity(rank=rank) for rank in picture.members if rank not in odd.ranks)
                if culprits
                else (),
                parties,
                collective=_collective_call(picture),
            )
        )
    return found


def _find_missing(
    told: Sequence[GroupAlignment], dumps: dict[int | None, RankDump], edges: pipeline_waits.Edges
) -> list[Candidate]:
    ends = wait_sinks(told, edges)
    root = next((p for p in told if set(ends) & {*p.behind, *p.undumped}), None)
    if root is None:
        return []
    dumped = [rank for rank in ends if rank in dumps]
    gone = [rank for rank in ends if rank not in dumps]
    if not dumped and len(gone) * FEW > len(root.members) + FEW - 1:
        return []
    culprits = tuple(Identity(rank=rank) for rank in dumped or gone)
    waiting = sorted({rank for picture in told for rank in picture.waiting if rank not in ends})
    first = root.waiting[min(root.waiting)]
    inside = f"{first.name} (collective {root.stuck} of {root.title})"
    if dumped:
        headline = (
            f"{describe_identities(culprits)} never came to {inside}, in which ranks "
            f"{rank_ranges(waiting)} wait"
        )
    else:
        headline = (
            f"{describe_identities(culprits)} left no dump, and ranks {rank_ranges(waiting)} wait for "
            f"it in {inside}"
        )
    confidence: Confidence = "low" if not dumped else "medium" if gone else "high"
    return [
        Candidate(
            "cpu_stuck_or_slow_rank" if dumped else "peer_died",
            "absence",
            confidence,
            headline,
            (
                *(_last_record(dumps[rank], root) for rank in dumped[:3]),
                _find_waits(dumps[min(root.waiting)], root, first),
            ),
            culprits,
            tuple(Identity(rank=rank) for rank in waiting),
            collective=_collective_call(root),
        )
    ]


def _find_remarks(dumps: Sequence[RankDump], told: Sequence[GroupAlignment]) -> list[str]:
    """What keeps the dumps from deciding: an empty or too short recorder, a finished side, missing ranks."""
    said: list[str] = []
    empty = [dump.rank for dump in dumps if not dump.entries and dump.rank is not None]
    if empty:
        said.append(
            f"the recorder of ranks {rank_ranges(empty)} was off (no entries): that does not mean "
            "they did nothing"
        )
    for picture in told:
        short = [
            dump.rank for dump in dumps
            if dump.rank is not None and (state := dump.groups.get(picture.name)) is not None
            and picture.stuck is not None and state.first > picture.stuck
        ]  # fmt: skip
        if short:
            begins = f"it begins after collective {picture.stuck}"
            said.append(f"the recorder of ranks {rank_ranges(short)} is too short: {begins}")
        if picture.undumped:
            said.append(f"{picture.title}: no dump of ranks {rank_ranges(picture.undumped)}")
        if picture.odd is None and not picture.behind and not picture.undumped:
            done = f", ranks {rank_ranges(picture.finished)} have finished it" if picture.finished else ""
            said.append(
                f"{picture.title}: all ranks came to collective {picture.stuck} with the same sizes{done}:"
                " the data path between their GPUs, or an earlier operation on one of them, holds it"
            )
    return said


def _collective_call(picture: GroupAlignment) -> CollectiveCall:
    op = picture.waiting[min(picture.waiting)]
    return CollectiveCall(op=op.name, seq=picture.stuck, group=ProcessGroup(picture.name, picture.desc))


def _last_record(dump: RankDump, picture: GroupAlignment) -> Event[Any]:
    """The last thing a missing rank did in the group."""
    state = dump.groups.get(picture.name)
    if state is None:
        return _describe_record(dump, f"rank {dump.rank} recorded nothing in {picture.title}")
    op = state.ops.get(state.enqueued)
    doing = f": {op.name}" + (f" from {op.site}" if op.site else "") if op else ""
    return _describe_record(
        dump, f"rank {dump.rank} ended at collective {state.enqueued} of {picture.title}{doing}"
    )


def _find_waits(dump: RankDump, picture: GroupAlignment, op: CollectiveRecord) -> Event[Any]:
    site = f" from {op.site}" if op.site else ""
    text = f"rank {dump.rank} waits in {op.name} (collective {op.seq} of {picture.title}, {op.state}){site}"
    return _describe_record(dump, text)


def _describe_record(dump: RankDump, text: str) -> Event[Any]:
    return Event(RecordedCall("flight-recorder"), Place(dump.path, 0), Identity(rank=dump.rank), None, text)
