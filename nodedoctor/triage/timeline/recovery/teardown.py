"""Errors of processes whose job a user stops: their disorder is no failure."""

from __future__ import annotations

import re
from itertools import dropwhile, takewhile
from typing import Any

from nodedoctor.triage.marks import Mark, kind_of
from nodedoctor.triage.model import DEFAULT_WORLD, Event, Place
from nodedoctor.triage.patterns.completed import LAST_RESULTS, SUPERVISED, is_end_of_training, says_any
from nodedoctor.triage.patterns.exits import FAULT_SIGNALS, KILLS, SIGTERM, LauncherSignalled, ProcessExit
from nodedoctor.triage.patterns.job_stopped import CancelledByUser
from nodedoctor.triage.patterns.log_pattern import Symptom
from nodedoctor.triage.patterns.machine import NodeLost
from nodedoctor.triage.patterns.nccl import Communicator
from nodedoctor.triage.patterns.progress import LongWork, TrainingStep
from nodedoctor.triage.patterns.ray import ActorDied, TaskFailed
from nodedoctor.triage.patterns.secondary_errors import from_helper_process, is_secondary
from nodedoctor.triage.patterns.stacks import ends_in_package, source_place
from nodedoctor.triage.patterns.store import UNHEARD, BarrierMissed, GlooTimeout, PeerGone, StoreWait
from nodedoctor.triage.patterns.trace import CutShort, ExceptionRaised
from nodedoctor.triage.timeline.model import QUIET, WAIT_ERRORS, is_trouble

_STOP_ERRORS = (
    *WAIT_ERRORS, PeerGone, GlooTimeout, StoreWait, BarrierMissed, ProcessExit, LauncherSignalled,
    Mark.FORCE_KILLED, ActorDied,
    TaskFailed, Mark.UNREAD_TROUBLE, CutShort,
)  # fmt: skip
_RUN_STARTS = (
    Communicator, LongWork, Mark.LAUNCHER_STARTED, Mark.RESTART_ATTEMPT, Mark.SET_UP, Mark.SERVER_READY,
)  # fmt: skip
"""Behind one of these another run may have failed by itself."""
_WORK = (TrainingStep, Mark.JOB_FINISHED, LongWork, Mark.SERVER_READY)


def drop_shutdown_errors(events: list[Event[Any]]) -> list[Event[Any]]:
    """The events of one source without the trouble that a stop by people brought about.

    Only of a job that went well until then: one that had failed, or did not move, was stopped because of it.
    """
    stop = next((index for index, event in enumerate(events) if _is_user_stop(event)), None)
    if stop is None or any(is_trouble(event) and not _from_helper(event) for event in events[:stop]):
        return events
    if not any(event.kind in _WORK for event in events[:stop]):
        return events
    moved = any(isinstance(event.what, TrainingStep) and event.what.rises for event in events[:stop])
    next_start = next((i for i in range(stop + 1, len(events)) if events[i].kind in _RUN_STARTS), len(events))
    rest = [event for event in events[stop:next_start] if not _is_stop_trouble(event, moved)]
    return [*(e for e in events[:stop] if not is_trouble(e)), *rest, *events[next_start:]]


def drop_orphaned_agent_errors(events: list[Event[Any]]) -> list[Event[Any]]:
    """The events without the errors of agents that outlived the agent they report to.

    Only of a job that worked, and that shows no other trouble.
    """
    worked = any(isinstance(event.what, TrainingStep) and event.what.rises for event in events)
    others = any(is_trouble(event) and not _is_unheard(event.what) for event in events)
    return [e for e in events if not _is_unheard(e.what)] if worked and not others else events


def drop_ray_teardown(events: list[Event[Any]]) -> list[Event[Any]]:
    """The events without what Ray says while it takes down the processes of a run that was done.

    Only where verl, Ray Train or who started the job had said so, and nothing else failed or began then.
    """
    reports = (*LAST_RESULTS, SUPERVISED)
    results = (i for i, e in enumerate(events) if e.what is Mark.JOB_FINISHED and says_any(reports, e.text))
    end = next(results, None)
    behind = events[end:] if end is not None else []
    trouble = [event for event in behind if is_trouble(event)]
    if not trouble or not all(map(_is_ray_teardown, trouble)) or any(e.kind in _RUN_STARTS for e in behind):
        return events
    places = {event.place for event in trouble}
    return [event for event in events if event.place not in places or event.kind in QUIET]


