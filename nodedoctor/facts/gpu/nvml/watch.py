"""Reads the lines of `probes/gpu/nvml.py --watch`: what GPUs do now, and how much passes their links."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodedoctor.facts.gpu.gpu import Gpu, InitError, LostGpu
from nodedoctor.facts.gpu.nvml.gpu import gpu_of
from nodedoctor.facts.gpu.nvml.raw import Raw, index_of
from nodedoctor.facts.gpu.nvml.reading import init_error_of, unopened
from nodedoctor.json_shapes import answer, as_list, int_of, mapping, number
from nodedoctor.record import field, record

# Counter, rate it gives, and what a MiB is in its unit.
_COUNTERS = {
    "nvlink_tx_kib": ("nvlink_tx_mib_s", 1024),
    "nvlink_rx_kib": ("nvlink_rx_mib_s", 1024),
    "pcie_tx_bytes": ("pcie_tx_mib_s", 2**20),
    "pcie_rx_bytes": ("pcie_rx_mib_s", 2**20),
}
# GPUs without PCIe counters have a sampled rate in KB/s instead.
_RATES = {"pcie_tx_kb_s": "pcie_tx_mib_s", "pcie_rx_kb_s": "pcie_rx_mib_s"}


@record
class GpuLoad:
    """What one GPU does: of `gpu` only what changes quickly is filled. Rates are None in the first sample.

    They are of all NVLinks together; `counters` is what they are computed from, up to now.
    """

    gpu: Gpu
    nvlink_tx_mib_s: float | None = None
    nvlink_rx_mib_s: float | None = None
    pcie_tx_mib_s: float | None = None
    pcie_rx_mib_s: float | None = None
    counters: Mapping[str, int] = field(default_factory=dict)


@record
class LoadSample:
    """One line: all GPUs at one moment of the monotonic clock.

    A line may instead say that the library did not start, or name the call that does not return.
    """

    time_seconds: float | None = None
    loads: tuple[GpuLoad, ...] = ()
    lost: tuple[LostGpu, ...] = ()
    init_error: InitError | None = None
    waiting: str = ""


def sample_of(line: str, before: LoadSample | None = None) -> LoadSample | None:
    """Read a line; the sample before it makes rates of counters. None for a line that is none."""
    try:
        sample = mapping(answer(line))
    except ValueError:
        return None
    if waiting := mapping(sample.get("waiting")).get("waiting"):
        return LoadSample(waiting=str(waiting))
    if error := init_error_of(mapping(sample.get("init"))):
        return LoadSample(init_error=error)
    now = number(sample.get("time_seconds"))
    if now is None:
        return None
    passed = now - before.time_seconds if before and before.time_seconds is not None else 0.0
    earlier = {load.gpu.index: load.counters for load in before.loads} if before else {}
    entries = {
        index_of(entry): Raw.of(entry) for entry in as_list(sample.get("gpus")) if "values" in mapping(entry)
    }
    loads = (
        _read_load(i, entry, earlier.get(i, {}), passed) for i, entry in entries.items() if i is not None
    )
    return LoadSample(now, tuple(loads), tuple(unopened(sample)))


def _read_load(index: int, raw: Raw, earlier: Mapping[str, int], passed: float) -> GpuLoad:
    readings = {name: raw.read(name, int_of)[0] for name in _COUNTERS}
    counters = {name: count for name, count in readings.items() if count is not None}
    rates: dict[str, Any] = {}
    for name, rate in _RATES.items():
        sampled = raw.read(name, int_of)[0]
        rates[rate] = None if sampled is None else sampled / 1024
    for name, (rate, unit) in _COUNTERS.items():
        growth = counters[name] - earlier[name] if name in counters and name in earlier else -1
        if passed > 0 and growth >= 0:  # counters wrap and are reset
            rates[rate] = growth / unit / passed
    return GpuLoad(gpu_of(index, raw, None, {}), counters=counters, **rates)
