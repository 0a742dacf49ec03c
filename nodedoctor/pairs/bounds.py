"""What a pair must have to be well, from all measurements: a rate, segments sent again, a round trip."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from statistics import median, median_low

from nodedoctor.grouping import group_pairs
from nodedoctor.pairs.model import Measurement

SLOW_BELOW = 0.8
"""Share of what a good pair has. Our choice: between healthy pairs of one fabric nccl-tests and ib_write_bw
differ by a few percent, and a fault that costs less than a fifth hides in the noise of shared switches."""
SCATTER, SCATTER_ALONE = 3.0, 4.0
"""Standard deviations that a slow pair lies below the others, where those scatter more; one that is
blamed alone lies farther below, as no other pair agrees with it. Our choice, from simulations."""
BLURRED = 0.5
"""Bound of a slow pair below which rates scatter too much for a pass: half a rate missing would not show."""
LOSSY_ABOVE = 0.005
"""Share of retransmitted segments. Our choice: a data centre's switches lose below 1 in 10 000, and the rate
of a TCP stream falls with the square root of the loss (Mathis et al., 1997)."""
LOSSIER = 4.0
"""Times the upper quartile of the pairs of nodes that lose as much as most: behind shapers and policers
everybody loses a little. Our choice."""
LATE_TIMES, LATE_LEAST_US = 5.0, 500.0
"""A round trip that is so many times the usual one, and so much longer, is late. Our choice: within one site
paths differ by a few switches of a microsecond each, and half a millisecond is another site, a wrong route or
a NIC that waits. No kernel here could delay packets, so this was only simulated: it warns, it never fails."""


def rate_of_a_good_pair(measured: Iterable[Measurement]) -> tuple[float | None, float]:
    """What a good pair has, and the standard deviation of good pairs as a share of it.

    Each node votes with the upper quartile of its pairs, which a slow partner does not touch; the reference
    is the median of all pairs that are near the median vote. Faults only lower a rate, so the scatter is that
    of the better half.
    """
    rates: dict[str, list[float]] = defaultdict(list)
    every = []
    for measurement in measured:
        if measurement.gbps is not None and not measurement.fault:
            every.append(measurement.gbps)
            for name in measurement.pair:
                rates[name].append(measurement.gbps)
    if not every:
        return None, 0.0
    vote = median(sorted(values)[len(values) * 3 // 4] for values in rates.values())
    near = [rate for rate in every if rate > SLOW_BELOW * vote] or every
    reference = median(near)
    above = median(rate - reference for rate in every if rate >= reference)
    return reference, 1.4826 * above / reference if reference else 0.0


def loss_of_a_bad_pair(measured: Iterable[Measurement]) -> float:
    """The share of segments sent again above which a pair loses.

    Each node votes with the lower quartile of its pairs, which a lossy partner does not touch. Nodes that
    vote for far more than most are compared with the rest, however many of the pairs they own. One pair alone
    has nothing to be compared with.
    """
    by_pair = group_pairs(
        (measurement.pair, measurement.loss) for measurement in measured if measurement.loss is not None
    )
    if len(by_pair) < 2:
        return LOSSY_ABOVE
    losses = {pair: median(values) for pair, values in by_pair.items()}
    of_node = group_pairs((name, loss) for pair, loss in losses.items() for name in pair)
    votes = {name: _quartile_value(values, 1) for name, values in of_node.items()}
    most = max(LOSSY_ABOVE, LOSSIER * median_low(votes.values()))
    rest = [loss for pair, loss in losses.items() if all(votes[name] <= most for name in pair)]
    return max(LOSSY_ABOVE, LOSSIER * _quartile_value(rest, 3)) if rest else most


def _quartile_value(values: Iterable[float], which: int) -> float:
    """The first or third quartile, as one of the values: of few the one nearer to the middle."""
    ordered = sorted(values)
    return ordered[(len(ordered) - 1) * which // 4]
