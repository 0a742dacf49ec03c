"""Waits over all groups: cycles between them, groups that no rank left, saved stacks with a few elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodedoctor.grouping import group_by
from nodedoctor.model import Fix
from nodedoctor.steps import looks
from nodedoctor.triage.describe import blameable_identities, describe_identities, distinct_ranks, rank_ranges
from nodedoctor.triage.flight.transfer_time import implied_ranks
from nodedoctor.triage.model import Candidate, Confidence, Event, Identity
from nodedoctor.triage.patterns.machine import KernelTaskHung
from nodedoctor.triage.patterns.stacks import ThreadStack
from nodedoctor.triage.patterns.watchdog import DesyncJoined, DesyncMissing
from nodedoctor.triage.timeline.model import CollectiveWait, Timeline
from nodedoctor.triage.timeline.pace import frozen_seconds
from nodedoctor.wording import count_with_noun, singular_or_plural


def are_awaited(few: Sequence[object], waiting: Sequence[object]) -> bool:
    """True when the processes elsewhere are no more than those waiting in a collective."""
    return bool(few) and len(few) <= len(waiting)


def describe_holdup(who: str, doing: str, waiting: int, collective: str, *, gil: bool, more: str = "") -> str:
    """The headline: where a process is, what else is known, how many wait for it."""
    lock = " and keeps Python's lock" if gil else ""
    wait = singular_or_plural(waiting, "waits", "wait")
    return f"{who} {doing}{lock}{more}; {count_with_noun(waiting, 'rank')} {wait} for it in {collective}"


def outside_collective(timeline: Timeline) -> Iterator[Candidate]:
    """All but a few processes are in a collective, and wait for the few."""
    stacks = timeline.of_kind(ThreadStack)
    waiting = [event for event in stacks if event.what.collective]
    outside = _stacks_elsewhere(timeline, stacks)
    if not are_awaited(outside, waiting):
        return
    victims = tuple(event.who for event in waiting if event.who.rank is not None)
    headline = _describe_elsewhere(timeline, outside, len(waiting), waiting[0].what.collective)
    evidence = (*outside[:3], *waiting[:3])
    culprits = blameable_identities(*(event.who for event in outside))
    yield Candidate("cpu_stuck_or_slow_rank", "absence", "medium", headline, evidence, culprits, victims)


def outside_timed_out_collective(timeline: Timeline) -> Iterator[Candidate]:
    """The stack of a rank is outside of the collective in which others timed out, and it did not.

    A call that gives work to the GPU is no other place: there the victims of a hang wait, too.
    """
    stacks = timeline.of_kind(ThreadStack)
    outside = _stacks_elsewhere(timeline, stacks)
    if are_awaited(outside, [event for event in stacks if event.what.collective]):
        return  # their stacks show more
    culprits = distinct_ranks(event.who for event in outside)
    waits = [wait for wait in timeline.waits if _covers(timeline, wait, culprits)]
    waiting = distinct_ranks(wait.who for wait in waits)
    if timeline.folded or None in timeline.waiting_ranks or not are_awaited(culprits, waiting):
        return
    if any(event.who.rank is None or event.what.may_wait_for_gpu for event in outside):
        return
    sure: Confidence = "low" if len(waiting) < 2 or any(event.what.native for event in outside) else "medium"
    headline = _describe_elsewhere(timeline, outside, len(waiting), waits[0].work.words)
    evidence = (*outside[:3], *(wait.event for wait in waits[:3]))
    yield Candidate(
        "cpu_stuck_or_slow_rank", "absence", sure, headline, evidence, tuple(culprits), tuple(waiting)
    )


def _stacks_elsewhere(timeline: Timeline, stacks: Sequence[Event[ThreadStack]]) -> list[Event[ThreadStack]]:
    """The stacks of ranks that are in no collective, and did not give up in one either.

    Beside some that are surely elsewhere, those that may wait for the GPU are victims of its collective.
    """
    busy = {(event.who.rank, event.who.pid) for event in stacks if event.what.collective}
    outside = [
        event
        for event in stacks
        if (event.who.rank, event.who.pid) not in busy
        and not timeline.gave_up(event.who)
        and not event.what.of_helper
    ]
    elsewhere = [event for event in outside if not event.what.may_wait_for_gpu]
    return outside if any(event.what.native for event in elsewhere) else elsewhere or outside


def _covers(timeline: Timeline, wait: CollectiveWait, people: Sequence[Identity]) -> bool:
    """True for a wait in which some ranks have to take part, as far as the names of groups show."""
    if any(who.world != wait.who.world for who in people):
        return False
    group = wait.work.group
    of_all = group.name in ("", "0") or group.desc == "default_pg"
    if of_all and wait.event.who.group_rank in (None, wait.who.rank):
        return True
    return {who.rank for who in people} <= ranks_waited_for(timeline)


def _describe_elsewhere(
    timeline: Timeline, outside: Sequence[Event[ThreadStack]], waiting: int, collective: str
) -> str:
    """The headline on stacks that are elsewhere; of files that are read or written there, if they are."""
    who = describe_identities(blameable_identities(*(event.who for event in outside))) or "one process"
    stalls = [event for event in timeline.of_kind(KernelTaskHung) if event.what.of_storage]
    more = ", and storage hangs" if stalls else ""
    if not more and all(event.what.in_storage and not event.what.owns_gil for event in outside):
        more = ": storage hangs, or is slow"
    gil = any(event.what.owns_gil for event in outside)
    doing = f"is in {outside[0].what.frames[0].place}"
    return describe_holdup(who, doing, waiting, collective, gil=gil, more=more)


MISCONFIGURED_MS = 1000
"""A limit of a second or less is shorter than one step of any training."""

_SAME_ORDER = (
    Fix(
        "Call the collectives of the groups in the same order on all ranks, or wait for the one before the"
        " other is called (work.wait() and a synchronised stream): two groups may share a GPU only in turns.",
        (),
        "config",
    ),
    Fix(
        "Where all ranks do call them in the same order and only the GPUs run them in another, let NCCL (2.26"
        " or newer) keep the order of the calls.",
        looks("export NCCL_LAUNCH_ORDER_IMPLICIT=1"),
        "config",
    ),
)
"""NCCL's user guide, "Using multiple NCCL communicators concurrently", and its environment variables."""


