"""What the NVIDIA driver said in the kernel log about itself: GPUs and versions it cannot work with."""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.kernel.events import DriverEvent, line_of
from nodedoctor.facts.kernel.log import KernelLog, is_over
from nodedoctor.facts.pci.pci import Pci
from nodedoctor.knowledge.fixes.recipes import KERNEL_LOG
from nodedoctor.knowledge.nvml_errors import OPEN_MODULES
from nodedoctor.model import Finding, Fix, Moment
from nodedoctor.steps import keep, look, reboot

from .pci_address import subject_of


@check(
    "kernel.driver",
    "Driver errors in the kernel log",
    tags={"fast"},
    without=(Pci,),
    explained_by=("driver.answers", "driver.gpus-present"),
)
def driver(log: KernelLog, pci: Pci | None, moment: Moment) -> Iterator[Finding]:
    """NVIDIA module messages about GPUs that do not initialise and versions that do not match.

    Why: without a working driver no program sees the GPU; only the kernel log has the reason.
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
        yield Finding.ok(f"no driver failure in {log.span}")


_TROUBLE = {
    "mismatch": "driver mismatch: libraries and kernel module differ",
    "gpu-failed": "a GPU did not initialise",
    "no-gpu": "the driver was loaded but bound no GPU",
    "refused": "the kernel rejected the driver module",
    "peermem": "the GPUDirect RDMA module does not match",
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
    evidence = [line_of(event)]
    versions = f" ({event.version.replace(' ', ' and ')})" if event.version else ""
    summary = _TROUBLE[event.kind] + versions + (f", {times} times" if times > 1 else "")
    excuse = "before the last driver load" if is_over(event.when, log.starts()) else _excuse(event, log, pci)
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
        return "none on the bus"
    holders = {other.version for other in log.driver if other.kind == "bound"}
    return "reserved for virtual machines" if holders == {"vfio-pci"} else ""


def _driver_fix(kind: str, text: str = "") -> Fix:
    if "requires use of the NVIDIA open" in text:
        return OPEN_MODULES
    if kind == "mismatch":
        return Fix(
            "Reboot, so that the module matches the installed libraries, and hold the driver packages back"
            " from unattended upgrades.",
            (look("modinfo -F version nvidia"), reboot("the node is drained")),
            "reboot",
            "every job on this node",
            "nodedoctor driver",
        )
    advice = "Collect nvidia-bug-report.sh; reinstall the driver for this kernel, or power-cycle the node."
    return Fix(
        advice, (KERNEL_LOG, keep("sudo nvidia-bug-report.sh")), "investigate", "nothing", "nodedoctor driver"
    )
