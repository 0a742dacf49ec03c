"""No block of a log takes long: what does not end in time is read again cut short, and then left out."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import FrameType

from nodedoctor.triage.lines.normal import RawLine

SECONDS = 2.0
"""CPU seconds for a block: some fifty times what 64 KiB of a log take. Ours."""
SIZE, LINES = 64 << 10, 2048
"""Bytes and lines of a block at most; a line takes some 80 us."""
SHORT = 1024
"""Bytes of a line that is read again: what takes the cube of a line takes a four-thousandth of its time."""


class TooLong(BaseException):
    """A block was not read in time."""


class Patience:
    """Hands out the lines of a log in blocks, and ends whatever takes long over one of them.

    The expressions look for signals while they match. Only a main thread gets them; others wait.
    """

    def __init__(self, lines: Iterator[RawLine]) -> None:
        self.unread = 0
        self._lines = lines
        self._held: list[RawLine] = []
        self._again: list[RawLine] = []
        self._cut = False
        self._armed = False
        self._able = threading.current_thread() is threading.main_thread()
        self._before: Callable[[int, FrameType | None], object] | int | None = None

    def __enter__(self) -> Patience:
        if self._able:
            self._before = signal.signal(signal.SIGVTALRM, self._ring)
        return self

    def __exit__(self, *_: object) -> None:
        self._armed = False
        if self._able:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, self._before)

    def lines(self) -> Iterator[RawLine]:
        """The lines that are left."""
        while block := self._block():
            self._held += block
            self._arm()
            yield from block

    def went_on(self) -> None:
        """Restart the time: some of the lines that were handed out were read."""
        del self._held[:-LINES]
        self._arm()

    def give_up(self) -> None:
        """Take the lines in hand back: they are read once more, cut short, or not at all."""
        self._armed = False
        if self._cut:
            self.unread += len(self._held)
        else:
            self.unread += sum(len(line.data) > SHORT for line in self._held)
            self._again = [replace(line, data=line.data[:SHORT]) for line in self._held]
        self._cut = not self._cut
        self._held = []

    def _block(self) -> list[RawLine]:
        self._armed = False
        if self._again:
            block, self._again = self._again, []
            return block
        self._held = self._held[-LINES:]
        self._cut = self._cut and bool(self._held)
        block, size = [], 0
        for line in self._lines:
            block.append(line)
            size += len(line.data)
            if size >= SIZE or len(block) >= LINES:
                break
        return block

    def _arm(self) -> None:
        if self._able:
            self._armed = True
            signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)

    def _ring(self, number: int, frame: FrameType | None) -> None:
        if self._armed:
            self._armed = False
            raise TooLong
