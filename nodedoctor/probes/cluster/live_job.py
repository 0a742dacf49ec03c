"""Finds the processes of a training job on this machine and says how each stands, twice, a moment apart.

`live_job.py SECONDS [PID ...]` prints one JSON document. Reads /proc only; touches no GPU and no process.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import time
from typing import Any

WANTED = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NCCL_RAS_ADDR")
"""Environment variables by which launchers tell a process its place."""


def main() -> None:
    """Print what was seen."""
    pause = float(sys.argv[1])
    pids = [int(word) for word in sys.argv[2:]] or sorted(ranks())
    first = {pid: standing(pid) for pid in pids}
    time.sleep(pause)
    rows = []
    for pid in pids:
        before, after = first[pid], standing(pid)
        rows.append(
            {"pid": pid, "alive": after is not None, **identity(pid), "before": before, "after": after}
        )
    print(json.dumps({"hostname": socket.gethostname(), "seconds": pause, "processes": rows}))


def ranks() -> list[int]:
    """Processes with a RANK of their own that are no children of another such process (data loaders are)."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdecimal() and "RANK" in environment(int(name)):
            found[int(name)] = parent(int(name))
    return [pid for pid, above in found.items() if above not in found]


def environment(pid: int) -> dict[str, str]:
    """The wanted variables of a process; empty when it may not be looked into."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            pairs = [
                part.decode("utf-8", "replace").partition("=") for part in file.read(1 << 20).split(b"\0")
            ]
    except OSError:
        return {}
    return {name: value for name, _, value in pairs if name in WANTED}


def identity(pid: int) -> dict[str, Any]:
    """Which rank a process is."""
    told = environment(pid)
    whole = {name.lower(): value for name, value in told.items() if value.isdecimal() and len(value) < 19}
    ranks = {name: int(value) for name, value in whole.items()}
    return {**ranks, "ras": told.get("NCCL_RAS_ADDR", ""), "children": children(pid)}


def children(pid: int) -> list[int]:
    """Child processes: data-loader workers, mostly."""
    try:
        with open(f"/proc/{pid}/task/{pid}/children", encoding="ascii") as file:
            return [int(word) for word in file.read().split()][:64]
    except (OSError, ValueError):
        return []


def parent(pid: int) -> int:
    """The parent's pid, 0 when it is not known."""
    fields = stat(pid)
    return int(fields[1]) if fields else 0


def standing(pid: int) -> dict[str, Any] | None:
    """State letter, kernel wait channel and CPU ticks; None when the process is gone."""
    fields = stat(pid)
    if not fields:
        return None
    try:
        with open(f"/proc/{pid}/wchan", encoding="ascii", errors="replace") as file:
            channel = file.read(100).strip()
    except OSError:
        channel = ""
    return {"state": fields[0], "wchan": channel, "ticks": int(fields[11]) + int(fields[12])}


def stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat behind the name: state, ppid, ..., utime, stime, ..."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


if __name__ == "__main__":
    main()
