"""Judges the measured rates of an acceptance: one row for each kind, against floor, peers and past."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Any

from nodedoctor.accept.measurements import Measurement
from nodedoctor.grouping import group_by
from nodedoctor.journal import PastRate
from nodedoctor.knowledge.floors import BELOW_PEERS
from nodedoctor.record import field_names, record, replace

FAIL, WARN, PASS, UNJUDGED = "fail", "warn", "pass", "unknown"
_TITLES = {
    "p2p": "GPU to GPU",
    "host-to-gpu": "host to GPU",
    "gpu-to-host": "GPU to host",
    "memory-copy": "GPU memory",
    "gemm-bf16": "GEMM bf16",
    "rdma-loopback": "RDMA loopback",
    "disk-write": "disk written",
    "disk-read": "disk read",
    "cpu-memory": "CPU memory",
}


@record
class Row:
    """One kind of rate in one circumstance: the lowest of `count`, and what it is held against.

    `floor` is None where none is known for these circumstances, `peers` where nothing else is alike, `before`
    without an earlier run; `before_on` is the last day on which it was so fast. `of_peers` is the share of
    what peers reach that still passes.
    """

    operation: str
    title: str
    circumstances: str
    count: int
    lowest: float
    subject: str
    unit: str
    status: str = PASS
    why: str = ""
    peers: float | None = None
    floor: float | None = None
    floor_source: str = ""
    before: float | None = None
    before_on: str = ""
    of_peers: float = BELOW_PEERS

    @property
    def key(self) -> str:
        """The name under which a journal keeps it: rates of other circumstances are other rates."""
        return f"{self.operation} ({self.circumstances})" if self.circumstances else self.operation


def make_rows(measured: Iterable[Measurement], past: Mapping[str, PastRate]) -> list[Row]:
    """The rows, in the order in which their rates were measured; `past` holds earlier rates by key."""
    groups = group_by(measured, lambda rate: (rate.operation, rate.circumstances))
    return [_build_row(group, past) for group in groups.values()]


def _build_row(group: Sequence[Measurement], past: Mapping[str, PastRate]) -> Row:
    worst = min(group, key=lambda measurement: measurement.rate)
    row = Row(
        operation=worst.operation,
        title=_TITLES.get(worst.operation, worst.operation.replace("_", "-")),
        circumstances=worst.circumstances,
        count=len(group),
        lowest=worst.rate,
        subject=worst.subject,
        unit=worst.unit,
        peers=round(median(measurement.rate for measurement in group), 2) if len(group) > 1 else None,
        floor=worst.floor,
        floor_source=worst.floor_source,
        of_peers=worst.of_peers,
    )
    earlier = past.get(row.key)
    row = replace(row, before=earlier.usual if earlier else None, before_on=earlier.day if earlier else "")
    status, why = _judge_row(row, worst, earlier)
    return replace(row, status=status, why=why)


def _judge_row(row: Row, worst: Measurement, earlier: PastRate | None) -> tuple[str, str]:
    """The strictest of the three references that is not met, else those that are."""
    if row.floor is not None and row.lowest < row.floor:
        return worst.level, "below the floor"
    if row.peers is not None and row.lowest < worst.of_peers * row.peers:
        return WARN, f"{1 - row.lowest / row.peers:.0%} below its peers"
    if earlier and (trend := earlier.trend(row.lowest, worst.of_past)):
        return WARN, trend
    references = {"floor": row.floor, "peers": row.peers, "past": row.before}
    met = [name for name, value in references.items() if value is not None]
    return (PASS, f"meets {' and '.join(met)}") if met else (UNJUDGED, "no reference is known")


def as_document(row: Row) -> dict[str, Any]:
    """The row as plain data."""
    return {**{name: getattr(row, name) for name in field_names(Row)}, "key": row.key}
