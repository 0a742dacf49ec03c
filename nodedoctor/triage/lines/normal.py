"""One way for every line: out of its envelope, put together when it was broken, its prefixes taken off."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice

from nodedoctor.record import record
from nodedoctor.triage.lines.envelopes import objects, pairs
from nodedoctor.triage.lines.envelopes.records import SEVERAL, Record
from nodedoctor.triage.lines.habits import habit_of
from nodedoctor.triage.lines.join import (
    Column,
    Framed,
    column,
    framed,
    padded,
    unframed,
    unwalled,
    walled,
    width,
)
from nodedoctor.triage.lines.learned import ALL, MANY
from nodedoctor.triage.lines.listing import opener
from nodedoctor.triage.lines.pieces import STREAM, Piece, joined, newest_first, taken_out, unbroken
from nodedoctor.triage.lines.prefixes import LONGEST, parse
from nodedoctor.triage.model import NOBODY, SERIOUS, Line, Place

SAMPLE = 512
"""Lines at the beginning of a file from which its habits are learned; the head of a large one has them."""
TURNED = 100_000
"""Lines of a log with its newest line first that are turned round at most: they are all kept. Ours."""
FRONT = 200
"""Characters in front of an object in a line."""
CLOCKS_DIFFER = 300.0
"""Seconds from which two clocks in one line are not the same one: pipes and collectors are faster. Ours."""
_STAMPED = re.compile(r"\[[EWIF]\d{3,4} \d\d:\d\d:\d\d\.\d+")
"""What c10 prints in front of its lines: the clock of the process."""
_GARBLED = 0.3
"""Share of characters that are none in any encoding we know: such a line was not read."""
_PARTIAL = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) (?:stdout|stderr) P ")


@record
class RawLine:
    """One line as it stands in a file, or one record of a document."""

    place: Place
    data: bytes = b""
    entry: Record | None = None


@dataclass(slots=True)
class Lost:
    """How many lines could not be read, and how many are too old in a log with the newest line first."""

    lines: int = 0
    older: int = 0


def normal(raws: Iterator[RawLine], lost: Lost) -> Iterator[Line]:
    """The lines of a log as its processes printed them."""
    pieces = _pieces(raws, lost)
    sample = list(islice(pieces, SAMPLE))
    if take := opener([piece.entry.text for piece in sample]):
        sample, pieces = list(taken_out(sample, take)), taken_out(pieces, take)
    texts = [piece.entry.text for piece in sample]
    if wide := framed(texts):
        boxed = Framed(wide)
        sample = list(unbroken(taken_out(sample, unframed), boxed))
        pieces = unbroken(taken_out(pieces, unframed), boxed)
        texts = [piece.entry.text for piece in sample]
    if walled(texts):
        sample, pieces = list(taken_out(sample, unwalled)), taken_out(pieces, unwalled)
        texts = [piece.entry.text for piece in sample]
    if begin := column(texts):
        rows = Column(begin, max(map(len, texts)))
        sample, pieces = list(unbroken(iter(sample), rows)), unbroken(pieces, rows)
        texts = [piece.entry.text for piece in sample]
    if newest_first(sample):
        sample = [*sample, *islice(pieces, TURNED)][::-1]
        lost.older += sum(1 for _ in pieces)  # behind the newest they would tell of what never followed
        texts = [piece.entry.text for piece in sample]
    filled = padded(texts)
    wide = filled or width(texts)
    rest = list(joined(iter(sample), wide, filled > 0))
    habit = habit_of([piece.entry.text for piece in rest])
    behind = _clocks_differ(rest)
    tail = chain(rest, joined(pieces, wide, filled > 0))
    told = [piece.entry.level for piece in rest if piece.entry.level]
    usual, often = Counter(told).most_common(1)[0] if told else ("", 0)
    shared = usual if len(told) >= MANY and often >= ALL * len(rest) else ""  # says nothing of a line
    for piece in tail:
        entry = piece.entry
        for line in _inside(parse(entry.text, piece.place, habit, entry.who), lost):
            if behind and not _STAMPED.search(entry.text):
                time = line.time if line.time is not None else entry.time
                line = replace(line, time=time + behind if time is not None else None)
            level = line.level or (entry.level if entry.level in SERIOUS and entry.level != shared else "")
            if level != line.level or (entry.time is not None and line.time is None):
                time = entry.time if line.time is None else line.time
                line = replace(line, time=time, level=level)
            if line.text:
                yield line


def _clocks_differ(pieces: list[Piece]) -> float:
    """Seconds by which a process's own clock is ahead of the one in front of its lines; 0 when they agree.

    A log that was collected or printed again later has the time of that in front of every line, and some
    lines have one of their own: what came before what can only be told by one clock.
    """
    for piece in pieces:
        entry = piece.entry
        found = _STAMPED.search(entry.text)
        if found is None:
            continue
        own = next(parse(entry.text[found.start() :], piece.place)).time
        front = next(parse(f"{entry.text[: found.start()]} .", piece.place)).time
        front = front if front is not None else entry.time
        if own is not None and front is not None:
            return own - front if abs(own - front) > CLOCKS_DIFFER else 0.0
    return 0.0


def _inside(lines: Iterator[Line], lost: Lost) -> Iterator[Line]:
    """The lines, those out of their envelope that stand in one behind a prefix."""
    for line in lines:
        text = line.text
        enclosed = text.lstrip()[:1] in ("{", '"') or ("=" in text[:12] and pairs.has_text(text))
        records = _opened(text, lost) if enclosed else None
        if records is None:
            yield line
            continue
        for entry in records:
            for inner in parse(entry.text, line.place, who=entry.who.filled(line.who)):
                time = next((t for t in (inner.time, entry.time, line.time) if t is not None), None)
                yield replace(
                    inner, time=time, level=inner.level or line.level, origin=inner.origin or line.origin
                )


def _pieces(raws: Iterator[RawLine], lost: Lost) -> Iterator[Piece]:
    """Every line out of its envelope."""
    for raw in raws:
        if raw.entry is not None:
            yield Piece(raw.place, raw.entry)
            continue
        text = _decoded(raw.data)
        if text.count("\ufffd") > _GARBLED * len(text):
            lost.lines += 1
            continue
        records = _opened(text, lost)
        if records is None:
            yield Piece(raw.place, Record(text))
        else:
            last = max(len(raw.data) - 1, 0)  # each has a place of its own, and all stand in this line
            places = (replace(raw.place, offset=raw.place.offset + min(n, last)) for n in range(len(records)))
            yield from map(Piece, places, records)


def _decoded(data: bytes) -> str:
    if b"\0" in data[:4096]:
        data = data.replace(b"\0", b"")
    long = data[:1] in b"{[ ," or b"\r" in data or data[-1:] == b"}"
    most = len(data) if long else 4 * LONGEST
    return data[:most].decode("utf-8", "replace")


def _opened(text: str, lost: Lost) -> list[Record] | None:
    """The records in a line; None for one without an envelope."""
    head = text.lstrip(" \t,[\x1e")[:2]
    if head == '{"' or head == "{'":
        records = objects.one(text)
        lost.lines += records is None and text.rstrip()[-1:] != "}"
        return records
    if head[:1] == "<" and (entry := pairs.tagged(text)):
        return [entry]
    if head[:1] == '"':
        entry = objects.pair(text)
        return [entry] if entry else None
    if "=" in text[:48] and (records := pairs.fields(text.rstrip())):
        return records
    if '"stream"' in text and text.rstrip("]) ")[-1:] == "}":  # fluentd's, behind what it is about
        return objects.one(text[text.find('{"') :].rstrip("]) "))
    if text[-1:] == "}" and (begin := text.find('{"', 0, FRONT)) > 0:  # what a task answered, behind its name
        records = objects.one(text[begin:])
        if records and (len(records) >= SEVERAL or objects.has_streams(text)):
            return records
    stream = STREAM.match(text) if text[:2] == "20" else None
    if stream and text[stream.end() : stream.end() + 2] == '{"':
        inner = objects.one(text[stream.end() :])
        if inner:
            return inner
    if stream and _PARTIAL.match(text):
        return [Record(text, NOBODY, whole=False)]
    return None
