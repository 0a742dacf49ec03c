"""Waits between pairs of ranks: a chain ends at the rank that did not answer."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from nodedoctor.triage.describe import describe_identities, identities_of, rank_ranges
from nodedoctor.triage.flight.dump import RankDump
from nodedoctor.triage.flight.records import Transfer
from nodedoctor.triage.model import Candidate, CollectiveCall, Event, Identity, Place, ProcessGroup

Edges = Mapping[int, Mapping[int, Transfer]]
_OPPOSITE = {"send": "recv", "recv": "send"}


def peer_waits(dumps: Sequence[RankDump]) -> Edges:
    """Per rank the peers that have not begun their side of an open transfer."""
    sides = {
        (d.rank, d_peer, t.kind) for d in dumps for t in d.transfers for d_peer in [t.peer_in(d.members)]
    }
    waits: dict[int, dict[int, Transfer]] = {}
    for dump in dumps:
        for transfer in dump.transfers:
            peer = transfer.peer_in(dump.members)
            if dump.rank is None or peer is None or (peer, dump.rank, _OPPOSITE[transfer.kind]) in sides:
                continue
            waits.setdefault(dump.rank, {}).setdefault(peer, transfer)
    return waits


def pipeline_candidates(edges: Edges, dumps: Sequence[RankDump], busy: frozenset[int]) -> Iterator[Candidate]:
    """The rank that others wait for, unless it waits in a collective (`busy`) itself."""
    present = {dump.rank: dump for dump in dumps}
    awaited = {peer for peers in edges.values() for peer in peers}
    ends = [
        rank
        for rank in sorted(awaited - set(edges) - busy)
        if rank in present and present[rank].complete and present[rank].entries
    ]
    if ends:
        culprits = identities_of(ends)
        victims = sorted(rank for rank, peers in edges.items() if set(peers) & set(ends))
        first = next(edges[victims[0]][end] for end in ends if end in edges[victims[0]])
        stuck = identities_of(victims)
        headline = (
            f"{describe_identities(culprits)} never came to {_describe_wait(first)}; "
            f"{describe_identities(stuck)} cannot go on"
        )
        yield Candidate(
            "cpu_stuck_or_slow_rank", "absence", "medium", headline,
            tuple(wait_events(edges, dumps))[:4], culprits, stuck,
            collective=CollectiveCall(op=first.kind.upper(), group=ProcessGroup(first.group)),
        )  # fmt: skip
        return
    crossed = sorted(rank for rank, peers in edges.items() if any(rank in edges.get(p, {}) for p in peers))
    if crossed:
        parties = identities_of(crossed)
        headline = (
            f"{describe_identities(parties)} wait for each other: both receive, or both send, in the "
            "same order"
        )
        evidence = tuple(wait_events(edges, dumps))[:4]
        yield Candidate(
            "collective_mismatch", "absence", "medium", headline, evidence, (), (), parties=parties
        )


def wait_events(edges: Edges, dumps: Sequence[RankDump]) -> Iterator[Event[Transfer]]:
    """What each waiting rank waits for, in words."""
    paths = {dump.rank: dump.path for dump in dumps}
    for rank, peers in sorted(edges.items()):
        for peer, transfer in sorted(peers.items()):
            missing = f"rank {peer} shows no matching {_OPPOSITE[transfer.kind]}"
            text = f"rank {rank} waits in {_describe_wait(transfer)}: {missing}"
            yield Event(transfer, Place(paths[rank], 0), Identity(rank=rank), None, text)


def transfer_notes(dumps: Sequence[RankDump], edges: Edges) -> list[str]:
    """Open transfers whose both sides have begun, or whose peer left no dump."""
    present = {dump.rank for dump in dumps}
    absent = sorted({peer for peers in edges.values() for peer in peers} - present)
    notes = [f"sends or receives wait for ranks {rank_ranges(absent)}, which left no dump"] if absent else []
    both = sorted(d.rank for d in dumps if d.transfers and d.rank is not None and d.rank not in edges)
    if both:
        notes.append(f"ranks {rank_ranges(both)} are in sends or receives that their peers have begun, too")
    return notes


def _describe_wait(transfer: Transfer) -> str:
    arrow = "->" if transfer.kind == "send" else "<-"
    return f"{transfer.kind} {transfer.mine}{arrow}{transfer.peer} of group {transfer.group}"
