"""Line numbers of the few shown lines, counted at the end."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from io import FileIO
from typing import Any

from nodedoctor.triage.model import Event
from nodedoctor.triage.read.search import Anchor

_CHUNK = 4 << 20


class LineNumbers:
    """Counts newlines before each shown event, from the nearest line whose number is known."""

    def __init__(self, events: Iterable[Event[Any]], files: Mapping[str, list[Anchor]]) -> None:
        wanted: dict[str, set[int]] = {}
        for event in events:
            if event.place.source in files:
                wanted.setdefault(event.place.source, set()).add(event.place.offset)
        self._lines: dict[tuple[str, int], int] = {}
        for path, offsets in wanted.items():
            self._count(path, sorted(offsets), files[path])

    def line_of(self, event: Event[Any]) -> int | None:
        """The line of an event, counted from one; None for streams and files that changed."""
        return event.place.line or self._lines.get((event.place.source, event.place.offset))

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


def _nearest_line(offset: int, anchors: list[Anchor], last: Anchor) -> tuple[int, int]:
    """Number and offset of the nearest line that grep or we counted."""
    index = bisect_right(anchors, (offset, 0))
    nearest = min((last, *anchors[max(0, index - 1) : index + 1]), key=lambda anchor: abs(anchor[0] - offset))
    return nearest[1], nearest[0]


def _count_newlines(file: FileIO, begin: int, end: int) -> int:
    """Newlines between two places of a file."""
    file.seek(begin)
    count = 0
    while begin < end and (block := file.read(min(_CHUNK, end - begin))):
        count += block.count(b"\n")
        begin += len(block)
    return count
