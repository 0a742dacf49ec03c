"""A process was killed, a worker of Ray's ended or a launcher was stopped, and nothing better explains it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from nodedoctor.record import replace
from nodedoctor.triage.describe import (
    blameable_identities,
    describe_identities,
    distinct_ranks,
)
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import Candidate, Confidence, Event, Ground, Identity, Owner
from nodedoctor.triage.patterns.exits import (
    FAULT_SIGNALS,
    OF_SRUN,
    LauncherSignalled,
    PeersTerminated,
    ProcessExit,
)
from nodedoctor.triage.patterns.job_stopped import CancelledByUser
from nodedoctor.triage.patterns.log_pattern import SIGNALS
from nodedoctor.triage.patterns.nccl import NcclError
from nodedoctor.triage.patterns.ray import ActorDied
from nodedoctor.triage.patterns.store import PeerGone
from nodedoctor.triage.patterns.watchdog import CollectiveFailed, ProcessAborting, WatchdogStuck
from nodedoctor.triage.timeline.model import Timeline, follows_timeout, offsets_by_source
from nodedoctor.triage.verdict.causes.culprits import sole_failure
from nodedoctor.triage.verdict.causes.first_exits import (
    all_reported,
    before_stop,
    is_during_abort,
    people_of,
    self_reported,
)

_ACTOR_BLOCK = 200
"""Bytes from the pid of a dead actor to its name, the next line of Ray's list (python/ray/exceptions.py), in
front of which launchers may put a prefix."""

_SIGNALS = {number: name for name, number in SIGNALS.items() if name.startswith("SIG")}


def killed_by_signal(timeline: Timeline) -> Iterator[Candidate]:
    """The first process that a signal ended, other than a launcher's or a watchdog's."""
    forced = {event.who.pid for event in timeline.marked(Mark.FORCE_KILLED)}
    given_up = _steps_given_up(timeline)
    aborts = offsets_by_source(e for e in timeline.of_kind(ProcessExit) if e.what.ends_all)
    began = min((event.what.at for event in timeline.of_kind(ProcessExit) if event.what.at), default="")
    deaths = [
        e
        for e in timeline.of_kind(ProcessExit)
        if e.what.at <= began
        and _is_own_signal(timeline, e, forced)
        and not _killed_for_another(e, aborts)
        and not _ended_with_step(e, given_up)
    ]
    if not deaths:
        return
    first = _first_look(deaths) or _before_stop(timeline, deaths)
    if not first:
        return
    hard = [event for event in first if event.what.signal != 6]
    chosen = hard or first
    signal = chosen[0].what.signal
    has_names = any(
        event.who != Identity() or event.what.tasks for event in chosen
    )  # else all came behind the stop
    if signal in FAULT_SIGNALS and has_names and not any(event.what.first for event in deaths):
        ids = {id(event) for event in chosen}
        chosen = [*chosen, *(event for event in deaths if id(event) not in ids)]  # no launcher sends one
    chosen = [event for event in chosen if event.what.signal == signal]
    people = tuple(distinct_ranks(who for e in chosen for who in people_of(e)))
    people = people or sole_failure(timeline) or blameable_identities(*(e.who for e in chosen if e.who.pid))
    ordered = len(people) == 1 or any(event.what.first for event in chosen) or all_reported(chosen)
    helper = chosen[0].what.helper if all(event.what.helper for event in chosen) else ""
    # victims abort too, often before the guilty rank
    culprits = people if ordered and (signal != 6 or helper) else ()
    name = _SIGNALS.get(signal or 0, f"signal {signal}")
    who = describe_identities(people) or ("" if helper else "a process")
    if helper:
        who = f"a {helper}" + (f" of {who}" if who else "")
    were = "were" if not helper and len(people) > 1 else "was"
    unknown = not people and not helper and bool(timeline.waits)  # a launcher that somebody killed, or a rank
    ground: Ground = "hint" if unknown else "death" if signal != 6 or helper else "echo"
    sure: Confidence = "high" if culprits else "medium"
    headline, parties = f"{who} {were} killed by {name}", () if culprits else people
    yield Candidate("peer_died", ground, sure, headline, tuple(chosen[:4]), culprits, parties=parties)


def ray_deaths(timeline: Timeline) -> Iterator[Candidate]:
    """Ray noticed a dead worker. Its list of possible reasons is constant text.

    A worker that gave up waiting ends itself, and Ray then finds it dead: what Ray says of it, or says only
    after the first timeout, follows from the timeout and is no cause. Where these logs do not go back to the
    timeout, the dead worker may be such a one: so the confidence is low. A driver is shown the first one that
    failed of those that it asked: rank 0, where all of them did.
    """
    died = [event for event in timeline.of_kind(ActorDied) if not follows_timeout(timeline, event)]
    if not died:
        return
    reports: list[Event[Any]] = [*died, *timeline.marked(Mark.ACTOR_PID)]
    processes = [
        e for e in reports if e.who.pid is not None or (e.what is Mark.ACTOR_PID and e.who.rank is not None)
    ]
    processes = [event for event in processes if not follows_timeout(timeline, event)]
    culprits = blameable_identities(*(_add_pid(event, processes) for event in processes))
    worker = f"Ray's worker {describe_identities(culprits)}".rstrip()
    headline, evidence = f"{worker} exited, and Ray does not know why", tuple([*died, *processes][:4])
    first = culprits[:1]
    if first and first[0].rank == 0 and all(event.what is Mark.ACTOR_PID for event in processes):
        yield Candidate("peer_died", "death", "low", headline, evidence, parties=first)
    else:
        yield Candidate("peer_died", "death", "low", headline, evidence, first)


def _add_pid(event: Event[Any], processes: Sequence[Event[Any]]) -> Identity:
    """The identity of a dead actor, with the pid that Ray lists right above it."""
    above = [
        process.who.pid
        for process in processes
        if process.place.source == event.place.source
        and process.who.pid is not None
        and 0 < event.place.offset - process.place.offset < _ACTOR_BLOCK
    ]
    return replace(event.who, pid=above[-1]) if event.who.pid is None and above else event.who


def launcher_signalled(timeline: Timeline) -> Iterator[Candidate]:
    """The launcher got a signal from outside: nothing in the job failed.

    Where a process had ended by itself before, in the same log, that is why a scheduler stopped the rest.
    A job that is stopped after its ranks had given up waiting hung before: somebody ended what was dead.
    """
    stops = timeline.of_kind(LauncherSignalled)
    late = {event.place.source for event in stops if timeline.late(event)}
    signals = [
        event
        for event in stops
        if not _stopped_for_an_end(timeline, event) and event.place.source not in late
    ]
    if not signals:
        return
    signal = signals[0].what.signal
    name = _SIGNALS.get(signal, f"signal {signal}")
    why = {
        1: "the terminal or the ssh session that it ran in was closed",
        15: "a scheduler, the kubelet or a person ended it",
        2: "somebody pressed Ctrl-C",
    }.get(signal, "somebody else sent it")
    target = signals[0].what.what
    headline = f"{'the' if target == 'launcher' else 'a'} {target} was stopped by {name}: {why}"
    owner: Owner | None = "CONFIG" if signal == 1 else None
    yield Candidate("peer_died", "death", "medium", headline, tuple(signals[:3]), owner=owner)


def _stopped_for_an_end(timeline: Timeline, event: Event[LauncherSignalled]) -> bool:
    return event.what.signal == 15 and any(
        exited.place.source == event.place.source
        and exited.place.offset < event.place.offset
        and exited.what.code
        and exited.what.signal is None
        and not exited.what.helper
        for exited in timeline.of_kind(ProcessExit)
    )


def _is_own_signal(timeline: Timeline, event: Event[ProcessExit], forced: set[int | None]) -> bool:
    """True for an end by a signal that no launcher or watchdog sent."""
    signal = event.what.signal
    if signal is None or signal in (1, 2, 3, 13, 15):
        return False
    if signal == 9 and event.who.pid is not None and event.who.pid in forced:
        return False
    if signal == 9 and any(stop.what.by_kill for stop in timeline.of_kind(PeersTerminated)):
        return False
    if is_during_abort(timeline, event):
        return False
    return not (signal == 6 and not event.what.helper and _watchdog_aborts(timeline))


def _steps_given_up(timeline: Timeline) -> dict[str, int]:
    """Where srun first saw a task abort that gave up waiting, by log: then it ends the rest of its step."""
    return offsets_by_source(
        exited
        for exited in timeline.of_kind(ProcessExit)
        if exited.what.signal == 6
        and OF_SRUN.search(exited.text)
        and not timeline.waiting_ranks.isdisjoint(who.rank for who in people_of(exited))
    )


def _ended_with_step(event: Event[ProcessExit], given_up: dict[str, int]) -> bool:
    """True for a task that srun reports killed behind one that gave up."""
    begin = given_up.get(event.place.source, event.place.offset)
    return event.what.signal == 9 and begin < event.place.offset and OF_SRUN.search(event.text) is not None


def _killed_for_another(event: Event[ProcessExit], aborts: dict[str, int]) -> bool:
    """True behind a process that ended the whole job; `aborts`: their offsets by source."""
    abort_offset = aborts.get(event.place.source)
    return event.what.signal in (6, 9) and abort_offset is not None and abort_offset < event.place.offset


def _watchdog_aborts(timeline: Timeline) -> bool:
    """True when watchdogs took processes down: then SIGABRT is how victims end."""
    return bool(timeline.waits) or any(
        timeline.of_kind(kind)
        for kind in (ProcessAborting, CollectiveFailed, NcclError, PeerGone, WatchdogStuck)
    )


def _first_look(deaths: list[Event[ProcessExit]]) -> list[Event[ProcessExit]]:
    """The death that its launcher saw first, and others like it at that moment."""
    first = [event for event in deaths if event.what.first]
    looks = {(event.what.at, event.what.signal) for event in first if event.what.at}
    return first and [
        *first,
        *(e for e in deaths if not e.what.first and (e.what.at, e.what.signal) in looks),
    ]


def _before_stop(timeline: Timeline, deaths: list[Event[ProcessExit]]) -> list[Event[ProcessExit]]:
    """Deaths before the launcher stopped the others; all when it never says so.

    Behind the stop no rank is named, and a SIGKILL is the stop's own where a process had exited before it.
    """
    stops: list[Event[Any]] = [
        *(stop for stop in timeline.of_kind(PeersTerminated) if not stop.what.one_by_one),
        *timeline.of_kind(CancelledByUser),
    ]
    early = before_stop(deaths, stops)
    early_ids = {id(event) for event in early}
    early += [event for event in self_reported(deaths, early) if id(event) not in early_ids]
    if early:
        return early
    exits = [
        exited for exited in timeline.of_kind(ProcessExit) if exited.what.code and not exited.what.signal
    ]
    late = [event for event in deaths if event.what.signal != 9] if before_stop(exits, stops) else deaths
    return [replace(event, what=replace(event.what, tasks=()), who=Identity()) for event in late]
