"""Is GPU memory sound: ECC on and quiet, no row waiting to be remapped, no spare rows running out?"""

from collections.abc import Iterator, Sequence

from nodedoctor.declare.peers import Attribute, Outlier, odd_ones
from nodedoctor.declare.registry import check
from nodedoctor.facts.gpu.evidence import growth_evidence, identity_evidence, values
from nodedoctor.facts.gpu.gpu import Gpu
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.gpu.links.error_growth import ErrorGrowth
from nodedoctor.grouping import group_by
from nodedoctor.knowledge.fixes.gpu import ERROR_GUIDE, look_at, replace_gpu, reset_gpu
from nodedoctor.knowledge.fixes.recipes import gpu_reset
from nodedoctor.knowledge.gpus import gpu_model
from nodedoctor.knowledge.limits import limit
from nodedoctor.model import Evidence, Finding, Fix, Status, Step
from nodedoctor.steps import look, repair
from nodedoctor.wording import count_with_noun

from ..unavailable import NOT_KNOWN, all_of, none_shown, not_reported

SINGLE_BIT_PER_SECOND = 10
"""NVIDIA/DCGM:common/DcgmGPUHardwareLimits.h: rate of corrected errors DCGM's health watch reports."""
RETIRED_PAGES_MOST = 60
"""https://docs.nvidia.com/deploy/dynamic-page-retirement/: a board with 60 retired pages is returned
(the table holds 64); DCGM's hard limit is 63."""

_COUNTS = ("ecc_volatile_uncorrectable", "ecc_aggregate_uncorrectable")
_FLAGS = ("ecc_mode", "sram_threshold_exceeded", *_COUNTS)
_SRAM_LIMIT = limit("ecc_sram_uncorrected_rma")
_ROWS_LIMIT = limit("remapped_rows_max")
_CORRECTED = (("sram", limit("ecc_sram_corrected_warn")), ("dram", limit("ecc_dram_corrected_warn")))


@check("memory.ecc", "GPU memory errors (ECC)", tags={"fast", "gpu"}, explained_by=("memory.remap",))
def ecc(gpus: Gpus) -> Iterator[Finding]:
    """ECC mode, error counts by kind of memory, and NVIDIA's SRAM error threshold, for every GPU.

    Why: an uncorrected error kills the job that reads it; without ECC it changes results silently.
    Fix disturbs: processes on the GPU, during the reset.
    Judges: FAIL for uncorrected errors since driver load and for an exceeded SRAM threshold; WARN when ECC is
    off where it belongs or where like GPUs have it on, a repair is pending or corrected errors pile up.
    Fix: Reset the GPU; return it when the driver or NVIDIA's rule says so.
    Threshold: NVIDIA's A100 memory error management; 4 SRAM errors (stas00/ml-engineering); corrected counts
    from Azure and gcm.
    False positives: Consumer cards without ECC are skipped.
    Error texts:
    - CUDA error: uncorrectable ECC error encountered
    """
    if not gpus.gpus:
        yield none_shown(gpus)
        return
    readable = [gpu for gpu in gpus.gpus if any(getattr(gpu, name) is not None for name in _FLAGS)]
    findings = [finding for gpu in readable for finding in _judge_ecc(gpu, gpus.source)]
    findings += [_odd_without_ecc(outlier, gpus.source) for outlier in _odd_modes(readable)]
    yield from findings
    if not readable:
        yield not_reported("ECC", gpus.gpus, *_FLAGS)
    elif not any(finding.severity.is_problem for finding in findings):
        counting = [gpu for gpu in readable if gpu.ecc_mode or gpu.ecc_volatile_uncorrectable is not None]
        if counting:
            yield Finding.ok(f"no uncorrected errors since driver load on {all_of(counting)}")
        else:
            yield Finding.skip("no ECC or ECC off, as usual for these cards")


def _judge_ecc(gpu: Gpu, source: str) -> Iterator[Finding]:
    model = gpu_model(gpu.name or "", gpu.pci_device_id or "")
    if gpu.ecc_mode is False and model and model.ecc_expected:
        yield _ecc_off(gpu, source, f"ECC off on {model.name}")
    worn_out = [*_worn_out(gpu, source)]
    yield from worn_out
    if gpu.ecc_volatile_uncorrectable and not any(finding.status is Status.FAIL for finding in worn_out):
        summary = f"{_recent_errors(gpu)}, limit 0"
        only_sram = gpu.ecc_volatile_sram_uncorrectable and not gpu.ecc_volatile_dram_uncorrectable
        then = "SRAM has no spare rows: watch whether they come back" if only_sram else _REMAPPED
        fix = reset_gpu(gpu, f"The driver killed the program that hit the error; {then}.", "memory.ecc")
        yield Finding.fail(summary, subject=gpu.subject, evidence=_memory_evidence(gpu, source), fix=fix)
    yield from _repair_pending(gpu)
    yield from _judge_corrected(gpu, source)


