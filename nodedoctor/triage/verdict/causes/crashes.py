"""Processes that crashed: some report it themselves, and their launcher sees it later."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence

from nodedoctor.triage.model import Event
from nodedoctor.triage.patterns.exits import ProcessExit
from nodedoctor.triage.patterns.trace import ExceptionRaised
from nodedoctor.triage.patterns.watchdog import ProcessAborting
from nodedoctor.triage.timeline import Timeline

SIGNALS = (4, 7, 8, 11)
"""Signals of a process's own faults: no launcher sends them, and waiting for others raises none."""


_Kind = tuple[int | None, str | None]
"""The signal of a crash, and its host."""


def all_reported(deaths: Sequence[Event[ProcessExit]]) -> bool:
    """True when every process reported its crash itself, none only its launcher."""
    launcher_exits = [event for event in deaths if event.who.rank is not None]
    return bool(launcher_exits) and len(self_reported(launcher_exits, deaths)) == len(launcher_exits)


def self_reported(
    deaths: Iterable[Event[ProcessExit]], early: Iterable[Event[ProcessExit]]
) -> list[Event[ProcessExit]]:
    """Crashes that the processes reported themselves early, whenever their launcher saw them.

    Their own lines name only host and pid: so all that crashed on a host must have reported it.
    """
    crashed = [e for e in deaths if e.what.signal in SIGNALS and e.who.host is not None]
    ranks: dict[_Kind, set[int]] = defaultdict(set)
    for event in crashed:
        if event.who.rank is not None:
            ranks[_crash_kind(event)].add(event.who.rank)
    pids: dict[_Kind, set[int]] = defaultdict(set)
    for event in early:
        if event.who.rank is None and event.who.pid is not None:
            pids[_crash_kind(event)].add(event.who.pid)
    return [event for event in crashed if len(pids[_crash_kind(event)]) >= len(ranks[_crash_kind(event)]) > 0]


def _crash_kind(event: Event[ProcessExit]) -> _Kind:
    return event.what.signal, event.who.host


def is_during_abort(timeline: Timeline, event: Event[ProcessExit]) -> bool:
    """True for the crash of a process that had announced its abort: its handlers crash.

    A crash without a rank is of the only rank in its log.
    """
    if event.what.signal not in SIGNALS:
        return False
    thrown = [
        error for error in timeline.of_kind(ExceptionRaised) if "::" in error.what.type
    ]  # what std::terminate shows
    aborts = [*timeline.of_kind(ProcessAborting), *thrown]
    if event.who.rank is not None:
        return any(error.who.rank == event.who.rank for error in aborts)
    source = event.place.source
    alone = len({e.who.rank for e in timeline.events if e.place.source == source} - {None}) < 2
    return alone and any(
        error.place.source == source and error.place.offset < event.place.offset for error in aborts
    )
