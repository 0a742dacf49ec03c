"""Stacks that somebody kept: most processes wait in a collective, and a few stand elsewhere."""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.triage.causes.who import blamed, called
from nodedoctor.triage.events.stacks import Stack, where
from nodedoctor.triage.model import Candidate
from nodedoctor.triage.story import Story


def elsewhere(story: Story) -> Iterator[Candidate]:
    """All but a few stand in a collective: the few are waited for."""
    told = story.of(Stack)
    waiting = [event for event in told if event.what.collective]
    busy = {(e.who.rank, e.who.pid) for e in waiting}
    others = [e for e in told if not e.what.collective and (e.who.rank, e.who.pid) not in busy]
    if not waiting or not others or len(others) > len(waiting):
        return
    culprits = blamed(*(event.who for event in others))
    gil = " and keeps Python's lock" if any(event.what.owns_gil for event in others) else ""
    yield Candidate(
        "cpu_stuck_or_slow_rank",
        "absence",
        "medium",
        f"{called(culprits) or 'one process'} is in {where(others[0].what.frames)}{gil};"
        f" {len(waiting)} others wait in {waiting[0].what.collective}",
        (*others[:3], *waiting[:3]),
        culprits,
        tuple(event.who for event in waiting if event.who.rank is not None),
    )


RULES = (elsewhere,)
