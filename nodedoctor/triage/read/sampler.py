"""Of a flood of events the first and the last are kept."""

from __future__ import annotations

from collections import deque
from typing import Any

from nodedoctor.triage.model import Event
from nodedoctor.triage.patterns.progress import TrainingStep

KEPT = 150
"""Events kept per kind and rank, the first and the last of them: a flood says the same over and over."""
STEPS_KEPT = 8
"""Steps in a row that are kept: only that there were several matters."""


class EventSampler:
    """Keeps the first and last events of each kind and rank, in their order: bounded memory in any flood."""

    def __init__(self) -> None:
        self._first: dict[tuple[Any, ...], list[tuple[int, Event[Any]]]] = {}
        self._last: dict[tuple[Any, ...], deque[tuple[int, Event[Any]]]] = {}
        self._index = self._steps = 0

    def add(self, event: Event[Any]) -> None:
        """Take an event in, or let it go."""
        self._index += 1
        self._steps = self._steps + 1 if isinstance(event.what, TrainingStep) else 0
        if self._steps > STEPS_KEPT:
            return
        key = (event.kind, event.who.rank, event.who.labels[:1])
        kept = self._first.setdefault(key, [])
        if len(kept) < KEPT:
            kept.append((self._index, event))
        else:
            self._last.setdefault(key, deque(maxlen=KEPT)).append((self._index, event))

    def events(self) -> list[Event[Any]]:
        """What was kept."""
        pairs = [pair for kept in (*self._first.values(), *self._last.values()) for pair in kept]
        return [event for _, event in sorted(pairs, key=lambda pair: pair[0])]
