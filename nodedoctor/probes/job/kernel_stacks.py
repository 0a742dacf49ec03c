"""Where processes are in the kernel: `kernel_stacks.py PID [PID ...]` prints one JSON object by pid.

State, wait channel, system call and CPU ticks of every thread, and its kernel stack where we may see it (root
only).
Reads /proc; stops nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys

THREADS = 64
"""Threads of a process that are looked at, the oldest first: the first one is Python's main thread."""


def main() -> None:
    """Print what was seen."""
    print(json.dumps({word: threads(int(word)) for word in sys.argv[1:]}))


def threads(pid: int) -> list[dict[str, object]]:
    """Each thread of a process; none when it is gone."""
    try:
        ids = sorted(int(entry) for entry in os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return []
    return [thread(f"/proc/{pid}/task/{number}") for number in ids[:THREADS]]


def thread(folder: str) -> dict[str, object]:
    """One thread."""
    state = read(f"{folder}/stat").rpartition(")")[2].split()
    return {
        "id": os.path.basename(folder),
        "name": read(f"{folder}/comm").strip(),
        "state": state[0] if state else "",
        "ticks": int(state[11]) + int(state[12]) if len(state) > 12 else 0,
        "wchan": read(f"{folder}/wchan").strip(),
        "syscall": read(f"{folder}/syscall").partition(" ")[0].strip(),
        "stack": read(f"{folder}/stack"),
    }


def read(path: str) -> str:
    """A small file, '' when it cannot be read."""
    with contextlib.suppress(OSError), open(path, "rb", buffering=0) as file:
        return file.read(16384).decode("utf-8", "replace")
    return ""


if __name__ == "__main__":
    main()
