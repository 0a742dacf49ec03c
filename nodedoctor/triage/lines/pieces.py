"""Pieces of a log put in order: broken lines joined, parts of one stream together, the oldest first."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import pairwise

from nodedoctor.record import record
from nodedoctor.triage.lines.envelopes.records import EnvelopeRecord
from nodedoctor.triage.lines.join import RichColumn
from nodedoctor.triage.lines.prefix_pattern import MANY, SHOWN
from nodedoctor.triage.lines.prefixes import LONGEST, parse_line
from nodedoctor.triage.model import Place

EDGE = 8
"""Lines at either end of a sample by which it is told whether it is worth asking all of it."""
PARTS = 64
"""Parts of one line at most: collectors cut at 16 KiB and more. Ours."""
STREAM = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) (?P<stream>stdout|stderr) [FP] ")


@record
class LinePiece:
    """The text of one line and what its envelope said."""

    place: Place
    entry: EnvelopeRecord


def taken_out(pieces: Iterable[LinePiece], take: Callable[[str], str | None]) -> Iterator[LinePiece]:
    """The pieces with what `take` takes out of their text, without those in which it finds none."""
    for piece in pieces:
        text = take(piece.entry.text)
        if text is not None:
            yield LinePiece(piece.place, replace(piece.entry, text=text))


def _piece_time(piece: LinePiece) -> float | None:
    """When a piece was written, by its envelope or what stands in front of it."""
    if piece.entry.time is not None:
        return piece.entry.time
    return next((line.time for line in parse_line(piece.entry.text[:SHOWN], piece.place)), None)


def newest_first(pieces: list[LinePiece]) -> bool:
    """Whether a log was saved from a page that shows the newest lines first: its times only fall."""
    ends = [piece for piece in (*pieces[:EDGE], *pieces[-EDGE:]) if piece.entry.text.strip()]
    told = [time for piece in ends if (time := _piece_time(piece)) is not None]
    if len(told) < len(ends) or len(set(told)) < MANY or told[0] <= told[-1]:
        return False
    times = [_piece_time(piece) for piece in pieces if piece.entry.text.strip()]
    return None not in times and all(a >= b for a, b in pairwise(filter(None, times)))


def _in_streams(pieces: Iterator[LinePiece]) -> Iterator[LinePiece]:
    """The pieces, the parts of a line behind each other: its last part, with what came between in front."""
    open_lines: dict[str, list[LinePiece]] = {}
    for piece in pieces:
        if piece.entry.whole and not open_lines:
            yield piece
            continue
        stream = _piece_stream(piece.entry)
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


def _piece_stream(entry: EnvelopeRecord) -> str:
    """Which stream of a container a line is of: parts of lines of both may stand in turn."""
    found = STREAM.match(entry.text)
    return found["stream"] if found else entry.stream


def join_pieces(pieces: Iterator[LinePiece], wide: int, filled: bool) -> Iterator[LinePiece]:
    """Pieces of one line put together: cut by a collector, or broken at the width of a terminal.

    Where rows are `filled` up with blanks, those that were broken show less than two at their end.
    """
    begun: LinePiece | None = None
    full = False
    for piece in _in_streams(pieces):
        entry = piece.entry
        open_ended = not entry.whole or 0 < wide == len(entry.text)
        if filled and not entry.text[-2:].strip():
            open_ended = False
        if begun is not None and full:
            text = begun.entry.text + (
                STREAM.sub("", entry.text, count=1) if not begun.entry.whole else entry.text
            )
            piece = LinePiece(begun.place, replace(begun.entry, text=text[: 4 * LONGEST]))
        elif begun is not None:
            yield begun
        begun, full = piece, open_ended
    if begun is not None:
        yield begun


def join_rich_column(pieces: Iterator[LinePiece], rows: RichColumn) -> Iterator[LinePiece]:
    """Pieces of one text put together that rich's handler broke into a column."""
    begun: LinePiece | None = None
    for piece in pieces:
        text = piece.entry.text
        if rows.is_head(text):
            if begun is not None:
                yield begun
            begun = LinePiece(piece.place, replace(piece.entry, text=rows.head(text)))
            continue
        between = rows.between(text) if begun is not None else None
        if begun is not None and between is not None:
            text = begun.entry.text + between + text.strip()
            begun = LinePiece(begun.place, replace(begun.entry, text=text[: 4 * LONGEST]))
            continue
        if begun is not None:
            yield begun
        begun = LinePiece(piece.place, replace(piece.entry, text=rows.inside(text)))
    if begun is not None:
        yield begun
