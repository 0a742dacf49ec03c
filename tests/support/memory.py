"""The memory of processes, what they share counted once."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path


def family(pid: int) -> dict[int, str]:
    """The commands of a process and of its children, by pid, as far as they are there."""
    found: dict[int, str] = {}
    with suppress(OSError):
        found[pid] = Path(f"/proc/{pid}/cmdline").read_text().replace("\0", " ")
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in children.read_text().split():
                found |= family(int(child))
    return found


def mib(pids: Iterable[int]) -> float:
    """MiB of processes together; those that are gone count nothing."""
    return sum(map(_kib, pids)) / 1024


def _kib(pid: int) -> int:
    try:
        rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(row.split()[1]) for row in rows if row.startswith("Pss:")), 0)
