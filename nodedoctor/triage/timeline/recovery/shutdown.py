"""What processes do when somebody stops their job: they end in disorder, and nothing of that is a failure."""

from __future__ import annotations

import re
from itertools import dropwhile, takewhile
from typing import Any

from nodedoctor.triage.marks import Mark, kind_of
from nodedoctor.triage.model import Event, Place
from nodedoctor.triage.patterns.exits import LauncherSignalled, ProcessExit
from nodedoctor.triage.patterns.frames import source_place
from nodedoctor.triage.patterns.lifecycle import CancelledByUser
from nodedoctor.triage.patterns.log_pattern import Symptom
from nodedoctor.triage.patterns.nccl import Communicator, NcclError
from nodedoctor.triage.patterns.progress import LongWork, TrainingStep
from nodedoctor.triage.patterns.ray import ActorDied, TaskFailed
from nodedoctor.triage.patterns.secondary_errors import from_helper_process, is_secondary
from nodedoctor.triage.patterns.store import UNHEARD, BarrierMissed, GlooTimeout, PeerGone, StoreWait
from nodedoctor.triage.patterns.trace import CutShort, ExceptionRaised
from nodedoctor.triage.patterns.watchdog import (
    CollectiveFailed,
    CollectiveStatus,
    ProcessAborting,
    TimedOut,
    WatchdogStuck,
)
from nodedoctor.triage.timeline.model import QUIET

_WAITED = (
    TimedOut, CollectiveStatus, ProcessAborting, CollectiveFailed, WatchdogStuck, NcclError, Mark.GIL_HELD,
)  # fmt: skip
"""What those say that wait for one that was stopped."""
_DISORDER = (
    *_WAITED, PeerGone, GlooTimeout, StoreWait, BarrierMissed, ProcessExit, LauncherSignalled,
    Mark.FORCE_KILLED, ActorDied,
    TaskFailed, Mark.UNREAD_TROUBLE, CutShort,
)  # fmt: skip
_BEGINS = (
    Communicator, LongWork, Mark.LAUNCHER_STARTED, Mark.RESTART_ATTEMPT, Mark.SET_UP, Mark.SERVER_READY,
)  # fmt: skip
"""Behind one of these another run may have failed by itself."""
_WORKED = (TrainingStep, Mark.JOB_FINISHED, LongWork, Mark.SERVER_READY)
_FAULTS = (4, 7, 8, 9, 11)
"""Signals that do not come from an orderly stop."""


def drop_shutdown_errors(events: list[Event[Any]]) -> list[Event[Any]]:
    """The events of one source without the trouble that a stop by people brought about.

    Only of a job that went well until then: one that had failed, or did not move, was stopped because of it.
    """
    stop = next((index for index, event in enumerate(events) if _by_people(event)), None)
    if stop is None or any(_is_trouble(event) and not _of_a_helper(event) for event in events[:stop]):
        return events
    if not any(event.kind in _WORKED for event in events[:stop]):
        return events
    moved = any(isinstance(event.what, TrainingStep) and event.what.rises for event in events[:stop])
    again = next((i for i in range(stop + 1, len(events)) if events[i].kind in _BEGINS), len(events))
    rest = [event for event in events[stop:again] if not _in_disorder(event, moved)]
    return [*(e for e in events[:stop] if not _is_trouble(e)), *rest, *events[again:]]


def drop_orphaned_agent_errors(events: list[Event[Any]]) -> list[Event[Any]]:
    """The events without the words of agents that outlived the one they report to: the first to be done ends.

    Only of a job that worked, and of which nothing else is told.
    """
    worked = any(isinstance(event.what, TrainingStep) and event.what.rises for event in events)
    others = any(_is_trouble(event) and not _is_unheard(event.what) for event in events)
    return [e for e in events if not _is_unheard(e.what)] if worked and not others else events


def drop_helper_teardown_errors(events: list[Event[Any]]) -> list[Event[Any]]:
    """The events without what ended only threads or helpers of a process that had done its work by then.

    Writers of logs and loaders of data are taken down with their program, in no order. That all was done
    tells the process itself, behind it; of a thread that found things closed a full bar, too: a helper may
    end before the next bar begins, and its process with it. Only where nothing else is told.
    """
    helpers = {e.place for e in events if isinstance(e.what, ProcessExit) and e.what.helper}
    trouble = [event for event in events if _is_trouble(event)]
    threads = {event.place for event in trouble if _found_closed(event)}
    if not trouble or not all(e.place in threads or _of_helpers(e, helpers) for e in trouble):
        return events
    done = _said_done(events, trouble) or (not helpers and _bar_is_full(events, trouble[0]))
    return [event for event in events if not _is_trouble(event)] if done else events


_CLOSED = re.compile(r"\bclosed\b|shut ?down|finali[sz]")


def _found_closed(event: Event[Any]) -> bool:
    """True for what ended a thread, and no process, because others had ended."""
    what = event.what
    found = isinstance(what, ExceptionRaised) and what.in_thread
    return found and (is_secondary(what) or _CLOSED.search(what.message) is not None)


def _of_helpers(event: Event[Any], helpers: set[Place]) -> bool:
    """True for a helper that ended, and for what its process says of it."""
    what = event.what
    return event.place in helpers and isinstance(what, (ExceptionRaised, ProcessExit))


def _bar_is_full(events: list[Event[Any]], end: Event[Any]) -> bool:
    """True where the last bar that moved in front of an event came to its end."""
    before = takewhile(lambda event: event is not end, events)
    moved = [event for event in before if isinstance(event.what, TrainingStep) and event.what.rises]
    return bool(moved) and max(moved, key=lambda event: event.place.offset).what.is_full


def _said_done(events: list[Event[Any]], aside: list[Event[Any]]) -> bool:
    """True where each process that had trouble said behind it that it was done."""
    behind = dropwhile(lambda event: event is not aside[0], events)
    done = {event.who for event in behind if event.what is Mark.JOB_FINISHED}
    return all(event.who.pid is not None and event.who in done for event in aside)


def _is_unheard(what: object) -> bool:
    return isinstance(what, Symptom) and what.name == UNHEARD


def _by_people(event: Event[Any]) -> bool:
    what = event.what
    return what is Mark.SHUT_DOWN or (isinstance(what, CancelledByUser) and what.by_hand)


def _is_trouble(event: Event[Any]) -> bool:
    return event.asserted and event.kind not in QUIET


def _in_disorder(event: Event[Any], moved: bool) -> bool:
    """True for trouble that processes have when they are stopped."""
    what = event.what
    if kind_of(what) in _WAITED and not moved:
        return False
    if isinstance(what, ExceptionRaised):
        return (
            is_secondary(what) or (bool(what.frames) and not source_place(what.frames)) or _of_a_helper(event)
        )
    if isinstance(what, ProcessExit) and what.signal in _FAULTS:
        return False
    return kind_of(what) in _DISORDER or (isinstance(what, Symptom) and what.cause == "peer_died")


def _of_a_helper(event: Event[Any]) -> bool:
    return isinstance(event.what, ExceptionRaised) and from_helper_process(event.what)
