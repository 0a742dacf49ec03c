"""Rates below which something is wrong, by operation and fabric: gates that operators ship, with sources.

A bandwidth is nothing without its circumstances: a floor is found only where all that it holds for fits, so
that no smaller board, other link or shorter message borrows one.
"""

from __future__ import annotations

from typing import Literal

from nodedoctor.knowledge.table import cached_rows
from nodedoctor.record import record, replace

BELOW_PEERS = 0.9
"""Of the median of the peers; ours. Healthy pairs differ far less (8 H200 within 0.10 of 396.40 GB/s:
stas00/ml-engineering, network/README.md), and temperature changes 1 to 2 % (arXiv 2407.21783, section 3.3.4);
but a quick copy of 32 MiB also measures the moment. One of 18 NVLinks that is down costs 6 %, two 11 %."""
DISK_BELOW_PEERS = 0.5
"""Of the median of disks of one model, and of their own past; ours. Drives slow down as they fill and while
they collect garbage."""
BELOW_PAST = 0.85
"""Of the same rate in the past of this node; ours: beyond the 1 to 2 % that a day's temperature changes
(arXiv 2407.21783, section 3.3.4) and the spread of short measurements."""
FEWEST_LANES = 4
"""Lanes below which a PCIe link is not judged: one is what a GPU on NVLink-C2C reports."""
Operation = Literal["p2p", "host-copy", "all_reduce", "gemm-bf16"]


@record
class Floor:
    """One gate. `gate` is its number in `unit`; `tolerance` the share of it that still passes.

    It holds for these `models` (none: all), for pairs that `nvidia-smi topo -m` calls `link`, for so many
    `gpus` of one node (0: any number), this PCIe generation and messages of `least_bytes` or more. `healthy`
    is a good run, `level` what falling short deserves, `read` the day on which the source was read.
    """

    operation: Operation
    fabric: str
    models: tuple[str, ...]
    gate: float
    unit: str
    tolerance: float
    level: Literal["fail", "warn"]
    read: str
    source: str
    link: str = ""
    gpus: int = 0
    pcie_gen: int = 0
    least_bytes: int = 0
    healthy: float | None = None

    @property
    def least(self) -> float:
        """The lowest rate that passes, in `unit`."""
        return self.gate * self.tolerance


@record
class Share:
    """A floor as a `share` of what `of` names, for links of `up_to_gbps` at most (None: of any speed)."""

    operation: str
    fabric: str
    share: float
    of: str
    up_to_gbps: float | None
    why: str
    source: str


floors = cached_rows("floors", "floors", Floor)
shares = cached_rows("floors", "shares", Share)


def fitting_floors(
    operation: Operation,
    model: str = "",
    *,
    link: str = "",
    gpus: int = 0,
    pcie_gen: int = 0,
    size: int | None = None,
) -> list[Floor]:
    """The gates that hold for a measurement, the strictest last. A link that is not known fits any row."""
    fitting = [
        row
        for row in floors()
        if row.operation == operation
        and (not row.models or model in row.models)
        and (not link or row.link in ("", link))
        and row.gpus in (0, gpus)
        and row.pcie_gen == pcie_gen
        and (size is None or size >= row.least_bytes)
    ]
    return sorted(fitting, key=lambda row: row.least)


def host_copy_floors(generation: int | None, width: int | None, *, encrypted: bool = False) -> list[Floor]:
    """The gates for copies with the host over a PCIe link of this generation and width, the strictest last.

    None where copies are encrypted (confidential computing): they are much slower by design.
    """
    if encrypted or not generation or not width or width < FEWEST_LANES:
        return []
    gates = fitting_floors("host-copy", pcie_gen=generation)
    return [replace(gate, gate=gate.gate * width / 16) for gate in gates]


def steady_share(operation: str) -> float:
    """The share of its own past that a rate must reach; of an operation or a key that begins with it."""
    return DISK_BELOW_PEERS if operation.startswith("disk-") else BELOW_PAST


def share_of(operation: str, gbps: float = 0.0) -> Share | None:
    """The share for a measurement on links of this speed; None where nothing is known of them."""
    fitting = (row for row in shares() if row.operation == operation)
    return next((row for row in fitting if row.up_to_gbps is None or gbps <= row.up_to_gbps), None)
