"""Limits of reading: the time of a triage and of a block of lines, the events that are kept.

Where time is limited, ends of large logs are read first. Of a block that takes too long the lines are cut,
then skipped.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from types import FrameType
from typing import Any

from nodedoctor.record import record
from nodedoctor.triage.lines.normal import RawLine
from nodedoctor.triage.model import Event
from nodedoctor.triage.patterns.progress import TrainingStep

TAILS = (32 << 10, 256 << 10, 2 << 20, 16 << 20, 64 << 20)
"""Bytes at the end of a log that are read before the rest, each as far as there is time: what ended a job is
there. A line that matters costs some 80 us, so that 64 MiB of nothing else take a minute. Our choice."""
READING = 0.75
"""Share of the time in which logs are read; the rest is for judging them. Our choice."""
LATE = 0.7
"""Seconds behind the limit at which a triage that still judges is ended without a verdict. Our choice."""


@record
class TimeLimit:
    """The seconds given, and the monotonic times when reading and all else end."""

    seconds: float
    reading: float
    ends: float

    @classmethod
    def in_seconds(cls, seconds: float, start_time: float | None = None) -> TimeLimit:
        """A limit that began when the program was started, or begins now."""
        now = time.monotonic() if start_time is None else start_time
        return cls(seconds, now + seconds * READING, now + seconds)

    def interrupt_reading(self) -> None:
        """Raise KeyboardInterrupt when the reading time is over; also in a fork."""
        self._call_at(self.reading, _stop_reading)

    def interrupt_waiting(self) -> None:
        """The same a little later, so that forks can still answer."""
        self._call_at((self.reading + self.ends) / 2, _stop_reading)

    def end_late(self) -> None:
        """End the process if it still judges after its time."""
        self._call_at(self.ends + LATE, _end_without_verdict)

    @staticmethod
    def cancel() -> None:
        """Drop the limit: a verdict is written and shown without one."""
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, signal.SIG_DFL)

    @staticmethod
    def _call_at(when: float, handler: Callable[[int, FrameType | None], None]) -> None:
        signal.signal(signal.SIGALRM, handler)
        signal.setitimer(signal.ITIMER_REAL, max(when - time.monotonic(), 0.01))

    @property
    def is_over(self) -> bool:
        """Whether nothing more is to be read."""
        return time.monotonic() >= self.reading


def _stop_reading(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _end_without_verdict(number: int, frame: FrameType | None) -> None:
    os.write(2, b"nodedoctor: triage: the logs were not judged within the deadline\n")
    os._exit(3)


MOST_EVENTS = 150
"""Events that are kept per kind and rank at either end: a flood repeats itself."""
STEPS_KEPT = 8
"""Steps in a row that are kept: only that there were several matters."""


class EventSampler:
    """Keeps the first and last events of each kind and rank, in order."""

    def __init__(self) -> None:
        self._first: dict[tuple[Any, ...], list[tuple[int, Event[Any]]]] = {}
        self._last: dict[tuple[Any, ...], deque[tuple[int, Event[Any]]]] = {}
        self._index = self._steps = 0

    def add(self, event: Event[Any]) -> None:
        """Keep an event, or drop it."""
        self._index += 1
        self._steps = self._steps + 1 if isinstance(event.what, TrainingStep) else 0
        if self._steps > STEPS_KEPT:
            return
        key = (event.kind, event.who.rank, event.who.labels[:1])
        first = self._first.setdefault(key, [])
        if len(first) < MOST_EVENTS:
            first.append((self._index, event))
        else:
            self._last.setdefault(key, deque(maxlen=MOST_EVENTS)).append((self._index, event))

    def events(self) -> list[Event[Any]]:
        """The kept events, in their order."""
        pairs = [pair for group in (*self._first.values(), *self._last.values()) for pair in group]
        return [event for _, event in sorted(pairs, key=lambda pair: pair[0])]


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
