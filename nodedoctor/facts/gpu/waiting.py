"""What a GPU looks like whose kernel only waits for others: busy, at low power, and nothing passes its links.

NCCL's kernels ask for the data of other ranks again and again: to the driver they are at work all the time.
"""

from __future__ import annotations

BUSY, IDLE = 95, 10
"""Per cent of the time with a kernel on it: from which a GPU waits or works (scitix/sichek, hang detection),
and up to which it is idle (ours)."""
POLLING = 0.36
"""Of the power limit, at most: an H100 in an NCCL wait draws 120 to 250 of 700 W, in training 500 and more
(ours); sichek calls up to 160 of these, and up to 100 of an A100's 400 W, a hang."""
TRAFFIC = 300.0
"""MB/s through PCIe, and as much through NVLink, below which nothing passes (scitix/sichek)."""


def draws_little(power_w: float | None, limit_w: float | None) -> bool:
    """True for a GPU that draws too little to be calculating."""
    return power_w is not None and limit_w is not None and power_w <= POLLING * limit_w


def only_waits(
    percent: float | None,
    power_w: float | None,
    limit_w: float | None,
    pcie_mb_s: float | None,
    nvlink_mb_s: float | None,
) -> bool:
    """True where all of this was read and says so; a GPU without NVLinks has no rate of them."""
    busy = percent is not None and percent >= BUSY
    quiet = pcie_mb_s is not None and max(pcie_mb_s, nvlink_mb_s or 0.0) < TRAFFIC
    return busy and quiet and draws_little(power_w, limit_w)
