"""What the kernel reports that is not about the judged job: of another time, or of another program."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from nodedoctor.record import record
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import Event, Place
from nodedoctor.triage.patterns.exits import KILLS, ProcessExit
from nodedoctor.triage.patterns.host_limits import HostOom
from nodedoctor.triage.patterns.machine import is_of_kernel
from nodedoctor.triage.patterns.secondary_errors import is_secondary
from nodedoctor.triage.patterns.trace import ExceptionRaised
from nodedoctor.triage.timeline.jobs import OF_A_JOB
from nodedoctor.triage.timeline.model import is_trouble
from nodedoctor.triage.timeline.recovery.survived import is_done

ZONES = 15 * 3600.0
"""Seconds by which the clocks of a node and of a job may differ: 14 hours by their zones, and the minutes in
which a driver retries."""
YEAR = 366 * 86400.0
"""Seconds after which times without a year begin again."""
_OF_JOBS = re.compile(
    r"python|^(?:pt_|ray\b|torchrun|vllm|sglang|deepspeed|accelerate|mpirun|orted|srun)", re.I
)
"""Commands of processes that belong to jobs, as the kernel shortens them."""


@record
class OwnStory:
    """What a job's own logs tell: when it ran, whether it came to its end, or what it failed of."""

    kernel_lines: frozenset[Place] = frozenset()
    """Where the kernel speaks, and all lines of a log in which only the kernel and its node do."""
    first: float | None = None
    last: float | None = None
    is_done: bool = False
    no_kill: bool = False
    """Nothing failed in them, or a rank raised an error of its own and none was killed."""
    pids: frozenset[int] = frozenset()
    others_killed: frozenset[str] = frozenset()
    """Logs of nodes in which memory ran out for programs that are none of the job's, and for no other."""


def read_own_story(events: Sequence[Event[Any]]) -> OwnStory:
    """What all but the kernel tells; the job's times are those of logs in which it counts, ends or fails."""
    logs = {event.place.source for event in events if event.kind in OF_A_JOB}
    reports = [event for event in events if is_of_kernel(event.what)]
    kernel_logs = {event.place.source for event in reports} - logs
    kernel_lines = {event.place for event in events if event.place.source in kernel_logs}
    kernel_lines |= {event.place for event in reports}
    own = [event for event in events if event.place not in kernel_lines]
    times = [event.time for event in own if event.time is not None and event.place.source in logs]
    failed = any(is_trouble(event) and event.what is not Mark.UNREAD_TROUBLE for event in own)
    raised = any(isinstance(e.what, ExceptionRaised) and e.asserted and not is_secondary(e.what) for e in own)
    killed = any(isinstance(e.what, ProcessExit) and e.what.signal in KILLS for e in own)
    pids = frozenset(event.who.pid for event in own if event.who.pid is not None)
    victims = [event for event in events if isinstance(event.what, HostOom) and event.what.pid is not None]
    of_job = {event.place.source for event in victims if not _is_another_program(event.what, pids)}
    return OwnStory(
        frozenset(kernel_lines),
        min(times, default=None),
        max(times, default=None),
        any(map(is_done, own)) and not failed,
        bool(own) and (not failed or (raised and not killed)),
        pids,
        frozenset(event.place.source for event in victims) - of_job,
    )


def is_of_another_time(event: Event[Any], story: OwnStory) -> bool:
    """True for what the kernel reports of a time in which the job did not run, whatever the clock's zone."""
    if (
        event.time is None
        or story.first is None
        or story.last is None
        or event.place not in story.kernel_lines
    ):
        return False
    away = max(story.first - event.time, event.time - story.last)
    return ZONES < away < YEAR - ZONES


def is_beside_success(event: Event[Any], story: OwnStory) -> bool:
    """True for what the kernel reports beside a job that came to its end."""
    return story.is_done and event.place in story.kernel_lines


def is_of_another_program(event: Event[Any], story: OwnStory) -> bool:
    """True where memory ran out for a program that is none of the job's, of which nothing was killed."""
    what = event.what
    of_node = isinstance(what, HostOom) and (is_of_kernel(what) or what.said_by == "systemd")
    if not of_node or not story.no_kill:
        return False
    if what.pid is None:
        return event.place.source in story.others_killed
    return _is_another_program(what, story.pids)


def _is_another_program(killed: HostOom, pids: frozenset[int]) -> bool:
    return bool(killed.command) and _OF_JOBS.search(killed.command) is None and killed.pid not in pids
