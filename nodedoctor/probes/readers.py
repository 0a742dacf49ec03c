"""Forked readers at their end: waited for in bounded time, so that none stays a zombie."""

from __future__ import annotations

import os
import signal
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

REAP_S = 0.1
"""Seconds that killed readers have to be gone; ours: they need a millisecond."""


def end(pids: Iterable[int]) -> None:
    """Kill forks that have answered, or will not, and wait for all of them; what cannot end is left behind.

    Who ends before its forks hands them to PID 1. In a container that may be a program that reaps no child,
    and each of them would stay in its table of processes.
    """
    remaining = list(pids)
    for pid in remaining:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:  # where SIGCHLD is ignored the kernel keeps none
            continue
    ends = time.monotonic() + REAP_S
    while remaining := [pid for pid in remaining if not _is_gone(pid)]:
        if time.monotonic() > ends:
            return
        time.sleep(0.0005)


def _is_gone(pid: int) -> bool:
    try:
        return os.waitpid(pid, os.WNOHANG)[0] == pid
    except ChildProcessError:
        return True
