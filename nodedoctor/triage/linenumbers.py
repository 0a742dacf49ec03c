"""Line numbers for the few lines that are shown: counted at the end, not while gigabytes are read."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping
from io import FileIO
from typing import Any

from nodedoctor.triage.model import Event
from nodedoctor.triage.scan import Anchor

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

    def of(self, event: Event[Any]) -> int | None:
        """The line of an event, counted from one; None for streams and files that changed."""
        return event.place.line or self._lines.get((event.place.source, event.place.offset))

    def _count(self, path: str, offsets: list[int], anchors: list[Anchor]) -> None:
        line, position = 1, 0
        try:
            with open(path, "rb", buffering=0) as file:
                for offset in offsets:
                    known = bisect_right(anchors, (offset, 0)) - 1
                    if known >= 0 and anchors[known][0] > position:
                        position, line = anchors[known]
                        file.seek(position)
                    line += _newlines(file, offset - position)
                    position = offset
                    self._lines[path, offset] = line
        except OSError:
            return


def _newlines(file: FileIO, size: int) -> int:
    """Newlines in the next bytes of a file."""
    count = 0
    while size > 0 and (block := file.read(min(_CHUNK, size))):
        count += block.count(b"\n")
        size -= len(block)
    return count
