"""Asks processes for their Python stacks by the signal that they have registered for it.

    python -I -S ask_stacks.py FOLDER SECONDS PID [PID ...]

FOLDER holds what stack_hook/sitecustomize.py wrote in each process: PID.json, which names the signal, and
PID.txt, into which the process writes its stacks when it gets that signal. A process that does not catch the
signal would die of it: so the marker must be of this very process (its start time) and SigCgt in its status
must have the signal, both looked at right before it is sent. Prints {"PID": "stacks", ...}.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time

LONGEST = 1 << 20
"""Bytes of one process's stacks."""
SETTLED = 0.15
"""Seconds without growth after which the stacks count as written: a process writes them in one go."""


def main() -> None:
    """Ask all of them at once, and print what came."""
    folder, seconds, pids = sys.argv[1], float(sys.argv[2]), [int(word) for word in sys.argv[3:]]
    files: dict[int, tuple[str, int]] = {}
    for pid in pids:
        with contextlib.suppress(OSError, ValueError, KeyError):
            path = os.path.join(folder, f"{pid}.txt")
            size = os.path.getsize(path)
            number = signal_of(folder, pid)
            if number:
                os.kill(pid, number)
                files[pid] = (path, size)
    print(json.dumps(collected(files, seconds)))


def signal_of(folder: str, pid: int) -> int:
    """The signal a process wants to be asked by; 0 when it must not be asked."""
    with open(os.path.join(folder, f"{pid}.json"), encoding="utf-8") as file:
        marker = json.loads(file.read(4096))
    with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
        start = int(file.read().rpartition(")")[2].split()[19])
    with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
        caught = next(int(line.split()[1], 16) for line in file if line.startswith("SigCgt:"))
    number = int(marker["signal"])
    fits = marker["pid"] == pid and marker["start"] == start and 34 <= number <= 64
    return number if fits and caught >> (number - 1) & 1 else 0


def collected(files: dict[int, tuple[str, int]], seconds: float) -> dict[str, str]:
    """What each process wrote; a stopped one writes nothing."""
    ends = time.monotonic() + seconds
    sizes: dict[int, tuple[int, float]] = {}
    while time.monotonic() < ends:
        now = time.monotonic()
        for pid, (path, before) in files.items():
            with contextlib.suppress(OSError):
                size = os.path.getsize(path)
                if size > before and sizes.get(pid, (0, 0.0))[0] != size:
                    sizes[pid] = (size, now)
        if len(sizes) == len(files) and all(now - when > SETTLED for _, when in sizes.values()):
            break
        time.sleep(0.02)
    stacks = {}
    for pid in sizes:
        path, before = files[pid]
        with contextlib.suppress(OSError), open(path, "rb") as file:
            file.seek(before)
            stacks[str(pid)] = file.read(LONGEST).decode("utf-8", "replace")
    return stacks


if __name__ == "__main__":
    main()
