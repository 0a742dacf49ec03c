"""Does the driver list as many GPUs as the bus has, where both were pasted?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.gpu.gpu_list import LIST, ListedGpus
from nodedoctor.knowledge.nvml_errors import OFF_THE_BUS
from nodedoctor.model import Finding, quoted_like
from nodedoctor.wording import count_with_noun


@check("driver.list-complete", "GPU list of the driver", tags={"gpu"}, stage="preview")
def list_complete(gpu_list: ListedGpus) -> Iterator[Finding]:
    """The lines of a pasted `nvidia-smi -L` against the GPUs of that kind in a pasted `lspci`.

    Why: a GPU that the driver lost is in no list of it; a job that requests all GPUs never starts.
    Fix disturbs: every job on the node (power cycle).
    Judges: FAIL when the list is shorter than the bus and no part of it that a job is given.
    Fix: Power cycle the node; if the GPU stays away, request a replacement.
    Threshold: No threshold.
    False positives: GPUs kept for virtual machines. Halves, quarters and single GPUs are mostly a job's
    share, and a list at the end of a paste may be cut off: both are not judged.
    """
    on_bus = len(gpu_list.addresses)
    short = re.escape(gpu_list.addresses[-1].removeprefix("0000:"))
    evidence = [quoted_like(LIST, rf"GPU {gpu_list.count - 1}: .*"), quoted_like("lspci", rf"{short} .*")]
    if gpu_list.count >= on_bus:
        yield Finding.ok(f"nvidia-smi -L lists {count_with_noun(gpu_list.count, 'GPU')}, lspci {on_bus}")
        return
    summary = f"the driver lists {gpu_list.count} GPUs, {on_bus} are on the PCI bus"
    if not gpu_list.complete:
        summary = f"{summary}; the list may be cut off"
        yield Finding.unknown("not-visible-here", summary, evidence=evidence)
    elif on_bus % gpu_list.count == 0:
        summary = f"{summary}: a job's share, or some are lost"
        yield Finding.unknown("not-visible-here", summary, evidence=evidence)
    else:
        missing = on_bus - gpu_list.count
        text = f"{summary}: {count_with_noun(missing, 'is', 'are')} missing"
        yield Finding.fail(text, evidence=evidence, fix=OFF_THE_BUS)
