"""Networks, storage and nodes: where no process is seen to end, or the logs do not say why."""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.grouping import group_by
from nodedoctor.triage.describe import describe_identities, distinct_ranks
from nodedoctor.triage.model import Candidate, Ground
from nodedoctor.triage.patterns.machine import KernelTaskHung
from nodedoctor.triage.patterns.nccl import IbFlush
from nodedoctor.triage.patterns.store import PeerGone
from nodedoctor.triage.patterns.watchdog import WatchdogStuck
from nodedoctor.triage.timeline.model import Timeline
from nodedoctor.triage.timeline.node_reports import NodeFault
from nodedoctor.triage.verdict.causes.absent import sole_silent_rank


def flushed_connection(timeline: Timeline) -> Iterator[Candidate]:
    """InfiniBand status 5 is secondary: the connection was down already, mostly because the peer ended."""
    events = timeline.of_kind(IbFlush)
    headline = f"the peer {events[0].what.peer} had already closed the InfiniBand connection"
    yield Candidate("peer_died", "echo", "low", headline, tuple(events[:3]))


def cut_connection(timeline: Timeline) -> Iterator[Candidate]:
    """A connection timed out instead of being closed: the way to the peer was cut."""
    events = [event for event in timeline.of_kind(PeerGone) if event.what.timed_out]
    if events:
        headline = f"the connection to {events[0].what.peer or 'a peer'} timed out without being closed"
        yield Candidate("network_socket_interface", "echo", "low", headline, tuple(events[:3]))


def node_faults(timeline: Timeline) -> Iterator[Candidate]:
    """Failed checks by cause: only where nothing better explains it, so never sure."""
    by_cause = group_by(timeline.of_kind(NodeFault), lambda event: event.what.cause)
    for cause, events in by_cause.items():
        first = events[0]
        where = f" on {first.who.host}" if first.who.host else ""
        yield Candidate(
            cause,
            "node",
            "medium",
            f"the logs do not say why, but {first.what.check} fails{where}: {first.what.summary}",
            tuple(events[:4]),
        )


def stuck_watchdog(timeline: Timeline) -> Iterator[Candidate]:
    """The watchdog stopped and no collective timed out: the process was stuck, not the network."""
    beats = timeline.of_kind(WatchdogStuck)
    stuck = distinct_ranks(event.who for event in beats)
    others = len(timeline.ranks_seen) - len(stuck)
    culprits = tuple(stuck) if 0 < len(stuck) <= others // 2 else ()
    ground: Ground = "absence" if culprits else "hint"
    who = describe_identities(culprits) or "the process"
    headline = f"{who} was stuck in a call that its watchdog could not pass (GIL, CUDA, storage)"
    yield Candidate(
        "cpu_stuck_or_slow_rank",
        ground,
        "medium" if culprits else "low",
        headline,
        tuple(beats[:3]),
        culprits,
    )


def hung_storage(timeline: Timeline) -> Iterator[Candidate]:
    """The kernel reports a task or a file server that hangs."""
    stalls = timeline.of_kind(KernelTaskHung)
    culprits = tuple(distinct_ranks(event.who for event in stalls))
    silent = sole_silent_rank(timeline, stalls) if not culprits else None
    culprits = (silent,) if silent is not None else culprits
    headline = f"{describe_identities(culprits) or 'a process'} hung in the kernel: {stalls[0].what.text}"
    yield Candidate("cpu_stuck_or_slow_rank", "absence", "medium", headline, tuple(stalls[:3]), culprits)
