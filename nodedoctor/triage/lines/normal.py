"""One way for every line: out of its envelope, put together when it was broken, its prefixes taken off."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice

from nodedoctor.record import record
from nodedoctor.triage.events import ASIDE, LIFE, read_events
from nodedoctor.triage.lines import unwrap
from nodedoctor.triage.lines.join import Column, Framed, column, framed, unframed, width
from nodedoctor.triage.lines.learned import ALL, FEWEST, block, learned, margin, repeating
from nodedoctor.triage.lines.listing import opener
from nodedoctor.triage.lines.prefixes import (
    LONGEST,
    Habit,
    bare,
    is_known,
    is_labeled,
    is_leveled,
    parse,
)
from nodedoctor.triage.model import NOBODY, SERIOUS, Line, Place

SAMPLE = 512
"""Lines at the beginning of a file from which its habits are learned; the head of a large one has them."""
FRONT = 200
"""Characters in front of an object in a line."""
LAYERS = 3
"""Prefixes in front of each other, beside those that are known."""
CLOCKS_DIFFER = 300.0
"""Seconds from which two clocks in one line are not the same one: pipes and collectors are faster. Ours."""
_STAMPED = re.compile(r"\[[EWIF]\d{3,4} \d\d:\d\d:\d\d\.\d+")
"""What c10 prints in front of its lines: the clock of the process."""
_GARBLED = 0.3
"""Share of characters that are none in any encoding we know: such a line was not read."""
_PARTIAL = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) (?:stdout|stderr) P ")
_STREAM = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) (?:stdout|stderr) [FP] ")


@record
class RawLine:
    """One line as it stands in a file, or one record of a document."""

    place: Place
    data: bytes = b""
    entry: unwrap.Record | None = None


@dataclass(slots=True)
class Lost:
    """How many lines could not be read."""

    lines: int = 0


@record
class _Piece:
    """The text of one line and what its envelope said."""

    place: Place
    entry: unwrap.Record


def normal(raws: Iterator[RawLine], lost: Lost) -> Iterator[Line]:
    """The lines of a log as its processes printed them."""
    pieces = _pieces(raws, lost)
    sample = list(islice(pieces, SAMPLE))
    if take := opener([piece.entry.text for piece in sample]):
        sample, pieces = list(_taken_out(sample, take)), _taken_out(pieces, take)
    texts = [piece.entry.text for piece in sample]
    if wide := framed(texts):
        boxed = Framed(wide)
        sample = list(_unbroken(_taken_out(sample, unframed), boxed))
        pieces = _unbroken(_taken_out(pieces, unframed), boxed)
        texts = [piece.entry.text for piece in sample]
    if begin := column(texts):
        rows = Column(begin, max(map(len, texts)))
        sample, pieces = list(_unbroken(iter(sample), rows)), _unbroken(pieces, rows)
        texts = [piece.entry.text for piece in sample]
    wide = width(texts)
    rest = list(_joined(iter(sample), wide))
    habit = _habit([piece.entry.text for piece in rest])
    behind = _clocks_differ(rest)
    tail = chain(rest, _joined(pieces, wide))
    for piece in tail:
        entry = piece.entry
        for line in _inside(parse(entry.text, piece.place, habit, entry.who), lost):
            if behind and not _STAMPED.search(entry.text):
                time = line.time if line.time is not None else entry.time
                line = replace(line, time=time + behind if time is not None else None)
            level = line.level or (entry.level if entry.level in SERIOUS else "")
            if level != line.level or (entry.time is not None and line.time is None):
                time = entry.time if line.time is None else line.time
                line = replace(line, time=time, level=level)
            if line.text:
                yield line


def _taken_out(pieces: Iterable[_Piece], take: Callable[[str], str | None]) -> Iterator[_Piece]:
    for piece in pieces:
        text = take(piece.entry.text)
        if text is not None:
            yield _Piece(piece.place, replace(piece.entry, text=text))


def _clocks_differ(pieces: list[_Piece]) -> float:
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
        records = _opened(line.text, lost) if line.text.lstrip()[:1] in ("{", '"') else None
        if records is None:
            yield line
            continue
        for entry in records:
            for inner in parse(entry.text, line.place, who=entry.who.filled(line.who)):
                time = next((t for t in (inner.time, entry.time, line.time) if t is not None), None)
                yield replace(
                    inner, time=time, level=inner.level or line.level, origin=inner.origin or line.origin
                )


def _habit(texts: list[str]) -> Habit:
    """What the lines have in common in front, behind the prefixes that are known."""
    blanks = margin(texts) or block(texts)
    rest = [bare(text[blanks:]) for text in texts if text.strip()]
    patterns: list[tuple[re.Pattern[str], frozenset[int]]] = []
    while len(patterns) < LAYERS and (pattern := learned(rest, is_known, _means)):
        patterns.append((pattern, repeating(pattern, rest)))
        rest = [bare(pattern.sub("", text, count=1) if pattern.match(text) else text) for text in rest]
    habit = Habit(tuple(patterns), blanks)
    texts = [text for text in texts if text.strip()]
    labeled = len(rest) > FEWEST and sum(map(is_labeled, rest)) >= ALL * len(rest)
    return replace(habit, leveled=_leveled(texts, habit), labeled=labeled)


def _leveled(texts: list[str], habit: Habit) -> bool:
    """Whether nearly every line has a severity in front; most logs say no in their first lines."""
    may_lack = len(texts) - ALL * len(texts)
    for text in texts:
        may_lack -= not is_leveled(text, habit)
        if may_lack < 0:
            return False
    return len(texts) > FEWEST


def _means(text: str) -> frozenset[str]:
    """The kinds of events in a line by itself, and what of a process's identity those about trouble name."""
    said: set[str] = set()
    for event in read_events([Line(text, Place("", 0))]) if text else ():
        kind = type(event.what).__name__
        if not isinstance(event.what, ASIDE):
            said.add(kind)
        if not isinstance(event.what, ASIDE + LIFE):
            said |= {f"{kind} {name}" for name in ("rank", "host") if getattr(event.who, name) is not None}
    return frozenset(said)


