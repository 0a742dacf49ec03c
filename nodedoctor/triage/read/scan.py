"""Finds the few lines that matter in files of any size, without decoding the others.

Measured on 2 GiB of NCCL_DEBUG=INFO: grep(1) with some forty stems runs at half the speed of three words, one
`re` alternative in Python at a twentieth. So grep points at the lines and only those are read; streams that
cannot be seeked are searched in Python. Head, tail and samples between are read whole: they show progress.
The numbers of the few lines that are shown are counted at the end.
"""

from __future__ import annotations

import functools
import os
import re
from bisect import bisect_right
from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from io import FileIO
from typing import Any

from nodedoctor.record import record
from nodedoctor.triage.lines.prefilter import GREP_PREFILTER
from nodedoctor.triage.model import Event
from nodedoctor.triage.patterns.signs import NEEDLES
from nodedoctor.triage.read.search import CHUNK, LINE_BY_LINE, Anchor, GrepSearch, has_short_lines

BYTES_AFTER = 8192
"""Bytes that are read behind a line that matters: the rest of a traceback, the values under a headline."""
SAMPLE = 2048
LONG_LINE = 1 << 20
"""Bytes; of a longer line only the beginning is read."""
BUDGET = 8 << 20
"""Bytes of windows parsed per file; when more lines match, the first and the last are read."""

ORDINARY = 16 << 20
"""Bytes read line by line of all logs together, beside what matters: some 15 s on one core. Ours."""
LEAST = 16 << 10
"""Bytes read line by line of each log at least."""

Spot = tuple[int, bytes]


@record
class ReadDepth:
    """How many bytes are read line by line: a short log, or ends and samples."""

    size: int = LINE_BY_LINE

    @property
    def edge(self) -> int:
        """Bytes at either end: how a job began, and what it did last."""
        return self.size // 4

    @property
    def samples(self) -> int:
        """Places between the ends."""
        return self.size // (6 * SAMPLE)


DEEPEST = ReadDepth()
"""Of a log by itself."""


