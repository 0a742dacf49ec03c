"""Does one of several like GPUs work less than the others under like load?"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from statistics import median

from nodedoctor.declare.peers import Attribute, Outlier, odd_ones
from nodedoctor.declare.registry import check
from nodedoctor.facts.gpu.evidence import identity_evidence, slow_call, values
from nodedoctor.facts.gpu.gpu import Gpu
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.knowledge.fixes.gpu import look_at
from nodedoctor.model import Finding
from nodedoctor.steps import look
from nodedoctor.wording import count_with_noun

from ..unavailable import none_shown

BUSY_PERCENT = 95
"""Utilisation from which GPUs count as fully loaded, so that their power and clocks may be compared."""
LIKE_MEMORY = 0.25
"""Loads count as alike when the memory in use is within this fraction of the median of all."""
LIKE_POWER = 0.15
"""Loads count as alike when the power of all but one is within this fraction of their median."""
HALF_POWER = 0.5
"""Share of the median power that a GPU with the same work as its peers must not be below."""
DEEP_PSTATE = 5
"""P5 and higher are clocks of an idle GPU (nvidia-smi(1): P0 is maximum performance, P12 minimum)."""
SLOW_CALL_SECONDS = 2.0
"""NVML answers within milliseconds; a driver that is about to hang on one GPU is slow there first."""


_COMPARED = (("pstate", "in an idle P-state"), ("power_draw_w", "below half of the others' power"))
"""What is compared under load, and what none of the GPUs is then."""


@check("gpu.levels", "GPU power and P-state under load", tags={"fast", "gpu"}, stage="preview")
def levels(gpus: Gpus) -> Iterator[Finding]:
    """Power draw, P-state and NVML response time of fully loaded GPUs, against their peers.

    Only GPUs of one model at full utilisation and with about the same memory in use are compared.
    Why: a busy GPU at idle clocks halves the speed of the whole job and reports no error.
    Fix disturbs: nothing.
    Judges: WARN when a fully loaded GPU draws less than half of its peers' power or stays in an idle state,
    or answers much later.
    Fix: Compare its clocks and throttle reasons with its neighbours', then reset it.
    Threshold: P5 and above are idle clocks (nvidia-smi(1)); half of the peers' power and 2 s are our
    thresholds.
    False positives: GPUs with unequal work; only equal utilisation and memory use are compared.
    """
    if not gpus.gpus:
        yield none_shown(gpus)
        return
    findings = list(_slow_to_answer(gpus))
    groups = list(_under_like_load(gpus.gpus))
    for group in groups:
        findings += _judge_slow(group, gpus.source)
    yield from findings
    if findings:
        return
    loaded = [gpu for group in groups for gpu in group]
    compared = [words for field, words in _COMPARED if any(getattr(gpu, field) is not None for gpu in loaded)]
    if not loaded:
        yield Finding.skip("fewer than 3 GPUs of a kind under full load: nothing to compare")
    elif not compared:
        yield Finding.skip("neither P-state nor power of the loaded GPUs is reported")
    else:
        yield Finding.ok(f"{count_with_noun(len(loaded), 'GPU')} at full load, none {' or '.join(compared)}")


def _under_like_load(gpus: Sequence[Gpu]) -> Iterator[list[Gpu]]:
    """GPUs of one model that are all fully used, with about the same memory in use."""
    kinds: dict[str | None, list[Gpu]] = {}
    for gpu in gpus:
        if (gpu.gpu_utilization_percent or 0) >= BUSY_PERCENT and gpu.name and not gpu.mig_mode:
            kinds.setdefault(gpu.name, []).append(gpu)
    for like in kinds.values():
        used = [gpu.memory_used_mib for gpu in like if gpu.memory_used_mib]
        middle = median(used) if used else 0
        same = [gpu for gpu in like if abs((gpu.memory_used_mib or 0) - middle) <= LIKE_MEMORY * middle]
        if len(same) > 2:
            yield same


def _judge_slow(group: Sequence[Gpu], source: str) -> Iterator[Finding]:
    """A GPU in a state of rest, or at less than half the power of peers that all draw the same."""
    states: tuple[Attribute[Gpu], ...] = (
        Attribute("performance state", "level", lambda gpu: gpu.pstate, "high", 0.0, DEEP_PSTATE),
    )
    power: tuple[Attribute[Gpu], ...] = (
        Attribute("power", "level", lambda gpu: gpu.power_draw_w, "low", HALF_POWER),
    )
    resting = {diff.device.index: diff for diff in odd_ones(group, states)}
    for diff in resting.values():
        summary = (
            f"P{diff.value:g} at full utilisation, {count_with_noun(diff.peers, 'other')} at P{diff.usual:g}"
        )
        yield _level_finding(diff, summary, source)
    for diff in odd_ones(group, power):
        draws = [g.power_draw_w for g in group if g.power_draw_w is not None and g is not diff.device]
        steady = all(abs(draw - median(draws)) <= LIKE_POWER * median(draws) for draw in draws)
        if steady and diff.device.index not in resting:
            summary = (
                f"draws {diff.value:.0f} W at full utilisation, "
                f"{count_with_noun(diff.peers, 'other')} {diff.usual:.0f} W"
            )
            yield _level_finding(diff, summary, source)


def _level_finding(diff: Outlier[Gpu], summary: str, source: str) -> Finding:
    gpu = diff.device
    evidence = values(source, gpu, "pstate", "gpu_utilization_percent", "power_draw_w", "clock_sm_mhz")
    text = (
        "See whether its rank waits for something (`nodedoctor triage`); if the rank computes as the others"
        " do, the GPU is slow: reset it, and have it replaced if it stays so."
    )
    steps = (look("nvidia-smi -q -d PERFORMANCE,CLOCK,POWER -i {}", gpu.selector),)
    return Finding.warn(
        summary,
        subject=gpu.subject,
        evidence=[*evidence, *identity_evidence(source, gpu)],
        fix=look_at(gpu, text, "gpu.levels", steps),
    )


def _slow_to_answer(gpus: Gpus) -> Iterator[Finding]:
    """One GPU whose calls take seconds while the others answer at once."""
    slow = [call for call in gpus.slow_calls if call.index is not None and call.seconds >= SLOW_CALL_SECONDS]
    by_gpu = Counter(call.index for call in slow)
    if not by_gpu or len(by_gpu) * 2 >= len(gpus.gpus) or len(gpus.gpus) < 3:
        return
    for index in by_gpu:
        worst = max((call for call in slow if call.index == index), key=lambda call: call.seconds)
        gpu = gpus.get(index)
        summary = f"{worst.call} took {worst.seconds:.1f} s, no delay on the other GPUs"
        evidence = [slow_call(gpus.source, worst)]
        steps = (look("sudo dmesg | grep -iE 'xid|nvrm'"), look("nvidia-smi -q -i {}", index))
        text = "Check the kernel log for its Xids; a reset often helps."
        fix = look_at(gpu, text, "gpu.levels kernel.xid", steps)
        yield Finding.warn(summary, subject=f"gpu:{index}", evidence=evidence, fix=fix)
