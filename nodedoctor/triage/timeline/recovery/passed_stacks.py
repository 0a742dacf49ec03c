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
    """Where the stacks are of a job that has no other trouble, and of which fewer wait than work.

    Files with stacks seldom have times. The end of the job is behind them in any log, where it is the end of
    the rank itself or of all; steps are where their log says that stacks were taken before.
    """
    stacks = [event for event in events if isinstance(event.what, ThreadStack)]
    trouble = (e for e in events if is_trouble(e) and not isinstance(e.what, ThreadStack))
    waiting = sum(bool(event.what.collective) for event in stacks)
    if not stacks or 2 * waiting >= len(stacks) or any(True for _ in trouble):
        return frozenset()
    ends = [event for event in events if is_done(event)]
    went_on = _logs_that_went_on(events)
    return frozenset(
        stack.place
        for stack in stacks
        if any(_is_behind(end, stack) for end in ends) or went_on - {stack.place.source}
    )


def _is_behind(end: Event[Any], stack: Event[Any]) -> bool:
    """True for the end of all, or of the same rank, that is not in front of the stack."""
    same_log = end.place.source == stack.place.source
    return end.who.rank in (None, stack.who.rank) and not (same_log and end.place.offset < stack.place.offset)


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
