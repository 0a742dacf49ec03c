"""Work that others may have to wait for: what the logs show of it, and waits inside of a save."""

from __future__ import annotations

import re
from typing import Any

from nodedoctor.triage.model import Event
from nodedoctor.triage.patterns.progress import LongWork, TrainingStep, is_brief
from nodedoctor.triage.patterns.store import GlooTimeout
from nodedoctor.triage.patterns.trace import ExceptionRaised
from nodedoctor.triage.timeline import CollectiveWait, Timeline

_SAVES = re.compile(r"(?i)(?<![a-z])(?:ckpt|checkpoint|async_save)|save_(?:model|state|pretrained|weights)")
"""Functions and process groups that save, as torchtune, NeMo, Megatron and Lightning call them."""


def last_long_work(story: Timeline, ranks: set[int | None] | None) -> Event[LongWork] | None:
    """The last long work begun before the first timeout, if no training step came after it."""
    waited = {wait.who.rank for wait in story.waits}
    for event in reversed(story.of(LongWork)):
        rank = event.who.rank
        if (
            story.late(event)
            or is_brief(event.text)
            or (rank is not None and (rank in waited or (ranks is not None and rank not in ranks)))
        ):
            continue
        steps = [e for e in story.of(TrainingStep) if e.place.source == event.place.source]
        after = [e for e in steps if e.place.offset > event.place.offset and not story.late(e)]
        return event if len(after) <= 1 else None
    return None


def save_waits(story: Timeline) -> list[Event[Any]]:
    """All waits, where each is in a save by its group's name or by a function of its stack; else none."""
    if story.waits:
        grouped = [wait.event for wait in story.waits if _SAVES.search(_group_label(wait))]
        return grouped if len(grouped) == len(story.waits) else []
    gloo = {(event.place.source, event.place.offset) for event in story.of(GlooTimeout)}
    stacks = [
        event
        for event in story.of(ExceptionRaised)
        if (event.place.source, event.place.offset) in gloo
        and any(_SAVES.search(frame.function) for frame in event.what.frames)
    ]
    return stacks if len(stacks) == len(gloo) else []


def _group_label(wait: CollectiveWait) -> str:
    return f"{wait.work.group.name} {wait.work.group.desc}"
