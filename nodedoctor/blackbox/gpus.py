"""How busy the GPU of each process is while its job hangs: one question to NVML, by a child."""

from __future__ import annotations

import os

from nodedoctor.children import child_process
from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command

DEADLINE = 8.0
"""Seconds for the driver; one that has lost a GPU may never answer."""


async def percents() -> dict[int, int]:
    """Utilisation by pid; empty without a driver, or when it does not answer in time."""
    if not os.path.exists("/dev/nvidiactl"):
        return {}
    from nodedoctor.facts.gpu.nvml.nvml import NvmlReading

    seen = await child_process.run("nvml", Command(child("gpu/nvml", packages=True)), DEADLINE)
    told = NvmlReading.parse(seen)
    return {
        user.pid: gpu.gpu_utilization_percent
        for gpu in (told.gpus.gpus if isinstance(told, NvmlReading) else ())
        for user in gpu.processes or ()
        if gpu.gpu_utilization_percent is not None
    }