_REMAPPED = "the row is remapped at the next reset"


def _recent_errors(gpu: Gpu) -> str:
    count = count_with_noun(gpu.ecc_volatile_uncorrectable or 0, "uncorrected memory error")
    return f"{count} since driver load{_error_places(gpu, 'volatile')}"


_ON_OFF = {True: "on", False: "off", None: None}
_MODE: Attribute[Gpu] = Attribute("ECC", "capability", lambda gpu: _ON_OFF[gpu.ecc_mode])


def _odd_modes(gpus: Sequence[Gpu]) -> Iterator[Outlier[Gpu]]:
    """The GPUs without ECC among like ones with it, where no table has the model: drivers shorten names."""
    for name, like in group_by(gpus, lambda gpu: gpu.name).items():
        if not any(gpu_model(name or "", gpu.pci_device_id or "") for gpu in like):
            yield from (outlier for outlier in odd_ones(like, (_MODE,)) if outlier.value == "off")


def _odd_without_ecc(outlier: Outlier[Gpu], source: str) -> Finding:
    return _ecc_off(outlier.device, source, f"ECC off, {outlier.peers} other GPUs have it on")


def _ecc_off(gpu: Gpu, source: str, summary: str) -> Finding:
    later = ", on after the next reset" if gpu.ecc_mode_pending else ""
    fix = Fix(
        "Enable ECC, unless it is off on purpose: without it a flipped bit corrupts weights silently.",
        (repair("sudo nvidia-smi -i {} -e 1", gpu.selector), *gpu_reset(gpu.handle)),
        "config",
        "processes on this GPU, at the reset that applies it",
        "nodedoctor memory.ecc",
    )
    evidence = values(source, gpu, "ecc_mode")
    return Finding.warn(f"{summary}{later}", subject=gpu.subject, evidence=evidence, fix=fix)


def _worn_out(gpu: Gpu, source: str) -> Iterator[Finding]:
    """What no reset repairs."""
    evidence = [*_memory_evidence(gpu, source), *identity_evidence(source, gpu)]
    past = gpu.ecc_aggregate_sram_uncorrectable or 0
    recent = f"; {_recent_errors(gpu)}" if gpu.ecc_volatile_uncorrectable else ""
    if gpu.sram_threshold_exceeded or gpu.unrepairable_memory:
        what = "SRAM error threshold" if gpu.sram_threshold_exceeded else "limit of repairable memory"
        fix = replace_gpu(gpu, "NVIDIA's rule for this GPU: RMA.", "memory.ecc")
        yield Finding.fail(f"{what} exceeded{recent}", subject=gpu.subject, evidence=evidence, fix=fix)
    elif past > _SRAM_LIMIT.number:
        # Where the driver has a verdict of its own and it is good, operators' rule is only a warning.
        judge = Finding.fail if gpu.sram_threshold_exceeded is None else Finding.warn
        summary = (
            f"{count_with_noun(past, 'uncorrected SRAM error')} in its lifetime (RMA threshold: more than "
            f"{_SRAM_LIMIT.number:.0f}){recent}"
        )
        fix = replace_gpu(gpu, f"Source of the threshold: {_SRAM_LIMIT.source}.", "memory.ecc")
        yield judge(summary, subject=gpu.subject, evidence=evidence, fix=fix)
    elif gpu.ecc_aggregate_uncorrectable and not gpu.ecc_volatile_uncorrectable:
        count = gpu.ecc_aggregate_uncorrectable
        summary = (
            f"{count_with_noun(count, 'uncorrected memory error')} in its lifetime, none since driver load"
        )
        yield Finding.info(summary, subject=gpu.subject, evidence=_memory_evidence(gpu, source))


def _repair_pending(gpu: Gpu) -> Iterator[Finding]:
    pending = (gpu.channel_repair_pending, gpu.tpc_repair_pending)
    if any(pending):
        fix = reset_gpu(gpu, "The repair is applied at the next reset.", "memory.ecc")
        kind = "memory channel" if pending[0] else "processing cluster (TPC)"
        yield Finding.warn(f"{kind} repair pending, needs a reset", subject=gpu.subject, fix=fix)


def _judge_corrected(gpu: Gpu, source: str) -> Iterator[Finding]:
    for memory, most in _CORRECTED:
        names = (f"ecc_{counter}_{memory}_correctable" for counter in ("volatile", "aggregate"))
        count = max((getattr(gpu, name) or 0 for name in names), default=0)
        if count >= most.number:
            summary = (
                f"{count_with_noun(count, f'corrected {memory.upper()} error')} (operators act from "
                f"{most.number:.0f})"
            )
            text = f"Monitor it: {most.text} ({most.source})"
            fix = look_at(gpu, text, "memory.ecc", _counter_steps(gpu), docs=ERROR_GUIDE)
            evidence = [*_memory_evidence(gpu, source), *identity_evidence(source, gpu)]
            yield Finding.warn(summary, subject=gpu.subject, evidence=evidence, fix=fix)


