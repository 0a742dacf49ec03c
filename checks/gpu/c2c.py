"""Are the links between a GPU and its Grace CPU (NVLink-C2C) active?"""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.gpu.board import GraceGpus
from nodedoctor.facts.gpu.evidence import identity_evidence, values
from nodedoctor.facts.gpu.gpu import Gpu
from nodedoctor.knowledge.fixes.gpu import replace_gpu
from nodedoctor.knowledge.gpus import gpu_model
from nodedoctor.model import Finding

from ..unavailable import all_of, none_shown, not_reported

_FIELDS = ("c2c_links", "c2c_active")


@check("gpu.c2c", "CPU links of Grace (C2C)", tags={"fast", "gpu"}, stage="preview")
def c2c(grace: GraceGpus) -> Iterator[Finding]:
    """NVML's count of C2C links of each GPU, and how many of them are active.

    Why: on GH200 and GB200 the GPU reaches the CPU's memory, and the CPU the GPU, over these links alone.
    Fix disturbs: every job on this node.
    Judges: WARN when a C2C link that NVML counts is inactive.
    Fix: Reboot once; if a link stays inactive, request a replacement.
    Threshold: nvml.h: NVML_FI_DEV_C2C_LINK_GET_STATUS, 0 is inactive; NCCL and UCX use active links only
    (NVIDIA/nccl, src/graph/xml.cc; openucx/ucx, src/uct/cuda).
    False positives: None known; error counters of these links are not judged: no limit is published.
    """
    gpus = grace.gpus
    if not gpus.gpus:
        yield none_shown(gpus)
        return
    linked = [gpu for gpu in gpus.gpus if gpu.c2c_links]
    readable = [gpu for gpu in linked if gpu.c2c_active is not None]
    down = [gpu for gpu in readable if (gpu.c2c_active or 0) < (gpu.c2c_links or 0)]
    for gpu in down:
        summary = f"{gpu.c2c_active} of {gpu.c2c_links} C2C links to the CPU active"
        text = "Reboot once; if a link stays inactive, request a replacement."
        evidence = [*values(gpus.source, gpu, *_FIELDS), *identity_evidence(gpus.source, gpu)]
        yield Finding.warn(
            summary, subject=gpu.subject, evidence=evidence, fix=replace_gpu(gpu, text, "gpu.c2c")
        )
    if len(readable) < len(linked):
        yield not_reported("the state of C2C links", linked, "c2c_active")
    elif linked and not down:
        evidence = values(gpus.source, readable[0], *_FIELDS)
        yield Finding.ok(f"C2C links of {all_of(readable)} active", evidence=evidence)
    elif not linked and any(map(_on_grace, gpus.gpus)):
        yield Finding.unknown("not-visible-here", "C2C links not reported")
    elif not linked:
        yield Finding.skip("no GPU here is joined to a Grace CPU")


def _on_grace(gpu: Gpu) -> bool:
    model = gpu_model(gpu.name or "", gpu.pci_device_id or "")
    return model is not None and model.form == "grace"
