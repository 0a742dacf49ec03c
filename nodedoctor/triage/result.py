"""A verdict made ready to be read: its fixes, what it is not, and no credential in what it quotes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from nodedoctor.probes.host.environment import scrubbed
from nodedoctor.record import record
from nodedoctor.triage.advice import actions
from nodedoctor.triage.flight.transfer_time import transfer_time
from nodedoctor.triage.model import CollectiveCall, Event, Verdict
from nodedoctor.triage.read.linenumbers import LineNumbers
from nodedoctor.triage.story import Timeline
from nodedoctor.triage.story.recovery.decide import merge_alike
from nodedoctor.triage.story.states import rank_states

QUOTED = 4096
"""Characters of a line that are quoted at most."""


@record
class TriageResult:
    """A verdict with what its views need besides it."""

    verdict: Verdict
    lines: LineNumbers
    interrupted: bool = False


def add_advice(judged: Verdict, story: Timeline) -> Verdict:
    """The verdict with its fixes, what it is not, and what would decide."""
    told = transfer_time(judged.collective or CollectiveCall())
    suspects = [who.rank for who in (*judged.culprits, *judged.parties)]
    judged = without_secrets(replace(judged, also_seen=merge_alike(story.also_seen)))
    return replace(
        judged,
        ranks=rank_states(story, judged),
        fixes=actions.choose_fixes(story, judged),
        not_the_cause=actions.not_the_cause(story, suspects, told.sentence, told.can_explain),
        next=actions.next_measurements(story, judged),
    )


def without_secrets(judged: Verdict) -> Verdict:
    """The verdict with no credential in what it quotes: lines of logs hold URLs and whole command lines."""
    return replace(
        judged,
        headline=scrubbed(judged.headline),
        evidence=tuple(map(_without_secrets, judged.evidence)),
        also_seen=tuple(replace(one, event=_without_secrets(one.event)) for one in judged.also_seen),
        alternatives=tuple((cause, scrubbed(why)) for cause, why in judged.alternatives),
    )


def _without_secrets(event: Event[Any]) -> Event[Any]:
    return replace(event, text=scrubbed(event.text[:QUOTED]))