def _counter_steps(gpu: Gpu) -> tuple[Step, ...]:
    return (look("nvidia-smi -q -d ECC,ROW_REMAPPER -i {}", gpu.selector),)


def _error_places(gpu: Gpu, counter: str) -> str:
    counts = {m: getattr(gpu, f"ecc_{counter}_{m}_uncorrectable") for m in ("sram", "dram")}
    text = ", ".join(f"{count} in {memory.upper()}" for memory, count in counts.items() if count)
    return f" ({text})" if text else ""


def _memory_evidence(gpu: Gpu, source: str) -> list[Evidence]:
    counters = ("volatile", "aggregate")
    totals = [f"ecc_{c}_{k}" for c in counters for k in ("uncorrectable", "correctable")]
    parts = [f"ecc_{c}_{m}_uncorrectable" for m in ("sram", "dram") for c in counters]
    telling = [name for name in ("sram_threshold_exceeded", *parts) if getattr(gpu, name)]
    return values(source, gpu, *telling, *(name for name in totals if getattr(gpu, name) is not None))


@check("memory.growth", "GPU memory error rate", tags={"gpu"}, explained_by=("memory.remap", "memory.ecc"))
def growth(gpus: Gpus, growth: ErrorGrowth) -> Iterator[Finding]:
    """Corrected memory errors that appear within a second.

    Why: many corrected errors in a short time are an early sign of failing memory.
    Fix disturbs: processes on the GPU when it is reset or replaced.
    Judges: WARN at 10 and more corrected errors a second, a note for fewer.
    Fix: Drain the node and reset the GPU; replace it if growth goes on.
    Threshold: 10 corrected errors a second: NVIDIA/DCGM, DcgmGPUHardwareLimits.h.
    False positives: A single corrected error during the run.
    """
    counters = [(gpu, gained.gained) for gpu in gpus.gpus if (gained := growth.gpu(gpu.index))]
    counting = [(gpu, counts["ecc_volatile_correctable"]) for gpu, counts in counters if len(counts) > 1]
    rising = [(gpu, count) for gpu, count in counting if count]
    for gpu, count in rising:
        rate = count / growth.seconds
        evidence = growth_evidence(gpu.index, "ecc_volatile_correctable")
        text = f"DCGM's threshold is {SINGLE_BIT_PER_SECOND} per second."
        judge = Finding.warn if rate >= SINGLE_BIT_PER_SECOND else Finding.info
        fix = look_at(
            gpu,
            f"{text} Check whether rows are remapped (memory.remap).",
            "memory.growth",
            _counter_steps(gpu),
        )
        yield judge(
            f"{rate:.0f} corrected errors per second", subject=gpu.subject, evidence=evidence, fix=fix
        )
    if not counting:
        yield Finding.skip("no GPU here counts corrected memory errors")
    elif not rising:
        yield Finding.ok(
            f"no corrected errors in {growth.seconds} s on {all_of([gpu for gpu, _ in counting])}"
        )


@check("memory.remap", "Row remapping and page retirement", tags={"fast", "gpu"})
def remap(gpus: Gpus) -> Iterator[Finding]:
    """Row remapping (Ampere and newer) and page retirement (older GPUs): pending, failed, spare rows left.

    Why: with a remap pending, bad memory is still in use; a failed remap means that no spare row is left.
    Fix disturbs: processes on the GPU, during the reset.
    Judges: FAIL when a row remap or page retirement is pending, or remapping has failed; WARN when spare rows
    run out.
    Fix: Reset the GPU for a pending remap; replace it after a failed one.
    Threshold: NVIDIA's row remapping guide; 512 rows and 60 pages are NVIDIA's return limits.
    False positives: Remapped rows alone are a repaired past and only noted.
    """
    if not gpus.gpus:
        yield none_shown(gpus)
        return
    names = ("remap_pending", "remap_failure", "retired_pages_pending", "remapped_uncorrectable")
    readable = [gpu for gpu in gpus.gpus if any(getattr(gpu, name) is not None for name in names)]
    findings = [
        finding
        for gpu in readable
        for finding in (*_judge_rows(gpu, gpus.source), *_judge_pages(gpu, gpus.source))
    ]
    yield from findings
    if not readable:
        yield not_reported("row remapping or page retirement", gpus.gpus, *names)
    elif not any(finding.severity.is_problem for finding in findings):
        quiet = [gpu for gpu in readable if _is_quiet(gpu)]
        others = [gpu for gpu in gpus.gpus if gpu not in quiet]
        hidden = [gpu for gpu in others if gpu in readable or not _lacks_counters(gpu, names)]
        if hidden:
            yield not_reported("row remapping", hidden, *names)
        if quiet:
            yield Finding.ok(f"no remap pending or failed on {all_of(quiet)}")


