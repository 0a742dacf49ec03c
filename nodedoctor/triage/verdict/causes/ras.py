"""What NCCL's RAS service and Ray's hang detector say of a job that hangs."""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.model import Fix
from nodedoctor.steps import look
from nodedoctor.triage.describe import describe_identities, distinct_ranks
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import Candidate, Identity
from nodedoctor.triage.patterns.ras import HangFolder, RasMissing
from nodedoctor.triage.timeline import Timeline


def silent_to_ras(timeline: Timeline) -> Iterator[Candidate]:
    """A process that does not answer has ended or is frozen: hangs spare RAS's thread."""
    missing = [event for event in timeline.of_kind(RasMissing) if event.what.ranks]
    if not missing:
        return
    ranks = sorted({rank for event in missing for rank in event.what.ranks})
    processes = timeline.marked(Mark.RAS_PROCESS)
    culprits = tuple(Identity(rank=rank) for rank in ranks[:64])
    if len(culprits) == 1 and len({event.who.pid for event in processes}) == 1:
        culprits = (culprits[0].fill_from(processes[0].who),)
    dead = timeline.marked(Mark.RAS_DEAD)
    yield Candidate(
        "peer_died",
        "death",
        "high" if dead else "medium",
        f"{describe_identities(culprits)} does not answer NCCL's RAS service: "
        + ("its process ended" if dead else "its process ended or is frozen"),
        tuple([*dead, *missing, *processes][:5]),
        culprits,
    )


def fewer_collectives(timeline: Timeline) -> Iterator[Candidate]:
    """The ranks that Ray's detector names: they launched fewer collectives than the others."""
    reports = timeline.marked(Mark.LAUNCHED_FEWER)
    culprits = tuple(distinct_ranks(event.who for event in reports))
    if culprits:
        headline = (
            f"{describe_identities(culprits)} launched fewer collectives than the others, says Ray's "
            "hang detector"
        )
        evidence = (*reports[:3], *timeline.marked(Mark.HANG_CONFIRMED)[:1])
        yield Candidate(
            "cpu_stuck_or_slow_rank",
            "named",
            "medium",
            headline,
            evidence,
            culprits,
            fixes=hang_folder_fix(timeline),
        )


def hang_folder_fix(timeline: Timeline) -> tuple[Fix, ...]:
    """The step that reads the folder that Ray's detector wrote of the hang."""
    if not timeline.marked(Mark.HANG_CONFIRMED):
        return ()
    folder = next((event.what.path for event in timeline.of_kind(HangFolder)), "")
    steps = (look("nodedoctor triage {}", folder),) if folder else ()
    return (
        Fix(
            "Give nodedoctor the folder that Ray's hang detector wrote beside the results (hang_detector, or"
            " nv_hang_detector_artifacts): it holds every rank's stack and what NCCL's RAS said.",
            steps,
        ),
    )


RULES = (silent_to_ras, fewer_collectives)
