"""What a program raised: the first exception that is no echo of another process's end."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from textwrap import shorten
from typing import Any

from nodedoctor.triage.describe import describe_identities
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import Candidate, Cause, Event
from nodedoctor.triage.patterns.cuda import GpuFull
from nodedoctor.triage.patterns.log_pattern import Symptom
from nodedoctor.triage.patterns.secondary_errors import is_secondary, quoted_message
from nodedoctor.triage.patterns.stacks import is_library, source_place
from nodedoctor.triage.patterns.trace import ExceptionRaised
from nodedoctor.triage.timeline.model import QUIET, Timeline
from nodedoctor.triage.verdict.causes.culprits import find_culprits, independent_failures, is_about_then
from nodedoctor.triage.verdict.causes.families import family_of

QUOTE_LENGTH = 160
"""Characters of an exception that a headline quotes."""
NEXT_LINE = 400
"""Bytes from an exception's line to the one that goes on with its message, in the envelope of a collector."""


def first_exception(timeline: Timeline) -> Iterator[Candidate]:
    """The first exception that is no echo of another process's end."""
    explained = [
        e
        for e in timeline.events
        if e.kind not in (*QUIET, ExceptionRaised, Mark.UNREAD_TROUBLE)
        and not (isinstance(e.what, Symptom) and not e.what.decisive)
    ]
    places = _ExplainedPlaces(explained)
    own = [e for e in timeline.of_kind(ExceptionRaised) if not is_secondary(e.what) and not places.explain(e)]
    if any(_is_specific(event.what) for event in timeline.of_kind(ExceptionRaised)):
        own = [event for event in own if _is_specific(event.what)]
    chosen = independent_failures(timeline, own)
    if not chosen:
        yield from _repeated_by_engine(timeline)
        return
    first = _skip_lookup(min(chosen, key=lambda event: (event.what.later, timeline.moment(event))), chosen)
    kind = family_of(_type_and_message(first.what))
    same = [
        e
        for e in chosen
        if e.what.type == first.what.type
        or (kind is not None and family_of(_type_and_message(e.what)) is kind and is_about_then(e, first))
    ]
    culprits = find_culprits(timeline, same)
    quote = shorten(_in_words(first.what), QUOTE_LENGTH, placeholder=" ...")
    source_line = source_place(first.what.frames)
    where = f" ({source_line})" if source_line else ""
    headline = f"{describe_identities(culprits) or 'the program'} raised {quote}{where}"
    cause: Cause = kind.cause if kind is not None and kind.for_exceptions else "user_code_exception"
    owner = kind.owner if kind is not None else None
    yield Candidate(cause, "own error", "high", headline, tuple(same[:4]), culprits, owner=owner)


def _type_and_message(raised: ExceptionRaised) -> str:
    return f"{raised.type}: {raised.message}"


def _in_words(raised: ExceptionRaised) -> str:
    """The exception and its message; without one, what was asserted."""
    source = raised.frames[-1].source if raised.frames else ""
    message = raised.message or (source if source.startswith("assert ") else "")
    return f"{raised.type}: {message}".rstrip(": ")


def _skip_lookup(
    first: Event[ExceptionRaised], others: Iterable[Event[ExceptionRaised]]
) -> Event[ExceptionRaised]:
    """The exception after a failed lookup of a library: that is why the program ended."""
    if first.what.type not in _NOT_FOUND or not first.what.frames or not is_library(first.what.frames[-1]):
        return first
    behind = (
        e for e in others if e.what.later and e.who == first.who and e.place.source == first.place.source
    )
    return min(
        (event for event in behind if event.place.offset > first.place.offset),
        key=lambda event: event.place.offset,
        default=first,
    )


_NOT_FOUND = ("KeyError", "AttributeError", "IndexError", "StopIteration")
"""Errors by which programs learn that a cache, a table or an object lacks something."""


def _repeated_by_engine(timeline: Timeline) -> Iterator[Candidate]:
    """An engine's report of a worker's exception, where the worker's own is missing."""
    reports = [event for event in timeline.of_kind(ExceptionRaised) if quoted_message(event.what)]
    if reports:
        quote = shorten(quoted_message(reports[0].what), QUOTE_LENGTH, placeholder=" ...")
        headline = f"a worker of the engine raised {quote}"
        yield Candidate("user_code_exception", "own error", "medium", headline, tuple(reports[:4]))


def _is_specific(raised: ExceptionRaised) -> bool:
    """False for a bare `Exception:` of mp.spawn, behind which another one says what failed."""
    return bool(raised.message) or raised.type != "Exception"


class _ExplainedPlaces:
    """Where other events were read, put together once: thousands of exceptions are asked about."""

    def __init__(self, events: Iterable[Event[Any]]) -> None:
        self._read: set[tuple[str, int]] = set()
        self._messages: dict[tuple[str, int | None], list[int]] = {}
        for event in events:
            place = event.place
            self._read.add((place.source, place.offset))
            if isinstance(event.what, (GpuFull, Symptom)):
                self._messages.setdefault((place.source, event.who.rank), []).append(place.offset)
        for offsets in self._messages.values():
            offsets.sort()

    def explain(self, raised: Event[ExceptionRaised]) -> bool:
        """True when another event was read from the same line or message."""
        source, offset = raised.place.source, raised.place.offset
        end = offset + len(raised.text)
        offsets = self._messages.get((source, raised.who.rank), [])
        behind = bisect_right(offsets, end)
        goes_on = behind < len(offsets) and offsets[behind] - end < NEXT_LINE
        return goes_on or (source, offset) in self._read
