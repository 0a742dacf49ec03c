"""Whether the kernel killed for memory in the ranks' control groups while they were watched.

In a container the kernel's log can often not be read, and has other process ids; the counter of kills of the
control group is there all the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from nodedoctor.blackbox.samples.sample import RankSample
from nodedoctor.children import child_process
from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command
from nodedoctor.facts.files import Files, whole_number

DEADLINE = 4.0
"""Seconds for the counters."""
LIMITS = ("memory.max", "memory.limit_in_bytes")
"""Where the group's limit is, by version 2 and 1 (Documentation/admin-guide/cgroup-v2.rst, cgroup-v1)."""
UNLIMITED = 1 << 60
"""Bytes from which a limit of version 1 is none: it says the largest number there is."""
_KILLS = re.compile(r"^oom_kill (\d{1,15})$", re.MULTILINE)


class MemoryGroups:
    """The groups that ranks were in, with their counters as first seen."""

    def __init__(self) -> None:
        self._first: dict[str, int] = {}

    def feed(self, ranks: Iterable[RankSample]) -> None:
        """Take in a look at the ranks."""
        for rank in ranks:
            if rank.group and rank.kills is not None:
                self._first.setdefault(rank.group, rank.kills)

    async def lines(self) -> tuple[str, ...]:
        """One for each group whose counter rose; `patterns/machine.py` reads them."""
        if not self._first:
            return ()
        words = [f"read:{group}" for group in self._first]
        words += [f"read:{_group_folder(group)}/{limit}" for group in self._first for limit in LIMITS]
        observation = await child_process.run(
            "memory-groups", Command(child("host/files", "--each", "2", *words)), DEADLINE
        )
        files = Files.parse_json(observation)
        lines = (
            (_kill_line(files, *first) for first in self._first.items()) if isinstance(files, Files) else ()
        )
        return tuple(filter(None, lines))


def _kill_line(files: Files, group: str, before: int) -> str:
    """What is kept of a group; '' without a limit, as of the root, which counts everybody's kills."""
    folder = _group_folder(group)
    now = _KILLS.search(files.files.get(group, ""))
    for name in LIMITS if now is not None and int(now[1]) > before else ():
        limit = whole_number(files.files.get(f"{folder}/{name}", "").strip())
        if limit is not None and limit < UNLIMITED:
            kills = f"oom_kill rose from {before} to {now[1] if now else 0}"
            return f"nodedoctor: control group {folder}: {kills}, {name} is {limit}"
    return ""


def _group_folder(group: str) -> str:
    return group.rpartition("/")[0]
