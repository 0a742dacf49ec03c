"""What processes do when somebody stops their job: they end in disorder, and nothing of that is a failure."""

from __future__ import annotations

from typing import Any

from nodedoctor.triage.events.echoes import is_echo, of_a_helper
from nodedoctor.triage.events.frames import place
from nodedoctor.triage.events.nccl import Communicator, NcclError, SetUp
from nodedoctor.triage.events.programs.serving import ShutDown
from nodedoctor.triage.events.progress import Finished, LongWork, Serving, TrainingStep
from nodedoctor.triage.events.ray import ActorDied, TaskFailed
from nodedoctor.triage.events.seen import UnreadTrouble
from nodedoctor.triage.events.sign import Symptom
from nodedoctor.triage.events.store import UNHEARD, BarrierMissed, GlooTimeout, PeerGone, StoreWait
from nodedoctor.triage.events.system.exits import Ended, Forced, ProcessExit
from nodedoctor.triage.events.system.slurm import Attempt, Begun, OrderedStop
from nodedoctor.triage.events.trace import CutShort, Raised
from nodedoctor.triage.events.watchdog import CollectiveStatus, Dying, Failed, GilHeld, Heartbeat, TimedOut
from nodedoctor.triage.model import Event
from nodedoctor.triage.story.model import QUIET

_WAITED = (TimedOut, CollectiveStatus, Dying, Failed, GilHeld, Heartbeat, NcclError)
"""What those say that wait for one that was stopped."""
_DISORDER = (
    *_WAITED, PeerGone, GlooTimeout, StoreWait, BarrierMissed, ProcessExit, Ended, Forced, ActorDied,
    TaskFailed, UnreadTrouble, CutShort,
)  # fmt: skip
_BEGINS = (Begun, Attempt, SetUp, Communicator, LongWork, Serving)
"""Behind one of these another run may have failed by itself."""
_WORKED = (TrainingStep, Finished, LongWork, Serving)
_FAULTS = (4, 7, 8, 9, 11)
"""Signals that nobody sends who stops a job in order."""


def unstopped(events: list[Event[Any]]) -> list[Event[Any]]:
    """The events of one source without the trouble that a stop by people brought about.

    Only of a job that went well until then: one that had failed, or did not move, was stopped because of it.
    """
    stop = next((index for index, event in enumerate(events) if _by_people(event)), None)
    if stop is None or any(_is_trouble(event) and not _of_a_helper(event) for event in events[:stop]):
        return events
    if not any(isinstance(event.what, _WORKED) for event in events[:stop]):
        return events
    moved = any(isinstance(event.what, TrainingStep) and event.what.rises for event in events[:stop])
    again = next(
        (i for i in range(stop + 1, len(events)) if isinstance(events[i].what, _BEGINS)), len(events)
    )
    rest = [event for event in events[stop:again] if not _in_disorder(event, moved)]
    return [*(e for e in events[:stop] if not _is_trouble(e)), *rest, *events[again:]]


def parted(events: list[Event[Any]]) -> list[Event[Any]]:
    """The events without the words of agents that outlived the one they report to: the first to be done ends.

    Only of a job that worked, and of which nothing else is told.
    """
    worked = any(isinstance(event.what, TrainingStep) and event.what.rises for event in events)
    others = any(_is_trouble(event) and not _is_unheard(event.what) for event in events)
    return [e for e in events if not _is_unheard(e.what)] if worked and not others else events


def _is_unheard(what: object) -> bool:
    return isinstance(what, Symptom) and what.name == UNHEARD


def _by_people(event: Event[Any]) -> bool:
    what = event.what
    return isinstance(what, ShutDown) or (isinstance(what, OrderedStop) and what.by_hand)


def _is_trouble(event: Event[Any]) -> bool:
    return event.manner == "plain" and not isinstance(event.what, QUIET)


def _in_disorder(event: Event[Any], moved: bool) -> bool:
    """True for trouble that processes have when they are stopped."""
    what = event.what
    if isinstance(what, _WAITED) and not moved:
        return False
    if isinstance(what, Raised):
        return is_echo(what) or (bool(what.frames) and not place(what.frames)) or _of_a_helper(event)
    if isinstance(what, ProcessExit) and what.signal in _FAULTS:
        return False
    return isinstance(what, _DISORDER) or (isinstance(what, Symptom) and what.cause == "peer_died")


def _of_a_helper(event: Event[Any]) -> bool:
    return isinstance(event.what, Raised) and of_a_helper(event.what)
