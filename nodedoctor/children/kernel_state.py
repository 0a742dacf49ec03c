"""What a child that does not end is waiting for, from files of /proc that take no lock it may hold."""

from __future__ import annotations

import contextlib
import os

from nodedoctor.debug import Log

_log = Log(__name__)


def slowest(session: int, *, least: bool = False) -> int:
    """Of a child and what it started, the process that waits in the kernel: the tool itself, not its wrapper.

    The child's own pid where none does; with `least` 0, as what is not in state D ends when it is killed.
    """
    with contextlib.suppress(OSError), os.scandir("/proc") as entries:
        for entry in entries:
            if not entry.name.isdecimal():
                continue
            try:
                with open(f"/proc/{entry.name}/stat", encoding="utf-8", errors="replace") as stat:
                    state, _, _, its = stat.read().rpartition(")")[2].split()[:4]
            except (OSError, ValueError):  # it has ended
                continue
            if state == "D" and its == str(session):
                return int(entry.name)
    return 0 if least else session


def kernel_state(pid: int) -> str:
    """State and kernel wait channel: unlike cmdline, these take no lock that a sick process may hold."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            state = stat.read().rpartition(")")[2].split()[0]
        with open(f"/proc/{pid}/wchan", encoding="ascii", errors="replace") as wchan:
            channel = wchan.read().strip()
    except (OSError, IndexError) as error:
        _log.debug("state of pid %d: %s", pid, error)
        return "state unknown"
    return f"state {state}" + (f" in {channel}" if channel not in ("", "0") else "")
