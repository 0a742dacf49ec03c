"""Do GPUs compute as fast as their peers, and the same bits?"""

from collections import Counter
from collections.abc import Iterator
from statistics import median

from nodedoctor.declare.registry import check
from nodedoctor.facts.measured.gemm import GEMM, Gemm, GpuGemm
from nodedoctor.grouping import group_by
from nodedoctor.knowledge.fixes.bandwidth import SLOW, WRONG
from nodedoctor.knowledge.floors import BELOW_PEERS, fitting_floors
from nodedoctor.knowledge.gpus import gpu_model
from nodedoctor.model import Evidence, Finding, reading
from nodedoctor.wording import count_with_noun


@check(
    "compute.gemm",
    "GEMM throughput and results",
    tags={"gpu", "deep"},
    explained_by=("memory.ecc", "thermal.throttle", "clock.limits", "power.limit"),
)
def gemm(gemm: Gemm) -> Iterator[Finding]:
    """bfloat16 GEMM in the target's torch: TFLOP/s and result bits against the other GPUs and repeats.

    Why: silent data corruption raises no error; the loss diverges weeks later.
    Fix disturbs: every job on the node while it is drained.
    Judges: FAIL when a multiplication raises an error or gives other bits than its repeats or peers, or is
    far slower; WARN when a GPU is below 0.9 of its peers, or below 0.85 of the best that was published of
    its model.
    Fix: Take the node out of service, run DCGM's diagnostic, and return the GPU that computes differently.
    Threshold: 0.9 of the median is our threshold: temperature alone changes 1 to 2 % (arXiv 2407.21783,
    section 3.3.4). What was published of a model is a row of the table of floors (stas00/ml-engineering).
    False positives: Different models or libraries in one node give different bits; only like GPUs are
    compared.
    """
    good = [gpu for gpu in gemm.gpus if not gpu.error and gpu.tflops]
    usual = median(gpu.tflops or 0.0 for gpu in good) if good else 0.0
    kinds = group_by(good, lambda gpu: gpu.name)
    agreed = {name: Counter(g.sums for g in like).most_common(1)[0][0] for name, like in kinds.items()}
    evidence = [quote for gpu in gemm.gpus for quote in _compute_evidence(gpu)]
    troubles = 0
    for gpu in gemm.gpus:
        subject, mine = f"gpu:{gpu.index}", _compute_evidence(gpu)
        if gpu.error:
            finding = Finding.fail(f"GEMM failed: {gpu.error}", subject=subject, evidence=mine, fix=SLOW)
        elif len(gpu.sums) > 1:
            summary = "GEMM result differs between repeats (silent data corruption)"
            finding = Finding.fail(summary, subject=subject, evidence=mine, fix=WRONG)
        elif gpu.sums != agreed.get(gpu.name, gpu.sums):
            summary = "GEMM result differs from GPUs of the same model (silent data corruption)"
            finding = Finding.fail(summary, subject=subject, evidence=evidence, fix=WRONG)
        elif (gpu.tflops or 0.0) < BELOW_PEERS * usual:
            summary = f"{gpu.tflops:.0f} TFLOP/s, its peers {usual:.0f}"
            finding = Finding.warn(summary, subject=subject, evidence=mine, fix=SLOW)
        elif (gpu.tflops or 0.0) < (least := _least_tflops(gpu)):
            summary = f"{gpu.tflops:.0f} TFLOP/s, at least {least:.0f} expected of this model"
            finding = Finding.warn(summary, subject=subject, evidence=mine, fix=SLOW)
        else:
            continue
        troubles += 1
        yield finding
    if not troubles:
        yield Finding.ok(
            f"about {usual:.0f} TFLOP/s on {count_with_noun(len(good), 'GPU')}, identical results",
            evidence=evidence,
        )


def _compute_evidence(gpu: GpuGemm) -> list[Evidence]:
    """What was measured on one GPU, or its error."""
    names = ("error",) if gpu.error else ("tflops", "sums")
    return [reading(GEMM, f"gpus[index={gpu.index}].{name}") for name in names]


def _least_tflops(gpu: GpuGemm) -> float:
    """What a GPU of this model must reach; 0 where none was published."""
    model = gpu_model(gpu.name)
    gates = fitting_floors("gemm-bf16", model.name) if model else []
    return max((gate.least for gate in gates), default=0.0)
