"""Which Pythons of a job are ranks though no variable says so, and which only serve another one."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

SERVES = re.compile(
    r"from multiprocessing\.(?:resource_tracker|forkserver) import|/torch/_inductor/compile_worker/"
)
"""Command lines of what Python and torch start for their own needs: multiprocessing/resource_tracker.py,
multiprocessing/forkserver.py, torch/_inductor/compile_worker/subproc_pool.py."""


def lightning(
    members: Mapping[int, Mapping[str, Any]], parents: Mapping[int, int], lines: Mapping[int, list[str]]
) -> dict[int, dict[str, Any]]:
    """The ranks of jobs that Lightning's own launcher started, with their places.

    It starts its own script once more for each other local rank of the node, from 1 on, and then trains as
    local rank 0 itself (lightning/fabric/strategies/launchers/subprocess_script.py). A driver and torchrun
    run another program than their ranks do, and start local rank 0 as well.
    """
    ranks: dict[int, dict[str, Any]] = {}
    below: dict[int, dict[int, int]] = {}
    for pid, member in members.items():
        local = member["environment"].get("LOCAL_RANK", "")
        if local.isdecimal() and member["environment"].get("WORLD_SIZE", "").isdecimal():
            below.setdefault(parents.get(pid, 0), {})[pid] = int(local)
    for main, locals_ in below.items():
        if main not in members or "LOCAL_RANK" in members[main]["environment"]:
            continue  # what a rank started in turn
        same = all(script(lines[pid]) == script(lines[main]) != "" for pid in locals_)
        if not same or sorted(locals_.values()) != list(range(1, len(locals_) + 1)):
            continue
        first = members[next(iter(locals_))]["environment"]
        node = first.get("NODE_RANK", "0")
        begin = int(node) * (len(locals_) + 1) if node.isdecimal() else 0
        size = int(first["WORLD_SIZE"])
        port = {"MASTER_PORT": first.get("MASTER_PORT", "")}
        for pid, local in ((main, 0), *locals_.items()):
            place = {"by": "LOCAL_RANK", "rank": begin + local, "local": local, "world": size}
            ranks[pid] = {**members[pid], **place, "environment": {**members[pid]["environment"], **port}}
    return ranks


def script(words: list[str]) -> str:
    """The script or module that a Python runs, without its folder; '' for none."""
    rest = iter(words[1:])
    for word in rest:
        if word == "-m":
            return next(rest, "").removesuffix(".__main__").rpartition(".")[2]
        if word == "-c":
            return ""
        if word in ("-X", "-W"):
            next(rest, "")
        elif not word.startswith("-"):
            return os.path.basename(word).removesuffix(".py")
    return ""
