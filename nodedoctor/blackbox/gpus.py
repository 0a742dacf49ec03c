"""What the GPU of each process does, over some seconds: asked of NVML by a child, once a second."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Iterable, Sequence
from statistics import median
from typing import TYPE_CHECKING, cast

from nodedoctor.children import child_process
from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command
from nodedoctor.grouping import group_pairs
from nodedoctor.triage.live.gpu_use import GpuUse

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from nodedoctor.facts.gpu.nvml.watch import GpuLoad

DEADLINE = 8.0
"""Seconds for the driver beside those asked for; one that has lost a GPU may never answer."""
EVERY = 1.0
"""Seconds between two samples: the driver counts for how long there was a kernel in about as much."""
MIB_TO_MB = 2**20 / 1e6


async def uses(seconds: float) -> dict[int, GpuUse]:
    """What GPUs do by the pid of who uses them; empty without a driver, or when it does not answer in time.

    A process with several GPUs is left out: which of them it uses at the moment is not known.
    """
    return await ask(seconds) if os.path.exists("/dev/nvidiactl") else {}


async def ask(seconds: float) -> dict[int, GpuUse]:
    """The same where there is a driver."""
    samples: list[Sequence[GpuLoad]] = []
    with contextlib.suppress(asyncio.TimeoutError, OSError):
        await asyncio.wait_for(
            _collect_samples(samples, 1 + max(1, round(seconds / EVERY))), seconds + DEADLINE
        )
    return by_process(samples)


async def _collect_samples(samples: list[Sequence[GpuLoad]], count: int) -> None:
    from nodedoctor.facts.gpu.nvml.watch import LoadSample, sample_of

    before: LoadSample | None = None
    argv = child("gpu/nvml", "--watch", str(EVERY), packages=True)
    child_lines = cast("AsyncGenerator[str, None]", child_process.follow(Command(argv)))
    async with contextlib.aclosing(child_lines) as lines:
        async for line in lines:
            sample = sample_of(line, before)
            if sample is not None and sample.time_seconds is not None:
                before = sample
                samples.append(sample.loads)
            if len(samples) >= count or (sample is not None and sample.init_error is not None):
                return


def by_process(samples: Iterable[Sequence[GpuLoad]]) -> dict[int, GpuUse]:
    """The samples as one use of each GPU, by the pid of who uses it."""
    by_gpu = group_pairs((load.gpu.index, load) for loads in samples for load in loads)
    indices_by_pid: dict[int, set[int]] = {}
    for index, loads in by_gpu.items():
        for process in loads[-1].gpu.processes or ():
            indices_by_pid.setdefault(process.pid, set()).add(index)
    single_gpu = {pid: min(indices) for pid, indices in indices_by_pid.items() if len(indices) == 1}
    return {pid: _gpu_use(index, by_gpu[index]) for pid, index in single_gpu.items()}


def _gpu_use(index: int, loads: Sequence[GpuLoad]) -> GpuUse:
    gpus = [load.gpu for load in loads]
    slowed = [set(gpu.clock_event_reasons or ()) - {"gpu_idle"} for gpu in gpus]
    return GpuUse(
        index,
        _median_value(gpu.gpu_utilization_percent for gpu in gpus),
        _median_value(gpu.power_draw_w for gpu in gpus),
        _median_value(gpu.power_limit_w for gpu in gpus),
        _median_value(gpu.clock_sm_mhz for gpu in gpus),
        _median_rate((load.pcie_tx_mib_s, load.pcie_rx_mib_s) for load in loads),
        _median_rate((load.nvlink_tx_mib_s, load.nvlink_rx_mib_s) for load in loads),
        tuple(sorted(set.intersection(*slowed))),
    )


def _median_value(values: Iterable[float | None]) -> float | None:
    read_values = [value for value in values if value is not None]
    return median(read_values) if read_values else None


def _median_rate(rates: Iterable[tuple[float | None, float | None]]) -> float | None:
    """MB/s in both directions together; the first sample of a counter has none."""
    return _median_value(
        None if sent is None or received is None else MIB_TO_MB * (sent + received)
        for sent, received in rates
    )
