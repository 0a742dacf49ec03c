"""Which GPUs are not in use: load is put on those alone."""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.facts.gpu.gpu import Gpu
from nodedoctor.facts.gpu.nvml.nvml import NvmlReading
from nodedoctor.facts.host.processes import Process, Processes
from nodedoctor.model import Observation, Outcome, Unseen
from nodedoctor.record import record

OWN_MIB = 100
"""Used on an idle GPU beside what the driver reserves; ours, between the next to nothing of an idle one (the
limit of facebookresearch/gcm, check_nvidia_smi.py, is 15 MiB) and a bare CUDA context, 200 MiB and more."""
OWN_RESERVED_MIB = 900
"""The same where the driver is too old to tell what it reserves and counts it as used; ours: it reserves 500
to 700 MiB on Hopper. A lone CUDA context can hide below it, so processes and load are asked as well."""
UNSEEN = "whether GPUs are idle is not known"
_SEE_DRIVER = "Make the driver answer first: `nodedoctor driver` says what keeps it from that."
SERVICES = frozenset({"persistenced", "fabricmanager", "dcgm"})


@record
class Idle:
    """GPUs free to be measured, why the others are not, and `why_none` when there is nothing to measure."""

    gpus: tuple[Gpu, ...] = ()
    busy: tuple[tuple[int, str], ...] = ()
    why_none: str = ""

    @property
    def uuids(self) -> str:
        """For CUDA_VISIBLE_DEVICES, so that no other GPU is even opened; empty when one has no name."""
        uuids = [gpu.uuid for gpu in self.gpus]
        return ",".join(uuid for uuid in uuids if uuid) if all(uuids) else ""


def idle(nvml: Observation, processes: Observation) -> Idle:
    """Read it off the observations of the probes `nvml` and `processes`."""
    if nvml.outcome is Outcome.SKIPPED:  # there is nothing of NVIDIA's to ask
        return Idle(why_none=f"no GPU can be used: {nvml.note}")
    reading, running = NvmlReading.parse(nvml), Processes.parse(processes)
    if isinstance(reading, Unseen):
        return Idle(why_none=f"{UNSEEN}: {reading.note}")
    if not reading.gpus.gpus:
        error = reading.gpus.init_error
        return Idle(why_none=f"{UNSEEN}: {f'NVML says {error.name}' if error else 'NVML lists none'}")
    users = running.holding_gpus if isinstance(running, Processes) else ()
    whys = [(gpu, next(_load_obstacles(gpu, users), "")) for gpu in reading.gpus.gpus]
    free = tuple(gpu for gpu, why in whys if not why and gpu.bus_id)
    busy = tuple((gpu.index, why) for gpu, why in whys if why)
    reasons = "; ".join(f"GPU {index}: {why}" for index, why in busy)
    return Idle(free, busy, "" if free else f"no GPU is idle: {reasons}")


def not_run(observation: Observation) -> Unseen:
    """Why a probe that puts load on GPUs was not run: nothing to judge, or nothing that could be judged."""
    if UNSEEN in observation.note:
        return Unseen("not-visible-here", f"not run: {observation.note}", _SEE_DRIVER, observation.probe)
    return Unseen.skip(f"not run: {observation.note or 'not recorded'}")


def _load_obstacles(gpu: Gpu, users: tuple[Process, ...]) -> Iterator[str]:
    """What speaks against putting load on a GPU, the most telling first."""
    labels = {process.pid: process.label for process in users}
    for process in gpu.processes or ():
        if process.kind != "graphics":
            who = labels.get(process.pid) or f"{process.name or 'a process'} (pid {process.pid})"
            yield f"used by {who}"
    for user in users:
        if f"/dev/nvidia{gpu.minor}" in user.nvidia and user.role not in SERVICES and user.role:
            yield f"used by {user.label}"
    if gpu.mig_mode:
        yield "divided into MIG instances"
    own = OWN_MIB if gpu.memory_reserved_mib is not None else OWN_RESERVED_MIB
    if (gpu.memory_used_mib or 0) > own:
        yield f"{gpu.memory_used_mib} MiB of its memory are used by a process that is not shown"
    if gpu.gpu_utilization_percent:
        yield f"{gpu.gpu_utilization_percent}% utilised"
