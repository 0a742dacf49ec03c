"""Errors that no pattern recognises: every program has its own words for a failure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import shorten
from typing import Any

from nodedoctor.triage.describe import describe_identities, distinct_ranks
from nodedoctor.triage.marks import Mark, kind_of
from nodedoctor.triage.model import Candidate, Confidence, Event
from nodedoctor.triage.patterns.exits import ProcessExit
from nodedoctor.triage.patterns.trace import CutShort
from nodedoctor.triage.patterns.unclassified import UnclassifiedError
from nodedoctor.triage.timeline.model import Timeline, offsets_by_source
from nodedoctor.triage.verdict.causes.culprits import is_about_then, shows_who_failed, sole_failure
from nodedoctor.triage.verdict.causes.exceptions import QUOTE_LENGTH
from nodedoctor.triage.verdict.causes.families import family_of


def last_words(timeline: Timeline) -> Iterator[Candidate]:
    """The first line about a failure whose kind is known, where nothing else is.

    A line that a program calls an error counts more than one that only mentions an error. The latter does not
    count long before the end.
    """
    output_offsets = offsets_by_source(timeline.marked(Mark.OUTPUT_CONTINUED), max)
    errors = [
        (event, family_of(event.text))
        for event in sorted(unclassified_errors(timeline), key=_error_weight)
        if not isinstance(event.what, UnclassifiedError)
        or event.place.offset >= output_offsets.get(event.place.source, 0)
    ]
    for event, kind in errors:
        if kind is None or kind.cause == "undetermined":
            continue
        same = [e for e, its in errors if its is kind and e.kind is event.kind and is_about_then(e, event)]
        culprits = tuple(distinct_ranks(e.who for e in same)) or sole_failure(timeline)
        quote = shorten(event.text, QUOTE_LENGTH, placeholder=" ...")
        headline = f"{f'{describe_identities(culprits)}: ' if culprits else ''}{kind.description} ({quote})"
        sure: Confidence = "low" if culprits else "medium"  # others may have said the same
        yield Candidate(kind.cause, "last words", sure, headline, tuple(same[:4]), culprits, owner=kind.owner)
        return


def _error_weight(event: Event[Any]) -> tuple[bool, bool]:
    """What comes first: a program's own errors, and lines that say more than one word."""
    return event.what is not Mark.UNREAD_TROUBLE, " " not in event.text


def unclassified_errors(timeline: Timeline) -> Sequence[Event[Any]]:
    """Error lines that no pattern recognises, where nothing explains the end.

    A job that went on afterwards, or came to its end, has none: then only errors by name are left.
    """
    if timeline.marked(Mark.NOT_A_LOG) or not all(_unexplained_end(event) for event in timeline.trouble):
        return ()
    errors = timeline.marked(Mark.UNREAD_TROUBLE)
    if timeline.alive:
        return sorted([*errors, *_behind_the_end(timeline)], key=_source_line)
    errors += timeline.marked(Mark.NOT_A_NUMBER)
    plain = [event for event in timeline.of_kind(UnclassifiedError) if not event.what.aside]
    return sorted([*errors, *(plain or timeline.of_kind(UnclassifiedError))], key=_source_line)


def _behind_the_end(timeline: Timeline) -> list[Event[Any]]:
    """Errors of a script after its program finished, before the script's exit code."""
    done = offsets_by_source(timeline.marked(Mark.JOB_FINISHED), max)
    ends = offsets_by_source(timeline.of_kind(ProcessExit), max)
    return [
        event
        for event in timeline.of_kind(UnclassifiedError)
        if done.get(event.place.source, event.place.offset)
        < event.place.offset
        < ends.get(event.place.source, 0)
    ]


def _source_line(event: Event[Any]) -> tuple[str, int]:
    return event.place.source, event.place.offset


def _unexplained_end(event: Event[Any]) -> bool:
    what = event.what
    coded = isinstance(what, ProcessExit) and what.signal is None
    return coded or kind_of(what) in (Mark.UNREAD_TROUBLE, CutShort) or shows_who_failed(event)
