"""Whether a process lives, as the kernel has it at this moment: the one place that decides it.

Loaded by programs that run alone and by those that start them; opens nothing but /proc/PID/stat, which waits
for no lock of that process.
"""

from __future__ import annotations

import os
import select


def fields(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name: state, ppid, ...; none when they cannot be read."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            return file.read(4096).decode("utf-8", "replace").rpartition(")")[2].split()
    except OSError:
        return []


def start_of(pid: int) -> int | None:
    """The start time that tells a process from a later one with its pid; None where it cannot be read."""
    row = fields(pid)
    return int(row[19]) if len(row) > 19 else None


def lives(pid: int, start: int | None = None) -> bool:
    """False once the kernel says that the process has ended, or when its pid is another one's by now.

    A zombie has ended. One whose first thread has ended while others run lives, though /proc calls it Z.
    """
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return False
    except (OSError, AttributeError):  # none left, a kernel before 5.3, or a filter of system calls
        return _lives_by_signal(pid, start)
    try:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        return _is_same(pid, start) and not poller.poll(0)
    finally:
        os.close(descriptor)


def _lives_by_signal(pid: int, start: int | None) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:  # another user's
        pass
    return _is_same(pid, start) and fields(pid)[:1] not in (["Z"], ["X"])


def _is_same(pid: int, start: int | None) -> bool:
    return start is None or start_of(pid) in (start, None)
