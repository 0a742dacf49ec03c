"""Notices within milliseconds that a rank's process ends, and with which status unless it was collected."""

from __future__ import annotations

import contextlib
import os
import select
import time
from collections.abc import Mapping

from nodedoctor.probes.job.alive import fields

MOST = 128
"""Processes that are followed: each takes a descriptor."""
TOGETHER = 0.1
"""Seconds in which more ends are waited for before they are printed."""
STATUS = 49
"""Where in /proc/PID/stat, behind the name, the status of wait(2) is (proc_pid_stat(5), exit_code)."""


class Ends:
    """Follows processes by descriptors of pidfd_open(2); where there are none, nothing is noticed."""

    def __init__(self) -> None:
        self._open: dict[int, tuple[int, int]] = {}
        self._new: list[dict[str, int | float | None]] = []
        self._poll = select.poll()
        self._poll.register(0, select.POLLIN)

    def follow(self, starts: Mapping[int, int]) -> None:
        """Follow these processes, with their start times, besides those that are followed."""
        followed = set(self._open.values())
        for pid, start in starts.items():
            if (pid, start) in followed or len(self._open) >= MOST:
                continue
            with contextlib.suppress(OSError, AttributeError):
                descriptor = os.pidfd_open(pid)
                self._open[descriptor] = (pid, start)
                self._poll.register(descriptor, select.POLLIN)

    @property
    def new(self) -> bool:
        """Whether there are ends that were not taken yet."""
        return bool(self._new)

    def take(self) -> list[dict[str, int | float | None]]:
        """The ends since the last time, in their order."""
        new_ends, self._new = self._new, []
        return new_ends

    def wait(self, due: float) -> bool:
        """Wait until a moment, or a little longer than the next end; True as soon as stdin has something."""
        while (remaining := due - time.monotonic()) > 0:
            ready = {descriptor for descriptor, _ in self._poll.poll(1000 * remaining)}
            for descriptor in sorted(ready - {0}):
                self._record_end(descriptor)
                due = min(due, time.monotonic() + TOGETHER)
            if 0 in ready:
                return True
        return False

    def _record_end(self, descriptor: int) -> None:
        pid, start = self._open.pop(descriptor)
        self._poll.unregister(descriptor)
        os.close(descriptor)
        row = fields(pid)
        is_it = len(row) > STATUS and row[0] == "Z" and int(row[19]) == start
        status = int(row[STATUS]) if is_it else None
        self._new.append({"pid": pid, "start": start, "monotonic": time.monotonic(), "status": status})
