"""The node's own recording, kept beside the verdict of a hang."""

from __future__ import annotations

import asyncio

from nodedoctor.children.fork_server import ForkServer
from nodedoctor.declare.registry import Options, skipped

NODE_DEADLINE = 30.0
"""Seconds for the recording of this node that is kept beside the verdict of a hang."""


ASKS_RAY = "ray-status"
"""The probe that loads all of Ray."""


async def record_node(*, of_ray: bool) -> bytes:
    """Ask this node what our checks would ask, without load, and give the recording.

    Nothing is judged: `--replay` does that, elsewhere. Beside a job that still has its memory, the checks
    would take five times what the answers do. Only beside a job `of_ray` is its cluster asked: that loads all
    of Ray, which takes as much memory again.
    """
    from nodedoctor.engine import recording
    from nodedoctor.engine.live import Live
    from nodedoctor.engine.plugins import Catalogue, add_bundled_facts
    from nodedoctor.engine.run import this_node, utc_now

    catalogue, began = Catalogue(), utc_now()
    add_bundled_facts(catalogue)
    server = ForkServer()
    live = Live(catalogue.probes, Options(passive=True), NODE_DEADLINE - 5, server)
    try:
        live.foresee(catalogue.probes)
        await asyncio.wait([live.ask(name) for name in catalogue.probes if of_ray or name != ASKS_RAY])
        unasked = () if of_ray else (skipped(ASKS_RAY, "the job that hangs does not run on Ray"),)
        answers = (*live.observations(), *unasked)
        return recording.pack(answers, this_node(), began, {}, {"provenance": "real"})
    finally:
        live.close()
        server.close()