def choose_depth(logs: int) -> ReadDepth:
    """How deep each log is read, less for each where there are many."""
    return ReadDepth(min(LINE_BY_LINE, max(LEAST, ORDINARY // max(logs, 1))))


def scan_file(
    path: str, size: int, anchors: list[Anchor], search: GrepSearch | None = None, deep: ReadDepth = DEEPEST
) -> Iterator[Spot]:
    """Offset and bytes of the lines worth parsing in a file, in order.

    `anchors` takes the line numbers that grep counted. `search` is one in it that runs already.
    """
    with open(path, "rb", buffering=0) as file:
        if size <= deep.size or not has_short_lines(file.fileno(), size):
            yield from scan_stream(file.read)
            return
        next_offset = 0
        for spot in _read_window(
            file.fileno(), 0, deep.edge, size
        ):  # these are read while the search still runs
            next_offset = spot[0] + len(spot[1]) + 1
            yield spot
        hits = (
            _grep_lines(path, search)
            if size > LINE_BY_LINE
            else _search_small(os.pread(file.fileno(), size, 0))
        )
        anchors += hits or ()
        for begin, end in _byte_windows(size, hits, deep):
            for spot in _read_window(file.fileno(), max(begin, next_offset), end, size):
                if spot[0] >= next_offset:
                    yield spot


def scan_stream(read: Callable[[int], bytes], edge_size: int = LINE_BY_LINE) -> Iterator[Spot]:
    """The same for anything that can only be read forward; memory stays bounded.

    So much of its beginning and of its end is read whole.
    """
    wanted = _is_wanted()
    offset, next_offset, carry, skipping = 0, 0, b"", False
    recent: list[Spot] = []
    while chunk := read(CHUNK):
        data = carry + chunk
        if skipping:
            newline = data.find(b"\n")
            if newline < 0:
                offset, carry = offset + len(data), b""
                continue
            offset, data, skipping = offset + newline + 1, data[newline + 1 :], False
        block_end = data.rfind(b"\n") + 1
        block, carry = data[:block_end], data[block_end:]
        front = _upto_line(block, edge_size - offset)
        if front:
            yield from _split_lines(block[:front], offset)
            next_offset = offset + front
        if block[front:]:
            for spot in _find_hits(block[front:], offset + front, wanted):
                next_offset = spot[0] + len(spot[1]) + 1
                yield spot
            recent = [*recent, (offset, block)][-2:]
        offset += len(block)
        if len(carry) > LONG_LINE:  # of a bar that is drawn again and again, each drawing is a whole one
            block_end = carry.rfind(b"\r") + 1
            skipping = not block_end
            block_end = block_end or len(carry)
            yield offset, carry[: BYTES_AFTER if skipping else block_end]
            offset, carry = offset + block_end, carry[block_end:]
    next_offset = max(next_offset, offset - edge_size)  # the last lines say how far the job came
    for begin, block in recent:
        skipped = _upto_line(block, next_offset - begin)
        yield from _split_lines(block[skipped:], begin + skipped)
    if carry:
        yield offset, carry[:LONG_LINE]


def _upto_line(block: bytes, size: int) -> int:
    """The end of the line in which so many bytes of a block end."""
    if size <= 0:
        return 0
    newline = block.find(b"\n", size - 1)
    return newline + 1 if newline >= 0 else len(block)


def _split_lines(block: bytes, offset: int) -> Iterator[Spot]:
    """The lines of a block without their ends, as Unix and as Windows write them."""
    for row in block.split(b"\n"):
        if line := row.removesuffix(b"\r"):
            yield offset, line if b"\r" in line else line[:LONG_LINE]
        offset += len(row) + 1


def _find_hits(block: bytes, offset: int, wanted: re.Pattern[bytes]) -> Iterator[Spot]:
    """Lines with a stem, each with what follows it."""
    position = 0
    while match := wanted.search(block, position):
        begin = block.rfind(b"\n", 0, match.start()) + 1
        end = block.find(b"\n", min(match.end() + BYTES_AFTER, len(block) - 1))
        end = len(block) if end < 0 else end
        yield from _split_lines(block[max(begin, position) : end], offset + max(begin, position))
        position = end


def _byte_windows(size: int, hits: list[Anchor] | None, deep: ReadDepth) -> list[tuple[int, int]]:
    """Merged byte ranges to read: around every hit, both ends, and samples between."""
    if hits is None:
        return [(0, LINE_BY_LINE), (size - LINE_BY_LINE, size)]
    edge = deep.edge
    ranges = [(0, edge), (size - edge, size)]
    ranges += [(at, at + SAMPLE) for at in range(edge, size - edge, max(size // deep.samples, SAMPLE))]
    ranges += [(at, at + BYTES_AFTER) for at, _ in hits]
    merged: list[tuple[int, int]] = []
    for begin, end in sorted(ranges):
        if merged and begin <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(merged[-1][1], end))
        else:
            merged.append((begin, end))
    return _within_budget(merged)


def _within_budget(ranges: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """The first and the last ranges when all would be too much to parse."""
    if sum(end - begin for begin, end in ranges) <= BUDGET:
        return ranges
    front = _first_ranges(ranges, BUDGET // 3)
    back = [
        (-end, -begin)
        for begin, end in _first_ranges([(-end, -begin) for begin, end in reversed(ranges)], BUDGET * 2 // 3)
    ]
    front_end = front[-1][1]
    return front + [(max(begin, front_end), end) for begin, end in reversed(back) if end > front_end]


def _first_ranges(ranges: list[tuple[int, int]], budget: int) -> list[tuple[int, int]]:
    front: list[tuple[int, int]] = []
    for begin, end in ranges:
        front.append((begin, min(end, begin + budget)))
        budget -= end - begin
        if budget <= 0:
            break
    return front


def _read_window(descriptor: int, begin: int, end: int, size: int) -> Iterator[Spot]:
    """The whole lines of a range; the first is read from its own beginning."""
    lead = os.pread(descriptor, min(begin, CHUNK // 16), max(0, begin - CHUNK // 16))
    start = begin - (len(lead) - (lead.rfind(b"\n") + 1))
    for at in range(start, end, CHUNK * 8):
        block = os.pread(descriptor, min(end, at + CHUNK * 8) - at, at)
        if at + len(block) < size:
            rest = os.pread(descriptor, CHUNK // 16, at + len(block))
            block += rest[: rest.find(b"\n")] if b"\n" in rest else rest
        skip = 0 if at == start else block.find(b"\n") + 1
        yield from _split_lines(block[skip:], at + skip)


@functools.cache
def _is_wanted() -> re.Pattern[bytes]:
    return re.compile(b"|".join(re.escape(stem.encode()) for stem in GREP_PREFILTER))


def _search_small(data: bytes) -> list[Anchor]:
    """What grep would find in a file too small to start it for."""
    hits: list[Anchor] = []
    last, number = 0, 1
    for match in _is_wanted().finditer(data):
        number += data.count(b"\n", last, match.start())
        last = match.start()
        hits.append((last, number))
    return hits


def _grep_lines(path: str, search: GrepSearch | None) -> list[Anchor] | None:
    """The lines that grep finds, of a flood both ends; None without grep."""
    answer = (search or GrepSearch(path)).answer()
    if answer is not None and answer[1]:
        answer = GrepSearch(path, NEEDLES).answer()
    if answer is not None and answer[1]:
        first = GrepSearch(path, NEEDLES, "-m", "20000").answer()
        answer = ((first[0] if first else []) + answer[0], False)
    return None if answer is None else answer[0]


class LineNumbers:
    """Counts newlines before each shown event, from the nearest line whose number is known."""

    def __init__(self, events: Iterable[Event[Any]], files: Mapping[str, list[Anchor]]) -> None:
        wanted: dict[str, set[int]] = {}
        for event in events:
            if (path := _file_of(event, files)) is not None:
                wanted.setdefault(path, set()).add(event.place.offset)
        self._files = files
        self._lines: dict[tuple[str, int], int] = {}
        for path, offsets in wanted.items():
            self._count(path, sorted(offsets), files[path])

    def line_of(self, event: Event[Any]) -> int | None:
        """The line of an event, counted from one; None for streams and files that changed."""
        return event.place.line or self._lines.get((_file_of(event, self._files) or "", event.place.offset))

    def _count(self, path: str, offsets: list[int], anchors: list[Anchor]) -> None:
        line, position = 1, 0
        try:
            with open(path, "rb", buffering=0) as file:
                for offset in offsets:
                    line, position = _nearest_line(offset, anchors, (position, line))
                    line += _count_newlines(file, position, offset) if position <= offset else 0
                    line -= _count_newlines(file, offset, position) if position > offset else 0
                    position = offset
                    self._lines[path, offset] = line
        except OSError:
            return


def _file_of(event: Event[Any], files: Container[str]) -> str | None:
    """The file that an event is in, also where it is in a part of it."""
    source = event.place.source
    return next((path for path in (source, source.rpartition("!")[0]) if path in files), None)


def _nearest_line(offset: int, anchors: list[Anchor], last: Anchor) -> tuple[int, int]:
    """Number and offset of the nearest line that grep or we counted."""
    index = bisect_right(anchors, (offset, 0))
    nearest = min((last, *anchors[max(0, index - 1) : index + 1]), key=lambda anchor: abs(anchor[0] - offset))
    return nearest[1], nearest[0]


def _count_newlines(file: FileIO, begin: int, end: int) -> int:
    """Newlines between two places of a file."""
    file.seek(begin)
    count = 0
    while begin < end and (block := file.read(min(CHUNK * 4, end - begin))):
        count += block.count(b"\n")
        begin += len(block)
    return count
