"""The nouns of tests between nodes: a measurement of one pair, and what is wrong with which nodes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from nodedoctor.record import field, record

Fault = Literal["slow", "loss", "late", "corrupt", "hang", "refused", "filtered", "lost", "error"]
"""What is wrong with a pair: below the others' rate; retransmits; small messages take longer; wrong bytes; no
progress until the round's deadline; the port answered with a reset; the port did not answer; an end stopped
answering its control line; the test itself failed."""
CONNECTING: frozenset[str] = frozenset({"refused", "filtered"})
"""Faults that say that no connection came about, so nothing is known of the speed."""
UNMEASURED: frozenset[str] = CONNECTING | {"error"}
"""Faults after which the test itself gave nothing."""

What = Literal["tcp", "rails", "rdma", "collective"]
"""What a pair measures: our TCP streams on the way to the other node or on every rail, ib_write_bw on
every rail, or all-reduces of torch."""
Mode = Literal["all", "ring", "sample", "bisect"]
Pair = tuple[str, str]
"""Two nodes, the lesser name first."""
Round = tuple[Pair, ...]
"""Pairs that are measured at once; no node is in two of them."""


@record
class Measurement:
    """One pair in one round.

    `gbps` is the lesser rate of the two directions; None without a rate. `loss` is the share of segments that
    were sent again, `rtt_us` the fastest round trip of a small message before the load (of a collective: of a
    small all-reduce). `fault` is what the ends saw; "slow", "loss" and "late" are judged later, against the
    other pairs. `rails` are the rates of each rail, of which the least is `gbps`.
    """

    pair: Pair
    gbps: float | None = None
    fault: Fault | None = None
    loss: float | None = None
    rtt_us: float | None = None
    round: int = 0
    note: str = ""
    rails: Mapping[str, float] = field(default_factory=dict)


@record
class Culprit:
    """A node, a path (between two nodes or two groups) or a group that explains pairs that are not well.

    `names` are the nodes, `where` its short name. `share` is the median rate of its pairs as a share of the
    reference, None where they have no rate. `seen` are the measurements it rests on.
    """

    kind: Literal["node", "path", "group"]
    where: str
    names: tuple[str, ...]
    fault: Fault
    confidence: Literal["high", "medium", "low"]
    share: float | None
    seen: tuple[Measurement, ...]


@record
class Fit:
    """What all measurements say together.

    `reference_gbps` is what a good pair has, `slow_below` the share of it under which a pair is slow (lower
    where the measurements scatter), `lossy_above` the share of retransmitted segments, `late_above` the round
    trip in microseconds (None where none was measured). `closed` is what most pairs failed of before anything
    was measured, so that no node is the odd one. `next` are the pairs whose measurement would decide most,
    `once` those that were odd once and not again yet.
    """

    reference_gbps: float | None
    slow_below: float
    lossy_above: float
    culprits: tuple[Culprit, ...] = ()
    next: tuple[Pair, ...] = ()
    once: tuple[Pair, ...] = ()
    closed: Fault | None = None
    late_above: float | None = None


def pair(a: str, b: str) -> Pair:
    """Two nodes in the order they are written in."""
    return (a, b) if a < b else (b, a)
