"""Bytes of a collective and their time on each link: whether they explain a wait."""

from __future__ import annotations

from nodedoctor.record import record
from nodedoctor.triage.model import CollectiveCall
from nodedoctor.wording import decimal

BUSBW_GBPS: dict[str, float] = {
    "nvlink4": 370.0,  # H100 with NVSwitch, nccl-tests all_reduce_perf
    "nvlink3": 235.0,  # A100 with NVSwitch
    "ib_400g": 45.0,  # one NDR port per GPU, or P2P over PCIe 5
    "pcie4": 20.0,
    "ethernet_100g": 8.0,  # TCP sockets, also shared memory between GPUs without P2P
    "ethernet_10g": 1.1,
    "ethernet_1g": 0.117,
}
"""Bus bandwidth in GB/s as nccl-tests count it:
https://github.com/NVIDIA/nccl-tests/blob/master/doc/PERFORMANCE.md"""

_SIZES = {"bf16": 2, "fp32": 4}
_SLOWEST = 0.1
"""GB/s that even gigabit Ethernet brings: what fits into a tenth of the timeout at this rate is no reason."""
_NOTHING = 1 << 20
"""Bytes that any link moves in milliseconds."""


@record
class TransferTime:
    """A collective in bytes and seconds. `can_explain` is None when its size is not known."""

    bytes_by_dtype: dict[str, int]
    expected_seconds: dict[str, float]
    implied_ranks: int | None
    can_explain: bool | None
    sentence: str


def transfer_time(work: CollectiveCall) -> TransferTime:
    """What the sizes in the watchdog's line amount to."""
    numel = max(work.numel_in or 0, work.numel_out or 0)
    ranks = implied_ranks(work)
    if not numel:
        return TransferTime({}, {}, ranks, None, "")
    sizes = {dtype: numel * width for dtype, width in _SIZES.items()}
    factor = _ring_factor(work.op, ranks)
    times = {path: round(sizes["bf16"] * factor / (speed * 1e9), 6) for path, speed in BUSBW_GBPS.items()}
    timeout = (work.timeout_ms or 0) / 1000
    enough = sizes["fp32"] * factor / (_SLOWEST * 1e9) < timeout / 10 if timeout else None
    return TransferTime(
        sizes,
        times,
        ranks,
        None if enough is None else not enough,
        _describe_time(sizes, times, factor, timeout, enough),
    )


def implied_ranks(work: CollectiveCall) -> int | None:
    """Ranks of the group, from input and output sizes of an all-gather or reduce-scatter."""
    small, large = sorted((work.numel_in or 0, work.numel_out or 0))
    gathers = any(word in work.op.upper() for word in ("ALLGATHER", "REDUCE_SCATTER"))
    return large // small if gathers and small and large % small == 0 and large > small else None


def format_bytes(value: float) -> str:
    """Bytes as people write them: 1.09 GB."""
    for unit, size in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if value >= size:
            return f"{decimal(value / size, 3)} {unit}"
    return f"{value:.0f} bytes" if value >= 1 else "less than a byte"


def format_seconds(seconds: float) -> str:
    """Seconds as people write them: 2.6 ms."""
    if seconds < 1e-3:
        return f"{decimal(seconds * 1e6, 2)} µs" if seconds >= 1e-6 else "under a microsecond"
    return f"{decimal(seconds * 1e3, 2)} ms" if seconds < 0.1 else f"{decimal(seconds, 2)} s"


def _ring_factor(op: str, ranks: int | None) -> float:
    """Bytes over the slowest link per byte of the full buffer, for ring algorithms."""
    share = (ranks - 1) / ranks if ranks else 1.0
    return 2 * share if "ALLREDUCE" in op.upper() else share


def _describe_time(
    sizes: dict[str, int], times: dict[str, float], factor: float, timeout: float, enough: bool | None
) -> str:
    if enough is None:
        return ""
    volume = format_bytes(sizes["bf16"])
    if sizes["fp32"] < _NOTHING:
        return f"{volume} in bf16 are nothing for any link"
    fast, slow = format_seconds(times["nvlink4"]), format_seconds(times["ethernet_10g"])
    durations = f"{volume} in bf16 take {fast} over NVLink and {slow} over 10 GbE"
    if enough:
        rate = format_bytes(sizes["bf16"] * factor / timeout)
        return f"{durations}; to need {decimal(timeout)} s the link would have to run at {rate}/s"
    return f"{durations}: a slow link could explain the wait of {decimal(timeout)} s"
