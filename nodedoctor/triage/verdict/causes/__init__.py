"""Cause rules: one family a module, each rule a pure function from timeline to candidates.

A rule says what a candidate rests on; `weigh` says which one outweighs the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from nodedoctor.triage.model import Candidate
from nodedoctor.triage.timeline.model import Timeline
from nodedoctor.triage.verdict.causes import (
    collectives,
    corruption,
    deaths,
    exceptions,
    groups,
    infrastructure,
    missing,
    ras,
    steps,
    symptoms,
    unclassified,
)

Rule = Callable[[Timeline], Iterator[Candidate]]

RULES: tuple[Rule, ...] = (
    *symptoms.RULES,
    *exceptions.RULES,
    *corruption.RULES,
    *deaths.RULES,
    *collectives.RULES,
    *groups.RULES,
    *missing.RULES,
    *steps.RULES,
    *infrastructure.RULES,
    *ras.RULES,
    *unclassified.RULES,
)


def find_candidates(timeline: Timeline) -> list[Candidate]:
    """Every cause that some rule sees."""
    return [candidate for rule in RULES for candidate in rule(timeline)]
