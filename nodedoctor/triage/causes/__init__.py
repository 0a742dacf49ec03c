"""Cause rules: each module one family, each rule a pure function from the story to candidate causes.

A rule says what a candidate rests on; `weigh` says which one outweighs the others.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from nodedoctor.triage.causes import (
    bare,
    collectives,
    corruption,
    deaths,
    exceptions,
    groups,
    last_words,
    local,
    missing,
    network,
    nodes,
    ras,
    stacks,
    steps,
)
from nodedoctor.triage.model import Candidate
from nodedoctor.triage.story import Story

Rule = Callable[[Story], Iterator[Candidate]]

RULES: tuple[Rule, ...] = (
    *local.RULES,
    *exceptions.RULES,
    *corruption.RULES,
    *deaths.RULES,
    *collectives.RULES,
    *groups.RULES,
    *missing.RULES,
    *steps.RULES,
    *network.RULES,
    *bare.RULES,
    *nodes.RULES,
    *ras.RULES,
    *stacks.RULES,
    *last_words.RULES,
)


def candidates(story: Story) -> list[Candidate]:
    """Every cause that some rule sees."""
    return [candidate for rule in RULES for candidate in rule(story)]
