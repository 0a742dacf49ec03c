"""What the GPU of a rank does while its job runs, and by what it differs from those of the other ranks."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from nodedoctor.facts.gpu import waiting
from nodedoctor.record import record

FEWEST_PEERS = 2
"""Other GPUs, at least: one alone does not show what GPUs of this job usually differ by."""
BEYOND = 2.0
"""Times the range of its peers that a GPU must be outside of it."""
LEAST = 0.1
"""Of the peers' value, which it must differ by at least. Below a power cap GPUs differ by some per cent."""


@record
class GpuUse:
    """What one GPU does, as the median of a few seconds; rates are MB/s in both directions together.

    None is what was not said. `slowed` are the reasons for low clocks, as the driver names them.
    """

    index: int | None = None
    percent: float | None = None
    power_w: float | None = None
    limit_w: float | None = None
    clock_mhz: float | None = None
    pcie_mb_s: float | None = None
    nvlink_mb_s: float | None = None
    slowed: tuple[str, ...] = ()

    @property
    def only_waits(self) -> bool:
        """True while its kernel waits for other GPUs."""
        return waiting.only_waits(self.percent, self.power_w, self.limit_w, self.pcie_mb_s, self.nvlink_mb_s)

    @property
    def is_idle(self) -> bool:
        """True while there is hardly a kernel on it."""
        return self.percent is not None and self.percent <= waiting.IDLE

    @property
    def words(self) -> str:
        """Its load as the end of a sentence."""
        power = ""
        if self.power_w is not None and self.limit_w is not None:
            power = f" at {self.power_w:.0f} of {self.limit_w:.0f} W"
        name = "GPU" if self.index is None else f"GPU {self.index}"
        return f"{name} {self.percent:.0f} % busy{power}" if self.percent is not None else name


SHOWN = (
    ("clock_mhz", "runs at {:.0f} MHz", "at {:.0f} MHz"),
    ("percent", "is {:.0f} % busy", "{:.0f} %"),
    ("power_w", "draws {:.0f} W", "{:.0f} W"),
    ("pcie_mb_s", "moves {:.0f} MB/s through PCIe", "{:.0f} MB/s"),
    ("nvlink_mb_s", "moves {:.0f} MB/s through NVLink", "{:.0f} MB/s"),
)
"""What GPUs are compared by, the likeliest reason to be late first, and how that is said."""


def compare(gpu: GpuUse | None, peers: Sequence[GpuUse | None]) -> str:
    """How a GPU differs from all of its peers, as `its GPU 4 runs at ...`; '' where it does not.

    Nothing is said of a value that one of the peers lacks: that one may be the one that differs.
    """
    if gpu is None or len(peers) < FEWEST_PEERS:
        return ""
    for name, own_phrase, peer_phrase in SHOWN:
        value: float | None = getattr(gpu, name)
        peer_values: list[float] = [
            getattr(peer, name) for peer in peers if getattr(peer, name, None) is not None
        ]
        if value is None or len(peer_values) < len(peers):
            continue
        usual, low, high = median(peer_values), min(peer_values), max(peer_values)
        beyond = low - value if name == "clock_mhz" else max(low - value, value - high)
        if beyond > max(BEYOND * (high - low), LEAST * usual):
            own = "its GPU" if gpu.index is None else f"its GPU {gpu.index}"
            reasons = _reasons(gpu, peers) if name == "clock_mhz" else ""
            return f"{own} {own_phrase.format(value)}, its peers {peer_phrase.format(usual)}{reasons}"
    return ""


def _reasons(gpu: GpuUse, peers: Sequence[GpuUse | None]) -> str:
    """Why the driver holds its clocks down, where it does not so for all."""
    common = {reason for peer in peers if peer is not None for reason in peer.slowed}
    own = [reason.replace("_", " ") for reason in gpu.slowed if reason not in common]
    return f" ({', '.join(own)})" if own else ""
