"""The node's own recording, kept beside the verdict of a hang."""

from __future__ import annotations

import asyncio

from nodedoctor.children.fork_server import ForkServer
from nodedoctor.declare.registry import Options

NODE_DEADLINE = 30.0
"""Seconds for the recording of this node that is kept beside the verdict of a hang."""


async def record_node() -> bytes:
    """Ask this node what our checks would ask, without load, and give the recording.

    Nothing is judged: `--replay` does that, elsewhere. Beside a job that still has its memory, the checks
    would take five times what the answers do.
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
        await asyncio.wait([live.ask(name) for name in catalogue.probes])
        return recording.pack(live.observations(), this_node(), began, {}, {"provenance": "real"})
    finally:
        live.close()
        server.close()
