"""Finds the few lines that matter in files of any size, without decoding the rest.

Measured on 2 GiB of NCCL_DEBUG=INFO: grep(1) with some forty stems runs at half the speed of three words, one
`re` alternative in Python at a twentieth. So grep points at the lines and only those are read; streams that
cannot be seeked are searched in Python. Head, tail and samples between are read whole: they show progress.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Iterator

from nodedoctor.record import record
from nodedoctor.triage.lines.prefilter import GREP_PREFILTER
from nodedoctor.triage.patterns import NEEDLES
from nodedoctor.triage.read.search import CHUNK, WHOLE, Anchor, GrepSearch, has_short_lines

AFTER = 8192
"""Bytes read on after a line that matters: the rest of a traceback, the values under a headline."""
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
    """How many bytes of a log are read line by line: all of a short one, the ends and samples of another."""

    whole: int = WHOLE

    @property
    def edge(self) -> int:
        """Bytes at either end: how a job began, and what it did last."""
        return self.whole // 4

    @property
    def samples(self) -> int:
        """Places between the ends."""
        return self.whole // (6 * SAMPLE)


DEEPEST = ReadDepth()
"""Of a log by itself."""


def choose_depth(logs: int) -> ReadDepth:
    """How deep each of so many logs is read: a thousand ranks must not take a thousand times as long."""
    return ReadDepth(min(WHOLE, max(LEAST, ORDINARY // max(logs, 1))))


def scan_file(
    path: str, size: int, anchors: list[Anchor], begun: GrepSearch | None = None, deep: ReadDepth = DEEPEST
) -> Iterator[Spot]:
    """Offset and bytes of every line worth parsing in a regular file, in order; `anchors`: line numbers.

    `begun` is a search in it that runs already.
    """
    with open(path, "rb", buffering=0) as file:
        if size <= deep.whole or not has_short_lines(file.fileno(), size):
            yield from scan_stream(file.read)
            return
        told = 0
        for spot in _read_window(
            file.fileno(), 0, deep.edge, size
        ):  # these are read while the search still runs
            told = spot[0] + len(spot[1]) + 1
            yield spot
        hits = _grep_lines(path, begun) if size > WHOLE else _search_small(os.pread(file.fileno(), size, 0))
        anchors += hits or ()
        for begin, end in _byte_windows(size, hits, deep):
            for spot in _read_window(file.fileno(), max(begin, told), end, size):
                if spot[0] >= told:
                    yield spot


def scan_stream(read: Callable[[int], bytes], whole: int = WHOLE) -> Iterator[Spot]:
    """The same for anything that can only be read forward; memory stays bounded.

    So much of its beginning and of its end is read whole.
    """
    wanted = _is_wanted()
    offset, told, carry, skipping = 0, 0, b"", False
    recent: list[Spot] = []
    while chunk := read(CHUNK):
        data = carry + chunk
        if skipping:
            newline = data.find(b"\n")
            if newline < 0:
                offset, carry = offset + len(data), b""
                continue
            offset, data, skipping = offset + newline + 1, data[newline + 1 :], False
        cut = data.rfind(b"\n") + 1
        block, carry = data[:cut], data[cut:]
        front = _upto_line(block, whole - offset)
        if front:
            yield from _split_lines(block[:front], offset)
            told = offset + front
        if block[front:]:
            for spot in _find_hits(block[front:], offset + front, wanted):
                told = spot[0] + len(spot[1]) + 1
                yield spot
            recent = [*recent, (offset, block)][-2:]
        offset += len(block)
        if len(carry) > LONG_LINE:  # of a bar that is drawn again and again, each drawing is a whole one
            cut = carry.rfind(b"\r") + 1
            skipping = not cut
            cut = cut or len(carry)
            yield offset, carry[: AFTER if skipping else cut]
            offset, carry = offset + cut, carry[cut:]
    told = max(told, offset - whole)  # the last lines say how far the job came
    for begin, block in recent:
        skipped = _upto_line(block, told - begin)
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
    for line in block.split(b"\n"):
        if line:
            yield offset, line if b"\r" in line else line[:LONG_LINE]
        offset += len(line) + 1


def _find_hits(block: bytes, offset: int, wanted: re.Pattern[bytes]) -> Iterator[Spot]:
    """Lines with a stem, each with what follows it."""
    position = 0
    while found := wanted.search(block, position):
        begin = block.rfind(b"\n", 0, found.start()) + 1
        end = block.find(b"\n", min(found.end() + AFTER, len(block) - 1))
        end = len(block) if end < 0 else end
        yield from _split_lines(block[max(begin, position) : end], offset + max(begin, position))
        position = end


def _byte_windows(size: int, hits: list[Anchor] | None, deep: ReadDepth) -> list[tuple[int, int]]:
    """Merged byte ranges to read: around every hit, both ends, and samples between."""
    if hits is None:
        return [(0, WHOLE), (size - WHOLE, size)]
    edge = deep.edge
    ranges = [(0, edge), (size - edge, size)]
    ranges += [(at, at + SAMPLE) for at in range(edge, size - edge, max(size // deep.samples, SAMPLE))]
    ranges += [(at, at + AFTER) for at, _ in hits]
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
    front = _lines_up_to(ranges, BUDGET // 3)
    back = [
        (-end, -begin)
        for begin, end in _lines_up_to([(-end, -begin) for begin, end in reversed(ranges)], BUDGET * 2 // 3)
    ]
    cut = front[-1][1]
    return front + [(max(begin, cut), end) for begin, end in reversed(back) if end > cut]


def _lines_up_to(ranges: list[tuple[int, int]], budget: int) -> list[tuple[int, int]]:
    taken: list[tuple[int, int]] = []
    for begin, end in ranges:
        taken.append((begin, min(end, begin + budget)))
        budget -= end - begin
        if budget <= 0:
            break
    return taken


def _read_window(descriptor: int, begin: int, end: int, size: int) -> Iterator[Spot]:
    """The whole lines of a range; the line a hit stands in is taken from its beginning."""
    lead = os.pread(descriptor, min(begin, CHUNK // 16), max(0, begin - CHUNK // 16))
    start = begin - (len(lead) - (lead.rfind(b"\n") + 1))
    for at in range(start, end, CHUNK * 8):
        block = os.pread(descriptor, min(end, at + CHUNK * 8) - at, at)
        if at + len(block) < size:
            rest = os.pread(descriptor, CHUNK // 16, at + len(block))
            block += rest[: rest.find(b"\n")] if b"\n" in rest else rest
        cut = 0 if at == start else block.find(b"\n") + 1
        yield from _split_lines(block[cut:], at + cut)


@functools.cache
def _is_wanted() -> re.Pattern[bytes]:
    return re.compile(b"|".join(re.escape(stem.encode()) for stem in GREP_PREFILTER))


def _search_small(data: bytes) -> list[Anchor]:
    """What grep would find in a file so small that it takes longer to start one."""
    hits: list[Anchor] = []
    last, number = 0, 1
    for found in _is_wanted().finditer(data):
        number += data.count(b"\n", last, found.start())
        last = found.start()
        hits.append((last, number))
    return hits


def _grep_lines(path: str, begun: GrepSearch | None) -> list[Anchor] | None:
    """Lines with a stem; None when grep(1) cannot be asked. In a flood: the first and last needles."""
    found = (begun or GrepSearch(path)).answer()
    if found is not None and found[1]:
        found = GrepSearch(path, NEEDLES).answer()
    if found is not None and found[1]:
        first = GrepSearch(path, NEEDLES, "-m", "20000").answer()
        found = ((first[0] if first else []) + found[0], False)
    return None if found is None else found[0]
