"""A time limit for each block of a log; slow lines are cut, then skipped."""

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


class BlockTimeout(BaseException):
    """A block was not read in time."""


class TimedBlocks:
    """The lines of a log in blocks, with a time limit for whatever reads one.

    Expressions check for signals while they match. Only a main thread gets these; others have no limit.
    """

    def __init__(self, lines: Iterator[RawLine]) -> None:
        self.unread = 0
        self._lines = lines
        self._open_lines: list[RawLine] = []
        self._retry_lines: list[RawLine] = []
        self._is_retry = False
        self._armed = False
        self._is_main_thread = threading.current_thread() is threading.main_thread()
        self._old_handler: Callable[[int, FrameType | None], object] | int | None = None

    def __enter__(self) -> TimedBlocks:
        if self._is_main_thread:
            self._old_handler = signal.signal(signal.SIGVTALRM, self._interrupt)
        return self

    def __exit__(self, *_: object) -> None:
        self._armed = False
        if self._is_main_thread:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            signal.signal(signal.SIGVTALRM, self._old_handler)

    def lines(self) -> Iterator[RawLine]:
        """The remaining lines."""
        while block := self._block():
            self._open_lines += block
            self._arm()
            yield from block

    def restart(self) -> None:
        """Restart the time: some of the lines that were handed out were read."""
        del self._open_lines[:-LINES]
        self._arm()

    def give_up(self) -> None:
        """Give up the open lines: they are read again, cut short, or skipped."""
        self._armed = False
        if self._is_retry:
            self.unread += len(self._open_lines)
        else:
            self.unread += sum(len(line.data) > SHORT for line in self._open_lines)
            self._retry_lines = [replace(line, data=line.data[:SHORT]) for line in self._open_lines]
        self._is_retry = not self._is_retry
        self._open_lines = []

    def _block(self) -> list[RawLine]:
        self._armed = False
        if self._retry_lines:
            block, self._retry_lines = self._retry_lines, []
            return block
        self._open_lines = self._open_lines[-LINES:]
        self._is_retry = self._is_retry and bool(self._open_lines)
        block, size = [], 0
        for line in self._lines:
            block.append(line)
            size += len(line.data)
            if size >= SIZE or len(block) >= LINES:
                break
        return block

    def _arm(self) -> None:
        if self._is_main_thread:
            self._armed = True
            signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)

    def _interrupt(self, number: int, frame: FrameType | None) -> None:
        if self._armed:
            self._armed = False
            raise BlockTimeout
