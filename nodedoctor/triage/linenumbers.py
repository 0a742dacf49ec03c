"""Line numbers for the few lines that are shown: counted at the end, not while gigabytes are read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from nodedoctor.triage.model import Event

_CHUNK = 4 << 20


class LineNumbers:
    """Counts newlines before each shown event, one pass per file."""

    def __init__(self, events: Iterable[Event[Any]], files: frozenset[str]) -> None:
        wanted: dict[str, set[int]] = {}
        for event in events:
            if event.place.source in files:
                wanted.setdefault(event.place.source, set()).add(event.place.offset)
        self._lines: dict[tuple[str, int], int] = {}
        for path, offsets in wanted.items():
            self._count(path, sorted(offsets))

    def of(self, event: Event[Any]) -> int | None:
        """The line of an event, counted from one; None for streams and files that changed."""
        return self._lines.get((event.place.source, event.place.offset))

    def _count(self, path: str, offsets: list[int]) -> None:
        line, position = 1, 0
        try:
            with open(path, "rb", buffering=0) as file:
                for offset in offsets:
                    while position < offset:
                        block = file.read(min(_CHUNK, offset - position))
                        if not block:
                            return
                        line += block.count(b"\n")
                        position += len(block)
                    self._lines[path, offset] = line
        except OSError:
            return
