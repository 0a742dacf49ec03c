"""What is left when no rank or node is singled out: a watchdog that stood still, storage that hung."""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.triage.causes.who import called, distinct
from nodedoctor.triage.events.system.kernel import Stalled
from nodedoctor.triage.events.watchdog import Heartbeat
from nodedoctor.triage.model import Candidate, Ground
from nodedoctor.triage.story import Story


def heartbeat(story: Story) -> Iterator[Candidate]:
    """The watchdog thread stood still and no collective timed out: the process was stuck, not the network."""
    beats = story.of(Heartbeat)
    if not beats:
        return
    stuck = distinct(event.who for event in beats)
    others = len(story.ranks_seen) - len(stuck)
    culprits = tuple(stuck) if 0 < len(stuck) <= others // 2 else ()
    ground: Ground = "absence" if culprits else "hint"
    who = called(culprits) or "the process"
    headline = f"{who} was stuck in a call that its watchdog could not pass (GIL, CUDA, storage)"
    yield Candidate(
        "cpu_stuck_or_slow_rank",
        ground,
        "medium" if culprits else "low",
        headline,
        tuple(beats[:3]),
        culprits,
    )


def storage(story: Story) -> Iterator[Candidate]:
    """The kernel reports a task or a file server that hangs."""
    stalls = story.of(Stalled)
    if stalls:
        culprits = tuple(distinct(event.who for event in stalls))
        headline = f"{called(culprits) or 'a process'} hung in the kernel: {stalls[0].what.says}"
        yield Candidate("cpu_stuck_or_slow_rank", "absence", "medium", headline, tuple(stalls[:3]), culprits)


RULES = (heartbeat, storage)
