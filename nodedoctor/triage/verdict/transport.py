"""What the logs say of the network that NCCL chose, which slows a job down and ends none."""

from __future__ import annotations

from nodedoctor.nodeset import fold
from nodedoctor.triage.identity.world import short_host
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.timeline import Timeline

NODES = 2
"""Nodes from which on a job needs a network."""


def transport_notes(timeline: Timeline) -> list[str]:
    """A note where several nodes of a job talk TCP: adapters that they may have are not used."""
    chosen = [event for event in timeline.marked(Mark.SET_UP) if event.text.endswith("Using network Socket")]
    hosts = sorted({short_host(event.who.host) for event in chosen if event.who.host})
    if len(hosts) < NODES:
        return []
    return [
        f"NCCL talks TCP on {fold(hosts)} (Using network Socket): InfiniBand, RoCE or EFA adapters, where"
        " these nodes have them, are not used"
    ]
