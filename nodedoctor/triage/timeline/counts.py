"""The last count of each rank: the ranks of one job come equally far."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from nodedoctor.record import record
from nodedoctor.triage.model import Event
from nodedoctor.triage.patterns.progress import TrainingStep


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
        ranks = counters[_counter_name(name)]
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


def _counter_name(series: str) -> str:
    """The counter's own name, behind source, world, rank, pid and local rank."""
    return "|".join(series.split("|")[5:])
