"""From sources to events, with bounded memory whatever their size."""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from io import BytesIO
from itertools import islice
from typing import Any, BinaryIO

from nodedoctor import input_files
from nodedoctor.json_shapes import loaded
from nodedoctor.triage.identity.labels import SourceStats
from nodedoctor.triage.identity.trace_owners import attribute_lines
from nodedoctor.triage.lines.decode import Read, decode_stream, encoding_of, is_text
from nodedoctor.triage.lines.envelopes.forms import LARGEST, EnvelopeForm, form_of
from nodedoctor.triage.lines.normal import LostLines, RawLine, normalise_lines
from nodedoctor.triage.model import Event, Line, Place
from nodedoctor.triage.patterns import event_signature, ras, read_events
from nodedoctor.triage.read import scan
from nodedoctor.triage.read.archives import (
    ALL_MEMBERS,
    BROKEN,
    ArchivePart,
    ArchiveShare,
    UnpackBudget,
    archive_parts,
    read_again,
)
from nodedoctor.triage.read.joined_files import LARGEST as LARGEST_JOINED
from nodedoctor.triage.read.joined_files import split_joined
from nodedoctor.triage.read.limits import BlockTimeout, EventSampler, TimedBlocks, TimeLimit
from nodedoctor.triage.read.scan import ReadDepth
from nodedoctor.triage.read.search import Anchor, GrepSearch
from nodedoctor.triage.read.sources import LogSource, NoSuchPath
from nodedoctor.whole_numbers import json_integer

RAS_LARGEST = 64 << 20
"""Bytes of an answer of RAS."""
DUMP_LARGEST = 1 << 30
"""Bytes of a flight-recorder dump inside of an archive, as of one outside."""
HEAD = 96 << 10
"""Bytes at the beginning of a log that decide its layout."""
BLOCK = 256
"""Lines that are taken out of their prefixes before events are read from them."""


@dataclass(slots=True)
class SourceReading:
    """What was read so far: events in order, bytes, and what could not be read.

    `unread` counts lines, members of archives and envelopes that could not be opened, `slow` those of the
    lines that took too long; `dumps` are those found inside of archives: name and bytes. `searches` run
    already, by path. `depth` says how much of each log is read line by line. `members` are readings of an
    archive's members by their place in it, and `spent` that it was larger than what may be unpacked. `limit`
    is when reading has to end.
    """

    events: list[Event[Any]] = field(default_factory=list)
    size: int = 0
    notes: list[str] = field(default_factory=list)
    interrupted: bool = False
    anchors: dict[str, list[Anchor]] = field(default_factory=dict)
    unread: int = 0
    slow: int = 0
    dumps: list[tuple[str, bytes]] = field(default_factory=list)
    speakers: dict[str, SourceStats] = field(default_factory=dict)
    searches: dict[str, GrepSearch] = field(default_factory=dict)
    depth: ReadDepth = scan.DEEPEST
    members: dict[int, SourceReading] = field(default_factory=dict)
    spent: bool = False
    limit: TimeLimit | None = None

    def note_unread(self, note: str, count: int = 1) -> None:
        """Note what could not be read."""
        self.notes.append(note)
        self.unread += count

    def add(self, part: SourceReading) -> None:
        """Add what was read of another source, its members in their order."""
        for _, member in sorted(part.members.items()):
            self.add(member)
        self.events += part.events
        self.size += part.size
        self.notes += part.notes
        self.unread += part.unread
        self.slow += part.slow
        self.dumps += part.dumps
        self.anchors |= part.anchors
        self.speakers |= part.speakers
        self.interrupted = self.interrupted or part.interrupted


def read_source(source: LogSource, reading: SourceReading, share: ArchiveShare = ALL_MEMBERS) -> None:
    """Add the events of a source or of a share of its members.

    Trouble with it becomes a note. Ctrl-C ends the reading, not the judging.
    """
    try:
        if source.kind == "text" and _is_plain(source):
            anchors, search = (
                reading.anchors.setdefault(source.path, []),
                reading.searches.pop(source.path, None),
            )
            if not _read_if_joined(source.path, _read_small(source), reading):
                spots = scan.scan_file(source.path, source.size, anchors, search, reading.depth)
                _collect_events(source.path, reading, _raw_lines(source.path, spots))
            reading.size += source.size
            return
        with _open_source(source) as file:
            account = UnpackBudget(share)
            try:
                for part in archive_parts(source.path, _InputStream(file, source, reading), account, share):
                    _read_member(part, reading)
            finally:
                reading.spent = account.left < 0
                for member, note in account.left_out:
                    reading.members.setdefault(member, SourceReading()).note_unread(note)
    except KeyboardInterrupt:
        _until_interrupt(source.path, reading)
    except BROKEN as error:
        reading.note_unread(f"{source.path}: read only in part: {error}")
    except ImportError:
        reading.note_unread(
            f"{source.path}: zstd needs the Python package zstandard; or pipe `zstdcat` into `-`"
        )
    except NoSuchPath:
        raise
    except Exception as fault:  # whatever one source does to us costs the others nothing
        reading.note_unread(unexpected_note(source.path, fault))


