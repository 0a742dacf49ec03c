"""Errors that decide nothing beside the whole job: who waited later, who ended first.

Programs print errors that they handle. Such a line is no cause, unless something ties it to a death.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from nodedoctor.record import record
from nodedoctor.triage.identity.world import short_host
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import Event, Place
from nodedoctor.triage.patterns.exits import ProcessExit
from nodedoctor.triage.patterns.kubernetes import PodAddress, is_state_of_pod
from nodedoctor.triage.patterns.log_pattern import Symptom
from nodedoctor.triage.patterns.machine import NodeLost
from nodedoctor.triage.patterns.nccl import Communicator
from nodedoctor.triage.patterns.progress import TrainingStep
from nodedoctor.triage.patterns.ray import ActorDied
from nodedoctor.triage.patterns.stacks import ThreadStack
from nodedoctor.triage.patterns.store import PeerGone
from nodedoctor.triage.patterns.trace import ExceptionRaised
from nodedoctor.triage.timeline.documents import letters_beside_logs
from nodedoctor.triage.timeline.model import QUIET, CollectiveWait, offsets_by_source
from nodedoctor.triage.timeline.recovery.counted_on import FAR
from nodedoctor.triage.timeline.recovery.other_times import (
    OwnStory,
    read_own_story,
)
from nodedoctor.triage.timeline.recovery.passed_stacks import places_of_passed_stacks
from nodedoctor.triage.timeline.recovery.survived import is_own_error

_IMPORTS = re.compile(r"(?:^|\.)(?:ModuleNotFoundError|ImportError)$")
STARTUP_CAUSES = ("version_mismatch", "driver_problem")
"""Causes that keep a process from its first collective: one that made many had none of them."""
RENDEZVOUS = "rendezvous-failed"
"""A symptom that a launcher prints, too, when its store ends with the job."""
STARTUP_COLLECTIVES = 3
"""Collectives after which a job is past its start."""


@record
class JobContext:
    """What in the job speaks against an error: waits, progress and the first ends."""

    wait_starts: dict[int | None, float]
    """When the last wait of each rank began."""
    past_start: bool
    had_communicator: bool
    all_waited: bool
    first_were_killed: bool
    last_end: dict[str, int]
    """Place of the last event in each log that ended a process or kept it from going on."""
    last_error: dict[tuple[str, int | None], int]
    """Place of the last own error of each rank in each log, that nothing says it caught."""
    story: OwnStory
    passed_stacks: frozenset[Place]
    """Where stacks are of a job that went on."""
    letters: frozenset[str]
    """What people wrote beside logs that tell by themselves how the job ended."""
    lost_peers: frozenset[str]
    """Hosts and pods whose processes others lost."""


def describe_job(
    events: Sequence[Event[Any]], waits: tuple[CollectiveWait, ...], expected: int | None
) -> JobContext:
    """The context of a job's errors, put together once."""
    first = [event for event in events if isinstance(event.what, ProcessExit) and event.what.first]
    wait_starts: dict[int | None, float] = {}
    for wait in waits:
        if wait.began is not None:
            wait_starts[wait.who.rank] = max(wait_starts.get(wait.who.rank, wait.began), wait.began)
    return JobContext(
        wait_starts,
        _is_past_start(events, waits),
        any(isinstance(event.what, Communicator) and event.what.is_complete for event in events),
        # where every rank waited, none had failed early
        bool(waits) and expected is not None and {wait.who.rank for wait in waits} >= set(range(expected)),
        # unlike processes with an exception
        bool(first) and all(event.what.signal in (7, 9, 11) for event in first),
        offsets_by_source(filter(_is_end, events), max),
        {(e.place.source, e.who.rank): e.place.offset for e in events if _is_end(e) and is_own_error(e.what)},
        read_own_story(events),
        places_of_passed_stacks(events),
        letters_beside_logs(events),
        _find_lost_peers(events),
    )


