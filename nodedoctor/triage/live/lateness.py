"""Which rank comes late to its steps, by the moments at which the ranks of one node came to each of them.

The law: a rank is named only where it alone comes later than all others, in most of the steps, by more than
twice what the others differ from each peer. What is not known speaks against it: a step of which one rank's
moment is missing counts as one in which it came in time, and without the moments of a rank nothing is said.
So noise names no rank, and less evidence never another one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import chain, pairwise
from statistics import median, quantiles

from nodedoctor.grouping import group_pairs
from nodedoctor.record import record

FEWEST_RANKS = 3
"""Ranks, at least: of two it is not known what they differ by when all is well."""
FEWEST_STEPS = 20
"""Steps, at least, in which all ranks were seen."""
SHARE = 0.8
"""Part of the steps in which a rank must come late: who saves or logs now and then does not. Ours."""
BEYOND = 2.0
"""Times the spread of the others. Stages of a pipeline come one after another, each a little later."""
OF_STEP = 0.05
"""Part of a step below which a delay costs nothing."""
TICKS = 2.0
"""Times the resolution of the moments: one more and one less is no difference."""

Step = tuple[float, ...]
"""What a counter showed: epoch and step, or the step alone."""


@record
class Lateness:
    """How late a rank comes: seconds, as the median of the steps in which it does, and the part of these.

    `spread` are the seconds by which the others differ from each peer, `step` those that a step takes.
    """

    seconds: float
    share: float
    steps: int
    spread: float
    step: float

    @property
    def words(self) -> str:
        """The same as the end of a sentence."""
        return f"arrives {1000 * self.seconds:.0f} ms late in {100 * self.share:.0f} % of steps"


def find_late_rank(
    arrivals: Mapping[int, Mapping[Step, float]], ranks: Iterable[int], resolution: float
) -> tuple[int, Lateness] | None:
    """The one rank that comes late; None where none does, or where it is not known of all `ranks`.

    `arrivals` are the moments of each rank by step, of one clock that shows them in steps of `resolution`.
    """
    wanted = sorted(set(ranks))
    if len(wanted) < FEWEST_RANKS or any(not arrivals.get(rank) for rank in wanted):
        return None
    steps = [step for step in arrivals[wanted[0]] if all(step in arrivals[rank] for rank in wanted)]
    if len(steps) < FEWEST_STEPS:
        return None
    rows = [{rank: arrivals[rank][step] for rank in wanted} for step in steps]
    began = sorted(min(row.values()) for row in rows)
    passed = median(later - before for before, later in pairwise(began))
    late = {rank: [_behind(row, rank) for row in rows] for rank in wanted}
    last = max(wanted, key=lambda rank: median(late[rank]))
    spread = max(_spread(rows, rank, last) for rank in wanted if rank != last)
    least = max(BEYOND * spread, OF_STEP * passed, TICKS * resolution)
    beyond = [seconds for seconds in late[last] if seconds > least]
    share = len(beyond) / max(len(steps), _count({step for rank in wanted for step in arrivals[rank]}))
    if share < SHARE:
        return None
    return last, Lateness(median(beyond), share, len(steps), spread, passed)


def _behind(row: Mapping[int, float], rank: int, left_out: int | None = None) -> float:
    """Seconds by which a rank came to a step after the others, as their median has it."""
    return row[rank] - median(row[peer] for peer in row if peer not in (rank, left_out))


def _spread(rows: Iterable[Mapping[int, float]], rank: int, last: int) -> float:
    """Seconds by which one of the others came before or after the rest of them, in nine of ten steps."""
    return quantiles((abs(_behind(row, rank, last)) for row in rows), n=10)[-1]


def _count(steps: Iterable[Step]) -> int:
    """How many steps there were, with those between that were not seen."""
    by_epoch = group_pairs((step[:-1], step[-1]) for step in steps)
    gaps = chain.from_iterable(pairwise(sorted(inner)) for inner in by_epoch.values())
    stride = min((later - before for before, later in gaps), default=1.0)
    return sum(round((max(inner) - min(inner)) / stride) + 1 for inner in by_epoch.values())
