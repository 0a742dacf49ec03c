"""Ranks that did not come to what the others waited in, and the long work that may excuse them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

from nodedoctor.triage.describe import describe_identities, distinct_ranks
from nodedoctor.triage.identity.world import is_one_node, launched_ranks, short_host
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import Candidate, Cause, Confidence, Event, Ground, Identity
from nodedoctor.triage.patterns.exits import SIGABRT, ProcessExit
from nodedoctor.triage.patterns.progress import LongWork, TrainingStep, is_brief
from nodedoctor.triage.patterns.secondary_errors import is_secondary
from nodedoctor.triage.patterns.stacks import StackFrame, ThreadStack, collective_in
from nodedoctor.triage.patterns.store import GlooTimeout
from nodedoctor.triage.patterns.trace import ExceptionRaised
from nodedoctor.triage.timeline.counters import statuses_ahead
from nodedoctor.triage.timeline.model import Timeline
from nodedoctor.triage.verdict.causes import groups
from nodedoctor.wording import count_with_noun, decimal, singular_or_plural

_SAVES = re.compile(r"(?i)(?<![a-z])(?:ckpt|checkpoint|async_save)|save_(?:model|state|pretrained|weights)")
"""Functions and process groups that save, as torchtune, NeMo, Megatron and Lightning call them."""


FEWEST_WAITING = 3
"""Ranks that waited from which a number between theirs, without a line here, is of one that did not. Ours:
beginnings and ends of logs have the lines of one or two."""


def absent_rank(
    timeline: Timeline,
    culprits: tuple[Identity, ...],
    evidence: tuple[Event[Any], ...],
    did: str,
    ground: Ground,
    confidence: Confidence,
    then: str = "",
) -> Candidate:
    """A rank that did not come; legitimate work where a line shows it at that.

    The line is of the rank, or of none. Only a timeout makes work too long: a wait proves nothing.
    """
    ranks = {who.rank for who in culprits}
    work = last_long_work(timeline, ranks) if not then else None
    asleep = [event for event in timeline.marked(Mark.DELIBERATE_SLEEP) if event.who.rank in ranks]
    bar = _rising_bar(timeline, ranks) if work is None and not then else None
    if work is not None:
        doing = work.what.kind
    elif bar is not None:
        doing = f"at {bar.what.last[-1]:g} of {_total(bar)}, which rose while they waited"
    else:
        doing = "a checkpoint was saved" if save_waits(timeline) else ""
    excuse = "" if asleep else doing
    cause: Cause = "timeout_too_short_legit_work" if excuse else "cpu_stuck_or_slow_rank"
    victims = tuple(distinct_ranks(wait.who for wait in timeline.waits if wait.who.rank not in ranks))
    return Candidate(
        cause,
        ground,
        confidence,
        f"{_with_gpu(culprits)} {did}{f' ({excuse})' if excuse else ''}; "
        f"{then.format(it=singular_or_plural(len(culprits), 'it', 'them')) or _waited(timeline, victims)}",
        (*evidence, *asleep[:1], *(event for event in (work, bar) if event is not None)),
        culprits,
        victims,
        collective=timeline.waits[0].work if timeline.waits else None,
    )


def collective_name(timeline: Timeline) -> str:
    """The collective that the ranks waited in: `ALLREDUCE 4411`."""
    work = timeline.waits[0].work if timeline.waits else None
    return work.words if work is not None and work.op else "the collective"


def _with_gpu(culprits: Sequence[Identity]) -> str:
    """The culprits in words, one alone with its GPU: `rank 37 on gpu-5 (GPU 5)`."""
    gpu = culprits[0].gpu if len(culprits) == 1 and culprits[0].rank is not None else None
    return describe_identities(culprits) + (f" (GPU {gpu})" if gpu is not None else "")


def _waited(timeline: Timeline, victims: Sequence[Identity]) -> str:
    """How many ranks waited, and how long: `63 ranks waited 600 s`."""
    limits = {wait.work.timeout_ms for wait in timeline.waits} - {None}
    limit = limits.pop() if len(limits) == 1 else None
    who = count_with_noun(len(victims), "rank") if victims else "the others"
    return f"{who} waited " + (f"{decimal(limit / 1000)} s" if limit else "until the timeout")


def ranks_without_timeout(timeline: Timeline) -> tuple[Identity, ...]:
    """Ranks without a timeout, if most printed one and no line was folded away."""
    if None in timeline.waiting_ranks:
        return ()  # a rank without a timeout may be the one without a number
    events = (*_gloo_waits(timeline), *waits_by_stack(timeline))
    ranks_waiting = {*timeline.waiting_ranks, *(event.who.rank for event in events)}
    waited = {rank for rank in ranks_waiting if rank is not None}
    people = {who.rank: who for who in distinct_ranks(event.who for event in timeline.events)}
    gave_up = {event.who.rank for event in timeline.timeout_events}
    if statuses_ahead(timeline):
        return ()  # a rank is ahead of the others: the silent ones may be, too
    ends = groups.ranks_waited_for(timeline) - waited - gave_up
    if _have_lost_logs(timeline, ends):
        return ()
    if ends and not timeline.folded and len(ends) <= max(1, len(waited) // 2):
        return tuple(people.get(rank, Identity(rank=rank)) for rank in sorted(ends))
    if timeline.folded or len(waited) < 2 or len({wait.work.signature for wait in timeline.waits}) > 1:
        return ()
    size = timeline.expected or groups.size_of(timeline) or launched_ranks(timeline.events) or 0
    ranks = set(timeline.ranks_seen) | set(range(max(size, max(waited) + 1)))
    if any(w.event.who.group_rank not in (None, w.who.rank) for w in timeline.waits):
        ranks &= waited
    missing = sorted(ranks - waited)
    if not size and len(waited) < FEWEST_WAITING and not timeline.ranks_seen.issuperset(missing):
        return ()  # of two that waited alone it is not known who else there was
    if _have_lost_logs(timeline, missing):
        return ()
    if not missing or len(missing) >= len(waited) or len(missing) > max(1, len(ranks) // 3):
        return ()
    return tuple(people.get(rank, Identity(rank=rank)) for rank in missing if rank not in gave_up)


def _have_lost_logs(timeline: Timeline, missing: Iterable[int]) -> bool:
    """True where each rank that waited has a file of its own, and one that did not has none here, or aborted.

    A watchdog aborts the rank that waited: a rank that its launcher saw abort with all of them waited, too.
    """
    files = {wait.event.place.source for wait in timeline.waits}
    speakers = {event.who.rank for event in timeline.last_lines}
    exits = timeline.of_kind(ProcessExit)
    aborted = {event.who.rank for event in exits if event.what.signal == SIGABRT}
    with_all = timeline.waiting_ranks <= aborted
    has_own_file = len(files) == len(timeline.waits) > 1
    return has_own_file and any(rank not in speakers or (with_all and rank in aborted) for rank in missing)


def sole_silent_rank(timeline: Timeline, reports: Sequence[Event[Any]]) -> Identity | None:
    """The only rank that did not come, where reports of a machine may be of its node."""
    silent = ranks_without_timeout(timeline)
    nodes = {short_host(event.who.host) for event in reports if event.who.host}
    if len(silent) != 1 or len(nodes) > 1:
        return None
    own = {short_host(who.host) for who in silent if who.host}
    one_node = is_one_node((event.who for event in timeline.events), timeline.expected, timeline.events)
    host = next((event.who.host for event in reports if event.who.host), None)
    return silent[0].fill_from(Identity(host=host)) if own == nodes or one_node else None


def _gloo_waits(timeline: Timeline) -> list[Event[Any]]:
    """Ranks that gave up in gloo, by themselves or because a neighbour did."""
    if not timeline.of_kind(GlooTimeout):
        return []
    places = {e.place for e in timeline.events if not isinstance(e.what, ExceptionRaised)}
    raised = [e for e in timeline.of_kind(ExceptionRaised) if e.place in places]
    return [*timeline.of_kind(GlooTimeout), *raised]


def waits_by_stack(timeline: Timeline) -> list[Event[Any]]:
    """Stacks in a collective, and tracebacks that end in one because it was given up or a peer was lost."""
    raised = [
        event
        for event in timeline.of_kind(ExceptionRaised)
        if event.what.frames and is_secondary(event.what) and _GIVEN_UP.search(event.what.message)
    ]
    return [
        *(event for event in timeline.of_kind(ThreadStack) if event.what.collective),
        *(event for event in raised if _is_in_collective(event.what.frames)),
    ]


_GIVEN_UP = re.compile(r"(?i)\babort|time[d ]?[- ]?out|\bremote (?:error|process)|ncclRemoteError")
"""Why a collective ends that others do not come to, in the words of torch, NCCL and gloo."""


def _is_in_collective(frames: Sequence[StackFrame]) -> bool:
    """True for a traceback that ends in torch's collectives, or waits for one that was begun before."""
    return bool(collective_in(tuple(frames[::-1]))) or frames[-1].source.endswith(".wait()")


