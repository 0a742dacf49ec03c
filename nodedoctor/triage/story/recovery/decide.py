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
from nodedoctor.triage.model import ErrorFate, Event, SetAside
from nodedoctor.triage.story.model import QUIET
from nodedoctor.triage.story.recovery import of_the_job as job
from nodedoctor.triage.story.recovery import shutdown, survived
from nodedoctor.triage.story.recovery.of_the_job import JobContext
from nodedoctor.triage.story.recovery.requests import drop_refused_requests

_DIGITS = re.compile(r"\d+")
_log = Log(__name__)


@record
class LogRule:
    """A law about the errors in one log: `keep` returns the events without those that decide nothing."""

    fate: ErrorFate
    reason: str
    keep: Callable[[list[Event[Any]]], list[Event[Any]]]


@record
class JobRule:
    """A law about one error beside the whole job: `applies` is True where the error decides nothing."""

    fate: ErrorFate
    reason: str
    applies: Callable[[Event[Any], JobContext], bool]


LOG_RULES = (
    LogRule("handled", "the server answered the client that its request was at fault", drop_refused_requests),
    LogRule("echoed", "the job had been cancelled before", survived.drop_exits_after_cancel),
    LogRule("survived", "the process wrote 100 kB behind it", survived.drop_before_long_output),
    LogRule(
        "survived",
        "the program's logger told of 20 ordinary things behind it",
        survived.drop_before_ordinary_lines,
    ),
    LogRule("survived", "the job came to its end behind it", survived.drop_before_the_end),
    LogRule("survived", "the run reports its own success behind it", survived.drop_before_success),
    LogRule("survived", "the job counted on behind it", survived.drop_before_more_steps),
    LogRule("handled", "the program logs it again and again, and counts on", survived.drop_repeated_errors),
    LogRule("echoed", "somebody stopped the job, which had worked until then", shutdown.drop_shutdown_errors),
    LogRule("echoed", "the agent that it reports to was done first", shutdown.drop_orphaned_agent_errors),
    LogRule(
        "echoed",
        "only helpers of a process ended, which had done its work",
        shutdown.drop_helper_teardown_errors,
    ),
)
"""In this order: each sees what the ones before it left."""

JOB_RULES = (
    JobRule("handled", "the program tells it as a warning", job.is_told_as_warning),
    JobRule("handled", "the program says how it went on", job.is_told_as_handled),
    JobRule("quoted", "it stands in a sentence or a setting", job.is_quoted),
    JobRule("survived", "the job was long past its start", job.is_of_the_start),
    JobRule("survived", "the same rank came to a later collective and waited there", job.waited_later),
    JobRule("survived", "every rank waited in a collective", job.belongs_to_a_waiting_rank),
    JobRule("echoed", "the first to end were killed by a signal", job.is_beside_killed),
)
"""The first that applies gives the reason."""


def decide_in_log(events: list[Event[Any]]) -> tuple[list[Event[Any]], list[SetAside]]:
    """The events of one log's last run without the errors that decide nothing, and these."""
    aside: list[SetAside] = []
    for rule in LOG_RULES:
        kept = rule.keep(events)
        if len(kept) < len(events):
            ids = set(map(id, kept))
            aside += _set_aside((event for event in events if id(event) not in ids), rule)
        events = kept
    return events, aside


def decide_in_job(events: list[Event[Any]], context: JobContext) -> tuple[list[Event[Any]], list[SetAside]]:
    """The same of a whole job, once it is known who waited."""
    kept: list[Event[Any]] = []
    aside: list[SetAside] = []
    for event in events:
        rule = next((rule for rule in JOB_RULES if rule.applies(event, context)), None)
        if rule is None:
            kept.append(event)
        else:
            aside += _set_aside((event,), rule)
    return kept, aside


def _set_aside(events: Iterable[Event[Any]], rule: LogRule | JobRule) -> list[SetAside]:
    """The errors among some events, each with what became of it; the rest is none and is not told of."""
    found = [SetAside(event, rule.fate, rule.reason) for event in events if not isinstance(event.what, QUIET)]
    for one in found:
        _log.debug(
            "%s at byte %d of %s decides nothing: %s, %s",
            type(one.event.what).__name__,
            one.event.place.offset,
            one.event.place.source,
            one.fate,
            one.reason,
        )
    return found


LISTED = 16
"""Kinds of errors that decided nothing which are told one by one, the first ones."""
_ALIKE = 40
"""Characters by which errors of one kind are told apart, without their digits."""


def merge_alike(aside: Iterable[SetAside]) -> tuple[SetAside, ...]:
    """The first of each kind of error, with the number of all that are alike."""
    found: dict[tuple[Any, ...], SetAside] = {}
    for one in aside:
        key = (type(one.event.what), one.fate, one.reason, _DIGITS.sub("", one.event.text)[:_ALIKE])
        before = found.get(key)
        found[key] = one if before is None else replace(before, count=before.count + one.count)
    return tuple(found.values())[:LISTED]
