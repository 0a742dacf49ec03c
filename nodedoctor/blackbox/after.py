"""What is left of a job in its folder: the short verdict first, then the page and the node's recording."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable

from nodedoctor import single_file
from nodedoctor.blackbox import keep
from nodedoctor.blackbox.folder import Folder
from nodedoctor.blackbox.watch import Watch
from nodedoctor.engine import child_process
from nodedoctor.engine.registry import Command

NODE_DEADLINE = 30.0
"""Seconds for the checks of this node, whose recording is kept beside the verdict of a hang."""

Say = Callable[[str], None]


def attached(watch: Watch, folder: Folder, say: Say) -> None:
    """Close the folder of a job that was watched."""
    folder.write("run.json", run_json(watch, folder))
    if not watch.hangs:
        return
    keep.page(folder, watch.hangs[-1].document)
    if folder.lost:
        say(f"{folder.lost} writes to {folder.path} were lost: {folder.problem}")


def run_json(watch: Watch, folder: Folder, **more: object) -> str:
    """The document `run.json`, `nodedoctor.run/1`."""
    told = {
        "schema": "nodedoctor.run/1",
        **more,
        **watch.state(),
        "lost_writes": folder.lost,
        "problem": folder.problem,
    }
    return json.dumps(told, indent=1) + "\n"


async def node_recorded(watch: Watch) -> None:
    """Wait for the node's own recording, if one was begun."""
    if watch.recording is not None:
        await asyncio.wait({watch.recording}, timeout=NODE_DEADLINE)


async def record_node(path: str) -> None:
    """Diagnose this node without load and keep the recording; by a process of its own, as checks take memory."""
    ours = single_file.path()
    argv = (sys.executable, str(ours)) if ours else (sys.executable, "-I", "-m", "nodedoctor")
    words = ("--passive", "--summary", "--record", path, "--deadline", str(NODE_DEADLINE - 5))
    await child_process.run("node", Command((*argv, *words)), NODE_DEADLINE)
