"""The data path between nodes, where no process is seen to end."""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.triage.model import Candidate
from nodedoctor.triage.patterns.nccl import IbFlush
from nodedoctor.triage.patterns.store import PeerGone
from nodedoctor.triage.timeline import Timeline


def flushed_connection(timeline: Timeline) -> Iterator[Candidate]:
    """InfiniBand status 5 is secondary: the connection was down already, mostly because the peer ended."""
    events = timeline.of_kind(IbFlush)
    if events:
        headline = f"the peer {events[0].what.peer} had already closed the InfiniBand connection"
        yield Candidate("peer_died", "echo", "low", headline, tuple(events[:3]))


def cut_connection(timeline: Timeline) -> Iterator[Candidate]:
    """A connection timed out instead of being closed: the way to the peer was cut."""
    events = [event for event in timeline.of_kind(PeerGone) if event.what.timed_out]
    if events:
        headline = f"the connection to {events[0].what.peer or 'a peer'} timed out without being closed"
        yield Candidate("network_socket_interface", "echo", "low", headline, tuple(events[:3]))


RULES = (flushed_connection, cut_connection)
