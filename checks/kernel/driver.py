"""What the NVIDIA driver said in the kernel log about itself: GPUs and versions it cannot work with."""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.engine.registry import check
from nodedoctor.facts.kernel.events import DriverEvent
from nodedoctor.facts.kernel.log import KernelLog, is_over
from nodedoctor.facts.pci.pci import Pci
from nodedoctor.knowledge.nvml_errors import OPEN_MODULES
from nodedoctor.model import Evidence, Finding, Fix, Moment
from nodedoctor.steps import keep, reboot

from .pci_address import subject_of


@check(
    "kernel.driver",
    "The driver reported no failure to start",
    tags={"fast"},
    without=(Pci,),
    explained_by=("driver.answers", "driver.gpus-present"),
)
def driver(log: KernelLog, pci: Pci | None, moment: Moment) -> Iterator[Finding]:
    """Messages of NVIDIA's modules about GPUs that do not initialise and versions that do not fit.

    Why: without a working driver no program sees the GPU; the reason stands only in the kernel log.
    Fix disturbs: every job on this node.
    Judges: FAIL for failures of the driver in the kernel log: version mismatch, failed initialisation,
    refused modules; WARN for nvidia_peermem.
    Fix: Reboot or reinstall the driver for the running kernel, as the message says.
    Threshold: The driver's messages (NVRM lines).
    False positives: A failed first try at boot after which the driver started: newer evidence wins.
    Error texts:
    - NVRM: API mismatch
    - NVRM: RmInitAdapter failed!
    """
    told: dict[tuple[str, str | None], list[DriverEvent]] = {}
    for event in log.driver:
        if event.kind not in ("boot", "loaded", "reset", "bound") and log.counts(event.when, moment):
            told.setdefault((event.kind, event.device), []).append(event)
    for events in told.values():
        yield _driver_trouble(events[-1], len(events), log, pci)
    if not told:
        yield Finding.ok(f"no failure of the driver in {log.span}")


_TROUBLE = {
    "mismatch": "programs and the kernel module are of different driver versions",
    "gpu-failed": "a GPU did not initialise",
    "no-gpu": "the driver was loaded and got no GPU",
    "refused": "the kernel refused the driver's module",
    "peermem": "the module for GPUDirect RDMA did not fit",
}

_ROOTS = {
    "mismatch": ("driver.module-userspace@node", "driver.answers@node"),
    "no-gpu": ("driver.gpus-present@any",),
    "refused": ("driver.modules@node",),
}
"""What else tells of the same trouble, about the node instead of the log."""


def _driver_trouble(event: DriverEvent, times: int, log: KernelLog, pci: Pci | None) -> Finding:
    """Before the last driver load it is history; a driver without any GPU to drive is no fault."""
    subject = subject_of(event.device, None, pci) if event.device else f"driver:{event.kind}"
    evidence = [Evidence("kernel-log", f"{event.when.text} {event.text}".strip())]
    versions = f" ({event.version.replace(' ', ' and ')})" if event.version else ""
    summary = _TROUBLE[event.kind] + versions + (f", {times} times" if times > 1 else "")
    excuse = (
        "before the driver was loaded again"
        if is_over(event.when, log.starts())
        else _excuse(event, log, pci)
    )
    if excuse:
        return Finding.info(f"{summary}: {excuse}", subject=subject, evidence=evidence)
    build = Finding.warn if event.kind == "peermem" else Finding.fail
    finding = build(summary, subject=subject, evidence=evidence, fix=_driver_fix(event.kind, event.text))
    return finding.explained_by(*_ROOTS.get(event.kind, ()))


def _excuse(event: DriverEvent, log: KernelLog, pci: Pci | None) -> str:
    """Why the driver rightly got no GPU; empty where it should have got one."""
    if event.kind != "no-gpu":
        return ""
    if pci is not None and not pci.gpus:
        return "there is none on the bus"
    holders = {other.version for other in log.driver if other.kind == "bound"}
    return "they are kept for virtual machines" if holders == {"vfio-pci"} else ""


def _driver_fix(kind: str, text: str = "") -> Fix:
    if "requires use of the NVIDIA open" in text:
        return OPEN_MODULES
    if kind == "mismatch":
        return Fix(
            "Reboot, so that the module matches the installed libraries, and hold the driver's packages back"
            " from unattended upgrades.",
            (reboot("the node is drained"),),
            "reboot",
            "every job on this node",
            "nodedoctor driver",
        )
    advice = (
        "Collect nvidia-bug-report.sh; reinstall the driver for this kernel, or power the node off and on."
    )
    return Fix(advice, (keep("sudo nvidia-bug-report.sh"),), "investigate", "nothing", "nodedoctor driver")
