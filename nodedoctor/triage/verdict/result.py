"""A verdict made ready to be read: fixes, what it is not, no credentials."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nodedoctor.probes.host.environment import scrubbed
from nodedoctor.record import record
from nodedoctor.triage.flight.transfer_time import transfer_time
from nodedoctor.triage.model import CollectiveCall, Event, Verdict
from nodedoctor.triage.read.scan import LineNumbers
from nodedoctor.triage.timeline.model import Timeline
from nodedoctor.triage.timeline.recovery.set_aside import merge_alike
from nodedoctor.triage.timeline.states import rank_states
from nodedoctor.triage.verdict.advice import actions

QUOTED = 4096
"""Characters of a line that are quoted at most."""


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
        ranks=rank_states(timeline, verdict),
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
