"""What happened when, drawn to scale: who failed first, who waited how long for what."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from rich.cells import cell_len

from nodedoctor.json_shapes import Json, mapping, number
from nodedoctor.record import record
from nodedoctor.report.inert import inert
from nodedoctor.report.moments import moments
from nodedoctor.report.ranks import event_words
from nodedoctor.tui.theme import LABEL, QUIET, Glyphs, Part, fit

MOST = 8
"""Lines: what happened first, and what came of it."""
_TIME = re.compile(r"(?:(\d{4})-)?(?:(\d\d)-(\d\d)[T ])?(\d\d):(\d\d):(\d\d)(\.\d+)?")
_LABEL = 16
"""Cells for the names of ranks."""


@record
class Stretch:
    """What some ranks report: an event, from when they waited for it, and until when it happened."""

    who: str
    count: int
    event: str
    start: float
    end: float


def timeline(document: Json, width: int, glyphs: Glyphs) -> list[tuple[Part, ...]]:
    """An axis with its two times, and a line per event; nothing where less than two have a time."""
    events = stretches(document)
    if len(events) < 2 or width < _LABEL + 30:
        return []
    begins, ends = min(span.start for span in events), max(span.end for span in events)
    if ends <= begins:
        return []
    room = width - _LABEL - 1
    first, last = _format_clock(begins), _format_clock(ends)
    rule = glyphs.rule * (room - len(first) - len(last) - 2)
    lines: list[tuple[Part, ...]] = [((" " * _LABEL, ""), (f"{first} {rule} {last}", QUIET))]
    shown = events if len(events) <= MOST else events[: MOST - 1]
    for span in shown:
        at = round((span.end - begins) / (ends - begins) * (room - 1))
        since = min(round((span.start - begins) / (ends - begins) * (room - 1)), at)
        lines.append(
            ((fit(_rank_label(span), _LABEL, glyphs.more), LABEL), *_bar_parts(span, since, at, room, glyphs))
        )
    if len(shown) < len(events):
        more = f"{len(shown)} of {len(events)} shown; the rows 'when' have all of them"
        lines.append(((" " * _LABEL, ""), (more, QUIET)))
    return lines


def stretches(document: Json) -> list[Stretch]:
    """The moments of the document that have a time, the first ones first.

    A rank whose collective timed out has waited for as long as the timeout is.
    """
    timeout = number(mapping(document.get("collective")).get("timeout_seconds")) or 0.0
    spans = []
    for moment in moments(document):
        first, last = _read_seconds(moment.first), _read_seconds(moment.last)
        if first is not None and last is not None:
            waited = timeout if moment.event == "timed_out" else 0.0
            spans.append(Stretch(moment.who, moment.count, moment.event, first - waited, max(first, last)))
    return sorted(spans, key=lambda span: (span.end, span.start))


def _bar_parts(span: Stretch, since: int, at: int, room: int, glyphs: Glyphs) -> Iterator[Part]:
    label = inert(event_words(span.event))
    wait = glyphs.point * (at - since)
    if at + 2 + cell_len(label) < room:
        yield " " * since + wait, QUIET
        yield "X ", "bold red"
        yield label, ""
        return
    # What happened at the end is named before its mark.
    column = max(at - cell_len(label) - 1, 0)
    yield " " * min(since, column) + glyphs.point * max(column - since, 0), QUIET
    yield f"{label} ", ""
    yield "X", "bold red"


def _rank_label(span: Stretch) -> str:
    if not span.who:
        return "the job"
    return span.who if cell_len(span.who) < _LABEL else f"{span.count} ranks"


def _read_seconds(value: Any) -> float | None:
    """Seconds of a time as logs write it; of one without a date, of its day."""
    match = _TIME.search(value) if isinstance(value, str) else None
    if match is None:
        return None
    year, month, day, hour, minute, second, fraction = match.groups()
    try:
        date = datetime(int(year or 2000), int(month or 1), int(day or 1))
    except ValueError:
        return None
    days = (date - datetime(2000, 1, 1)).days
    return days * 86400 + int(hour) * 3600 + int(minute) * 60 + int(second) + float(fraction or 0)


def _format_clock(seconds: float) -> str:
    total = int(seconds) % 86400
    return f"{total // 3600:02}:{total // 60 % 60:02}:{total % 60:02}"