def group_deadlock(timeline: Timeline) -> Iterator[Candidate]:
    """Ranks of several groups wait for each other: each order alone is right, together not."""
    groups = _by_group(timeline)
    if len(groups) < 2:
        return
    ranks = {name: _group_ranks(waits) for name, waits in groups.items()}
    all_ranks = set().union(*ranks.values())
    if sum(map(len, ranks.values())) != len(all_ranks):
        return
    missing = {name: absent_members(timeline, groups[name]) for name in groups}
    names = sorted(groups, key=lambda name: min(ranks[name]))
    first = next((name for name in names if missing[name]), None)
    if first is None or any(not (ranks_of or set()) <= all_ranks for ranks_of in missing.values()):
        return  # some missing rank waits nowhere
    if any(ranks_of is not None and not ranks_of for ranks_of in missing.values()):
        return  # of one group all came: what holds it up is no other group
    world = timeline.ranks_seen | set(range(max(timeline.expected or 0, len(all_ranks))))
    if None in missing.values() and not (ranks[first] | (missing[first] or set()) == all_ranks == world):
        return  # another rank may be missing from a group of unknown size
    others = [name for name in names if name != first]
    where = " and ".join(
        f"ranks {rank_ranges(ranks[name])} in {_group_name(groups[name][0], name)}" for name in others
    )
    parties = tuple(distinct_ranks(wait.who for wait in timeline.waits))
    yield Candidate(
        "collective_mismatch",
        "compared",
        "medium",
        f"ranks {rank_ranges(ranks[first])} wait in {_group_name(groups[first][0], first)} for "
        "ranks that wait"
        f" elsewhere: {where}. The ranks call the groups' collectives in a different order",
        tuple(waits[0].event for waits in groups.values()),
        parties=parties,
        fixes=_SAME_ORDER,
        collective=groups[first][0].work,
    )


def ranks_waited_for(timeline: Timeline) -> set[int]:
    """Ranks that are missing from their group's collective and wait in no other."""
    groups = _by_group(timeline)
    missing = [absent_members(timeline, waits) or set() for waits in groups.values()]
    return set().union(*missing) - _group_ranks(list(timeline.waits))


def absent_members(timeline: Timeline, waits: list[CollectiveWait]) -> set[int] | None:
    """Members of a group that do not wait in it; None when members are unknown.

    Frameworks make groups of ranks at equal distances: two members with their numbers in the group tell the
    distance, and the size tells the rest.
    """
    inside = {(wait.event.who.group_rank, wait.who.rank) for wait in waits}
    size = _group_size(timeline, waits) or _size_of_siblings(timeline, waits)
    positions = sorted((number, rank) for number, rank in inside if number is not None and rank is not None)
    if size is None or len(positions) < 2 or len(positions) != len(waits) or positions[-1][0] >= size:
        return None
    distance = (positions[1][1] - positions[0][1]) // (positions[1][0] - positions[0][0])
    begin = positions[0][1] - positions[0][0] * distance
    if distance < 1 or begin < 0 or any(rank != begin + number * distance for number, rank in positions):
        return None
    return {begin + number * distance for number in range(size)} - _group_ranks(waits)


