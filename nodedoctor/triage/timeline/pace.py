"""How fast a job went and how far each rank came: a measure for waits, and equal for all ranks of one job."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from statistics import median
from typing import Any

from nodedoctor.record import record
from nodedoctor.triage.model import Event
from nodedoctor.triage.patterns.progress import TrainingStep
from nodedoctor.triage.patterns.watchdog import TimedOut
from nodedoctor.triage.timeline.model import CollectiveWait

_PACE = re.compile(r"(?<!\d)(?P<value>\d+(?:\.\d+)?) ?(?P<unit>s/it|it/s)\b")


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
    last: dict[tuple[int, int], Event[Any]] = {}
    for event in events:
        if isinstance(event.what, TrainingStep) and event.who.rank is not None and event.what.length:
            last[event.who.rank, event.what.length] = event
    full = {key for key, event in last.items() if event.what.is_full}
    short = {rank for rank, total in last.keys() - full if any(full_total == total for _, full_total in full)}
    return [last[key] for key in sorted(full) if short], short


FROZEN = 600.0
"""Seconds beyond its limit after which a watchdog must have been frozen; it looks every second. Ours."""


def frozen_seconds(waits: Iterable[CollectiveWait]) -> float | None:
    """Seconds beyond its limit that a watchdog reports, when so many that it was frozen."""
    longest = 0.0
    for wait in waits:
        what, limit = wait.event.what, wait.work.timeout_ms
        ran = what.ran_ms if isinstance(what, TimedOut) else None
        if ran and limit and ran > 2 * limit:
            longest = max(longest, (ran - limit) / 1000)
    return longest if longest > FROZEN else None


@record
class RankCount:
    """One rank's counter: the event of its last value, and how often it rose.

    `stride` is what it grew by from one line to the next, on average.
    """

    event: Event[TrainingStep]
    rises: int
    stride: float

    @property
    def last(self) -> tuple[float, ...]:
        """Its last value; with an epoch in front where the line has one."""
        return self.event.what.last


def count_steps(events: Iterable[Event[Any]]) -> dict[str, dict[int, RankCount]]:
    """The counters of each name, by rank; of several processes under one rank the busiest."""
    series: dict[tuple[str, int], list[Event[TrainingStep]]] = defaultdict(list)
    for event in events:
        if isinstance(event.what, TrainingStep) and event.who.rank is not None and not event.what.answers:
            series[event.what.series, event.who.rank].append(event)
    counters: dict[str, dict[int, RankCount]] = defaultdict(dict)
    for (name, rank), steps in series.items():
        count = _make_count(steps)
        ranks = counters["|".join(name.split("|")[5:])]  # behind source, world, rank, pid and local rank
        if rank not in ranks or ranks[rank].rises < count.rises:
            ranks[rank] = count
    return counters


def last_steps(events: Iterable[Event[Any]]) -> dict[int, float]:
    """The last step of each rank, by its busiest counter."""
    best: dict[int, RankCount] = {}
    for ranks in count_steps(events).values():
        for rank, count in ranks.items():
            if rank not in best or best[rank].rises < count.rises:
                best[rank] = count
    return {rank: count.last[-1] for rank, count in best.items() if count.last}


def _make_count(steps: list[Event[TrainingStep]]) -> RankCount:
    last = steps[-1]
    rises = sum(event.what.rises for event in steps if event.what.part == last.what.part)
    growth = last.what.last[-1] - last.what.first[-1] if last.what.last and last.what.first else 0.0
    return RankCount(last, rises, growth / rises if rises and growth > 0 else 1.0)
