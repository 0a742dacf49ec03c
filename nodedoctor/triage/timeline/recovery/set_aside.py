"""Decides for every error of the judged run whether it mattered. No other room does.

An error is decisive unless a rule here says that it was handled, survived, an echo of another end, or quoted.
Only decisive ones become causes; the others are kept with the reason and shown as "also seen".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from nodedoctor.debug import Log
from nodedoctor.triage.marks import Kind, Mark
from nodedoctor.triage.model import ErrorFate, Event, SideError
from nodedoctor.triage.patterns.exits import ProcessExit
from nodedoctor.triage.patterns.host_limits import HostOom
from nodedoctor.triage.patterns.job_stopped import CancelledByUser
from nodedoctor.triage.patterns.nccl import Communicator
from nodedoctor.triage.patterns.other_way import OtherWayWorked
from nodedoctor.triage.patterns.progress import TrainingStep
from nodedoctor.triage.patterns.trace import ExceptionRaised
from nodedoctor.triage.timeline.model import QUIET
from nodedoctor.triage.timeline.recovery import counted_on, survived, teardown
from nodedoctor.triage.timeline.recovery import job_context as job
from nodedoctor.triage.timeline.recovery.job_context import JobContext
from nodedoctor.triage.timeline.recovery.other_times import (
    OwnStory,
    is_beside_success,
    is_of_another_program,
    is_of_another_time,
)
from nodedoctor.triage.timeline.recovery.requests import drop_refused_requests

_log = Log(__name__)


T = TypeVar("T")


@dataclass(frozen=True)
class SideRule(Generic[T]):
    """A rule about errors that decide nothing: their fate, the reason, and how they are found.

    It is asked only where there is an event of one of its `kinds`, if it has any.
    """

    fate: ErrorFate
    reason: str
    find: T
    kinds: tuple[Kind, ...] = ()


LOG_RULES: tuple[SideRule[Callable[[list[Event[Any]]], list[Event[Any]]]], ...] = (
    SideRule(
        "handled",
        "the server answered the client that its request was at fault",
        drop_refused_requests,
        (Mark.REQUEST_REFUSED,),
    ),
    SideRule(
        "survived",
        "the job counted far on behind it, as none does whose rank has ended",
        counted_on.drop_deaths_before_many_steps,
        (TrainingStep,),
    ),
    SideRule(
        "handled",
        "the program catches such exceptions in this call, and counts on",
        counted_on.drop_caught_as_before,
        (ExceptionRaised,),
    ),
    SideRule(
        "survived",
        "all tests passed behind it",
        survived.drop_before_passed_tests,
        (Mark.JOB_FINISHED,),
    ),
    SideRule(
        "survived",
        "the process wrote 100 kB behind it",
        survived.drop_before_long_output,
        (Mark.SURVIVED_ERROR,),
    ),
    SideRule(
        "survived",
        "20 ordinary lines of the program's logger follow",
        survived.drop_before_ordinary_lines,
        (Mark.RECOVERED_FROM_ERROR,),
    ),
    SideRule(
        "handled",
        "the program did it in another way, which worked",
        survived.drop_where_another_way_worked,
        (OtherWayWorked,),
    ),
    SideRule(
        "handled",
        "who had started the task that Ray killed says how it went on",
        survived.drop_kills_of_retried_tasks,
        (HostOom,),
    ),
    SideRule(
        "survived",
        "the job came to its end behind it",
        survived.drop_before_the_end,
        (Mark.JOB_FINISHED, Mark.SERVER_READY, CancelledByUser),
    ),
    SideRule(
        "survived",
        "its communicator was complete behind it, or taken down in order",
        survived.drop_before_communicator,
        (Communicator, Mark.SET_UP),
    ),
    SideRule(
        "survived",
        "the rank for which the others waited went on",
        survived.drop_stalls_that_passed,
        (Mark.MISSING_RANK_CAME,),
    ),
    SideRule(
        "survived",
        "the run reports its own success behind it",
        survived.drop_before_success,
        (Mark.JOB_FINISHED, Mark.SERVER_READY),
    ),
    SideRule(
        "survived",
        "who watches over the job and starts its parts again reports its success",
        survived.drop_ends_before_supervised_success,
        (Mark.JOB_FINISHED,),
    ),
    SideRule(
        "survived",
        "the run had reported its success, and no process ended of it",
        survived.drop_teardown_behind_success,
        (Mark.JOB_FINISHED,),
    ),
    SideRule(
        "survived",
        "the job counted on behind it",
        counted_on.drop_before_more_steps,
        (TrainingStep,),
    ),
    SideRule(
        "echoed",
        "the job had been cancelled before",
        survived.drop_exits_after_cancel,
        (CancelledByUser,),
    ),
    SideRule(
        "handled",
        "the program logs it again and again, and counts on",
        counted_on.drop_repeated_errors,
        (TrainingStep,),
    ),
    SideRule(
        "echoed",
        "a user stopped the job, which had worked until then",
        teardown.drop_shutdown_errors,
        (Mark.SHUT_DOWN, CancelledByUser),
    ),
    SideRule(
        "echoed",
        "Ray ended the processes of a run that was done",
        teardown.drop_ray_teardown,
        (Mark.JOB_FINISHED,),
    ),
    SideRule(
        "echoed",
        "the agent that it reports to was done first",
        teardown.drop_orphaned_agent_errors,
        (TrainingStep,),
    ),
    SideRule(
        "echoed",
        "only helpers of a process ended, which had done its work",
        teardown.drop_helper_teardown_errors,
        (ExceptionRaised, ProcessExit),
    ),
)
"""Each leaves out the errors in one log that decide nothing, of those that the rules before it left."""

LINE_RULES: tuple[SideRule[tuple[str, ...]], ...] = (
    SideRule("handled", "the program tells it as a warning", ("warning",)),
    SideRule("handled", "the program says how it went on", ("handled",)),
    SideRule("quoted", "it is part of a sentence or of a setting", ("quoted", "described")),
)
"""By how the line itself asserts an error (`patterns.assertion`): the first reason, whatever else speaks."""

KERNEL_RULES: tuple[SideRule[Callable[[Event[Any], OwnStory], bool]], ...] = (
    SideRule("survived", "the kernel reports it of another time than the job's", is_of_another_time),
    SideRule("survived", "the job came to its end all the same", is_beside_success),
    SideRule("survived", "a program was killed that is none of the job's", is_of_another_program),
)
"""About one error that the kernel reports, beside what the job's own logs tell."""