def _is_ray_teardown(event: Event[Any]) -> bool:
    """True for a worker that went without a reason, a SIGTERM, and trouble of Ray's own processes.

    Ray ends a worker without Python's own shutdown, so that it may crash.
    """
    what = event.what
    if isinstance(what, ProcessExit):
        return what.signal in FAULT_SIGNALS and event.who.world != DEFAULT_WORLD
    if isinstance(what, LauncherSignalled):
        return what.what == "process" and what.signal == SIGTERM
    if isinstance(what, ActorDied):
        return not what.never_began
    if isinstance(what, NodeLost):
        return True  # an autoscaler takes nodes away that have nothing left to do
    return what is Mark.UNREAD_TROUBLE and event.origin in _RAYS_OWN


_RAYS_OWN = ("raylet", "gcs_server", "autoscaler")


def drop_helper_teardown_errors(events: list[Event[Any]]) -> list[Event[Any]]:
    """The events without the ends of helpers and threads of a process that was done.

    Writers of logs and loaders of data are taken down with their program, in no order. That it was done the
    process itself says, behind them; for a thread that found things closed a full bar is enough, or that its
    process says so in front of it: a helper may end before the next bar begins, and its process with it. Only
    where there is no other trouble.
    """
    helpers = {e.place for e in events if isinstance(e.what, ProcessExit) and e.what.helper}
    trouble = [event for event in events if is_trouble(event)]
    threads = {event.place for event in trouble if _is_thread_end(event)}
    if not trouble or not all(e.place in threads or _is_helper_end(e, helpers) for e in trouble):
        return events
    done = _reported_done(events, trouble)
    if not helpers:
        done = done or _bar_is_full(events, trouble[0]) or _finished(events, trouble)
    return [event for event in events if not is_trouble(event)] if done else events


_CLOSED = re.compile(r"\bclosed\b|shut ?down|finali[sz]")


def _is_thread_end(event: Event[Any]) -> bool:
    """True for what ended a thread, and no process, because others had ended."""
    what = event.what
    thread_error = isinstance(what, ExceptionRaised) and what.in_thread
    return thread_error and (is_secondary(what) or _CLOSED.search(what.message) is not None)


def _is_helper_end(event: Event[Any], helpers: set[Place]) -> bool:
    """True for a helper's end, and for its process's report of it."""
    what = event.what
    return event.place in helpers and isinstance(what, (ExceptionRaised, ProcessExit))


def _bar_is_full(events: list[Event[Any]], end: Event[Any]) -> bool:
    """True where the last bar that moved before an event was full."""
    before = takewhile(lambda event: event is not end, events)
    moved = [event for event in before if isinstance(event.what, TrainingStep) and event.what.rises]
    return bool(moved) and max(moved, key=lambda event: event.place.offset).what.is_full


def _finished(events: list[Event[Any]], aside: list[Event[Any]]) -> bool:
    """True where each process with trouble in a thread reports that its training is done."""
    done = {event.who for event in events if is_end_of_training(event)}
    return all(event.who in done for event in aside)


def _reported_done(events: list[Event[Any]], aside: list[Event[Any]]) -> bool:
    """True where each process that had trouble reported later that it was done."""
    behind = dropwhile(lambda event: event is not aside[0], events)
    done = {event.who for event in behind if event.what is Mark.JOB_FINISHED}
    return all(event.who.pid is not None and event.who in done for event in aside)


def _is_unheard(what: object) -> bool:
    return isinstance(what, Symptom) and what.name == UNHEARD


def _is_user_stop(event: Event[Any]) -> bool:
    what = event.what
    return what is Mark.SHUT_DOWN or (isinstance(what, CancelledByUser) and what.by_hand)


def _is_stop_trouble(event: Event[Any], moved: bool) -> bool:
    """True for trouble that processes have when they are stopped."""
    what = event.what
    if kind_of(what) in WAIT_ERRORS and not moved:
        return False
    if isinstance(what, ExceptionRaised):
        in_library = bool(what.frames) and not source_place(what.frames)
        stopped = moved and ends_in_package(what.frames)
        return is_secondary(what) or in_library or stopped or _from_helper(event)
    if isinstance(what, ProcessExit) and what.signal in KILLS:
        return False
    return kind_of(what) in _STOP_ERRORS or (isinstance(what, Symptom) and what.cause == "peer_died")


def _from_helper(event: Event[Any]) -> bool:
    return isinstance(event.what, ExceptionRaised) and from_helper_process(event.what)
