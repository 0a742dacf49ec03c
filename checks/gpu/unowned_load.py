"""Is a GPU busy although no process uses it?"""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.gpu.evidence import growth_evidence
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.gpu.links.error_growth import ErrorGrowth
from nodedoctor.facts.host.container import Container
from nodedoctor.knowledge.fixes.gpu import reset_gpu
from nodedoctor.model import Finding

from ..unavailable import all_of, none_shown, not_reported

_FOR_GUESTS = ("host-vgpu", "host-vsga")


@check("gpu.unowned-load", "Load without a process", tags={"gpu"}, stage="preview")
def unowned_load(gpus: Gpus, growth: ErrorGrowth, container: Container) -> Iterator[Finding]:
    """The load of each GPU and the number of processes that use it, read twice one second apart.

    One look is not enough: without persistence the driver itself loads the GPU while it starts.
    Why: a kernel that never ends, of a process that has ended, slows every job that gets this GPU.
    Fix disturbs: processes on the GPU while it is reset.
    Judges: WARN when both reads show a GPU at full load and no process that uses it.
    Fix: Look for the process; if there is none, reset the GPU.
    Threshold: 95 % of the time in both reads; chosen by us.
    False positives: In containers, on vGPU hosts and with MIG processes are not listed: left out.
    """
    if container.inside:
        yield Finding.skip("processes of other containers are not listed here")
    elif not gpus.gpus:
        yield none_shown(gpus)
    else:
        plain = [gpu for gpu in gpus.gpus if not gpu.mig_mode and gpu.virtualization_mode not in _FOR_GUESTS]
        reads = [(gpu, now) for gpu in plain if (now := growth.gpu(gpu.index)) is not None]
        readable = [gpu for gpu, now in reads if now.busy_without_users is not None]
        alone = [gpu for gpu, now in reads if now.busy_without_users]
        for gpu in alone:
            evidence = [*growth_evidence(gpu.index, "utilization.gpu"), *growth_evidence(gpu.index, "users")]
            text = "Look again: no process uses this GPU, and it is at full load."
            fix = reset_gpu(gpu, text, "gpu.unowned-load")
            summary = "at full load, and no process uses it"
            yield Finding.warn(summary, subject=gpu.subject, evidence=evidence, fix=fix)
        if not plain:
            yield Finding.skip("MIG or virtual GPUs: their load is not reported")
        elif not readable and any(gpu.gpu_utilization_percent is not None for gpu in plain):
            yield Finding.skip("the load of the GPUs was read only once")
        elif not readable:
            yield not_reported("load", plain, "gpu_utilization_percent")
        elif not alone:
            yield Finding.ok(f"no load without a process on {all_of(readable)}")
