"""What matrices multiplied in the target's torch give: speed and bits of each GPU."""

from __future__ import annotations

from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command, Lane, Options, fact, probe, skipped
from nodedoctor.facts.gpu.idle import idle, not_run
from nodedoctor.facts.measured.bandwidth import PASSIVE
from nodedoctor.json_shapes import document, parts, text, whole_number
from nodedoctor.model import Observation, Outcome, Reason, Unseen
from nodedoctor.record import record

GEMM = "gemm"
_WAY_OUT = "Pass the training Python with --python PATH; it needs torch."
_NO_GPU = "See why its torch gets no GPU: nodedoctor stack driver container."


@probe(GEMM, timeout=120, lane=Lane.GPU_LOAD, after=("nvml", "processes", "target-python"))
def gemm(
    options: Options, nvml: Observation, processes: Observation, target: Observation
) -> Command | Observation:
    """Multiplies matrices on every GPU, when all are idle, in the training Python."""
    python, free = text(document(target) or {}, "executable"), idle(nvml, processes)
    busy = free.why_none or "; ".join(f"GPU {index}: {why}" for index, why in free.busy)
    if options.passive or busy or not python:
        why = PASSIVE if options.passive else busy
        return skipped(GEMM, why or "the training Python is not known")
    prefix = ["--", *options.exec_prefix] if options.exec_prefix else []
    env = {"CUDA_VISIBLE_DEVICES": free.uuids} if free.uuids else {}
    return Command(child("in_python", python, "measured/gemm", *prefix), env)


@record
class GpuGemm:
    """One GPU: `sums` holds one number per different result of the repeats."""

    index: int
    name: str = ""
    tflops: float | None = None
    sums: tuple[int, ...] = ()
    error: str = ""


@fact(GEMM)
@record
class Gemm:
    """Speed and bits of each GPU."""

    gpus: tuple[GpuGemm, ...]

    @classmethod
    def parse(cls, observation: Observation) -> Gemm | Unseen:
        """Read what probes/measured/gemm.py prints."""
        if observation.outcome in (Outcome.SKIPPED, Outcome.MISSING):
            return not_run(observation)
        answer = document(observation) or {}
        if text(answer, "error") == "no-gpu":
            return Unseen("not-visible-here", f"{GEMM}: {text(answer, 'text')}", _NO_GPU, GEMM)
        if text(answer, "error"):
            reason: Reason = "denied" if text(answer, "error") == "denied" else "missing-tool"
            return Unseen(reason, f"{GEMM}: {text(answer, 'text')}", _WAY_OUT, GEMM)
        rows = [(row, row.get("tflops"), row.get("sums")) for row in parts(answer, "gpus")]
        gpus = tuple(
            GpuGemm(
                whole_number(row, "index") or 0,
                text(row, "name"),
                float(speed) if isinstance(speed, (int, float)) else None,
                tuple(n for n in sums if isinstance(n, int)) if isinstance(sums, list) else (),
                text(row, "error"),
            )
            for row, speed, sums in rows
        )
        return cls(gpus) if gpus else Unseen.of(observation)