def last_long_work(timeline: Timeline, ranks: set[int | None] | None) -> Event[LongWork] | None:
    """The last long work before the first timeout, of some ranks, without a training step after it.

    What a job prints without a rank is mostly of its first one.
    """
    for event in reversed(timeline.of_kind(LongWork)):
        rank = event.who.rank
        waited = rank is not None and rank in timeline.waiting_ranks
        of_others = ranks is not None and (rank or 0) not in ranks
        if timeline.late(event) or is_brief(event.text) or waited or of_others:
            continue
        steps = [e for e in timeline.of_kind(TrainingStep) if e.place.source == event.place.source]
        later_steps = [e for e in steps if e.place.offset > event.place.offset and not timeline.late(e)]
        return event if len(later_steps) <= 1 else None
    return None


def _rising_bar(timeline: Timeline, ranks: set[int | None]) -> Event[TrainingStep] | None:
    """The last value of a bar of one of some ranks, if it rose while others waited that draw no such bar."""
    began = min((wait.began for wait in timeline.waits if wait.began is not None), default=None)
    steps = timeline.of_kind(TrainingStep)
    of_others = {_bar_name(event) for event in steps if event.who.rank in timeline.waiting_ranks}
    bars = [
        event
        for event in steps
        if event.who.rank in ranks
        and event.what.last[-1] < _total(event)
        and _bar_name(event) not in of_others
        and not timeline.late(event)
    ]
    last = max(bars, key=timeline.moment, default=None)
    rose = last is not None and None not in (last.time, began) and (last.time or 0) > (began or 0)
    return last if rose else None


def _total(event: Event[TrainingStep]) -> int:
    """What a bar or a counter comes to at its end; 0 where it does not say."""
    match = _TOTAL.search(event.what.series)
    return int(match[1]) if match else 0


_TOTAL = re.compile(r"(?:/| of )(\d{1,12})$")


def _bar_name(event: Event[TrainingStep]) -> str:
    return event.what.series.rpartition("|")[2]


def save_waits(timeline: Timeline) -> list[Event[Any]]:
    """All waits, where each is in a save by its group or stack; else none."""
    if timeline.waits:
        grouped = [
            w.event for w in timeline.waits if _SAVES.search(f"{w.work.group.name} {w.work.group.desc}")
        ]
        return grouped if len(grouped) == len(timeline.waits) else []
    gloo = {event.place for event in timeline.of_kind(GlooTimeout)}
    stacks = [
        event
        for event in timeline.of_kind(ExceptionRaised)
        if event.place in gloo and any(_SAVES.search(frame.function) for frame in event.what.frames)
    ]
    return stacks if len(stacks) == len(gloo) else []