def _is_quiet(gpu: Gpu) -> bool:
    """Whether it said no to what it was asked: a flag that was not read says nothing."""
    flags = ("remap_pending", "remap_failure", "retired_pages_pending")
    unread = {gpu.errors.get(name) for name in flags} - NOT_KNOWN - {None}
    return not unread and any(getattr(gpu, name) is not None for name in flags)


def _lacks_counters(gpu: Gpu, names: tuple[str, ...]) -> bool:
    return {gpu.errors.get(name) for name in names} <= NOT_KNOWN | {None}


def _judge_rows(gpu: Gpu, source: str) -> Iterator[Finding]:
    rows = (
        f"rows remapped: {gpu.remapped_uncorrectable} uncorrectable, {gpu.remapped_correctable} correctable"
    )
    names = ("remapped_uncorrectable", "remapped_correctable", "remap_pending", "remap_failure")
    evidence = values(source, gpu, *names)
    remapped = gpu.remapped_uncorrectable or 0
    if gpu.remap_failure:
        fix = replace_gpu(gpu, "A bad row could not be remapped: no spare row is left.", "memory.remap")
        yield Finding.fail(
            "row remapping failed",
            subject=gpu.subject,
            evidence=[*evidence, *identity_evidence(source, gpu)],
            fix=fix,
        )
    elif remapped > _ROWS_LIMIT.number:
        summary = (
            f"{count_with_noun(remapped, 'row')} remapped for uncorrected errors (RMA threshold: "
            f"{_ROWS_LIMIT.number:.0f})"
        )
        fix = replace_gpu(gpu, f"Source of the threshold: {_ROWS_LIMIT.source}.", "memory.remap")
        yield Finding.fail(
            summary, subject=gpu.subject, evidence=[*evidence, *identity_evidence(source, gpu)], fix=fix
        )
    if gpu.remap_pending:
        fix = reset_gpu(gpu, "The next reset replaces the bad row with a spare one.", "memory.remap")
        yield Finding.fail(
            "row remap pending, needs a GPU reset", subject=gpu.subject, evidence=evidence, fix=fix
        )
    banks = gpu.remap_banks
    if banks and (banks.low or banks.none) and not gpu.remap_failure:
        summary = (
            f"row-remap spares nearly exhausted: {count_with_noun(banks.none, 'bank')} with none left, "
            f"{banks.low} with few"
        )
        text = (
            "In banks without spares the next bad row cannot be remapped: plan to replace the GPU."
            if banks.none
            else "Every bad row can still be remapped; RMA only when a remap fails. Monitor it."
        )
        fix = look_at(gpu, text, "memory.remap", _counter_steps(gpu), docs=ERROR_GUIDE)
        yield Finding.warn(
            summary, subject=gpu.subject, evidence=[*evidence, *identity_evidence(source, gpu)], fix=fix
        )
    elif (remapped or gpu.remapped_correctable) and not (gpu.remap_pending or gpu.remap_failure):
        yield Finding.info(f"{rows}, as intended for spare rows", subject=gpu.subject, evidence=evidence)


def _judge_pages(gpu: Gpu, source: str) -> Iterator[Finding]:
    """Before Ampere whole pages are taken out of use."""
    counts = (gpu.retired_pages_single_bit, gpu.retired_pages_double_bit)
    retired = sum(count or 0 for count in counts)
    names = ("retired_pages_single_bit", "retired_pages_double_bit", "retired_pages_pending")
    evidence = values(source, gpu, *names)
    if gpu.retired_pages_pending:
        fix = reset_gpu(gpu, "The next reset retires the page with errors.", "memory.remap")
        yield Finding.fail(
            "page retirement pending, needs a GPU reset", subject=gpu.subject, evidence=evidence, fix=fix
        )
    if retired >= RETIRED_PAGES_MOST:
        fix = replace_gpu(gpu, f"RMA threshold: {RETIRED_PAGES_MOST} retired pages.", "memory.remap")
        evidence += identity_evidence(source, gpu)
        yield Finding.fail(
            f"{count_with_noun(retired, 'page')} retired (RMA threshold: {RETIRED_PAGES_MOST})",
            subject=gpu.subject,
            evidence=evidence,
            fix=fix,
        )
    elif retired and not gpu.retired_pages_pending:
        yield Finding.info(
            f"{count_with_noun(retired, 'page')} retired", subject=gpu.subject, evidence=evidence
        )