JOB_RULES: tuple[SideRule[Callable[[Event[Any], JobContext], bool]], ...] = (
    SideRule("handled", "the program retells it, and the end of the job follows", job.is_retold),
    SideRule("quoted", "a letter says it, beside logs that tell by themselves", job.is_of_letter),
    SideRule("survived", "the job was long past its start", job.is_startup_error),
    SideRule("survived", "the same rank came to a later collective and waited there", job.waited_later),
    SideRule("survived", "every rank waited in a collective", job.belongs_to_a_waiting_rank),
    SideRule("survived", "the job worked on behind the look at its stacks", job.is_stack_of_work),
    SideRule("echoed", "the first to end were killed by a signal", job.follows_kill),
)
"""About one error beside the whole job: the first that is true of it gives the reason."""


def decide_in_log(events: list[Event[Any]]) -> tuple[list[Event[Any]], list[SideError]]:
    """The events of one log's last run without the errors that decide nothing, and these."""
    aside: list[SideError] = []
    present = {event.kind for event in events}
    for rule in LOG_RULES:
        if present.isdisjoint(rule.kinds):
            continue
        remaining = rule.find(events)
        if len(remaining) < len(events):
            ids = set(map(id, remaining))
            aside += _set_aside((event for event in events if id(event) not in ids), rule)
        events = remaining
    return events, aside


def decide_in_job(events: list[Event[Any]], context: JobContext) -> tuple[list[Event[Any]], list[SideError]]:
    """The same of a whole job, once it is known who waited."""
    remaining: list[Event[Any]] = []
    aside: list[SideError] = []
    for event in events:
        of_line = None if job.is_lost_pod(event, context) else _line_rule(event)
        rule = of_line or _job_rule(event, context)
        if rule is None:
            remaining.append(event)
        else:
            aside += _set_aside((event,), rule)
    return remaining, aside


def _job_rule(event: Event[Any], context: JobContext) -> SideRule[Any] | None:
    of_kernel = next((rule for rule in KERNEL_RULES if rule.find(event, context.story)), None)
    return of_kernel or next((rule for rule in JOB_RULES if rule.find(event, context)), None)


def _line_rule(event: Event[Any]) -> SideRule[Any] | None:
    return next((rule for rule in LINE_RULES if event.manner in rule.find), None)


def _set_aside(events: Iterable[Event[Any]], rule: SideRule[Any]) -> list[SideError]:
    """The errors among some events, each with its fate; other events are left out."""
    errors = [(event, _line_rule(event) or rule) for event in events if event.kind not in QUIET]
    side_errors = [SideError(event, why.fate, why.reason) for event, why in errors]
    for error in side_errors:
        _log.debug(
            "%s at byte %d of %s decides nothing: %s, %s",
            error.event.kind_name,
            error.event.place.offset,
            error.event.place.source,
            error.fate,
            error.reason,
        )
    return side_errors


MOST_KINDS = 16
"""Kinds of errors that decided nothing which a document lists, the first ones."""


def merge_alike(side_errors: Iterable[SideError]) -> tuple[SideError, ...]:
    """The first of each kind of error, with the number of all that are alike."""
    merged: dict[tuple[Any, ...], SideError] = {}
    for error in side_errors:
        key = (error.event.kind, error.fate, error.reason, counted_on.message_shape(error.event.text))
        before = merged.get(key)
        merged[key] = error if before is None else replace(before, count=before.count + error.count)
    return tuple(merged.values())[:MOST_KINDS]
