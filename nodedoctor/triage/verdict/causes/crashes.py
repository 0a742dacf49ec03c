"""Processes that crashed: they tell of it themselves, and their launcher sees it when it looks."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from nodedoctor.triage.model import Event
from nodedoctor.triage.patterns.exits import ProcessExit
from nodedoctor.triage.patterns.trace import ExceptionRaised
from nodedoctor.triage.patterns.watchdog import ProcessAborting
from nodedoctor.triage.timeline import Timeline

SIGNALS = (4, 7, 8, 11)
"""Signals that a process brings upon itself: no launcher sends them, and who waits for others meets none."""


_Kind = tuple[int | None, str | None]
"""The signal of a crash, and its host."""


def all_told(deaths: Sequence[Event[ProcessExit]]) -> bool:
    """True for crashes that each process told itself: none of them is known from its launcher alone."""
    seen = [event for event in deaths if event.who.rank is not None]
    return bool(seen) and len(told_themselves(seen, deaths)) == len(seen)


def told_themselves(
    deaths: Iterable[Event[ProcessExit]], early: Iterable[Event[ProcessExit]]
) -> list[Event[ProcessExit]]:
    """The crashes that their own processes told among the early ones, whenever their launcher saw them.

    There a process is known by its host and its pid alone: so all that crashed on a host must have told.
    """
    crashed = [e for e in deaths if e.what.signal in SIGNALS and e.who.host is not None]
    seen: dict[_Kind, set[int]] = defaultdict(set)
    for event in crashed:
        if event.who.rank is not None:
            seen[_crash_kind(event)].add(event.who.rank)
    told: dict[_Kind, set[int]] = defaultdict(set)
    for event in early:
        if event.who.rank is None and event.who.pid is not None:
            told[_crash_kind(event)].add(event.who.pid)
    return [event for event in crashed if len(told[_crash_kind(event)]) >= len(seen[_crash_kind(event)]) > 0]


def _crash_kind(event: Event[ProcessExit]) -> _Kind:
    return event.what.signal, event.who.host


def in_an_abort(story: Timeline, event: Event[ProcessExit]) -> bool:
    """True for the crash of a process that had said before that it ends: its handlers find much gone.

    Where no rank is told of the crash, it is of the only one whose log it stands in.
    """
    if event.what.signal not in SIGNALS:
        return False
    thrown = [one for one in story.of(ExceptionRaised) if "::" in one.what.type]  # what std::terminate shows
    said = [*story.of(ProcessAborting), *thrown]
    if event.who.rank is not None:
        return any(one.who.rank == event.who.rank for one in said)
    source = event.place.source
    alone = len({one.who.rank for one in story.events if one.place.source == source} - {None}) < 2
    return alone and any(one.place.source == source and one.place.offset < event.place.offset for one in said)
