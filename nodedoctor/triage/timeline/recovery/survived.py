"""Errors that the job survived: it finished behind them, or had been cancelled before."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterable
from typing import Any

from nodedoctor.grouping import group_by
from nodedoctor.triage.marks import Kind, Mark
from nodedoctor.triage.model import Event, Place
from nodedoctor.triage.patterns.completed import (
    OF_ALL_PROCESSES,
    PASSED_TESTS,
    REPORTS_OF_SUCCESS,
    SUPERVISED,
    is_end_of_training,
    says_any,
)
from nodedoctor.triage.patterns.cuda import GpuFull
from nodedoctor.triage.patterns.exits import LauncherSignalled, ProcessExit
from nodedoctor.triage.patterns.host_limits import HostOom
from nodedoctor.triage.patterns.job_stopped import CancelledByUser
from nodedoctor.triage.patterns.log_pattern import Symptom
from nodedoctor.triage.patterns.nccl import PLUGIN_FAILED, Communicator
from nodedoctor.triage.patterns.other_way import OtherWayWorked
from nodedoctor.triage.patterns.progress import TrainingStep
from nodedoctor.triage.patterns.ray import ActorDied, TaskFailed
from nodedoctor.triage.patterns.reported_ends import STATES_EXIT
from nodedoctor.triage.patterns.secondary_errors import is_secondary
from nodedoctor.triage.patterns.store import BarrierMissed, CollectiveMismatch
from nodedoctor.triage.patterns.trace import ExceptionRaised
from nodedoctor.triage.patterns.unclassified import UnclassifiedError
from nodedoctor.triage.timeline.model import FATAL, QUIET, is_trouble
from nodedoctor.triage.timeline.runs import of_one_process

_ENDS = (ProcessExit, LauncherSignalled, ActorDied, TaskFailed)
"""What is said of a process that has ended, or is made to end."""


def drop_before_long_output(events: list[Event[Any]]) -> list[Event[Any]]:
    """Without the errors of a process that wrote very much behind them."""
    return _drop_before(events, (Mark.SURVIVED_ERROR,), lambda _: True) if of_one_process(events) else events


def drop_before_ordinary_lines(events: list[Event[Any]]) -> list[Event[Any]]:
    """Without the errors behind which a program's logger printed many ordinary lines."""
    if not of_one_process(events):
        return events
    return _drop_before(
        events, (Mark.RECOVERED_FROM_ERROR,), lambda e: e.what is Mark.UNREAD_TROUBLE or _was_shown(e.what)
    )


def drop_where_another_way_worked(events: list[Event[Any]]) -> list[Event[Any]]:
    """Without announced errors in whose place the same speaker did the same in another way.

    What ended a process, or was raised, is more than an announced error.
    """
    by_speaker = group_by((e for e in events if isinstance(e.what, OtherWayWorked)), lambda event: event.who)

    def is_overcome(event: Event[Any]) -> bool:
        worked, at = by_speaker.get(event.who, []), event.place.offset
        behind = bisect_right(worked, at, key=lambda way: way.place.offset)
        announced = event.what is Mark.UNREAD_TROUBLE or isinstance(event.what, UnclassifiedError)
        return announced and behind < len(worked) and worked[behind].what.since <= at

    return [event for event in events if not is_overcome(event)]


def drop_kills_of_retried_tasks(events: list[Event[Any]]) -> list[Event[Any]]:
    """Without Ray's notices of workers killed for memory, where programs say how they went on after each.

    Its nodes count what they killed, and who had started a task decides what becomes of it.
    """
    kills = [event for event in events if isinstance(event.what, HostOom) and event.what.said_by == "Ray"]
    answers = [event for event in kills if event.origin != "raylet"]
    places = {event.place for event in answers}
    given_up = any(is_trouble(event) and event.place in places for event in events)
    if not answers or given_up or any(map(is_death, events)):
        return events
    return [event for event in events if not (isinstance(event.what, HostOom) and event.origin == "raylet")]


def drop_before_the_end(events: list[Event[Any]]) -> list[Event[Any]]:
    """Without what may pass before the job finished or was cancelled, and what was caught before it finished.

    A server that is up is enough. Who cancels a job may have seen what its program reports of itself.
    """
    remaining = _drop_before(events, (Mark.JOB_FINISHED, CancelledByUser), _may_pass)
    remaining = _drop_before(remaining, (Mark.SERVER_READY,), lambda e: e.what is Mark.UNREAD_TROUBLE)
    return _drop_before(remaining, (Mark.JOB_FINISHED,), _is_retold)


def drop_stalls_that_passed(events: list[Event[Any]]) -> list[Event[Any]]:
    """Without waits for ranks that then went on, where nothing failed behind that."""
    came = last_index(events, lambda e: e.what is Mark.MISSING_RANK_CAME)
    if any(map(is_trouble, events[came:])):
        return events
    return [event for event in events if not _is_passing(event.what)]


