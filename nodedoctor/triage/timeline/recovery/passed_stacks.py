"""Stacks of processes that were looked at while their job worked: it went on, or came to its end."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import Event, Place
from nodedoctor.triage.patterns.progress import TrainingStep
from nodedoctor.triage.patterns.stacks import ThreadStack
from nodedoctor.triage.timeline.model import is_trouble
from nodedoctor.triage.timeline.recovery.survived import is_done
from nodedoctor.triage.timeline.runs import SURVIVED


def places_of_passed_stacks(events: Sequence[Event[Any]]) -> frozenset[Place]:
    """Where the stacks are of a job that has no other trouble, and that went on or came to its end.

    The end is that of the rank itself, or of all. Files with stacks seldom have times: other logs count only
    where fewer ranks wait than work; their steps, where they say that stacks were taken before.
    """
    stacks = [event for event in events if isinstance(event.what, ThreadStack)]
    if not stacks or any(is_trouble(e) and not isinstance(e.what, ThreadStack) for e in events):
        return frozenset()
    most_work = 2 * sum(bool(event.what.collective) for event in stacks) < len(stacks)
    ends = [event for event in events if is_done(event)]
    went_on = _logs_that_went_on(events)

    def is_passed(stack: Event[Any]) -> bool:
        source, offset = stack.place.source, stack.place.offset
        own_ends = [end.place for end in ends if end.who.rank in (None, stack.who.rank)]
        if any(end.source == source for end in own_ends):
            return any(end.source == source and end.offset > offset for end in own_ends)
        return most_work and bool(own_ends or went_on - {source})

    return frozenset(stack.place for stack in stacks if is_passed(stack))


def _logs_that_went_on(events: Iterable[Event[Any]]) -> set[str]:
    """The logs that say when stacks were taken, and count on behind it what they had counted before."""
    rises: dict[str, float] = {}
    logs_with_steps: set[str] = set()
    for event in events:
        source = event.place.source
        if event.what is Mark.STACKS_TAKEN and source in logs_with_steps:
            rises[source] = 0
        elif isinstance(event.what, TrainingStep):
            logs_with_steps.add(source)
            if source in rises:
                rises[source] += event.what.rises
    return {source for source, count in rises.items() if count >= SURVIVED}
