"""Where processes are in the kernel: `kernel_stacks.py PID [PID ...]` prints one JSON object by pid.

State, wait channel, system call and CPU ticks of every thread, and its kernel stack where we may see it (root
only); with the first thread whether the control group is frozen, whose file lock the process waits for, and
which pipe or socket, and which process has its other end.
Reads /proc and /sys/fs/cgroup; stops nothing.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import sys
from typing import Any

sys.path.append(__file__.rpartition("/nodedoctor/")[0] + "/")  # python -I leaves our own folder out
from nodedoctor.probes.job.awaited import awaited, file_of, name

sys.path.pop()

THREADS = 64
"""Threads of a process that are looked at, the oldest first: the first one is Python's main thread."""
LOCKS = 1 << 20
"""Bytes of /proc/locks that are read: some ten thousand locks."""
LOCKED = re.compile(r"file [0-9a-f]+:[0-9a-f]+:\d+")
LOCK = re.compile(r"(?<!\d)(\d+): (-> )?(\w+) +\w+ +\w+ (-?\d+) (\S+) ")


def main() -> None:
    """Print what was seen."""
    locks = waited_locks(read("/proc/locks", LOCKS))
    threads_by_pid = {int(word): threads(int(word), locks) for word in sys.argv[1:]}
    first = {pid: rows[0] for pid, rows in threads_by_pid.items() if rows}
    calls = {pid: (str(row["wchan"]), str(row["call"])) for pid, row in first.items()}
    for pid, what in awaited(calls).items():
        first[pid]["awaited"] = what
    print(json.dumps(threads_by_pid))


def threads(pid: int, locks: dict[int, str]) -> list[dict[str, Any]]:
    """Each thread of a process; none when it is gone."""
    try:
        ids = sorted(int(entry) for entry in os.listdir(f"/proc/{pid}/task"))
    except OSError:
        return []
    rows = [thread(f"/proc/{pid}/task/{number}") for number in ids[:THREADS]]
    if rows:
        lock = locks.get(pid, "")
        path = file_of(pid, str(rows[0]["call"])) if lock else ""
        if path.startswith("/"):
            lock = LOCKED.sub(lambda _: path, lock)
        rows[0] |= {"frozen": frozen(pid), "lock": lock}
    return rows


def waited_locks(table: str) -> dict[int, str]:
    """By the pid that waits for it: the kind of lock, its file, and who has it (proc_locks(5)).

    A row of who waits has "->" behind the number that it shares with the row of who has the lock.
    """
    holders: dict[str, str] = {}
    waiting: dict[int, str] = {}
    for row in table.splitlines():
        if not (match := LOCK.match(row)):
            continue
        number, waits, kind, pid, file = match.groups()
        if not waits:
            holders[number] = pid
        elif (holder := holders.get(number, "")) and int(holder) > 0 and int(pid) > 0:
            who = f"process {holder} ({name(int(holder))})"
            waiting[int(pid)] = f"{kind} lock on file {file} that {who} has"
    return waiting


def frozen(pid: int) -> bool:
    """Whether the process's control group is frozen: by cgroup.events of version 2, by the freezer of 1."""
    for row in read(f"/proc/{pid}/cgroup").splitlines():
        _, controllers, path = [*row.split(":", 2), "", ""][:3]
        if not controllers:
            for mount in ("/sys/fs/cgroup", "/sys/fs/cgroup/unified"):
                if "frozen 1" in read(f"{mount}{path}/cgroup.events").splitlines():
                    return True
        elif controllers == "freezer" and "FROZEN" in read(f"/sys/fs/cgroup/freezer{path}/freezer.state"):
            return True
    return False


def thread(folder: str) -> dict[str, object]:
    """One thread."""
    state = read(f"{folder}/stat").rpartition(")")[2].split()
    call = read(f"{folder}/syscall").strip()
    return {
        "id": os.path.basename(folder),
        "name": read(f"{folder}/comm").strip(),
        "state": state[0] if state else "",
        "ticks": int(state[11]) + int(state[12]) if len(state) > 12 else 0,
        "wchan": read(f"{folder}/wchan").strip(),
        "syscall": call.partition(" ")[0].strip(),
        "call": call,
        "stack": read(f"{folder}/stack"),
    }


def read(path: str, limit: int = 16384) -> str:
    """A small file, '' when it cannot be read."""
    with contextlib.suppress(OSError), open(path, "rb") as file:
        return file.read(limit).decode("utf-8", "replace")
    return ""


if __name__ == "__main__":
    main()
