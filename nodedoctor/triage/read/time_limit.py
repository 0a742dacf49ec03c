"""The time limit of a triage: ends of large logs are read first."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from types import FrameType

from nodedoctor.record import record

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
