"""The node's own recording, kept beside the verdict of a hang."""

from __future__ import annotations

from nodedoctor.children import child_process
from nodedoctor.declare.registry import Command
from nodedoctor.single_file import ourselves

NODE_DEADLINE = 30.0
"""Seconds for the checks of this node, whose recording is kept beside the verdict of a hang."""


async def record_node(path: str) -> None:
    """Diagnose this node without load and keep the recording; a process of its own, as checks take memory."""
    words = ("--passive", "--summary", "--record", path, "--deadline", str(NODE_DEADLINE - 5))
    await child_process.run("node", Command((*ourselves(), *words)), NODE_DEADLINE)
