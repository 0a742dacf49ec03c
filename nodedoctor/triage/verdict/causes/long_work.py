"""Long work that others wait for, as logs show it, and waits in a save."""

from __future__ import annotations

import re
from typing import Any

from nodedoctor.triage.model import Event
from nodedoctor.triage.patterns.progress import LongWork, TrainingStep, is_brief
from nodedoctor.triage.patterns.store import GlooTimeout
from nodedoctor.triage.patterns.trace import ExceptionRaised
from nodedoctor.triage.timeline.model import Timeline

_SAVES = re.compile(r"(?i)(?<![a-z])(?:ckpt|checkpoint|async_save)|save_(?:model|state|pretrained|weights)")
"""Functions and process groups that save, as torchtune, NeMo, Megatron and Lightning call them."""


def last_long_work(timeline: Timeline, ranks: set[int | None] | None) -> Event[LongWork] | None:
    """The last long work before the first timeout, without a training step after it."""
    for event in reversed(timeline.of_kind(LongWork)):
        rank = event.who.rank
        if (
            timeline.late(event)
            or is_brief(event.text)
            or (
                rank is not None
                and (rank in timeline.waiting_ranks or (ranks is not None and rank not in ranks))
            )
        ):
            continue
        steps = [e for e in timeline.of_kind(TrainingStep) if e.place.source == event.place.source]
        later_steps = [e for e in steps if e.place.offset > event.place.offset and not timeline.late(e)]
        return event if len(later_steps) <= 1 else None
    return None


def save_waits(timeline: Timeline) -> list[Event[Any]]:
    """All waits, where each is in a save by its group or stack; else none."""
    if timeline.waits:
        grouped = [
            w.event for w in timeline.waits if _SAVES.search(f"{w.work.group.name} {w.work.group.desc}")
        ]
        return grouped if len(grouped) == len(timeline.waits) else []
    gloo = {event.place for event in timeline.of_kind(GlooTimeout)}
    stacks = [
        event
        for event in timeline.of_kind(ExceptionRaised)
        if event.place in gloo and any(_SAVES.search(frame.function) for frame in event.what.frames)
    ]
    return stacks if len(stacks) == len(gloo) else []
