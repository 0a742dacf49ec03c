"""Processes stuck in a call: a watchdog that did not run, storage that hung."""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.triage.describe import describe_identities, distinct_ranks
from nodedoctor.triage.model import Candidate, Ground
from nodedoctor.triage.patterns.machine import KernelTaskHung
from nodedoctor.triage.patterns.watchdog import WatchdogStuck
from nodedoctor.triage.timeline import Timeline


def stuck_watchdog(timeline: Timeline) -> Iterator[Candidate]:
    """The watchdog stopped and no collective timed out: the process was stuck, not the network."""
    beats = timeline.of_kind(WatchdogStuck)
    if not beats:
        return
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
    if stalls:
        culprits = tuple(distinct_ranks(event.who for event in stalls))
        headline = f"{describe_identities(culprits) or 'a process'} hung in the kernel: {stalls[0].what.text}"
        yield Candidate("cpu_stuck_or_slow_rank", "absence", "medium", headline, tuple(stalls[:3]), culprits)


RULES = (stuck_watchdog, hung_storage)
