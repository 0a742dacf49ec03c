"""Where the counters of ranks without a timeout place them beside a collective that others wait in."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from nodedoctor.grouping import group_by
from nodedoctor.triage.identity.assign import identify_waiting
from nodedoctor.triage.model import Event
from nodedoctor.triage.patterns.watchdog import CollectiveStatus
from nodedoctor.triage.timeline.model import CollectiveWait, Timeline


def waits_by_counters(
    events: Iterable[Event[Any]], waits: Sequence[CollectiveWait]
) -> Iterator[CollectiveWait]:
    """Waits of ranks that had enqueued what the others wait in, and not completed it."""
    by_rank = {}
    for wait, event in _statuses_beside(events, waits):
        what, seq = event.what, wait.work.seq or 0
        if what.completed is not None and what.completed < seq <= (what.enqueued or 0):
            by_rank[event.who.world, event.who.rank] = CollectiveWait(event.who, wait.work, event, None)
    return iter(by_rank.values())


def statuses_ahead(timeline: Timeline) -> list[tuple[CollectiveWait, Event[CollectiveStatus]]]:
    """The statuses of ranks that had entered what others wait in, and do not wait in it themselves."""
    return [
        (wait, event)
        for wait, event in _statuses_beside(timeline.of_kind(CollectiveStatus), timeline.waits)
        if max(event.what.enqueued or 0, event.what.completed or 0) >= (wait.work.seq or 0)
    ]


def _statuses_beside(
    events: Iterable[Event[Any]], waits: Sequence[CollectiveWait]
) -> Iterator[tuple[CollectiveWait, Event[CollectiveStatus]]]:
    """Statuses of ranks that did not give up themselves, each with a wait of its group."""
    statuses = [
        replace(event, who=identify_waiting(event.who))
        for event in events
        if isinstance(event.what, CollectiveStatus)
    ]
    waiting = {(wait.who.world, wait.who.rank) for wait in waits}
    others = [event for event in statuses if (event.who.world, event.who.rank) not in waiting]
    numbered = [wait for wait in waits if wait.work.seq is not None]
    names = {event.what.group.name for event in statuses}
    for (world, group), own in group_by(
        numbered, lambda wait: (wait.who.world, wait.work.group.name)
    ).items():
        seq = Counter(wait.work.seq for wait in own).most_common(1)[0][0]
        wait = next(wait for wait in own if wait.work.seq == seq)
        of_group = names_of_group(group, names)
        for event in others:
            if event.who.rank is not None and event.who.world == world and event.what.group.name in of_group:
                yield wait, event


def names_of_group(group: str, names: set[str]) -> set[str]:
    """The names of a group in statuses: many lines do not name it, and only one may be there."""
    return names if not group and len(names) == 1 else {group}
