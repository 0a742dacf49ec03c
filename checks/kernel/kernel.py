"""What the kernel reported of the PCI bus, the IOMMU and the host's memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from nodedoctor.declare.registry import check
from nodedoctor.facts.kernel.events import IommuFault, PcieError, evidence_of, times
from nodedoctor.facts.kernel.kernel_log import KernelLog, is_over
from nodedoctor.facts.kernel.lines import When
from nodedoctor.facts.kernel.system import RECOVERY_FAILED
from nodedoctor.facts.pci.pci import Pci
from nodedoctor.grouping import group_by
from nodedoctor.model import Finding, Fix, Moment
from nodedoctor.steps import look
from nodedoctor.wording import count_with_noun

from .pci_address import role, subject_of

_FLOOD = 100
"""Corrected errors of one device in one log from which its link deserves a look: operational experience."""
_STEADY, _BURST = 20, 30.0
"""Fewer, if they come once a minute or faster, over more seconds than a burst; ours."""
_SEATING = (
    "Reseat the card and its riser, check the power cables, update firmware; replace the card if it returns."
)


@check(
    "kernel.pcie",
    "PCIe errors in the kernel log",
    tags={"fast"},
    without=(Pci,),
    explained_by=("driver.answers", "driver.gpus-present", "pcie.width", "pcie.speed"),
)
def pcie(log: KernelLog, pci: Pci | None, moment: Moment) -> Iterator[Finding]:
    """AER, DPC and lost links since boot or --since, by device. A few corrected errors do not matter.

    Why: an uncorrected error on the path to a GPU or NIC kills the job; many corrected errors slow every
    transfer.
    Fix disturbs: every job on this node.
    Judges: FAIL for uncorrected PCIe errors of GPUs and adapters and lost links, WARN for floods of corrected
    ones.
    Fix: Reseat the card or riser; watch pcie.replays.
    Threshold: 100 corrected errors of one device in one log, with those that the kernel did not print, or 20
    with one a minute: operational experience.
    False positives: A drive that was pulled on purpose is reported as a surprise removal.
    Error texts:
    - PCIe Bus Error: severity=
    - AER: Uncorrected (Fatal) error received
    """
    shown = log.since(log.pcie, moment)
    causes = [event for event in shown if RECOVERY_FAILED not in event.text]
    if any(event.severity != "corrected" for event in causes):
        shown = causes  # the error itself names the device; the port only says how it ended
    by_device = group_by(shown, lambda event: event.device)
    for device, events in by_device.items():
        vendor = next((event.vendor for event in events if event.vendor), None)
        owner = role(device, vendor, log, pci) or _device_owner(events)
        cures = log.cures(device) if owner == "GPU" else ()
        yield _pcie_device(subject_of(device, None, pci), owner, events, log, cures)
    if not by_device:
        yield Finding.ok(f"no PCI error in {log.span}")


def _device_owner(events: Iterable[PcieError]) -> str | None:
    """What the driver in front of the line says where nothing else does."""
    drivers = {event.driver or "" for event in events}
    if drivers & {"nvidia", "nvidia-nvswitch"}:
        return "GPU"
    return "NIC" if any(d.startswith(("mlx4_", "mlx5_", "bnxt_")) for d in drivers) else None


def _pcie_device(
    subject: str, owner: str | None, events: list[PcieError], log: KernelLog, cures: Sequence[When]
) -> Finding:
    kinds = Counter(event.severity for event in events)
    for event in events:
        kinds[event.severity] += event.suppressed
    counts = ", ".join(f"{n} {kind}" for kind, n in kinds.items())
    summary = f"{owner or 'another device'}: {counts}{times(events)}"
    worst = [event for event in events if event.severity != "corrected"] or events
    evidence = evidence_of(worst)
    fix = Fix(
        _SEATING, (look("sudo lspci -vvv"),), "investigate", "every job on this node", "nodedoctor pcie"
    )
    if set(kinds) == {"corrected"}:
        if kinds["corrected"] < _FLOOD and not _is_steady(events):
            return Finding.info(f"{summary}, corrected by the link", subject=subject, evidence=evidence)
        return Finding.warn(f"{summary}, marginal link", subject=subject, evidence=evidence, fix=fix)
    if owner is None and _is_elsewhere(events):
        summary = f"{summary}, recovered by its driver"
        return Finding.info(summary, subject=subject, evidence=evidence)
    if all(is_over(event.when, cures) for event in worst):
        summary = f"{summary}: before the last reset or driver load"
        return Finding.info(summary, subject=subject, evidence=evidence)
    if owner is None or all(event.when.at < log.booted for event in worst):
        return Finding.warn(summary, subject=subject, evidence=evidence, fix=fix)
    return Finding.fail(summary, subject=subject, evidence=evidence, fix=fix)


def _is_steady(events: Sequence[PcieError]) -> bool:
    """Whether errors come at least every minute all along, and not in one burst as when a link is trained."""
    times = [event.when.seconds for event in events if event.when.seconds is not None]
    span = max(times) - min(times) if times else 0.0
    return len(times) >= _STEADY and _BURST <= span <= 60.0 * len(times)


def _is_elsewhere(events: Iterable[PcieError]) -> bool:
    """Whether nothing worse than non-fatal happened, to a device of its own and not to a bridge."""
    mild = all(event.severity in ("corrected", "non-fatal") for event in events)
    return mild and all(event.driver not in (None, "pcieport") for event in events)


@check("kernel.iommu", "IOMMU faults in the kernel log", tags={"fast"}, without=(Pci,), stage="preview")
def iommu(log: KernelLog, pci: Pci | None, moment: Moment) -> Iterator[Finding]:
    """Faults that the IOMMU of Intel, AMD or ARM reported, by device.

    Why: blocked transfers between GPUs and NICs show up as wrong data or a hang.
    Fix disturbs: every job on this node (boot parameter).
    Judges: FAIL or WARN for DMAR and AMD-Vi faults of GPUs and adapters.
    Fix: Boot with the IOMMU passed through (`iommu=pt`) and check the device's slot.
    Threshold: The kernel's own fault reports.
    False positives: Faults of other devices at boot are notes.
    Error texts:
    - DMAR: [DMA Read]
    - AMD-Vi: Event logged [IO_PAGE_FAULT
    """
    by_device = group_by(log.since(log.iommu, moment), lambda event: event.device)
    for device, events in by_device.items():
        owner = role(device, None, log, pci) or _named_owner(events)
        summary = (
            f"{count_with_noun(len(events), 'access', 'accesses')} by {owner or 'another device'} "
            f"blocked by the IOMMU{times(events)}"
        )
        fix = Fix(
            "On bare metal boot with iommu=pt (or IOMMU off); else check for a driver or firmware update.",
            (look("cat /proc/cmdline"),),
            "reboot",
            "every job on this node",
            "nodedoctor pcie.iommu",
        )
        grave = owner is not None and events[-1].when.at >= log.booted
        build = Finding.fail if grave else Finding.warn
        yield build(summary, subject=subject_of(device, None, pci), evidence=evidence_of(events), fix=fix)
    if not by_device:
        yield Finding.ok(f"no IOMMU fault in {log.span}")


def _named_owner(events: Iterable[IommuFault]) -> str | None:
    text = next(iter(events)).text
    if text.startswith("nvidia "):
        return "GPU"
    return "NIC" if text.startswith(("mlx4_", "mlx5_", "bnxt_")) else None


@check("kernel.memory", "Host memory errors", tags={"fast"}, stage="preview")
def memory(log: KernelLog, moment: Moment) -> Iterator[Finding]:
    """Errors of the host's memory modules (EDAC, machine checks); a few corrected ones do not matter.

    Why: an uncorrected error kills the process that owns the page (SIGBUS), or halts the node.
    Fix disturbs: every job on this node.
    Judges: FAIL for uncorrected errors of the host's memory, WARN for many corrected ones.
    Fix: Drain the node and replace the DIMM that the log names.
    Threshold: The kernel's EDAC and machine check reports.
    False positives: A single corrected error.
    Error texts:
    - EDAC MC0: 1 UE
    """
    groups = group_by(log.since(log.ram, moment), lambda event: (event.corrected, event.place))
    for (corrected, place), events in groups.items():
        what = "corrected" if corrected else "uncorrected"
        summary = f"{place or 'the host memory'}: {what} error{times(events)}"
        subject, evidence = f"ram:{place or 'unknown'}", evidence_of(events)
        fix = Fix(
            "Reboot so that the firmware can repair or map out the row; replace the memory "
            "module if it returns.",
            (look("sudo ras-mc-ctl --errors"),),
            "drain",
            "every job on this node",
            "nodedoctor kernel.memory",
        )
        if corrected and sum(event.count for event in events) < _FLOOD:
            yield Finding.info(summary, subject=subject, evidence=evidence)
        elif corrected or events[-1].when.at < log.booted:
            yield Finding.warn(summary, subject=subject, evidence=evidence, fix=fix)
        else:
            yield Finding.fail(summary, subject=subject, evidence=evidence, fix=fix)
    if not groups:
        yield Finding.ok(f"no memory error in {log.span}")
