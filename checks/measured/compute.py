"""Do GPUs compute as fast as their peers, and the same bits?"""

from collections import Counter
from collections.abc import Iterator
from statistics import median

from nodedoctor.engine.registry import check
from nodedoctor.facts.measured.gemm import Gemm
from nodedoctor.knowledge.fixes.bandwidth import SLOW, WRONG
from nodedoctor.model import Evidence, Finding

LOW = 0.9
"""Of the median of the peers; ours: well beyond the 1 to 2 % that the temperature of the day changes (Meta's
Llama 3 report, arXiv 2407.21783 section 3.3.4), with room for the spread between healthy GPUs."""


@check(
    "compute.gemm",
    "GPUs multiply matrices equally fast and to the same bits",
    tags={"gpu", "deep"},
    explained_by=("memory.ecc", "thermal.throttle", "clock.limits", "power.limit"),
    stage="preview",
)
def gemm(gemm: Gemm) -> Iterator[Finding]:
    """bfloat16 matrices in the target's torch: TFLOP/s against the other GPUs, bits against them and repeats.

    Why: silent corruption raises no error; it shows as a loss that diverges weeks later.
    Fix disturbs: every job on the node while it is out of service.
    Judges: FAIL when a multiplication raises an error or gives other bits than its repeats or peers, or is
    far slower; WARN when one GPU is below 0.9 of its peers.
    Fix: Take the node out of service, run DCGM's diagnostic, and return the GPU that computes differently.
    Threshold: 0.9 of the median is our threshold: temperature alone changes 1 to 2 % (arXiv 2407.21783,
    section 3.3.4).
    False positives: Different models or libraries in one node give different bits; only like GPUs are
    compared.
    """
    good = [gpu for gpu in gemm.gpus if not gpu.error and gpu.tflops]
    usual = median(gpu.tflops or 0.0 for gpu in good) if good else 0.0
    agreed = {
        name: Counter(g.sums for g in good if g.name == name).most_common(1)[0][0] for name in _names(gemm)
    }
    said = [
        Evidence("gemm", f"GPU {g.index}: {g.tflops} TFLOP/s, sums {g.sums or g.error}") for g in gemm.gpus
    ]
    troubles = 0
    for gpu in gemm.gpus:
        subject, mine = f"gpu:{gpu.index}", [said[gemm.gpus.index(gpu)]]
        if gpu.error:
            finding = Finding.fail(
                f"multiplying failed: {gpu.error}", subject=subject, evidence=mine, fix=SLOW
            )
        elif len(gpu.sums) > 1:
            summary = "the same product differs from one repeat to the next"
            finding = Finding.fail(summary, subject=subject, evidence=mine, fix=WRONG)
        elif gpu.sums != agreed.get(gpu.name, gpu.sums):
            summary = "its product differs from that of equal GPUs"
            finding = Finding.fail(summary, subject=subject, evidence=said, fix=WRONG)
        elif (gpu.tflops or 0.0) < LOW * usual:
            summary = f"{gpu.tflops:.0f} TFLOP/s where its peers reach {usual:.0f}"
            finding = Finding.warn(summary, subject=subject, evidence=mine, fix=SLOW)
        else:
            continue
        troubles += 1
        yield finding
    if not troubles:
        yield Finding.ok(f"about {usual:.0f} TFLOP/s on {len(good)} GPUs, equal bits", evidence=said)


def _names(gemm: Gemm) -> set[str]:
    return {gpu.name for gpu in gemm.gpus if not gpu.error and gpu.tflops}
