"""Every line out of its envelope, joined if it was broken, without its prefixes."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from statistics import median

from nodedoctor.record import record
from nodedoctor.triage.lines.common_prefix import learn_prefix
from nodedoctor.triage.lines.envelopes import objects, pairs
from nodedoctor.triage.lines.envelopes.field_names import SEVERAL, EnvelopeRecord
from nodedoctor.triage.lines.envelopes.pairs import list_line_reader, without_line_numbers
from nodedoctor.triage.lines.join import (
    RichColumn,
    RichFrame,
    broken_width,
    frame_width,
    has_table_border,
    mail_width,
    padded_width,
    rich_column,
    strip_frame,
    strip_quote,
    strip_table_border,
)
from nodedoctor.triage.lines.launcher_sections import RankSections
from nodedoctor.triage.lines.pieces import (
    STREAM,
    LinePiece,
    extract_texts,
    join_pieces,
    join_rich_column,
    newest_first,
)
from nodedoctor.triage.lines.prefix_pattern import MANY, NEARLY_ALL
from nodedoctor.triage.lines.prefixes import LONGEST, parse_line
from nodedoctor.triage.lines.written_page import is_written_page
from nodedoctor.triage.model import NOBODY, SERIOUS, Line, Place

SAMPLE = 512
"""Lines at the beginning of a file from which its common prefix and widths are learned."""
MOST_REVERSED = 100_000
"""Lines that are reversed at most, of a log with its newest line first: all are in memory. Ours."""
FRONT = 200
"""Characters in front of an object in a line."""
CLOCKS_DIFFER = 300.0
"""Seconds from which two clocks in one line are not the same one: pipes and collectors are faster. Ours."""
CLOCKS_COMPARED = 100
"""Lines with two times that are compared. Ours."""
_TIME = re.compile(r"\d\d:\d\d:\d\d")
_TWO_TIMES = re.compile(r"\d\d:\d\d:\d\d.{1,100}?\d\d:\d\d:\d\d")
_GARBLED = 0.3
"""Share of characters that are none in any encoding we know: such a line was not read."""
_PARTIAL = re.compile(r"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) (?:stdout|stderr) P ")


@record
class RawLine:
    """One line of a file, or one record of a document."""

    place: Place
    data: bytes = b""
    entry: EnvelopeRecord | None = None


@dataclass(slots=True)
class LostLines:
    """Counts of lines that are unreadable, or too old in a newest-first log."""

    lines: int = 0
    older: int = 0


def normalise_lines(
    raws: Iterator[RawLine], losses: LostLines, meaning: Callable[[str], frozenset[str]]
) -> Iterator[Line]:
    """The lines of a log as its processes printed them.

    `meaning` is what a line by itself says.
    """
    pieces = _unwrap_envelopes(raws, losses)
    sample = list(islice(pieces, SAMPLE))
    on_page = len(sample) < SAMPLE and is_written_page(_texts_of(sample), _printed_by(meaning))
    for find_reader in (list_line_reader, without_line_numbers):
        if take := find_reader(_texts_of(sample)):
            sample, pieces = list(extract_texts(sample, take)), extract_texts(pieces, take)
    for find_width, strip in ((frame_width, strip_frame), (mail_width, strip_quote)):
        if wide := find_width(_texts_of(sample)):
            rows = RichFrame(wide)
            sample = list(join_rich_column(extract_texts(sample, strip), rows))
            pieces = join_rich_column(extract_texts(pieces, strip), rows)
    if has_table_border(_texts_of(sample)):
        sample = list(extract_texts(sample, strip_table_border))
        pieces = extract_texts(pieces, strip_table_border)
    texts = _texts_of(sample)
    if begin := rich_column(texts):
        column = RichColumn(begin, max(map(len, texts)))
        sample, pieces = list(join_rich_column(iter(sample), column)), join_rich_column(pieces, column)
    if newest_first(sample):
        sample = [*sample, *islice(pieces, MOST_REVERSED)][::-1]
        losses.older += sum(1 for _ in pieces)  # read last, they would seem to be the end
    texts = _texts_of(sample)
    row_width = padded_width(texts)
    wide = row_width or broken_width(texts)
    rest = list(join_pieces(iter(sample), wide, row_width > 0))
    common = learn_prefix(_texts_of(rest), meaning)
    clock_offset = _clock_offset(rest)
    tail = chain(rest, join_pieces(pieces, wide, row_width > 0))
    levels = [piece.entry.level for piece in rest if piece.entry.level]
    usual, often = Counter(levels).most_common(1)[0] if levels else ("", 0)
    # a severity that all lines share says nothing of one
    shared = usual if len(levels) >= MANY and often >= NEARLY_ALL * len(rest) else ""
    mild = () if often == len(rest) else ("W",) if len(levels) > len(rest) / 2 else ("W", "I", "D")
    texts = [text for text in _texts_of(rest) if text.strip()]
    of_mail = 2 * sum(text.lstrip().startswith(">") for text in texts) > len(texts)  # cited as a whole
    sections = RankSections()
    own = {*SERIOUS, *mild} - {shared}  # collectors put a level by stream, I or E, around every line
    for piece in tail:
        entry = piece.entry
        for line in _unwrap_lines(parse_line(entry.text, piece.place, common, entry.who), losses):
            if clock_offset and _front_time(line, entry) is None:
                time = line.time if line.time is not None else entry.time
                line = replace(line, time=time + clock_offset if time is not None else None)
            if line.cited and of_mail:
                line = replace(line, cited=False)
            level = line.level or (entry.level if entry.level in own else "")
            if level != line.level or (entry.time is not None and line.time is None):
                time = entry.time if line.time is None else line.time
                line = replace(line, time=time, level=level)
            if line.text:
                line = sections.place(line)
                yield replace(line, on_page=True) if on_page else line


def _printed_by(meaning: Callable[[str], frozenset[str]]) -> Callable[[str], bool]:
    """What tells that a process printed a line: that line has a time or a speaker, or says something."""

    def is_printed(text: str) -> bool:
        lines = list(parse_line(text, Place("", 0)))
        return any(line.time is not None or line.who != NOBODY for line in lines) or bool(meaning(text))

    return is_printed


def _texts_of(pieces: Iterable[LinePiece]) -> list[str]:
    return [piece.entry.text for piece in pieces]


def _clock_offset(pieces: list[LinePiece]) -> float:
    """Seconds by which a process's clock is ahead of its prefixes; 0 without.

    A log that was collected or printed again later has the time of that in front of every line, a container's
    the time of another zone, and some lines have one of their own: only times of one clock can be compared.
    """
    two_clocks = (
        p for p in pieces if (_TIME if p.entry.time is not None else _TWO_TIMES).search(p.entry.text)
    )
    offsets: list[float] = []
    for piece in islice(two_clocks, CLOCKS_COMPARED):
        for line in parse_line(piece.entry.text, piece.place):
            front = _front_time(line, piece.entry)
            if line.time is not None and front is not None:
                offsets.append(line.time - front)
    usual = median(offsets) if offsets else 0.0
    same = sum(abs(offset - usual) < CLOCKS_DIFFER for offset in offsets)
    return usual if abs(usual) > CLOCKS_DIFFER and same >= NEARLY_ALL * len(offsets) else 0.0


def _front_time(line: Line, entry: EnvelopeRecord) -> float | None:
    """The time in front of that of a line itself, None where there is one time alone."""
    return line.front_time if line.front_time is not None or line.time is None else entry.time


def _unwrap_lines(lines: Iterator[Line], losses: LostLines) -> Iterator[Line]:
    """The lines; one in an envelope behind a prefix is taken out of it."""
    for line in lines:
        text = line.text
        enclosed = text.lstrip()[:1] in ("{", '"') or ("=" in text[:12] and pairs.has_text(text))
        records = _open_envelope(text, losses) if enclosed else None
        if records is None:
            yield line
            continue
        for entry in records:
            for inner in parse_line(entry.text, line.place, who=entry.who.fill_from(line.who)):
                time = next((t for t in (inner.time, entry.time, line.time) if t is not None), None)
                yield replace(
                    inner,
                    time=time,
                    level=inner.level or entry.level or line.level,
                    origin=inner.origin or line.origin,
                )


def _unwrap_envelopes(raws: Iterator[RawLine], losses: LostLines) -> Iterator[LinePiece]:
    """Every line out of its envelope."""
    for raw in raws:
        if raw.entry is not None:
            yield LinePiece(raw.place, raw.entry)
            continue
        text = _decode_lines(raw.data)
        if text.count("\ufffd") > _GARBLED * len(text):
            losses.lines += 1
            continue
        records = _open_envelope(text, losses)
        if records is None:
            yield LinePiece(raw.place, EnvelopeRecord(text))
        else:
            last = max(len(raw.data) - 1, 0)  # each has its own place within this line
            places = (replace(raw.place, offset=raw.place.offset + min(n, last)) for n in range(len(records)))
            yield from map(LinePiece, places, records)


def _decode_lines(data: bytes) -> str:
    if b"\0" in data[:4096]:
        data = data.replace(b"\0", b"")
    long = data[:1] in b"{[ ," or b"\r" in data or data[-1:] == b"}"
    most = len(data) if long else 4 * LONGEST
    return data[:most].decode("utf-8", "replace")


def _open_envelope(text: str, losses: LostLines) -> list[EnvelopeRecord] | None:
    """The records in a line; None for one without an envelope."""
    head = text.lstrip(" \t,[\x1e")[:2]
    if head == '{"' or head == "{'":
        records = objects.line_records(text)
        losses.lines += records is None and text.rstrip()[-1:] != "}"
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
        return [EnvelopeRecord(text, NOBODY, complete=False)]
    return None
