"""Of a flood of events the first and the last are kept."""

from __future__ import annotations

from collections import deque
from typing import Any

from nodedoctor.triage.model import Event
from nodedoctor.triage.patterns.progress import TrainingStep

MOST_EVENTS = 150
"""Events that are kept per kind and rank at either end: a flood repeats itself."""
STEPS_KEPT = 8
"""Steps in a row that are kept: only that there were several matters."""


class EventSampler:
    """Keeps the first and last events of each kind and rank, in order."""

    def __init__(self) -> None:
        self._first: dict[tuple[Any, ...], list[tuple[int, Event[Any]]]] = {}
        self._last: dict[tuple[Any, ...], deque[tuple[int, Event[Any]]]] = {}
        self._index = self._steps = 0

    def add(self, event: Event[Any]) -> None:
        """Keep an event, or drop it."""
        self._index += 1
        self._steps = self._steps + 1 if isinstance(event.what, TrainingStep) else 0
        if self._steps > STEPS_KEPT:
            return
        key = (event.kind, event.who.rank, event.who.labels[:1])
        first = self._first.setdefault(key, [])
        if len(first) < MOST_EVENTS:
            first.append((self._index, event))
        else:
            self._last.setdefault(key, deque(maxlen=MOST_EVENTS)).append((self._index, event))

    def events(self) -> list[Event[Any]]:
        """The kept events, in their order."""
        pairs = [pair for group in (*self._first.values(), *self._last.values()) for pair in group]
        return [event for _, event in sorted(pairs, key=lambda pair: pair[0])]
