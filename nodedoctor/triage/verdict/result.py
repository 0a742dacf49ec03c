"""A verdict made ready to be read: fixes, what it is not, where each rank was, no credentials."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nodedoctor.probes.host.environment import scrubbed
from nodedoctor.record import record
from nodedoctor.triage.flight.transfer_time import transfer_time
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import CollectiveCall, Event, Identity, RankState, Verdict
from nodedoctor.triage.patterns.exits import ProcessExit
from nodedoctor.triage.patterns.progress import TrainingStep
from nodedoctor.triage.patterns.store import BarrierMissed, GlooTimeout, StoreWait
from nodedoctor.triage.patterns.trace import ExceptionRaised
from nodedoctor.triage.read.scan import LineNumbers
from nodedoctor.triage.timeline.model import Timeline
from nodedoctor.triage.timeline.pace import last_steps
from nodedoctor.triage.timeline.recovery.set_aside import merge_alike
from nodedoctor.triage.verdict.advice import actions

QUOTED = 4096
"""Characters of a line that are quoted at most."""
RANK_ROWS = 4096
"""Ranks that have a row of their own."""
MISSING_ROWS = 256
"""The same of ranks that nothing was read from; coverage has the ranges of all."""


@record
class TriageResult:
    """A verdict with what its views need besides it."""

    verdict: Verdict
    lines: LineNumbers
    interrupted: bool = False


def add_advice(verdict: Verdict, timeline: Timeline) -> Verdict:
    """The verdict with its fixes, what it is not, and what would decide."""
    transfer = transfer_time(verdict.collective or CollectiveCall())
    suspects = [who.rank for who in (*verdict.culprits, *verdict.parties)]
    verdict = without_secrets(replace(verdict, also_seen=merge_alike(timeline.also_seen)))
    return replace(
        verdict,
        ranks=_rank_rows(timeline, verdict),
        fixes=actions.choose_fixes(timeline, verdict),
        not_the_cause=actions.not_the_cause(timeline, suspects, transfer.sentence, transfer.can_explain),
        next=actions.next_measurements(timeline, verdict),
    )


def without_secrets(verdict: Verdict) -> Verdict:
    """The verdict without credentials: log lines hold URLs and whole command lines."""
    return replace(
        verdict,
        headline=scrubbed(verdict.headline),
        evidence=tuple(map(_without_secrets, verdict.evidence)),
        also_seen=tuple(replace(error, event=_without_secrets(error.event)) for error in verdict.also_seen),
        alternatives=tuple((cause, scrubbed(why)) for cause, why in verdict.alternatives),
    )


def _without_secrets(event: Event[Any]) -> Event[Any]:
    return replace(event, text=scrubbed(event.text[:QUOTED]))


def _rank_rows(timeline: Timeline, verdict: Verdict) -> tuple[RankState, ...]:
    """One row per rank that is known or missing, in order."""
    last: dict[tuple[str, int], Event[Any]] = {}
    for event in timeline.events:
        if event.who.rank is not None and not isinstance(event.what, BarrierMissed):
            last[event.who.world, event.who.rank] = event
    people: dict[tuple[str, int], Identity] = {key: event.who for key, event in last.items()}
    for who in (*verdict.victims, *verdict.parties, *verdict.culprits):
        if who.rank is not None:
            people[who.world, who.rank] = who.fill_from(people.get((who.world, who.rank), who))
    if len({world for world, _ in people}) == 1:
        world = next(iter(people))[0]
        for rank in verdict.coverage.ranks_missing[:MISSING_ROWS]:
            people.setdefault((world, rank), Identity(rank=rank, world=world))
    waits = {(wait.who.world, wait.who.rank): wait for wait in timeline.waits}
    gave_up = {(event.who.world, event.who.rank) for event in timeline.events if _is_own_timeout(event)}
    gave_up -= {(who.world, who.rank) for who in verdict.culprits}
    victims = {(who.world, who.rank) for who in verdict.victims}
    steps = last_steps(timeline.events) if len({world for world, _ in people}) == 1 else {}
    rows = []
    for key in sorted(people)[:RANK_ROWS]:
        last_event, wait = last.get(key), waits.get(key)
        rows.append(
            RankState(
                people[key],
                "waited" if wait is not None or key in gave_up else _rank_state(last_event, key in victims),
                last_event.published_name if last_event is not None else "",
                wait.work.op if wait is not None else "",
                wait.work.seq if wait is not None else None,
                last_event.place if last_event is not None else None,
                steps.get(key[1]),
            )
        )
    return tuple(rows)


def _is_own_timeout(event: Event[Any]) -> bool:
    """Whether a rank says that it stopped waiting: what it raises then is no error of its own."""
    what = event.what
    store_wait = isinstance(what, StoreWait) and not what.dead
    return store_wait or isinstance(what, (BarrierMissed, GlooTimeout)) or what is Mark.BARRIER_VICTIM


def _rank_state(event: Event[Any] | None, is_victim: bool) -> str:
    if event is None:
        return "missing"
    if isinstance(event.what, (ProcessExit, ExceptionRaised)):
        return "died"
    if event.what is Mark.JOB_FINISHED:
        return "finished"
    if is_victim:
        return "waited"
    return "running" if isinstance(event.what, TrainingStep) else "unknown"