def drop_before_communicator(events: list[Event[Any]]) -> list[Event[Any]]:
    """Without what NCCL warned of before the same process had its communicator, or took it down in order.

    Of a plug-in that fails it is enough that NCCL chose a network without it.
    """
    done_at = _last_places(filter(_is_complete, events))
    chosen_at = _last_places(event for event in events if _CHOSEN in event.text)

    def did_without(event: Event[Any]) -> bool:
        process, at = (event.who.host, event.who.pid), event.place.offset
        if not isinstance(event.what, (Symptom, UnclassifiedError)) or "NCCL" not in event.text:
            return False
        of_plugin = isinstance(event.what, Symptom) and event.what.name == PLUGIN_FAILED
        return at < done_at.get(process, -1) or (of_plugin and at < chosen_at.get(process, -1))

    return [event for event in events if not did_without(event)]


_CHOSEN = "NCCL INFO Using network "
"""What each process of NCCL prints of its network, a plug-in or one of its own (src/init.cc)."""


def _last_places(events: Iterable[Event[Any]]) -> dict[tuple[str | None, int | None], int]:
    """The place of the last event of each process."""
    return {(e.who.host, e.who.pid): e.place.offset for e in events if e.who.pid is not None}


def _is_complete(event: Event[Any]) -> bool:
    """True where a known process of NCCL's says that its communicator works, or worked until its end."""
    what = event.what
    return isinstance(what, Communicator) and (what.is_complete or what.step.startswith("Destroy"))


def drop_before_success(events: list[Event[Any]]) -> list[Event[Any]]:
    """Without a process's own errors before a run's report of success, where no process failed.

    A rank that had an error and never said that it was done keeps it. What a program retells or logs, it had
    caught: for that the report of one rank alone counts for all, and its own words are enough, by which the
    training is complete or the server up.
    """
    if any(map(is_death, events)):
        return events
    survived = _places_before(events, _reports_success, lambda e: is_own_error(e.what))
    survived |= _places_before(events, _reports_success, _was_caught, alone_for_all=True)
    survived |= _places_before(events, _is_done_or_up, _is_retold)
    survived |= _errors_before_own_end(events)
    return [event for event in events if event.place not in survived or event.kind in QUIET]


def _errors_before_own_end(events: list[Event[Any]]) -> set[Place]:
    """The places of errors behind which the same process says that its training is complete."""
    ends = {
        event.who: event.place for event in events if is_end_of_training(event) and event.who.pid is not None
    }
    return {
        event.place
        for event in events
        if event.who in ends and event.place.offset < ends[event.who].offset and is_own_error(event.what)
    }


def _places_before(
    events: list[Event[Any]],
    is_end: Callable[[Event[Any]], bool],
    is_error: Callable[[Event[Any]], bool],
    *,
    alone_for_all: bool = False,
) -> set[Place]:
    """The places of errors before the last of some ends, of ranks that have one."""
    ranks = {event.who.rank for event in events if is_end(event)}
    end = last_index(events, is_end)
    of_all = bool(events) and says_any(OF_ALL_PROCESSES, events[end].text)
    of_all = of_all or None in ranks or (alone_for_all and len(ranks) == 1)
    before = (event for event in events[:end] if of_all or event.who.rank in ranks)
    return {event.place for event in before if is_error(event)}


def drop_teardown_behind_success(events: list[Event[Any]]) -> list[Event[Any]]:
    """Without what ended threads behind the end of a training, and complaints behind a report of success.

    No process ends with its thread, libraries complain while they are taken down, and servers of models and
    what waits for others end with the program. Only where nothing counts on behind that end: it may be that
    of the first of several trainings.
    """
    end = last_index(events, is_done)
    behind = events[end:] if events and is_done(events[end]) else []
    steps = (event.what for event in behind if isinstance(event.what, TrainingStep))
    if any(step.rises and not step.is_full for step in steps):
        return events
    calm = any(map(_reports_success, events[: end + 1])) and not any(
        is_trouble(event) and not _is_taken_down(event.what) for event in behind
    )
    teardown = {
        event.place
        for event in behind
        if (isinstance(event.what, ExceptionRaised) and event.what.in_thread)
        or (calm and _is_taken_down(event.what) and not STATES_EXIT.search(event.text))
    }
    return [event for event in events if event.place not in teardown or event.kind in QUIET]


def _is_taken_down(what: object) -> bool:
    """True for complaints, and for ends of helpers and of what waits for others."""
    helper = isinstance(what, Symptom) and what.of_another
    return what is Mark.UNREAD_TROUBLE or helper or (isinstance(what, ExceptionRaised) and is_secondary(what))