def _size_of_siblings(timeline: Timeline, waits: list[CollectiveWait]) -> int | None:
    """The size of another group of the same kind, such as the same parallelism."""
    kind = waits[0].work.group.desc
    siblings = [wait for wait in timeline.waits if kind and wait.work.group.desc == kind]
    inside = [wait.event.who.group_rank for wait in siblings]
    implied = max((size for wait in siblings if (size := implied_ranks(wait.work)) is not None), default=0)
    size = max(implied, *(number + 1 for number in inside if number is not None), 0)
    return size if size > 1 else None


def too_short(timeline: Timeline) -> Iterator[Candidate]:
    """A limit that no step fits into was set in the wrong unit."""
    short = [
        w for w in timeline.waits if w.work.timeout_ms is not None and w.work.timeout_ms <= MISCONFIGURED_MS
    ]
    if short:
        yield Candidate(
            "timeout_too_short_legit_work",
            "named",
            "high",
            f"the timeout of the process group is {short[0].work.timeout_ms} ms, less than any step takes: it"
            " was set in the wrong unit",
            tuple(wait.event for wait in short[:3]),
            collective=short[0].work,
        )


def frozen_watchdog(timeline: Timeline) -> Iterator[Candidate]:
    """A watchdog that reports far more than its limit was frozen, with process or machine."""
    beyond = frozen_seconds(timeline.waits)
    if beyond is not None:
        hours = f"{beyond / 3600:.1f} h" if beyond >= 3600 else f"{beyond / 60:.0f} min"
        yield Candidate(
            "cpu_stuck_or_slow_rank",
            "absence",
            "medium",
            f"the processes or their machine were stopped: the watchdog fired {hours} after its limit, and it"
            " looks every second (a suspended machine, a stopped process, memory that is swapped out)",
            tuple(wait.event for wait in timeline.waits[:3]),
            collective=timeline.waits[0].work,
        )


def ranks_in_collective(timeline: Timeline) -> int | None:
    """The number of the group's ranks when all wait in one collective, else None."""
    reports = {(event.what.ranks, event.what.seq) for event in timeline.of_kind(DesyncJoined)}
    if len(reports) == 1 and not any(event.what.ranks for event in timeline.of_kind(DesyncMissing)):
        ranks, _ = reports.pop()
        if len(ranks) > 1 and timeline.ranks_seen <= set(ranks):
            return len(ranks)
    signatures = {wait.work.signature[:2] for wait in timeline.waits}
    names = {wait.work.group.name for wait in timeline.waits} - {""}
    if len(signatures) != 1 or len(names) > 1 or timeline.waits[0].work.seq is None:
        return None
    size = _group_size(timeline, list(timeline.waits))
    waiting = _group_ranks(list(timeline.waits))
    return size if size is not None and size > 1 and len(waiting) >= size else None


def size_of(timeline: Timeline) -> int | None:
    """The number of ranks of the waiting group, by its collective or the job."""
    return _group_size(timeline, list(timeline.waits))


def world_of(timeline: Timeline) -> int | None:
    """The number of ranks of the job: as logged, else the default group's size."""
    first = timeline.first_wait
    default = first is not None and first.work.group.desc == "default_pg"
    return timeline.expected or (size_of(timeline) if default else None)


def _by_group(timeline: Timeline) -> dict[str, list[CollectiveWait]]:
    """Waits by the name of their group, if all have a name and a rank.

    The name is its process's own up to torch 2.4: where two ranks have the same number in a group of that
    name, it is of several groups.
    """
    if any(not wait.work.group.name or wait.who.rank is None for wait in timeline.waits):
        return {}
    groups = group_by(timeline.waits, lambda wait: wait.work.group.name)
    return {} if any(map(mixes_groups, groups.values())) else groups


def mixes_groups(waits: list[CollectiveWait]) -> bool:
    """True when the waits are of several groups with the same name."""
    inside: dict[int, int | None] = {}
    for wait in waits:
        number = wait.event.who.group_rank
        if number is not None and inside.setdefault(number, wait.who.rank) != wait.who.rank:
            return True
    return False


def _group_size(timeline: Timeline, waits: list[CollectiveWait]) -> int | None:
    """Ranks of a group, by its tensors' sizes, else the job's for its first group."""
    implied = [size for wait in waits if (size := implied_ranks(wait.work)) is not None]
    default = {wait.work.group.name for wait in waits} <= {"", "0"}
    return max(implied, default=timeline.expected if default else None)


def _group_ranks(waits: list[CollectiveWait]) -> set[int]:
    return {wait.who.rank for wait in waits if wait.who.rank is not None}


def _group_name(wait: CollectiveWait, name: str) -> str:
    group = wait.work.group.desc or f"group {name}"
    return f"{wait.work.op or 'a collective'} of {group}"
