"""Pieces of a log in order: broken lines joined, the oldest first."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import pairwise

from nodedoctor.record import record
from nodedoctor.triage.lines.envelopes.field_names import EnvelopeRecord
from nodedoctor.triage.lines.join import RichColumn
from nodedoctor.triage.lines.prefix_pattern import MANY, PREFIX_LENGTH
from nodedoctor.triage.lines.prefixes import LONGEST, parse_line
from nodedoctor.triage.model import Place

EDGE = 8
"""Lines at either end of a sample that decide whether its other times are read."""
PARTS = 64
"""Parts of one line at most: collectors cut at 16 KiB and more. Ours."""
STREAM = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) (?P<stream>stdout|stderr) [FP] ")


@record
class LinePiece:
    """The text of one line and what its envelope said."""

    place: Place
    entry: EnvelopeRecord


def extract_texts(pieces: Iterable[LinePiece], take: Callable[[str], str | None]) -> Iterator[LinePiece]:
    """The pieces with the text that `take` finds, without the others."""
    for piece in pieces:
        text = take(piece.entry.text)
        if text is not None:
            yield LinePiece(piece.place, replace(piece.entry, text=text))


def _piece_time(piece: LinePiece) -> float | None:
    """When a piece was written, by its envelope or its own prefix."""
    if piece.entry.time is not None:
        return piece.entry.time
    return next((line.time for line in parse_line(piece.entry.text[:PREFIX_LENGTH], piece.place)), None)


def newest_first(pieces: list[LinePiece]) -> bool:
    """Whether a log has its newest line first: its times only fall."""
    ends = [piece for piece in (*pieces[:EDGE], *pieces[-EDGE:]) if piece.entry.text.strip()]
    end_times = [time for piece in ends if (time := _piece_time(piece)) is not None]
    if len(end_times) < len(ends) or len(set(end_times)) < MANY or end_times[0] <= end_times[-1]:
        return False
    times = [_piece_time(piece) for piece in pieces if piece.entry.text.strip()]
    return None not in times and all(a >= b for a, b in pairwise(filter(None, times)))


def _gather_parts(pieces: Iterator[LinePiece]) -> Iterator[LinePiece]:
    """The pieces; parts of one line follow each other, behind the pieces between them."""
    open_lines: dict[str, list[LinePiece]] = {}
    for piece in pieces:
        if piece.entry.complete and not open_lines:
            yield piece
            continue
        stream = _piece_stream(piece.entry)
        if piece.entry.complete:
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
    """The container's stream of a line; parts of lines of both streams may alternate."""
    match = STREAM.match(entry.text)
    return match["stream"] if match else entry.stream


def join_pieces(pieces: Iterator[LinePiece], wide: int, padded: bool) -> Iterator[LinePiece]:
    """The pieces of lines, joined where a collector or a terminal broke them.

    Where rows are `padded` with blanks, those that were broken show less than two at their end.
    """
    open_piece: LinePiece | None = None
    continues = False
    for piece in _gather_parts(pieces):
        entry = piece.entry
        open_ended = not entry.complete or 0 < wide == len(entry.text)
        if padded and not entry.text[-2:].strip():
            open_ended = False
        if open_piece is not None and continues:
            text = open_piece.entry.text + (
                STREAM.sub("", entry.text, count=1) if not open_piece.entry.complete else entry.text
            )
            piece = LinePiece(open_piece.place, replace(open_piece.entry, text=text[: 4 * LONGEST]))
        elif open_piece is not None:
            yield open_piece
        open_piece, continues = piece, open_ended
    if open_piece is not None:
        yield open_piece


def join_rich_column(pieces: Iterator[LinePiece], rows: RichColumn) -> Iterator[LinePiece]:
    """The pieces of texts, joined where rich broke them into a column."""
    open_piece: LinePiece | None = None
    for piece in pieces:
        text = piece.entry.text
        if rows.is_head(text):
            if open_piece is not None:
                yield open_piece
            open_piece = LinePiece(piece.place, replace(piece.entry, text=rows.head(text)))
            continue
        between = rows.between(text) if open_piece is not None else None
        if open_piece is not None and between is not None:
            text = open_piece.entry.text + between + text.strip()
            open_piece = LinePiece(open_piece.place, replace(open_piece.entry, text=text[: 4 * LONGEST]))
            continue
        if open_piece is not None:
            yield open_piece
        open_piece = LinePiece(piece.place, replace(piece.entry, text=rows.inside(text)))
    if open_piece is not None:
        yield open_piece
