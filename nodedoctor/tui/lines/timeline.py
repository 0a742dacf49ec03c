"""What happened when, drawn to scale: who failed first, who waited how long for what."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from rich.cells import cell_len

from nodedoctor.json_shapes import Json, mapping, number, objects, words
from nodedoctor.record import record
from nodedoctor.report.inert import inert
from nodedoctor.tui.look import LABEL, QUIET, Glyphs, Part, fit
from nodedoctor.whole_numbers import spans

MOST = 8
"""Lines: what happened first, and what came of it."""
_TIME = re.compile(r"(?:(\d{4})-)?(?:(\d\d)-(\d\d)[T ])?(\d\d):(\d\d):(\d\d)(\.\d+)?")
_LABEL = 16
"""Cells for the names of ranks."""


@record
class Stretch:
    """What some ranks have in common: an event, from when they waited for it, and until when it happened."""

    ranks: tuple[int, ...]
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
    for one in found[:MOST]:
        at = round((one.end - begins) / (ends - begins) * (room - 1))
        since = min(round((one.start - begins) / (ends - begins) * (room - 1)), at)
        lines.append(((fit(_who(one), _LABEL, glyphs.more), LABEL), *_bar(one, since, at, room, glyphs)))
    return lines


def stretches(document: Json) -> list[Stretch]:
    """The events of the document that have a time, ranks with the same event together, the first ones first.

    A rank whose collective timed out has waited for as long as the timeout is.
    """
    timeout = number(mapping(document.get("collective")).get("timeout_seconds")) or 0.0
    groups: dict[str, list[tuple[float, int | None]]] = {}
    for item in objects(document.get("timeline")):
        if (seconds := _seconds(item.get("time"))) is not None:
            rank = item.get("rank")
            event = words(item.get("event"))
            groups.setdefault(event, []).append((seconds, rank if isinstance(rank, int) else None))
    told: dict[str, set[int]] = {}
    for state in objects(document.get("ranks")):
        rank = state.get("rank")
        if isinstance(rank, int) and 0 <= rank < 1 << 32:
            told.setdefault(words(state.get("event")), set()).add(rank)
    made = []
    for event, seen in groups.items():
        ranks = {rank for _, rank in seen if rank is not None} | told.get(event, set())
        times = [seconds for seconds, _ in seen]
        waited = timeout if event == "timed_out" else 0.0
        made.append(Stretch(tuple(sorted(ranks)), event, min(times) - waited, max(times)))
    return sorted(made, key=lambda one: (one.end, one.start))


def _bar(one: Stretch, since: int, at: int, room: int, glyphs: Glyphs) -> Iterator[Part]:
    said = inert(one.event.replace("_", " "))
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
    if not one.ranks:
        return "the job"
    if len(one.ranks) > 3:
        return f"{len(one.ranks)} ranks"
    runs = spans(one.ranks)
    named = ", ".join(str(a) if a == b else f"{a}-{b}" for a, b in runs)
    return f"rank{'s'[: len(one.ranks) > 1]} {named}"


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
