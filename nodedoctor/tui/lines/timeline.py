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
    found = stretches(document)
    if len(found) < 2 or width < _LABEL + 30:
        return []
    begins, ends = min(one.start for one in found), max(one.end for one in found)
    if ends <= begins:
        return []
    room = width - _LABEL - 1
    first, last = _clock(begins), _clock(ends)
    rule = glyphs.rule * (room - len(first) - len(last) - 2)
    lines: list[tuple[Part, ...]] = [((" " * _LABEL, ""), (f"{first} {rule} {last}", QUIET))]
    shown = found if len(found) <= MOST else found[: MOST - 1]
    for one in shown:
        at = round((one.end - begins) / (ends - begins) * (room - 1))
        since = min(round((one.start - begins) / (ends - begins) * (room - 1)), at)
        lines.append(((fit(_who(one), _LABEL, glyphs.more), LABEL), *_bar(one, since, at, room, glyphs)))
    if len(shown) < len(found):
        more = f"{len(shown)} of {len(found)} shown; the rows 'when' have all of them"
        lines.append(((" " * _LABEL, ""), (more, QUIET)))
    return lines


def stretches(document: Json) -> list[Stretch]:
    """The moments of the document that have a time, the first ones first.

    A rank whose collective timed out has waited for as long as the timeout is.
    """
    timeout = number(mapping(document.get("collective")).get("timeout_seconds")) or 0.0
    made = []
    for moment in moments(document):
        first, last = _seconds(moment.first), _seconds(moment.last)
        if first is not None and last is not None:
            waited = timeout if moment.event == "timed_out" else 0.0
            made.append(Stretch(moment.who, moment.count, moment.event, first - waited, max(first, last)))
    return sorted(made, key=lambda one: (one.end, one.start))


def _bar(one: Stretch, since: int, at: int, room: int, glyphs: Glyphs) -> Iterator[Part]:
    said = inert(event_words(one.event))
    wait = glyphs.point * (at - since)
    if at + 2 + cell_len(said) < room:
        yield " " * since + wait, QUIET
        yield "X ", "bold red"
        yield said, ""
        return
    # What happened at the end is named before its mark.
    left = max(at - cell_len(said) - 1, 0)
    yield " " * min(since, left) + glyphs.point * max(left - since, 0), QUIET
    yield f"{said} ", ""
    yield "X", "bold red"


def _who(one: Stretch) -> str:
    if not one.who:
        return "the job"
    return one.who if cell_len(one.who) < _LABEL else f"{one.count} ranks"


def _seconds(value: Any) -> float | None:
    """Seconds of a time as logs write it; of one without a date, of its day."""
    found = _TIME.search(value) if isinstance(value, str) else None
    if found is None:
        return None
    year, month, day, hour, minute, second, fraction = found.groups()
    try:
        date = datetime(int(year or 2000), int(month or 1), int(day or 1))
    except ValueError:
        return None
    days = (date - datetime(2000, 1, 1)).days
    return days * 86400 + int(hour) * 3600 + int(minute) * 60 + int(second) + float(fraction or 0)


def _clock(seconds: float) -> str:
    whole = int(seconds) % 86400
    return f"{whole // 3600:02}:{whole // 60 % 60:02}:{whole % 60:02}"
