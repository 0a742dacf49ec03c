"""What NCCL's RAS service says of a job that hangs, or hung when it was asked."""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.model import Fix
from nodedoctor.steps import look
from nodedoctor.triage.describe import describe_identities, distinct_ranks
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import Candidate, Identity
from nodedoctor.triage.patterns.ras import HangFolder, RasMissing
from nodedoctor.triage.timeline import Timeline


def silent_to_ras(story: Timeline) -> Iterator[Candidate]:
    """A process that does not answer is gone or frozen: RAS has a thread of its own, which a hang spares."""
    missing = [event for event in story.of(RasMissing) if event.what.ranks]
    if not missing:
        return
    ranks = sorted({rank for event in missing for rank in event.what.ranks})
    processes = story.marked(Mark.RAS_PROCESS)
    culprits = tuple(Identity(rank=rank) for rank in ranks[:64])
    if len(culprits) == 1 and len({event.who.pid for event in processes}) == 1:
        culprits = (culprits[0].filled(processes[0].who),)
    dead = story.marked(Mark.RAS_DEAD)
    yield Candidate(
        "peer_died",
        "death",
        "high" if dead else "medium",
        f"{describe_identities(culprits)} does not answer NCCL's RAS service: "
        + ("its process ended" if dead else "its process ended or is frozen"),
        tuple([*dead, *missing, *processes][:5]),
        culprits,
    )


def fewer(story: Timeline) -> Iterator[Candidate]:
    """Whom Ray's detector names: the others wait for a rank that launched fewer collectives than they did."""
    told = story.marked(Mark.LAUNCHED_FEWER)
    culprits = tuple(distinct_ranks(event.who for event in told))
    if culprits:
        headline = (
            f"{describe_identities(culprits)} launched fewer collectives than the others, says Ray's "
            "hang detector"
        )
        evidence = (*told[:3], *story.marked(Mark.HANG_CONFIRMED)[:1])
        yield Candidate(
            "cpu_stuck_or_slow_rank", "named", "medium", headline, evidence, culprits, fixes=kept(story)
        )


def kept(story: Timeline) -> tuple[Fix, ...]:
    """The step that reads what Ray's detector kept of the hang."""
    if not story.marked(Mark.HANG_CONFIRMED):
        return ()
    folder = next((event.what.path for event in story.of(HangFolder)), "")
    steps = (look("nodedoctor triage {}", folder),) if folder else ()
    return (
        Fix(
            "Give nodedoctor the folder that Ray's hang detector wrote beside the results (hang_detector, or"
            " nv_hang_detector_artifacts): it holds every rank's stack and what NCCL's RAS said.",
            steps,
        ),
    )


RULES = (silent_to_ras, fewer)