def _read_small(source: LogSource) -> bytes:
    """The bytes of a file in which several logs may have been put together."""
    if source.size > LARGEST_JOINED:
        return b""
    with open(source.path, "rb") as file:
        return file.read()


def _read_if_joined(name: str, data: bytes, reading: SourceReading) -> bool:
    """Read the logs that were put together in a text, each by itself; False where it is one log."""
    parts = split_joined(data)
    for part in parts:
        part_name = f"{name}!{part.name}" if part.name else name
        spots = scan.scan_stream(BytesIO(data[part.begin : part.end]).read, reading.depth.size)
        _collect_events(part_name, reading, _raw_lines(part_name, spots, part.begin))
    return bool(parts)


def read_tail(source: LogSource, size: int, reading: SourceReading) -> None:
    """Add the events of the last `size` bytes of a log."""
    try:
        if not _is_plain(source):
            return
        with open(source.path, "rb") as file:
            file.seek(source.size - size)
            file.readline()
            start = file.tell()
            spots = scan.scan_stream(file.read, reading.depth.size)
            _collect_events(source.path, reading, _raw_lines(source.path, spots, start))
        reading.size += source.size - start
        reading.note_unread(f"{source.path}: only its last {size >> 10} KiB were read in time")
    except OSError as error:
        reading.note_unread(f"{source.path}: read only in part: {error}")


def unexpected_note(path: str, fault: Exception) -> str:
    """A note for an unexpected fault of ours; the other sources are still judged."""
    last = traceback.extract_tb(fault.__traceback__)[-1:]
    where = "".join(f" in {os.path.basename(frame.filename)}:{frame.lineno}" for frame in last)
    why = " ".join(str(fault).split())[:200]
    return f"{path}: read only in part, a fault of nodedoctor{where}: {type(fault).__name__}: {why}"


def _is_plain(source: LogSource) -> bool:
    """True for text that is read in place, so that grep can search it."""
    with open(source.path, "rb") as file:
        head = file.read(HEAD)
    return encoding_of(head) == "utf-8" and form_of(head) is None


def _read_member(part: ArchivePart, reading: SourceReading) -> None:
    """Add a part to its member's reading: a damaged member costs no other one."""
    inner = reading.members.setdefault(part.member, SourceReading())
    inner.depth = min(reading.depth, scan.choose_depth(part.files), key=lambda depth: depth.size)
    try:
        _read_part(part, inner)
    except BROKEN as error:
        inner.note_unread(f"{part.name}: read only in part: {error}")
    except Exception as fault:
        inner.note_unread(unexpected_note(part.name, fault))
    reading.interrupted = reading.interrupted or inner.interrupted


def _read_part(part: ArchivePart, reading: SourceReading) -> None:
    if part.kind in ("pickle", "json"):
        reading.dumps.append((part.name, _read_parts(part.read, DUMP_LARGEST)))
    elif part.kind == "ras":
        _read_ras(part, reading)
    elif not is_text(part.head):
        reading.note_unread(f"{part.name}: left out, it is neither text nor a dump")
    else:
        read_bytes = decode_stream(part.read, encoding_of(part.head))
        head = b""
        while len(head) < 65536 and (more := read_bytes(65536)):
            head += more
        again = read_again(head, read_bytes)
        form = form_of(head)
        if form is None:
            data = _read_parts(again, LARGEST_JOINED)
            if len(data) < LARGEST_JOINED and _read_if_joined(part.name, data, reading):
                return
            spots = scan.scan_stream(read_again(data, again), reading.depth.size)
            _collect_events(part.name, reading, _raw_lines(part.name, spots))
        else:
            _read_form(form, part.name, again, reading)


def _read_form(form: EnvelopeForm, name: str, read_bytes: Read, reading: SourceReading) -> None:
    """Read a form as a whole; what it is not after all, by lines."""
    data = _read_parts(read_bytes, LARGEST)
    records = form.records(data) if len(data) < LARGEST else None
    if len(data) >= LARGEST:
        reading.notes.append(f"{name}: too large to be opened as {form.name}, each line was read by itself")
    if records is None:
        spots = scan.scan_stream(read_again(data, read_bytes), reading.depth.size)
        _collect_events(name, reading, _raw_lines(name, spots))
    else:
        rows = (RawLine(Place(name, i, i + 1), entry=record) for i, record in enumerate(records))
        _collect_events(name, reading, rows)


