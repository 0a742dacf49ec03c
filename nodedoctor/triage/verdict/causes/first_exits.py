"""Who ended first by itself, where nothing says why, and who crashed: how far launchers' lines reach.

Some processes report their crash themselves, and their launcher sees it later.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from nodedoctor.record import record
from nodedoctor.triage.describe import blameable_identities, distinct_ranks, identities_of
from nodedoctor.triage.model import Event, Identity
from nodedoctor.triage.patterns.exits import FAULT_SIGNALS, PeersTerminated, ProcessExit
from nodedoctor.triage.patterns.host_limits import HostOom
from nodedoctor.triage.patterns.log_pattern import Symptom
from nodedoctor.triage.patterns.machine import TasksPlaced
from nodedoctor.triage.patterns.store import ClientsMissing
from nodedoctor.triage.patterns.trace import ExceptionRaised
from nodedoctor.triage.patterns.watchdog import ProcessAborting
from nodedoctor.triage.timeline.model import Timeline, offsets_by_source

LARGEST_NAMED = 1 << 16
"""Ranks of which the missing ones are looked for by name."""


@record
class FirstEnd:
    """The ends that no other came before. `alone`: one process ended, all others lived."""

    ends: tuple[Event[ProcessExit], ...]
    people: tuple[Identity, ...]
    alone: bool

    @property
    def codes(self) -> list[int]:
        """The known exit codes."""
        return sorted({event.what.code for event in self.ends if event.what.has_code})


def first_end(timeline: Timeline) -> FirstEnd | None:
    """The first processes that ended with a code; None where no launcher shows which.

    torchelastic notes one time for all that it finds ended at one look: the one that it puts at the root is
    the first only if no other one has that time (`torch/distributed/elastic/multiprocessing/api.py`).
    """
    ends = [
        event for event in timeline.of_kind(ProcessExit) if event.what.code > 0 and event.what.signal is None
    ]
    dated = [event for event in ends if event.what.at]
    if dated:
        first_time = min(event.what.at for event in dated)
        # the time of an entry whose begin is cut off is not known: it may have been the first
        undated = [event for event in ends if not event.what.at and event.what.agent == "entry"]
        first = [*undated, *(event for event in dated if event.what.at == first_time)]
        rooted = any(event.what.first for event in dated)
        return (
            _first_end(first, first)
            if rooted
            else FirstEnd(tuple(first), tuple(_exited_processes(first)), alone=False)
        )
    flagged = [event for event in ends if event.what.first]
    if flagged:
        noticed = all(event.what.agent == "notice" for event in flagged)
        return _first_end(flagged, flagged[:1] if noticed else flagged)
    early = before_stop(ends, timeline.of_kind(PeersTerminated)) or ends
    return _first_end(early, early) if any(_exited_processes(early)) else None


def people_of(event: Event[ProcessExit] | Event[HostOom] | Event[TasksPlaced]) -> list[Identity]:
    """The process that a line is about, or all that a scheduler lists in it."""
    return [Identity(rank=task, host=event.who.host) for task in event.what.tasks] or [event.who]


def never_joined(timeline: Timeline) -> tuple[Identity, ...]:
    """The ranks that the rendezvous store missed, where as many are absent here, or did not reach it."""
    reports = timeline.of_kind(ClientsMissing)
    joins, expected = max(((event.what.arrivals, event.what.expected) for event in reports), default=(0, 0))
    ranks = timeline.ranks_seen
    missing = [rank for rank in range(expected) if rank not in ranks] if expected <= LARGEST_NAMED else []
    # inference engines count clients of groups of their own
    same = timeline.expected == expected or len(ranks) > 1
    if same and len(missing) == expected - joins:
        return identities_of(missing)
    unconnected = distinct_ranks(
        event.who for event in timeline.of_kind(Symptom) if event.what.cause == "network_socket_interface"
    )
    return tuple(unconnected) if reports and len(unconnected) == expected - joins else ()


def _first_end(ends: Sequence[Event[ProcessExit]], first: Sequence[Event[ProcessExit]]) -> FirstEnd | None:
    if not ends:
        return None
    people = tuple(_exited_processes(first))
    lowest = ends[0].what.agent == "notice" and not ends[0].who.local_rank
    process = any(who.rank is not None or who.pid is not None for who in people)  # else of a host, or a pod
    return FirstEnd(tuple(ends), people, len(people) == 1 and process and not lowest)


def _exited_processes(ends: Sequence[Event[ProcessExit]]) -> list[Identity]:
    people = [who for event in ends for who in people_of(event)]
    hosts = {who.host: who for who in people if who.host is not None}
    return list(blameable_identities(*people)) or list(hosts.values())


def before_stop(ends: list[Event[ProcessExit]], stops: Sequence[Event[Any]]) -> list[Event[ProcessExit]]:
    """The ends before their launcher or scheduler began to stop the others, where it says so."""
    first = offsets_by_source(stops)
    return [e for e in ends if e.place.offset < first.get(e.place.source, e.place.offset + 1)]


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
    crashed = [e for e in deaths if e.what.signal in FAULT_SIGNALS and e.who.host is not None]
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
    if event.what.signal not in FAULT_SIGNALS:
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
