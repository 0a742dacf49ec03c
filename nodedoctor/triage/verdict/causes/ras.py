"""What NCCL's RAS service and Ray's hang detector say of a job that hangs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nodedoctor.model import Fix
from nodedoctor.record import record
from nodedoctor.steps import look
from nodedoctor.triage.describe import describe_identities, distinct_ranks, identities_of
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import Candidate, Cause, Event, Identity
from nodedoctor.triage.patterns.ras import HangFolder, RasCommunicator, RasCount, RasMissing, RasSection
from nodedoctor.triage.timeline.model import Timeline


def silent_to_ras(timeline: Timeline) -> Iterator[Candidate]:
    """A process that does not answer has ended or is frozen: hangs spare RAS's thread."""
    missing: list[Event[Any]] = [event for event in timeline.of_kind(RasMissing) if event.what.ranks]
    silent = [event for part in _sections(timeline) if not part.op for event, _ in part.rank_rows]
    if not missing and not silent:
        return
    ranks = sorted({rank for event in missing for rank in event.what.ranks})
    processes = timeline.marked(Mark.RAS_PROCESS)
    culprits = identities_of(ranks[:64])
    if len(culprits) == 1 and len({event.who.pid for event in processes}) == 1:
        culprits = (culprits[0].fill_from(processes[0].who),)
    culprits = culprits or tuple(dict.fromkeys(event.who for event in silent[:64]))
    missing += silent
    dead = timeline.marked(Mark.RAS_DEAD)
    end = "its process ended" if dead else "its process ended or is frozen"
    headline = f"{describe_identities(culprits)} does not answer NCCL's RAS service: {end}"
    evidence = tuple([*dead, *missing, *processes][:5])
    yield Candidate("peer_died", "death", "high" if dead else "medium", headline, evidence, culprits)


@record
class _Section:
    """One part of RAS's answer: the ranks it lists, and up to which operation of `op` they came."""

    communicator: str
    op: str
    rank_rows: tuple[tuple[Event[Any], int], ...]
    most: int
    complete: bool

    @property
    def behind(self) -> tuple[Event[Any], ...]:
        """The ranks that launched fewer operations than others; none where not all of them are listed."""
        return tuple(event for event, number in self.rank_rows if number < self.most) if self.complete else ()


def _sections(timeline: Timeline) -> Iterator[_Section]:
    """The parts of RAS's answer with the ranks under them, as NCCL's client_support.cc prints them."""
    if not timeline.has_any((RasSection, Mark.RAS_INCOMPLETE)):
        return
    communicator, op = "", ""
    rows: list[tuple[int, int, list[Event[Any]]]] = []  # operation, number of ranks, those listed
    for event in timeline.events:
        what = event.what
        if isinstance(what, (RasCommunicator, RasSection)) or what is Mark.RAS_INCOMPLETE:
            yield from _section(communicator, op, rows)
            rows = [(0, 0, [])] if what is Mark.RAS_INCOMPLETE else []
            op = what.op if isinstance(what, RasSection) else ""
            communicator = what.number if isinstance(what, RasCommunicator) else communicator
        elif isinstance(what, RasCount):
            rows.append((what.operation, what.ranks, [event] if event.who != Identity() else []))
        elif what is Mark.RAS_RANK and rows:
            rows[-1][2].append(event)
    yield from _section(communicator, op, rows)


def _section(communicator: str, op: str, rows: list[tuple[int, int, list[Event[Any]]]]) -> Iterator[_Section]:
    if rows:
        most = max(operation for operation, *_ in rows)
        rank_rows = tuple((event, operation) for operation, _, events in rows for event in events)
        complete = not any(operation < most and len(events) < ranks for operation, ranks, events in rows)
        yield _Section(communicator, op, rank_rows, most, complete)


def ranks_behind(timeline: Timeline) -> tuple[Event[Any], ...]:
    """The ranks that launched fewer operations of some kind than others."""
    return tuple(event for section in _sections(timeline) if section.op for event in section.behind)


def behind_in_counts(timeline: Timeline) -> Iterator[Candidate]:
    """The ranks that launched fewer operations than the others, as RAS counts them.

    In a job that runs some are always one behind: only where RAS was asked twice and nothing moved does it
    decide. Several communicators do not show which rank waits for which. A rank that is behind in one
    collective and ahead in another calls other ones than the rest.
    """
    sections = [section for section in _sections(timeline) if section.op]
    first = next((section for section in sections if section.behind), None)
    if first is None:
        return
    who = tuple(dict.fromkeys(event.who for event in first.behind))
    foremost = {
        event.who for section in sections for event, number in section.rank_rows if number == section.most
    }
    cause: Cause = "collective_mismatch" if {*who} & foremost else "cpu_stuck_or_slow_rank"
    headline = f"{describe_identities(who)} did not launch {first.op} number {first.most}, as the others did"
    headline += ", and launched another collective" if {*who} & foremost else ""
    unmoved = timeline.marked(Mark.RAS_UNMOVED)
    headline += "" if unmoved else "; in a job that runs this is ordinary for a moment"
    evidence = (*first.behind[:4], *unmoved[:1])
    decides = bool(unmoved) and len({section.communicator for section in sections}) == 1
    yield Candidate(cause, "named", "medium", headline, evidence, who, decides=decides)


def fewer_collectives(timeline: Timeline) -> Iterator[Candidate]:
    """The ranks that Ray's detector names: they launched fewer collectives than the others."""
    reports = timeline.marked(Mark.LAUNCHED_FEWER)
    culprits = tuple(distinct_ranks(event.who for event in reports))
    if culprits:
        who, fixes = describe_identities(culprits), hang_folder_fix(timeline)
        headline = f"{who} launched fewer collectives than the others (Ray's hang detector)"
        evidence = (*reports[:3], *timeline.marked(Mark.HANG_CONFIRMED)[:1])
        yield Candidate(
            "cpu_stuck_or_slow_rank", "named", "medium", headline, evidence, culprits, fixes=fixes
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
