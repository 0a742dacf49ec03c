"""All ranks' dumps by group: waiting ranks, missing ranks, and different calls."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence

from nodedoctor.grouping import group_pairs
from nodedoctor.record import record
from nodedoctor.triage.flight.dump import RankDump
from nodedoctor.triage.flight.records import CollectiveRecord, GroupState

_UNEVEN = re.compile(
    r"all_?to_?all|alltoall|_v\b|send|recv|gather|scatter|coalesced|reduce_oop", re.IGNORECASE
)
"""Collectives whose input sizes may differ between ranks."""


@record
class CallMismatch:
    """Ranks whose collective differs at one number; `ranks` is empty without a majority."""

    seq: int
    ranks: tuple[int, ...]
    shown: tuple[tuple[int, str], ...]
    what: str


@record
class GroupAlignment:
    """One group over all its ranks."""

    name: str
    desc: str
    members: tuple[int, ...]
    waiting: dict[int, CollectiveRecord]
    behind: tuple[int, ...]
    without_dump: tuple[int, ...]
    mismatch: CallMismatch | None
    stuck: int | None
    finished: tuple[int, ...] = ()

    @property
    def title(self) -> str:
        """The group as people know it."""
        return f"group {self.name}" + (f" ({self.desc})" if self.desc else "")


def align_groups(dumps: Sequence[RankDump]) -> list[GroupAlignment]:
    """Groups in which a rank waits, matched by name and ranks, not by local id."""
    by_key: dict[tuple[str, tuple[int, ...]], dict[int, GroupState]] = defaultdict(dict)
    ranks_of: dict[str, Counter[tuple[int, ...]]] = defaultdict(Counter)
    for dump in dumps:
        for name, ranks in dump.members.items():
            ranks_of[name][ranks] += 1
    for dump in dumps:
        for name, state in dump.groups.items():
            votes = ranks_of.get(name)
            ranks = dump.members.get(name) or (votes.most_common(1)[0][0] if votes else ())
            if dump.rank is not None:
                by_key[name, ranks][dump.rank] = state
    dumped = {dump.rank for dump in dumps}
    present = {dump.rank: dump for dump in dumps}
    groups = [_align_group(name, ranks, states, dumped, present) for (name, ranks), states in by_key.items()]
    return [group for group in groups if group.waiting]


def _align_group(
    name: str,
    ranks: tuple[int, ...],
    states: dict[int, GroupState],
    dumped: set[int | None],
    present: dict[int | None, RankDump],
) -> GroupAlignment:
    members = ranks or tuple(sorted(states))
    waiting = {rank: op for rank, state in states.items() if (op := state.pending) is not None}
    mismatch = _first_mismatch(states)
    stuck = _stuck_number(waiting, mismatch)
    behind, finished = [], []
    for rank in members:
        state = states.get(rank)
        if stuck is None or rank not in dumped or not present[rank].complete:
            continue
        if state is None:
            dump = present[rank]
            if dump.entries:  # an empty recorder proves nothing
                behind.append(rank)
        elif state.enqueued < stuck:
            behind.append(rank)
        elif state.completed >= stuck and rank not in waiting:
            finished.append(rank)
    desc = next((state.desc for state in states.values() if state.desc), "")
    without_dump = tuple(rank for rank in members if rank not in dumped)
    return GroupAlignment(
        name, desc, members, waiting, tuple(behind), without_dump, mismatch, stuck, tuple(finished)
    )


def _stuck_number(waiting: dict[int, CollectiveRecord], mismatch: CallMismatch | None) -> int | None:
    """The sequence number most ranks wait in; the lowest of equals."""
    if mismatch is not None:
        return mismatch.seq
    votes = Counter(op.seq for op in waiting.values())
    return min(votes, key=lambda seq: (-votes[seq], seq), default=None)


def _first_mismatch(states: dict[int, GroupState]) -> CallMismatch | None:
    """The first sequence number at which two ranks recorded different collectives."""
    pending = [op.seq for state in states.values() if (op := state.pending) is not None]
    if not pending or len(states) < 2:
        return None
    seqs = sorted({seq for state in states.values() for seq in state.ops if seq >= min(pending) - 1})
    for seq in seqs:
        ops = {rank: state.ops[seq] for rank, state in states.items() if seq in state.ops}
        signatures = _differing_ranks(ops)
        if signatures:
            return CallMismatch(
                seq,
                tuple(find_minority(signatures)),
                tuple(sorted(signatures.items()))[:4096],
                "called different collectives",
            )
    return _site_mismatch(states, seqs)


def _differing_ranks(ops: dict[int, CollectiveRecord]) -> dict[int, str] | None:
    names = {rank: op.name for rank, op in ops.items()}
    if len(set(names.values())) > 1:
        return {rank: op.signature for rank, op in ops.items()}
    if any(
        _UNEVEN.search(name) and "all_gather" not in name and "reduce_scatter" not in name
        for name in names.values()
    ):
        return None
    signatures = {rank: op.signature for rank, op in ops.items()}
    return signatures if len(set(signatures.values())) > 1 else None


def _site_mismatch(states: dict[int, GroupState], seqs: Iterable[int]) -> CallMismatch | None:
    """Equal collectives from different source lines: an equal one hides a skipped call."""
    for seq in seqs:
        sites = {rank: s.ops[seq].site for rank, s in states.items() if seq in s.ops and s.ops[seq].site}
        minority = find_minority(sites)
        if minority and len(sites) == len(states):
            shown = tuple(sorted(sites.items()))[:4096]
            return CallMismatch(
                seq, tuple(minority), shown, "made the same call from different lines of the program"
            )
    return None


def wait_sinks(groups: Sequence[GroupAlignment], pairs: Mapping[int, Iterable[int]]) -> tuple[int, ...]:
    """Ranks that others wait for and that wait for none: the ends of all chains.

    `pairs`: the ranks that a rank waits for in sends or receives.
    """
    waits = {rank for rank, peers in pairs.items() if set(peers)}
    awaited = {peer for peers in pairs.values() for peer in peers}
    for group in groups:
        missing = {*group.behind, *group.without_dump}
        here = {rank for rank, op in group.waiting.items() if op.seq == group.stuck}
        waits |= {rank for rank in here if len(missing) > (rank in missing)}
        awaited |= missing if len(here) > 1 else missing - here if here else set()
    return tuple(sorted(awaited - waits))


def find_minority(values: dict[int, str]) -> list[int]:
    """The ranks that differ from a clear majority, of two or more that agree."""
    votes = group_pairs((value, rank) for rank, value in values.items())
    if len(votes) < 2:
        return []
    most = max(votes.values(), key=len)
    others = sorted(rank for ranks in votes.values() if ranks is not most for rank in ranks)
    return others if len(most) > len(others) and len(most) >= 2 else []