def _pieces(raws: Iterator[RawLine], lost: Lost) -> Iterator[_Piece]:
    """Every line out of its envelope."""
    for raw in raws:
        if raw.entry is not None:
            yield _Piece(raw.place, raw.entry)
            continue
        text = _decoded(raw.data)
        if text.count("\ufffd") > _GARBLED * len(text):
            lost.lines += 1
            continue
        records = _opened(text, lost)
        if records is None:
            yield _Piece(raw.place, unwrap.Record(text))
        else:
            last = max(len(raw.data) - 1, 0)  # each has a place of its own, and all stand in this line
            places = (replace(raw.place, offset=raw.place.offset + min(n, last)) for n in range(len(records)))
            yield from map(_Piece, places, records)


def _decoded(data: bytes) -> str:
    if b"\0" in data[:4096]:
        data = data.replace(b"\0", b"")
    long = data[:1] in b"{[ ," or b"\r" in data or data[-1:] == b"}"
    most = len(data) if long else 4 * LONGEST
    return data[:most].decode("utf-8", "replace")


def _opened(text: str, lost: Lost) -> list[unwrap.Record] | None:
    """The records in a line; None for one without an envelope."""
    head = text.lstrip(" \t,[\x1e")[:2]
    if head == '{"' or head == "{'":
        records = unwrap.one(text)
        lost.lines += records is None and text.rstrip()[-1:] != "}"
        return records
    if head[:1] == "<" and (entry := unwrap.tagged(text)):
        return [entry]
    if head[:1] == '"':
        entry = unwrap.pair(text)
        return [entry] if entry else None
    if "=" in text[:48] and (records := unwrap.fields(text.rstrip())):
        return records
    if '"stream"' in text and text.rstrip("]) ")[-1:] == "}":  # fluentd's, behind what it is about
        return unwrap.one(text[text.find('{"') :].rstrip("]) "))
    if text[-1:] == "}" and (begin := text.find('{"', 0, FRONT)) > 0:  # what a task answered, behind its name
        records = unwrap.one(text[begin:])
        if records and (len(records) >= unwrap.SEVERAL or unwrap.has_streams(text)):
            return records
    stream = _STREAM.match(text) if text[:2] == "20" else None
    if stream and text[stream.end() : stream.end() + 2] == '{"':
        inner = unwrap.one(text[stream.end() :])
        if inner:
            return inner
    if stream and _PARTIAL.match(text):
        return [unwrap.Record(text, NOBODY, whole=False)]
    return None


def _unbroken(pieces: Iterator[_Piece], rows: Column) -> Iterator[_Piece]:
    """Pieces of one text put together that rich's handler broke into a column."""
    begun: _Piece | None = None
    for piece in pieces:
        text = piece.entry.text
        if rows.is_head(text):
            if begun is not None:
                yield begun
            begun = _Piece(piece.place, replace(piece.entry, text=rows.head(text)))
            continue
        between = rows.between(text) if begun is not None else None
        if begun is not None and between is not None:
            text = begun.entry.text + between + text.strip()
            begun = _Piece(begun.place, replace(begun.entry, text=text[: 4 * LONGEST]))
            continue
        if begun is not None:
            yield begun
        begun = _Piece(piece.place, replace(piece.entry, text=rows.inside(text)))
    if begun is not None:
        yield begun


def _joined(pieces: Iterator[_Piece], wide: int) -> Iterator[_Piece]:
    """Pieces of one line put together: cut by a collector, or broken at the width of a terminal."""
    begun: _Piece | None = None
    full = False
    for piece in pieces:
        entry = piece.entry
        open_ended = not entry.whole or (wide > 0 and len(entry.text) == wide)
        if begun is not None and full:
            text = begun.entry.text + (
                _STREAM.sub("", entry.text, count=1) if not begun.entry.whole else entry.text
            )
            piece = _Piece(begun.place, replace(begun.entry, text=text[: 4 * LONGEST]))
        elif begun is not None:
            yield begun
        begun, full = piece, open_ended
    if begun is not None:
        yield begun
