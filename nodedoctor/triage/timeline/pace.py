"""How fast a job went and how far ranks came: a measure for waits."""

from __future__ import annotations

import re
from collections.abc import Iterable
from statistics import median
from typing import Any

from nodedoctor.triage.model import Event
from nodedoctor.triage.patterns.progress import TrainingStep
from nodedoctor.triage.timeline.model import CollectiveWait

_PACE = re.compile(r"(?<!\d)(?P<value>\d+(?:\.\d+)?) ?(?P<unit>s/it|it/s)\b")
_TOTAL = re.compile(r"/(\d+)$")


def step_seconds(events: Iterable[Event[Any]]) -> float | None:
    """The median time of a step in seconds, by the job's own progress bars."""
    seconds = []
    for event in events:
        match = _PACE.search(event.text) if isinstance(event.what, TrainingStep) else None
        if match and float(match["value"]) > 0:
            value = float(match["value"])
            seconds.append(value if match["unit"] == "s/it" else 1 / value)
    return median(seconds) if seconds else None


def ended_bars(events: Iterable[Event[Any]]) -> tuple[list[Event[Any]], set[int]]:
    """The last events of ranks with a full bar, and ranks whose bar was not.

    Nothing when no rank's bar of the same total is seen short of its end: then all came to the end alike.
    """
    last: dict[tuple[int, str], Event[Any]] = {}
    for event in events:
        if isinstance(event.what, TrainingStep) and event.who.rank is not None:
            total = _TOTAL.search(event.what.series)
            if total:
                last[event.who.rank, total[1]] = event
    full = {key for key, event in last.items() if event.what.last[-1:] == (float(key[1]),)}
    short = {rank for rank, total in last.keys() - full if any(full_total == total for _, full_total in full)}
    return [last[key] for key in sorted(full) if short], short


FROZEN = 600.0
"""Seconds beyond its limit after which a watchdog must have been frozen; it looks every second. Ours."""


def frozen_seconds(waits: Iterable[CollectiveWait]) -> float | None:
    """Seconds beyond its limit that a watchdog reports, when so many that it was frozen."""
    longest = 0.0
    for wait in waits:
        ran, limit = wait.event.what.ran_ms, wait.work.timeout_ms
        if ran and limit and ran > 2 * limit:
            longest = max(longest, (ran - limit) / 1000)
    return longest if longest > FROZEN else None