def _find_lost_peers(events: Sequence[Event[Any]]) -> frozenset[str]:
    """The names of hosts and pods that others lost, also where they know only their addresses."""
    names: list[str | None] = [event.what.peer for event in events if isinstance(event.what, PeerGone)]
    names += [event.who.host for event in events if isinstance(event.what, (NodeLost, ActorDied))]
    pods = {event.what.address: event.what.pod for event in events if isinstance(event.what, PodAddress)}
    return frozenset(short_host(pods.get(name, name)) for name in names if name)


def is_of_letter(event: Event[Any], job: JobContext) -> bool:
    """True for what a letter quotes, beside logs that tell by themselves how their job ended."""
    return event.place.source in job.letters


def is_lost_pod(event: Event[Any], job: JobContext) -> bool:
    """True for what ended a pod whose process others then lost: that it runs again heals no job."""
    return is_state_of_pod(event.what) and short_host(event.who.host) in job.lost_peers


def is_startup_error(event: Event[Any], job: JobContext) -> bool:
    """True for what keeps a program from its first step, or nodes from meeting, in a job past that."""
    if job.had_communicator and isinstance(event.what, Symptom) and event.what.name == RENDEZVOUS:
        return True
    return job.past_start and event.who.rank is None and _prevents_start(event.what)


def waited_later(event: Event[Any], job: JobContext) -> bool:
    """True for a process that waited in a collective after its error, until the timeout."""
    rank = event.who.rank
    later = (
        rank is not None
        and event.time is not None
        and rank in job.wait_starts
        and event.time < job.wait_starts[rank]
    )
    return later and is_own_error(event.what)


def belongs_to_a_waiting_rank(event: Event[Any], job: JobContext) -> bool:
    """True for an error without a rank where every rank waited, so that none failed."""
    return job.all_waited and event.who.rank is None and is_own_error(event.what)


def is_stack_of_work(event: Event[Any], job: JobContext) -> bool:
    """True for a stack that was looked at while the job worked."""
    return isinstance(event.what, ThreadStack) and event.place in job.passed_stacks


def follows_kill(event: Event[Any], job: JobContext) -> bool:
    """True for an exception of an unknown rank where the first to end were killed."""
    return job.first_were_killed and event.who.rank is None and isinstance(event.what, ExceptionRaised)


def is_retold(event: Event[Any], job: JobContext) -> bool:
    """True for an error that a process retells, before the end of the job or its own.

    A mere exit code is no other end: it may be the one of this error.
    """
    if event.manner != "retold":
        return False
    source, offset = event.place.source, event.place.offset
    if event.who.rank is not None:
        return job.last_error.get((source, event.who.rank), offset) > offset
    return any(end > offset or log != source for log, end in job.last_end.items())


def _is_end(event: Event[Any]) -> bool:
    exit_code = isinstance(event.what, ProcessExit) and event.what.signal is None
    return event.manner == "plain" and not exit_code and event.kind not in (*QUIET, Mark.UNREAD_TROUBLE)


def _is_past_start(events: Sequence[Event[Any]], waits: Sequence[CollectiveWait]) -> bool:
    """True when the job had counted steps, or waits in a late collective."""
    if any(wait.work.seq is not None and wait.work.seq > STARTUP_COLLECTIVES for wait in waits):
        return True
    rises: Counter[tuple[str, int]] = Counter()
    for event in events:
        if isinstance(event.what, TrainingStep) and event.what.begins:
            rises[event.what.series, event.what.part] += event.what.rises
    return max(rises.values(), default=0) >= FAR


def _prevents_start(what: object) -> bool:
    """True for what keeps a program from its first step, except imports in functions."""
    if isinstance(what, ExceptionRaised):
        in_function = bool(what.frames) and what.frames[-1].function != "<module>"
        return not in_function and _IMPORTS.search(what.type) is not None
    return isinstance(what, Symptom) and (what.cause in STARTUP_CAUSES or what.name == RENDEZVOUS)
