"""Errors of GPUs that the NVIDIA driver reported in the kernel log, judged by NVIDIA's catalogue."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from nodedoctor.declare.registry import check
from nodedoctor.facts.gpu.gpu import Gpu
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.kernel.events import LoggedXid, line_of
from nodedoctor.facts.kernel.kernel_log import KernelLog, is_over
from nodedoctor.facts.pci.pci import Pci
from nodedoctor.grouping import group_by
from nodedoctor.knowledge import xids as table
from nodedoctor.knowledge.fixes.gpu import recovery_fix
from nodedoctor.knowledge.fixes.recipes import gpu_reset
from nodedoctor.model import Action, Evidence, Finding, Fix, Moment, Status, Step
from nodedoctor.steps import keep, look, reboot
from nodedoctor.wording import SUMMARY, clause, first_few, fitting, sentences, shortened

from .pci_address import gpu_at, gpu_index, subject_of
from .xid_meaning import JudgedXid, is_spent, judge_events, link_behind, of_programs, recovery_asked
from .xid_programs import clean, excusable, excuse, of_wide_jobs

DOCS = "https://docs.nvidia.com/deploy/xid-errors/"
_MEMORY_ERRORS = frozenset({48, 94, 95})
"""Uncorrectable memory errors, each of which a GPU counts until it is reset (NVIDIA's catalogue)."""
_DISTURBS: dict[Action, str] = {
    "reset-gpu": "every job on this GPU",
    "drain": "new jobs, once the running one has ended",
    "reboot": "every job on this node",
    "restart-job": "the job",
}
_BUS = 79
_CHECKS: Mapping[int, tuple[str, ...]] = {
    **dict.fromkeys((48, 63, 64, 94, 95), ("memory.remap", "memory.ecc", "memory.growth")),
    74: ("nvlink.links", "nvlink.errors", "fabric.state"),
    _BUS: ("driver.answers", "driver.gpus-present", "pcie.width", "pcie.speed", "nvlink.links"),
    154: ("driver.recovery-action",),
}
"""Checks that see, on the same GPU, what an error is about (NVIDIA's catalogue, resolution buckets)."""


@check("kernel.xid", "GPU errors (Xid)", tags={"fast"}, without=(Gpus, Pci))
def xid(log: KernelLog, gpus: Gpus | None, pci: Pci | None, moment: Moment) -> Iterator[Finding]:
    """Every Xid since boot or --since: its meaning in NVIDIA's catalogue, its GPU and its process.

    Errors of programs are notes: by NVIDIA's rule for Xid 13 and 31 the GPU is suspect only when different
    programs fail on it.
    Why: the driver first reports there that a GPU was lost, memory failed or a program crashed.
    Fix disturbs: nothing, the job, every job on the GPU, or the node, depending on the error.
    Judges: FAIL for Xids of hardware and driver, WARN for a GPU on which several programs fail, notes for
    errors of one program and for harmless ones.
    Fix: Follow the resolution of that Xid: `nodedoctor explain` with its number.
    Threshold: NVIDIA's Xid catalogue and its resolution buckets (xids table).
    False positives: Xid 13 and 31 are usually bugs of the program; Xid 45 follows a killed job.
    Error texts:
    - NVRM: Xid (PCI:
    """
    by_device = group_by(log.since(log.xids, moment), lambda event: event.device)
    programs = of_programs(event for events in by_device.values() for event in events)
    wide = of_wide_jobs(programs)
    excused: list[LoggedXid] = []
    for device, events in by_device.items():
        gpu = gpu_at(device, gpus)
        harmless = excusable(events, gpu, programs, wide)
        excused += [event for event in events if event in harmless]
        if harmful := [event for event in events if event not in harmless]:
            behind = [link_behind(event, log.xids) for event in harmful]
            links = {subject_of(link.device, gpus, pci) for link in behind if link}
            follows = () if None in behind else (f"kernel.xid@{subject}" for subject in sorted(links))
            yield _judge_gpu(device, harmful, log, gpus, pci).explained_by(*follows)
    yield from excuse(excused)
    if not by_device:
        yield Finding.ok(f"no Xid in {log.span}")


def _judge_gpu(
    device: str | None, events: list[LoggedXid], log: KernelLog, gpus: Gpus | None, pci: Pci | None
) -> Finding:
    """One finding per GPU: the worst of its errors, the others named beside it."""
    starts = log.starts(device)
    done = max((event.when.at for event in events if recovery_asked(event) == 0), default=-1)
    gpu = gpu_at(device, gpus)
    over = [
        event.when.at < done or is_over(event.when, starts) or _counters_went_back(event, gpu)
        for event in events
    ]
    branch = _driver_branch(log, gpus)
    now, before = (
        judge_events([e for e, o in zip(events, over, strict=True) if o is was], branch)
        for was in (False, True)
    )
    subject = subject_of(device, gpus, pci)
    harmless = all(old.of_program or old.status is Status.PASS for old in before)
    if not now and before and (done >= 0 or harmless or (gpu is not None and clean(gpu))):
        codes = ", ".join(old.times for old in before)
        summary = f"{codes}: before the last reset or driver load, resolved"
        return Finding.info(summary, subject=subject, evidence=_xid_evidence(before))
    index = gpu_index(device, gpus, pci) if device else None
    errors = now or before
    finding = _gpu_finding(errors, subject, device if index is None else str(index))
    if any(dead.subject == subject and dead.error == "UNKNOWN" for dead in (gpus.lost if gpus else ())):
        return finding  # the driver says less of it than its own Xid does
    worst = [error.code for error in errors if error.status is errors[0].status]
    return finding.explained_by(*checks_of_same_fault(worst))


def _gpu_finding(errors: list[JudgedXid], subject: str, index: str | None) -> Finding:
    if not errors:
        return Finding.info("Xid 154: the driver requests no recovery any more", subject=subject)
    worst, evidence = errors[0], _xid_evidence(errors)
    meaning, *more = sentences(worst.meaning)
    meaning = re.sub(r" \([^()]*\)$", "", meaning)
    rest = [error.times for error in errors[1:] if error.status is not Status.PASS]
    ignored = [error.times for error in errors[1:] if error.status is Status.PASS]
    if worst.status is Status.PASS:
        codes = ", ".join([worst.times, *ignored])
        summary = fitting(*(f"{codes}: no action needed. {text}" for text in (meaning, clause(meaning))))
        return Finding.info(summary, subject=subject, evidence=evidence)
    others = f"; also {', '.join(rest)}" if rest else ""
    others += f" ({', '.join(ignored)}: follow-up errors)" if ignored else ""
    processes, when = _affected_processes(worst), _time_range(worst)
    summary = fitting(
        f"{worst.times}{when}{processes}: {meaning}{others}",
        f"{worst.times}{processes}: {meaning}{others}",
        f"{worst.times}{processes}: {clause(meaning)}{others}",
        f"{worst.times}: {clause(meaning)}{others}",
    )
    # The driver's own word wins, but for a reset that has no spare to use.
    wins = not is_spent(worst.code, worst.events)
    leading = next((error for error in errors if error.code == 154 and wins), worst)
    fix = _gpu_fix(leading, index, worst)
    build = Finding.fail if worst.status is Status.FAIL else Finding.warn
    head = f"GPU {subject.partition(':')[2]}: Xid {worst.code}"
    lead = f"{head}: {worst.meaning}"
    lead = f"{head}: {clause(meaning)}" if shortened(lead, SUMMARY) == head else lead
    finding = build(summary, subject=subject, evidence=evidence, fix=fix).led_by(lead)
    if more:
        finding = finding.matters_as(" ".join(f"{sentence}." for sentence in more))
    return finding


def checks_of_same_fault(codes: Iterable[int]) -> tuple[str, ...]:
    """The checks that see the same fault; none where the errors are of several kinds, as one would hide.

    A GPU off the bus loses its links and memory too; what Xid 154 asks for is for the others' sake.
    """
    kinds = {_CHECKS.get(code, ()) for code in codes if code != 154} or {_CHECKS[154]}
    if _CHECKS[_BUS] in kinds:
        return _CHECKS[_BUS]
    return kinds.pop() if len(kinds) == 1 else ()


def _gpu_fix(leading: JudgedXid, index: str | None, worst: JudgedXid) -> Fix:
    both = leading is not worst and leading.action != worst.action
    text = f"{leading.advice} {worst.advice}" if both else worst.advice
    reset = leading.action == "reset-gpu"
    disturbs = _DISTURBS.get(leading.action, "")
    steps: tuple[Step, ...] = (look("sudo dmesg | grep -iE 'xid|nvrm'"),)
    if index is not None:
        steps += (look("nvidia-smi -q -i {}", index),)
    recovery = table.recovery_action(recovery_asked(leading.events[-1]) or 0) if leading.code == 154 else None
    if recovery and index is not None:
        steps += tuple(step for step in recovery_fix(recovery.word, index).steps if step not in steps)
    elif reset and index is not None:
        steps += gpu_reset(index, disturbs)
    elif leading.action == "restart-job" and worst.status is Status.FAIL and index is not None:
        steps += gpu_reset(index, _DISTURBS["reset-gpu"], may_reboot=False)
    elif leading.action in ("drain", "replace", "reboot"):
        steps += (keep("sudo nvidia-bug-report.sh"),)
        steps += (reboot("the logs are saved and the node is drained"),) if leading.action == "reboot" else ()
    return Fix(text, steps, leading.action, disturbs, "nodedoctor kernel.xid memory nvlink", DOCS)


def _affected_processes(error: JudgedXid) -> str:
    """The processes that were hit."""
    owners = Counter((event.name, event.pid) for event in error.events if event.pid or event.name)
    names = [f"{name or '?'} (pid {pid})" if pid else str(name) for (name, pid), _ in owners.most_common()]
    return f", {first_few(names, 1)}" if names else ""


def _time_range(error: JudgedXid) -> str:
    """The first and last time."""
    first, last = error.events[0].when.short, error.events[-1].when.short
    times = f" at {first}" if first else ""
    return times + (f" to {last}" if first and last != first else "")


def _xid_evidence(errors: list[JudgedXid]) -> list[Evidence]:
    """The first line of each of the worst three, and the last of the worst."""
    lines = [error.events[0] for error in errors[:3]]
    if errors and len(errors[0].events) > 1:
        lines.insert(1, errors[0].events[-1])
    return [line_of(event) for event in lines]


def _counters_went_back(event: LoggedXid, gpu: Gpu | None) -> bool:
    """Whether the GPU no longer counts the memory error it once reported: it was reset since.

    NVML counts volatile errors since the last driver load or reset.
    """
    counted_now = gpu.ecc_volatile_uncorrectable if gpu is not None else None
    return event.code in _MEMORY_ERRORS and counted_now == 0 and gpu is not None and clean(gpu)


def _driver_branch(log: KernelLog, gpus: Gpus | None) -> int:
    """The driver branch, which decides how NVLink 5 words are read; the newer layout when it is not known."""
    loaded = [event.version for event in log.driver if event.kind == "loaded" and event.version]
    version = (gpus.driver_version if gpus else None) or (loaded[-1] if loaded else None) or ""
    match = re.match(r"\d{3}", version)
    return int(match.group()) if match else table.RELABELLED_BRANCH