def _is_retold(event: Event[Any]) -> bool:
    return event.manner == "retold"


def _was_caught(event: Event[Any]) -> bool:
    return _is_retold(event) or _is_caught(event.what)


def drop_before_passed_tests(events: list[Event[Any]]) -> list[Event[Any]]:
    """Without what was printed before all tests had passed: some raise errors, or make ranks wait."""
    end = last_index(
        events, lambda e: e.what is Mark.JOB_FINISHED and PASSED_TESTS.search(e.text) is not None
    )
    return [event for index, event in enumerate(events) if index >= end or event.kind in QUIET]


def drop_ends_before_supervised_success(events: list[Event[Any]]) -> list[Event[Any]]:
    """Without ends of processes before the success that an operator reports, who ends and starts them."""
    end = last_index(events, lambda e: e.what is Mark.JOB_FINISHED and SUPERVISED.search(e.text) is not None)
    return [event for index, event in enumerate(events) if index >= end or event.kind not in _ENDS]


def is_own_error(what: object) -> bool:
    """True for an error of the process that prints it, which may go on after it."""
    return isinstance(what, (ExceptionRaised, GpuFull)) or (isinstance(what, Symptom) and what.personal)


def is_death(event: Event[Any]) -> bool:
    """True for what no job survives, unless a program handles or retells it: then that program did.

    A task of Ray's may be run again, and a helper's process be replaced.
    """
    what = event.what
    of_task = isinstance(what, ActorDied) and what.of_task
    of_helper = isinstance(what, ProcessExit) and bool(what.helper)
    return event.kind in FATAL and event.manner == "plain" and not (of_task or of_helper)


def _reports_success(event: Event[Any]) -> bool:
    return event.what is Mark.JOB_FINISHED and says_any(REPORTS_OF_SUCCESS, event.text)


def is_done(event: Event[Any]) -> bool:
    """True for a run's report of success, and for a trainer's last words on its training."""
    return _reports_success(event) or is_end_of_training(event)


def _is_done_or_up(event: Event[Any]) -> bool:
    return event.what is Mark.SERVER_READY or is_end_of_training(event)


def last_index(events: list[Event[Any]], is_wanted: Callable[[Event[Any]], bool]) -> int:
    """The index of the last event of a kind; 0 where there is none."""
    return max((index for index, event in enumerate(events) if is_wanted(event)), default=0)


def _drop_before(
    events: list[Event[Any]], last: tuple[Kind, ...], is_dropped: Callable[[Event[Any]], bool]
) -> list[Event[Any]]:
    """Without the trouble before the last event of a kind."""
    end = last_index(events, lambda event: event.kind in last)
    return [
        event
        for index, event in enumerate(events)
        if index >= end or event.kind in QUIET or not is_dropped(event)
    ]


def _is_caught(what: object) -> bool:
    return isinstance(what, ExceptionRaised) and what.logged


def _was_shown(what: object) -> bool:
    """True for an exception that the program itself printed, by a logger or not."""
    return isinstance(what, ExceptionRaised) and (what.logged or what.caught)


def _may_pass(event: Event[Any]) -> bool:
    what = event.what
    return what is Mark.UNREAD_TROUBLE or _is_passing(what)


def _is_passing(what: object) -> bool:
    """True for ranks that others waited for, who may still have come."""
    return isinstance(what, (BarrierMissed, CollectiveMismatch)) and what.passing


def drop_exits_after_cancel(events: list[Event[Any]]) -> list[Event[Any]]:
    """Without exit codes of stopped jobs, and of tasks stopped for an outside reason, who may say so.

    Slurm sends SIGTERM, and SIGKILL after KillWait: how a task then ends says nothing of it.
    """
    cancel = next((i for i, e in enumerate(events) if isinstance(e.what, CancelledByUser)), len(events))
    job_ends = (isinstance(e.what, ProcessExit) and e.what.of_job for e in events[cancel:])
    events = [*events[:cancel], *(e for e, job in zip(events[cancel:], job_ends, strict=True) if not job)]
    stop = next(
        (i for i, e in enumerate(events) if isinstance(e.what, CancelledByUser) and e.what.outside), None
    )
    if stop is None or any(map(is_trouble, events[:stop])):
        return events
    return [*events[:stop], *(event for event in events[stop:] if not _is_of_stop(event))]


def _is_of_stop(event: Event[Any]) -> bool:
    """True for the end of a process, and for a complaint of the signal with which it was stopped."""
    complains = event.what is Mark.UNREAD_TROUBLE or isinstance(event.what, UnclassifiedError)
    return isinstance(event.what, ProcessExit) or (complains and _STOP_SIGNAL.search(event.text) is not None)


_STOP_SIGNAL = re.compile(r"\bSIGTERM\b|\bsignal 15\b")
