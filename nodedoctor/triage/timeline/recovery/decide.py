"""Decides for every error of the judged run whether it mattered. No other room does.

An error is decisive unless a rule here says that it was handled, survived, an echo of another end, or quoted.
Only decisive ones become causes; the others are kept with the reason and shown as "also seen".
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any

from nodedoctor.debug import Log
from nodedoctor.record import record
from nodedoctor.triage.model import ErrorFate, Event, SideError
from nodedoctor.triage.timeline.model import QUIET
from nodedoctor.triage.timeline.recovery import job_context as job
from nodedoctor.triage.timeline.recovery import shutdown, survived
from nodedoctor.triage.timeline.recovery.job_context import JobContext
from nodedoctor.triage.timeline.recovery.requests import drop_refused_requests

_DIGITS = re.compile(r"\d+")
_log = Log(__name__)


@record
class LogRule:
    """A rule about the errors in one log: `drop_errors` leaves out those that decide nothing."""

    fate: ErrorFate
    reason: str
    drop_errors: Callable[[list[Event[Any]]], list[Event[Any]]]


@record
class JobRule:
    """A rule about one error beside the whole job: where it `applies`, it decides nothing."""

    fate: ErrorFate
    reason: str
    applies: Callable[[Event[Any], JobContext], bool]


@record
class LineRule:
    """A rule about errors that a line asserts in one of these ways (`patterns.assertion`)."""

    fate: ErrorFate
    reason: str
    manners: tuple[str, ...]


LOG_RULES = (
    LogRule("handled", "the server answered the client that its request was at fault", drop_refused_requests),
    LogRule("echoed", "the job had been cancelled before", survived.drop_exits_after_cancel),
    LogRule("survived", "the process wrote 100 kB behind it", survived.drop_before_long_output),
    LogRule(
        "survived", "20 ordinary lines of the program's logger follow", survived.drop_before_ordinary_lines
    ),
    LogRule("survived", "the job came to its end behind it", survived.drop_before_the_end),
    LogRule("survived", "the run reports its own success behind it", survived.drop_before_success),
    LogRule("survived", "the job counted on behind it", survived.drop_before_more_steps),
    LogRule("handled", "the program logs it again and again, and counts on", survived.drop_repeated_errors),
    LogRule("echoed", "a user stopped the job, which had worked until then", shutdown.drop_shutdown_errors),
    LogRule("echoed", "Ray ended the processes of a run that was done", shutdown.drop_ray_teardown),
    LogRule("echoed", "the agent that it reports to was done first", shutdown.drop_orphaned_agent_errors),
    LogRule(
        "echoed",
        "only helpers of a process ended, which had done its work",
        shutdown.drop_helper_teardown_errors,
    ),
)
"""In this order: each sees what the ones before it left."""

LINE_RULES = (
    LineRule("handled", "the program tells it as a warning", ("warning",)),
    LineRule("handled", "the program says how it went on", ("handled",)),
    LineRule("quoted", "it is part of a sentence or of a setting", ("quoted", "described")),
)
"""How the line itself asserts an error: the first reason, whatever else speaks against it."""

JOB_RULES = (
    JobRule("handled", "the program retells it, and the end of the job follows", job.is_retold),
    JobRule("survived", "the job was long past its start", job.is_startup_error),
    JobRule("survived", "the same rank came to a later collective and waited there", job.waited_later),
    JobRule("survived", "every rank waited in a collective", job.belongs_to_a_waiting_rank),
    JobRule("echoed", "the first to end were killed by a signal", job.follows_kill),
)
"""The first that applies gives the reason."""


def decide_in_log(events: list[Event[Any]]) -> tuple[list[Event[Any]], list[SideError]]:
    """The events of one log's last run without the errors that decide nothing, and these."""
    aside: list[SideError] = []
    for rule in LOG_RULES:
        remaining = rule.drop_errors(events)
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
        rule = _line_rule(event) or next((rule for rule in JOB_RULES if rule.applies(event, context)), None)
        if rule is None:
            remaining.append(event)
        else:
            aside += _set_aside((event,), rule)
    return remaining, aside


def _line_rule(event: Event[Any]) -> LineRule | None:
    return next((rule for rule in LINE_RULES if event.manner in rule.manners), None)


def _set_aside(events: Iterable[Event[Any]], rule: LogRule | JobRule | LineRule) -> list[SideError]:
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
_PREFIX_LENGTH = 40
"""Characters by which errors of one kind differ, without their digits."""


def merge_alike(side_errors: Iterable[SideError]) -> tuple[SideError, ...]:
    """The first of each kind of error, with the number of all that are alike."""
    merged: dict[tuple[Any, ...], SideError] = {}
    for error in side_errors:
        text = _DIGITS.sub("", error.event.text)
        key = (error.event.kind, error.fate, error.reason, text[:_PREFIX_LENGTH])
        before = merged.get(key)
        merged[key] = error if before is None else replace(before, count=before.count + error.count)
    return tuple(merged.values())[:MOST_KINDS]
