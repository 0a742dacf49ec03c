"""The order of lines in a log: times of lines without one, and copied logs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any

from nodedoctor.grouping import group_by
from nodedoctor.triage.model import Event

DISORDER = 2.0
"""Seconds by which a line may be older than the one before it: pipes of several processes. Ours."""


def by_source(events: Iterable[Event[Any]]) -> list[list[Event[Any]]]:
    """The events of each source, in their order."""
    return list(group_by(events, lambda event: event.place.source).values())


def not_before(source: Sequence[Event[Any]]) -> dict[int, float]:
    """For each event without a time, the last time before it, by the event's `id`.

    Only where one log took the lines of several ranks as they came: its ranks take turns, and its times only
    go forward. Logs that were put one behind another tell nothing between their ranks.
    """
    speakers = [event.who.rank for event in source if event.who.rank is not None]
    turns = sum(rank != next_rank for rank, next_rank in pairwise(speakers))
    times = [event.time for event in source if event.time is not None and event.who.rank is not None]
    forward = all(later >= earlier - DISORDER for earlier, later in pairwise(times))
    if len(set(speakers)) < 2 or turns < len(set(speakers)) or not forward:
        return {}
    earliest_times: dict[int, float] = {}
    last: float | None = None
    for event in source:
        if event.time is not None:
            last = event.time if event.who.rank is not None else last
        elif last is not None:
            earliest_times[id(event)] = last
    return earliest_times


def drop_copies(sources: Sequence[list[Event[Any]]]) -> list[list[Event[Any]]]:
    """The sources without copies: logs that have the same lines as another one."""
    contents: set[tuple[Any, ...]] = set()
    originals = []
    for source in sources:
        content = tuple(
            (event.place.offset, event.text, event.time, event.who, event.kind) for event in source
        )
        if content not in contents:
            originals.append(source)
        contents.add(content)
    return originals
