"""The memory of processes, what they share counted once."""

from __future__ import annotations

from collections.abc import Mapping
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


def pss(commands: Mapping[int, str]) -> list[tuple[str, float]]:
    """The command of each process and its MiB; those that are gone have none.

    A child that has not begun its own program yet has all of its parent's memory (vfork), and is left out.
    """
    return sorted({(command, _kib(pid) / 1024) for pid, command in commands.items()})


def mib(commands: Mapping[int, str]) -> float:
    """MiB of processes together."""
    return sum(size for _, size in pss(commands))


def _kib(pid: int) -> int:
    try:
        rows = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(row.split()[1]) for row in rows if row.startswith("Pss:")), 0)
