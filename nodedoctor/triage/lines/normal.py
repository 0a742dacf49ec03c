"""One way for every line: out of its envelope, put together when it was broken, its prefixes taken off."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice

from nodedoctor.record import record
from nodedoctor.triage.lines.common_prefix import learn_prefix
from nodedoctor.triage.lines.envelopes import objects, pairs
from nodedoctor.triage.lines.envelopes.records import SEVERAL, EnvelopeRecord
from nodedoctor.triage.lines.join import (
    RichColumn,
    RichFrame,
    broken_width,
    frame_width,
    has_table_border,
    padded_width,
    rich_column,
    strip_frame,
    strip_table_border,
)
from nodedoctor.triage.lines.listing import list_line_reader
from nodedoctor.triage.lines.pieces import (
    STREAM,
    LinePiece,
    join_pieces,
    join_rich_column,
    newest_first,
    taken_out,
)
from nodedoctor.triage.lines.prefix_pattern import ALL, MANY
from nodedoctor.triage.lines.prefixes import LONGEST, parse_line
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
    entry: EnvelopeRecord | None = None


@dataclass(slots=True)
class LostLines:
    """How many lines could not be read, and how many are too old in a log with the newest line first."""

    lines: int = 0
    older: int = 0


def normalise_lines(
    raws: Iterator[RawLine], lost: LostLines, meaning: Callable[[str], frozenset[str]]
) -> Iterator[Line]:
    """The lines of a log as its processes printed them; `meaning` is what a line by itself says."""
    pieces = _unwrap_envelopes(raws, lost)
    sample = list(islice(pieces, SAMPLE))
    if take := list_line_reader([piece.entry.text for piece in sample]):
        sample, pieces = list(taken_out(sample, take)), taken_out(pieces, take)
    texts = [piece.entry.text for piece in sample]
    if wide := frame_width(texts):
        boxed = RichFrame(wide)
        sample = list(join_rich_column(taken_out(sample, strip_frame), boxed))
        pieces = join_rich_column(taken_out(pieces, strip_frame), boxed)
        texts = [piece.entry.text for piece in sample]
    if has_table_border(texts):
        sample, pieces = list(taken_out(sample, strip_table_border)), taken_out(pieces, strip_table_border)
        texts = [piece.entry.text for piece in sample]
    if begin := rich_column(texts):
        rows = RichColumn(begin, max(map(len, texts)))
        sample, pieces = list(join_rich_column(iter(sample), rows)), join_rich_column(pieces, rows)
        texts = [piece.entry.text for piece in sample]
    if newest_first(sample):
        sample = [*sample, *islice(pieces, TURNED)][::-1]
        lost.older += sum(1 for _ in pieces)  # behind the newest they would tell of what never followed
        texts = [piece.entry.text for piece in sample]
    filled = padded_width(texts)
    wide = filled or broken_width(texts)
    rest = list(join_pieces(iter(sample), wide, filled > 0))
    habit = learn_prefix([piece.entry.text for piece in rest], meaning)
    behind = _clocks_differ(rest)
    tail = chain(rest, join_pieces(pieces, wide, filled > 0))
    told = [piece.entry.level for piece in rest if piece.entry.level]
    usual, often = Counter(told).most_common(1)[0] if told else ("", 0)
    shared = usual if len(told) >= MANY and often >= ALL * len(rest) else ""  # says nothing of a line
    mild = () if often == len(rest) else ("W",) if len(told) > len(rest) / 2 else ("W", "I", "D")
    own = {*SERIOUS, *mild} - {shared}  # collectors put a level by stream, I or E, around every line
    for piece in tail:
        entry = piece.entry
        for line in _unwrap_lines(parse_line(entry.text, piece.place, habit, entry.who), lost):
            if behind and not _STAMPED.search(entry.text):
                time = line.time if line.time is not None else entry.time
                line = replace(line, time=time + behind if time is not None else None)
            level = line.level or (entry.level if entry.level in own else "")
            if level != line.level or (entry.time is not None and line.time is None):
                time = entry.time if line.time is None else line.time
                line = replace(line, time=time, level=level)
            if line.text:
                yield line


def _clocks_differ(pieces: list[LinePiece]) -> float:
    """Seconds by which a process's own clock is ahead of the one in front of its lines; 0 when they agree.

    A log that was collected or printed again later has the time of that in front of every line, and some
    lines have one of their own: what came before what can only be told by one clock.
    """
    for piece in pieces:
        entry = piece.entry
        found = _STAMPED.search(entry.text)
        if found is None:
            continue
        own = next(parse_line(entry.text[found.start() :], piece.place)).time
        front = next(parse_line(f"{entry.text[: found.start()]} .", piece.place)).time
        front = front if front is not None else entry.time
        if own is not None and front is not None:
            return own - front if abs(own - front) > CLOCKS_DIFFER else 0.0
    return 0.0


def _unwrap_lines(lines: Iterator[Line], lost: LostLines) -> Iterator[Line]:
    """The lines, those out of their envelope that stand in one behind a prefix."""
    for line in lines:
        text = line.text
        enclosed = text.lstrip()[:1] in ("{", '"') or ("=" in text[:12] and pairs.has_text(text))
        records = _open_envelope(text, lost) if enclosed else None
        if records is None:
            yield line
            continue
        for entry in records:
            for inner in parse_line(entry.text, line.place, who=entry.who.filled(line.who)):
                time = next((t for t in (inner.time, entry.time, line.time) if t is not None), None)
                yield replace(
                    inner,
                    time=time,
                    level=inner.level or entry.level or line.level,
                    origin=inner.origin or line.origin,
                )


def _unwrap_envelopes(raws: Iterator[RawLine], lost: LostLines) -> Iterator[LinePiece]:
    """Every line out of its envelope."""
    for raw in raws:
        if raw.entry is not None:
            yield LinePiece(raw.place, raw.entry)
            continue
        text = _decode_lines(raw.data)
        if text.count("\ufffd") > _GARBLED * len(text):
            lost.lines += 1
            continue
        records = _open_envelope(text, lost)
        if records is None:
            yield LinePiece(raw.place, EnvelopeRecord(text))
        else:
            last = max(len(raw.data) - 1, 0)  # each has a place of its own, and all stand in this line
            places = (replace(raw.place, offset=raw.place.offset + min(n, last)) for n in range(len(records)))
            yield from map(LinePiece, places, records)


def _decode_lines(data: bytes) -> str:
    if b"\0" in data[:4096]:
        data = data.replace(b"\0", b"")
    long = data[:1] in b"{[ ," or b"\r" in data or data[-1:] == b"}"
    most = len(data) if long else 4 * LONGEST
    return data[:most].decode("utf-8", "replace")


def _open_envelope(text: str, lost: LostLines) -> list[EnvelopeRecord] | None:
    """The records in a line; None for one without an envelope."""
    head = text.lstrip(" \t,[\x1e")[:2]
    if head == '{"' or head == "{'":
        records = objects.line_records(text)
        lost.lines += records is None and text.rstrip()[-1:] != "}"
        return records
    if head[:1] == "<" and (entry := pairs.element_text(text)):
        return [entry]
    if head[:1] == '"':
        entry = objects.pair_text(text)
        return [entry] if entry else None
    if "=" in text[:48] and (records := pairs.parse_fields(text.rstrip())):
        return records
    if '"stream"' in text and text.rstrip("]) ")[-1:] == "}":  # fluentd's, behind what it is about
        return objects.line_records(text[text.find('{"') :].rstrip("]) "))
    if text[-1:] == "}" and (begin := text.find('{"', 0, FRONT)) > 0:  # what a task answered, behind its name
        records = objects.line_records(text[begin:])
        if records and (len(records) >= SEVERAL or objects.has_streams(text)):
            return records
    stream = STREAM.match(text) if text[:2] == "20" else None
    if stream and text[stream.end() : stream.end() + 2] == '{"':
        inner = objects.line_records(text[stream.end() :])
        if inner:
            return inner
    if stream and _PARTIAL.match(text):
        return [EnvelopeRecord(text, NOBODY, whole=False)]
    return None
