"""From candidate causes to one verdict: the one that explains the others, or "undetermined"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nodedoctor.knowledge.kinds import owner_of_kind
from nodedoctor.triage.describe import distinct_ranks
from nodedoctor.triage.identity.rank_hosts import with_host
from nodedoctor.triage.marks import Kind, Mark
from nodedoctor.triage.model import Candidate, Confidence, Coverage, Event, Identity, Verdict
from nodedoctor.triage.patterns.store import GlooTimeout
from nodedoctor.triage.timeline.model import Timeline
from nodedoctor.triage.verdict.advice import timeouts
from nodedoctor.triage.verdict.causes import find_candidates, weigh
from nodedoctor.triage.verdict.causes.absent import waits_by_stack
from nodedoctor.triage.verdict.causes.corruption import lost_training
from nodedoctor.triage.verdict.causes.unclassified import unclassified_errors
from nodedoctor.triage.verdict.causes.weigh import WeighedCandidate
from nodedoctor.triage.verdict.decision.kind import kind_of
from nodedoctor.triage.verdict.no_failure import ended_in_order, no_failure, pick_evidence
from nodedoctor.triage.verdict.undetermined import open_question, suspected_people


def judge_incident(
    timeline: Timeline, coverage: Coverage, more: Sequence[Candidate] = (), *, calm: bool = False
) -> Verdict:
    """The verdict on the last incident; `more` are other causes; `calm`: dumps show no waiting."""
    weighed = weigh.weigh_candidates(timeline, [*find_candidates(timeline), *more])
    deciding = [entry for entry in weighed if entry.decides]
    quiet = not lost_training(timeline) and ended_in_order(timeline)
    if quiet and not more and (timeline.alive or calm or not unclassified_errors(timeline)):
        return no_failure(timeline, coverage, calm)
    if not deciding or timeline.marked(Mark.NOT_A_LOG):
        return _undetermined_verdict(timeline, coverage, weighed)
    best = deciding[0].candidate
    hosts = timeline.rank_hosts
    return Verdict(
        outcome="failure",
        cause=best.cause,
        confidence=_confidence_of(weighed),
        headline=best.headline,
        culprits=tuple(with_host(who, hosts) for who in best.culprits),
        victims=_find_victims(timeline, best),
        parties=tuple(with_host(who, hosts) for who in best.parties),
        collective=best.collective or (timeline.first_wait.work if timeline.first_wait else None),
        evidence=pick_evidence(best.evidence),
        fixes=best.fixes,
        timeline=_make_timeline(timeline),
        owner=best.owner or owner_of_kind(kind_of(best.cause, best.evidence)),
        kinds_alike=_kinds_alike(weighed),
        weighed=weigh.based_on(weighed[0]),
        alternatives=_make_alternatives(weighed),
        incidents=timeline.incidents,
        coverage=coverage,
    )


def _confidence_of(weighed: Sequence[WeighedCandidate]) -> Confidence:
    """How sure the first candidate is: never sure beside a close second."""
    best = weighed[0].candidate.confidence
    return "medium" if best == "high" and weigh.close_seconds(weighed[0], weighed[1:]) else best


def _kinds_alike(weighed: Sequence[WeighedCandidate]) -> tuple[str, ...]:
    rivals = [rival.candidate for rival in weigh.close_seconds(weighed[0], weighed[1:])]
    return tuple(dict.fromkeys(kind_of(rival.cause, rival.evidence, rival.owner) for rival in rivals))


def _other_causes(weighed: Sequence[WeighedCandidate]) -> list[WeighedCandidate]:
    """One per cause other than the first one's."""
    causes = {weighed[0].candidate.cause: weighed[0]}
    for rival in weighed[1:]:
        causes.setdefault(rival.candidate.cause, rival)
    return list(causes.values())[1:]


def _undetermined_verdict(
    timeline: Timeline, coverage: Coverage, suspects: Sequence[WeighedCandidate]
) -> Verdict:
    waits = timeline.waits
    reasons = [(suspect.candidate.cause, _suspected_cause(suspect)) for suspect in suspects]
    causes = {cause for cause, _ in reasons}
    reasons += [(cause, why) for cause, why in timeouts.unseen_explanations(timeline) if cause not in causes]
    culprits, parties = suspected_people(timeline)
    return Verdict(
        "undetermined",
        "undetermined",
        "low",
        open_question(timeline),
        culprits=culprits,
        parties=parties,
        victims=_waiting_ranks(timeline),
        collective=waits[0].work if waits else None,
        evidence=pick_evidence(tuple(timeline.trouble or unclassified_errors(timeline))),
        timeline=_make_timeline(timeline),
        alternatives=tuple({cause: (cause, why) for cause, why in reversed(reasons)}.values())[::-1][:5],
        incidents=timeline.incidents,
        coverage=coverage,
    )


def _suspected_cause(suspect: WeighedCandidate) -> str:
    against = f", but {suspect.against.why}" if suspect.against is not None else ""
    return f"only suspected: {suspect.candidate.headline}{against}"


def _waiting_ranks(timeline: Timeline) -> tuple[Identity, ...]:
    """The ranks that gave up waiting, in NCCL or gloo, or were in a collective when it was given up."""
    people = [wait.who for wait in timeline.waits]
    events = (*timeline.of_kind(GlooTimeout), *(waits_by_stack(timeline) if people else ()))
    return tuple(distinct_ranks([*people, *(event.who for event in events)]))


def _find_victims(timeline: Timeline, best: Candidate) -> tuple[Identity, ...]:
    guilty = {(who.world, who.rank) for who in best.culprits}
    waiting = best.victims or _waiting_ranks(timeline)
    return tuple(who for who in waiting if (who.world, who.rank) not in guilty)


def _make_timeline(timeline: Timeline) -> tuple[Event[Any], ...]:
    """The first of each kind of trouble per rank, in order of time."""
    first: dict[tuple[Kind, int | None], Event[Any]] = {}
    for event in sorted(timeline.trouble, key=timeline.moment):
        first.setdefault((event.kind, event.who.rank), event)
    return tuple(first.values())


def _make_alternatives(weighed: Sequence[WeighedCandidate]) -> tuple[tuple[Any, str], ...]:
    return tuple(
        (rival.candidate.cause, f"{rival.candidate.headline}: {weigh.why_less_likely(weighed[0], rival)}")
        for rival in _other_causes(weighed)[:4]
    )
