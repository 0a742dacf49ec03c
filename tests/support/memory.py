"""The memory of processes, what they share counted once."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path


def family_mib(pid: int, without: str = "") -> float:
    """MiB of a process and its children; those whose command names `without` are not counted."""
    return sum(map(_kib, _family(pid, without))) / 1024


def _family(pid: int, without: str) -> list[int]:
    found = [pid]
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            for child in children.read_text().split():
                if not (without and without in Path(f"/proc/{child}/cmdline").read_text()):
                    found += _family(int(child), without)
    return found


def _kib(pid: int) -> int:
    """0 for a process that is gone."""
    try:
        rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(row.split()[1]) for row in rows if row.startswith("Pss:")), 0)
