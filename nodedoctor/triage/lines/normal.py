"""One way for every line: out of its envelope, put together when it was broken, its prefixes taken off."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice, pairwise

from nodedoctor.record import record
from nodedoctor.triage.events import ASIDE, LIFE, read_events
from nodedoctor.triage.lines.envelopes import objects, pairs
from nodedoctor.triage.lines.envelopes.records import SEVERAL, Record
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
from nodedoctor.triage.lines.learned import ALL, FEWEST, MANY, SHOWN, block, learned, margin, repeating
from nodedoctor.triage.lines.listing import opener
from nodedoctor.triage.lines.prefixes import (
    LONGEST,
    Habit,
    bare,
    is_known,
    is_labeled,
    parse,
    severity,
)
from nodedoctor.triage.model import NOBODY, SERIOUS, Line, Place

SAMPLE = 512
"""Lines at the beginning of a file from which its habits are learned; the head of a large one has them."""
FRONT = 200
"""Characters in front of an object in a line."""
LAYERS = 3
"""Prefixes in front of each other, beside those that are known."""
EDGE = 8
"""Lines at either end of a sample by which it is told whether it is worth asking all of it."""
PARTS = 64
"""Parts of one line at most: collectors cut at 16 KiB and more. Ours."""
CLOCKS_DIFFER = 300.0
"""Seconds from which two clocks in one line are not the same one: pipes and collectors are faster. Ours."""
_STAMPED = re.compile(r"\[[EWIF]\d{3,4} \d\d:\d\d:\d\d\.\d+")
"""What c10 prints in front of its lines: the clock of the process."""
_GARBLED = 0.3
"""Share of characters that are none in any encoding we know: such a line was not read."""
_PARTIAL = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) (?:stdout|stderr) P ")
_STREAM = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) (?P<stream>stdout|stderr) [FP] ")


@record
class RawLine:
    """One line as it stands in a file, or one record of a document."""

    place: Place
    data: bytes = b""
    entry: Record | None = None


@dataclass(slots=True)
class Lost:
    """How many lines could not be read."""

    lines: int = 0


@record
class _Piece:
    """The text of one line and what its envelope said."""

    place: Place
    entry: Record


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
    if walled(texts):
        sample, pieces = list(_taken_out(sample, unwalled)), _taken_out(pieces, unwalled)
        texts = [piece.entry.text for piece in sample]
    if begin := column(texts):
        rows = Column(begin, max(map(len, texts)))
        sample, pieces = list(_unbroken(iter(sample), rows)), _unbroken(pieces, rows)
        texts = [piece.entry.text for piece in sample]
    if _newest_first(sample):
        sample, pieces = [*sample, *pieces][::-1], iter(())
        texts = [piece.entry.text for piece in sample]
    filled = padded(texts)
    wide = filled or width(texts)
    rest = list(_joined(iter(sample), wide, filled > 0))
    habit = _habit([piece.entry.text for piece in rest])
    behind = _clocks_differ(rest)
    tail = chain(rest, _joined(pieces, wide, filled > 0))
    told = [piece.entry.level for piece in rest if piece.entry.level]
    alike = len(told) >= MANY and max(Counter(told).values()) >= ALL * len(rest)  # says nothing of a line
    for piece in tail:
        entry = piece.entry
        for line in _inside(parse(entry.text, piece.place, habit, entry.who), lost):
            if behind and not _STAMPED.search(entry.text):
                time = line.time if line.time is not None else entry.time
                line = replace(line, time=time + behind if time is not None else None)
            level = line.level or (entry.level if entry.level in SERIOUS and not alike else "")
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


def _time(piece: _Piece) -> float | None:
    """When a piece was written, by its envelope or what stands in front of it."""
    if piece.entry.time is not None:
        return piece.entry.time
    return next((line.time for line in parse(piece.entry.text[:SHOWN], piece.place)), None)


def _newest_first(pieces: list[_Piece]) -> bool:
    """Whether a log was saved from a page that shows the newest lines first: its times only fall."""
    ends = [piece for piece in (*pieces[:EDGE], *pieces[-EDGE:]) if piece.entry.text.strip()]
    told = [time for piece in ends if (time := _time(piece)) is not None]
    if len(told) < len(ends) or len(set(told)) < MANY or told[0] <= told[-1]:
        return False
    times = [_time(piece) for piece in pieces if piece.entry.text.strip()]
    return None not in times and all(a >= b for a, b in pairwise(filter(None, times)))


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


def _habit(texts: list[str]) -> Habit:
    """What the lines have in common in front, behind the prefixes that are known."""
    blanks = margin(texts) or block(texts, is_known)
    rest = [bare(text[blanks:]) for text in texts if text.strip()]
    patterns: list[tuple[re.Pattern[str], frozenset[int]]] = []
    enclosed = sum(pairs.has_text(text) for text in rest) * 2 > len(
        rest
    )  # what is left is opened, not learned
    while len(patterns) < LAYERS and not enclosed and (pattern := learned(rest, is_known, _means)):
        patterns.append((pattern, repeating(pattern, rest)))
        rest = [bare(pattern.sub("", text, count=1) if pattern.match(text) else text) for text in rest]
    habit = Habit(tuple(patterns), blanks)
    texts = [text for text in texts if text.strip()]
    labeled = len(rest) > FEWEST and sum(map(is_labeled, rest)) >= ALL * len(rest)
    leveled, shared = _leveled(texts, habit)
    return replace(habit, leveled=leveled, shared=shared, labeled=labeled)


def _leveled(texts: list[str], habit: Habit) -> tuple[bool, str]:
    """Whether nearly every line has a severity in front, and which if all have the same.

    Most logs say no in their first lines.
    """
    may_lack = len(texts) - ALL * len(texts)
    levels: set[str] = set()
    for text in texts:
        level = severity(text, habit)
        levels |= {level} - {""}
        may_lack -= not level
        if may_lack < 0:
            return False, ""
    shared = levels.pop() if len(levels) == 1 and len(texts) >= MANY else ""
    return len(texts) > FEWEST, shared


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
            yield _Piece(raw.place, Record(text))
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
    stream = _STREAM.match(text) if text[:2] == "20" else None
    if stream and text[stream.end() : stream.end() + 2] == '{"':
        inner = objects.one(text[stream.end() :])
        if inner:
            return inner
    if stream and _PARTIAL.match(text):
        return [Record(text, NOBODY, whole=False)]
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


def _in_streams(pieces: Iterator[_Piece]) -> Iterator[_Piece]:
    """The pieces, the parts of a line behind each other: its last part, with what came between in front."""
    open_lines: dict[str, list[_Piece]] = {}
    for piece in pieces:
        if piece.entry.whole and not open_lines:
            yield piece
            continue
        stream = _stream(piece.entry)
        if piece.entry.whole:
            yield from open_lines.pop(stream, ())
            yield piece
            continue
        parts = open_lines.setdefault(stream, [])
        parts.append(piece)
        if len(parts) > PARTS:
            yield from open_lines.pop(stream)
    for parts in open_lines.values():
        yield from parts


def _stream(entry: Record) -> str:
    """Which stream of a container a line is of: parts of lines of both may stand in turn."""
    found = _STREAM.match(entry.text)
    return found["stream"] if found else entry.stream


def _joined(pieces: Iterator[_Piece], wide: int, filled: bool) -> Iterator[_Piece]:
    """Pieces of one line put together: cut by a collector, or broken at the width of a terminal.

    Where rows are `filled` up with blanks, those that were broken show less than two at their end.
    """
    begun: _Piece | None = None
    full = False
    for piece in _in_streams(pieces):
        entry = piece.entry
        open_ended = not entry.whole or 0 < wide == len(entry.text)
        if filled and not entry.text[-2:].strip():
            open_ended = False
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
