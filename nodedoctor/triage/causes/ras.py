"""What NCCL's RAS service says of a job that hangs, or hung when it was asked."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from nodedoctor.triage.causes.who import called
from nodedoctor.triage.events.ras import RasDead, RasMissing, RasProcess
from nodedoctor.triage.model import Candidate, Who
from nodedoctor.triage.story import Story


def silent(story: Story) -> Iterator[Candidate]:
    """A process that does not answer is gone or frozen: RAS has a thread of its own, which a hang spares."""
    missing = [event for event in story.of(RasMissing) if event.what.ranks]
    if not missing:
        return
    ranks = sorted({rank for event in missing for rank in event.what.ranks})
    processes = story.of(RasProcess)
    culprits = tuple(Who(rank=rank) for rank in ranks[:64])
    if len(culprits) == 1 and len({event.who.pid for event in processes}) == 1:
        culprits = (replace(processes[0].who, rank=ranks[0]),)
    dead = story.of(RasDead)
    yield Candidate(
        "peer_died",
        "death",
        "high" if dead else "medium",
        f"{called(culprits)} does not answer NCCL's RAS service: "
        + ("its process ended" if dead else "its process ended or is frozen"),
        tuple([*dead, *missing, *processes][:5]),
        culprits,
    )


RULES = (silent,)