def _read_parts(read_bytes: Read, most: int) -> bytes:
    blocks: list[bytes] = []
    remaining = most
    while remaining > 0 and (block := read_bytes(min(remaining, 1 << 20))):
        blocks.append(block)
        remaining -= len(block)
    return b"".join(blocks)


def _read_ras(part: ArchivePart, reading: SourceReading) -> None:
    """RAS's answer in its JSON form."""
    try:
        document = loaded(_read_parts(part.read, RAS_LARGEST), parse_int=json_integer)
    except ValueError as error:
        reading.notes.append(f"{part.name}: {error}")
        return
    if isinstance(document, dict):
        reading.events += ras.read_document(document, Place(part.name, 0))


def _collect_events(name: str, reading: SourceReading, lines: Iterator[RawLine]) -> None:
    """The events of one log."""
    thin = EventSampler()
    blocks = TimedBlocks(lines)
    try:
        with blocks:
            while True:
                try:
                    normal = _in_blocks(_log_lines(name, reading, blocks.lines()), blocks)
                    for event in read_events(attribute_lines(normal)):
                        thin.add(event)
                    break
                except BlockTimeout:
                    blocks.give_up()
    except KeyboardInterrupt:
        _until_interrupt(name, reading)
    finally:
        reading.events += thin.events()
        if blocks.unread:
            reading.slow += blocks.unread
            note = f"{name}: {blocks.unread} lines took too long, and were cut short or left out"
            reading.note_unread(note, blocks.unread)


def _in_blocks(lines: Iterator[Line], blocks: TimedBlocks) -> Iterator[Line]:
    """The lines, a block at a time, which takes a fifth less time."""
    while block := list(islice(lines, BLOCK)):
        blocks.restart()
        yield from block


def _log_lines(name: str, reading: SourceReading, lines: Iterator[RawLine]) -> Iterator[Line]:
    """The lines of a log; reading stops where Ctrl-C comes."""
    speakers, losses = reading.speakers.setdefault(name, SourceStats()), LostLines()
    try:
        for line in normalise_lines(lines, losses, event_signature):
            speakers.observe(line)
            yield line
    except KeyboardInterrupt:
        _until_interrupt(name, reading)
    except BROKEN as error:
        reading.note_unread(f"{name}: read only in part: {error}")
    finally:
        if losses.older:
            note = f"{name}: its newest line is the first; the {losses.older} oldest lines were not read"
            reading.note_unread(note, losses.older)
        if losses.lines:
            reading.note_unread(f"{name}: {losses.lines} lines could not be read", losses.lines)


def _until_interrupt(path: str, reading: SourceReading) -> None:
    if not reading.interrupted:
        reading.notes.append(f"{path}: reading was interrupted")
    reading.interrupted = True


def _raw_lines(name: str, spots: Iterable[scan.Spot], start: int = 0) -> Iterator[RawLine]:
    """The lines at these offsets, counted from `start`."""
    return (RawLine(Place(name, start + offset), raw) for offset, raw in spots)


class _InputStream:
    """A file or a pipe, read forward; Ctrl-C is its end."""

    def __init__(self, file: BinaryIO, source: LogSource, reading: SourceReading) -> None:
        self._file, self._source, self._reading = file, source, reading
        self._read: Read = file.read
        if source.kind in ("stdin", "pipe"):
            self._read = getattr(file, "read1", file.read)

    def read(self, size: int) -> bytes:
        """The next bytes."""
        if self._reading.interrupted:
            return b""
        try:
            data = self._read(size)
        except KeyboardInterrupt:
            _until_interrupt(self._source.path, self._reading)
            return b""
        self._reading.size += len(data)
        return data

    def seekable_file(self) -> BinaryIO | None:
        """The file itself if it is seekable, as a zip needs."""
        return None if self._source.kind in ("stdin", "pipe") else self._file


def _open_source(source: LogSource) -> BinaryIO:
    if source.kind == "stdin":
        return open(os.dup(sys.stdin.buffer.fileno()), "rb")
    if source.kind == "pipe":
        try:
            return input_files.opened(source.path, pipes=True)
        except OSError as error:
            raise NoSuchPath(f"{source.path}: {error.strerror}") from None
    return open(source.path, "rb")
