"""What the NVIDIA driver said in the kernel log about itself: GPUs and versions it cannot work with."""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.kernel.events import DriverEvent, line_of
from nodedoctor.facts.kernel.kernel_log import KernelLog, is_over
from nodedoctor.facts.pci.pci import Pci
from nodedoctor.knowledge import xids as table
from nodedoctor.knowledge.fixes.recipes import KERNEL_LOG, ONE_GPU, gpu_reset
from nodedoctor.knowledge.nvml_errors import OPEN_MODULES
from nodedoctor.model import Finding, Fix, Moment
from nodedoctor.steps import keep, look, reboot, repair

from .pci_address import gpu_index, subject_of

_SYMPTOMS = ("no-heartbeat", "reset-required", "gpu-lost")
"""Messages about a GPU that is hung or gone; most logs also have an Xid that says why."""
_XID_SECONDS = 300.0
"""Within so much an Xid tells of the same fault: the driver waits for a GSP for up to 75 s; ours."""
_HELPERS = ("nvidia-gridd", "nvidia-topolog")
"""Programs of the vGPU guest package, installed apart from the driver; a task's name has 15 characters."""


@check(
    "kernel.driver",
    "Driver errors in the kernel log",
    tags={"fast"},
    without=(Gpus, Pci),
    explained_by=("driver.answers", "driver.gpus-present", "driver.recovery-action"),
)
def driver(log: KernelLog, gpus: Gpus | None, pci: Pci | None, moment: Moment) -> Iterator[Finding]:
    """NVIDIA module messages about GPUs that do not initialise or answer, and versions that do not match.

    Why: without a working driver no program sees the GPU; only the kernel log has the reason.
    Fix disturbs: every job on this node.
    Judges: FAIL for failures of the driver in the kernel log: version mismatch, failed initialisation,
    refused modules, a GPU that stopped answering or requires a reset without an Xid; WARN for nvidia_peermem.
    Fix: Reboot or reinstall the driver for the running kernel, as the message says.
    Threshold: The driver's messages (NVRM lines).
    False positives: A failed first try at boot after which the driver started: newer evidence wins. A
    mismatch of the vGPU licence helper alone is a note: no program that computes needs it.
    Error texts:
    - NVRM: API mismatch
    - NVRM: RmInitAdapter failed!
    - Heartbeat timed out
    - NV_ERR_RESET_REQUIRED
    """
    by_fault: dict[tuple[object, ...], list[DriverEvent]] = {}
    for event in log.since(log.driver, moment):
        if event.kind in ("boot", "loaded", "reset", "bound"):
            continue
        if event.kind not in _SYMPTOMS or not _has_xid(event, log):
            by_fault.setdefault((event.kind, event.device, event.gpu, _is_helper(event)), []).append(event)
    for events in by_fault.values():
        yield _driver_trouble(events[-1], len(events), log, gpus, pci)
    if not by_fault:
        yield Finding.ok(f"no driver failure in {log.span}")


_TROUBLE = {
    "mismatch": "driver mismatch: libraries and kernel module differ",
    "gpu-failed": "a GPU did not initialise",
    "no-gpu": "the driver was loaded but bound no GPU",
    "refused": "the kernel rejected the driver module",
    "peermem": "nvidia_peermem does not match the RDMA driver that runs (MLNX_OFED)",
    "no-heartbeat": "GSP (the GPU's system processor) stopped answering",
    "reset-required": "the driver rejects work until the GPU is reset (NV_ERR_RESET_REQUIRED)",
    "gpu-lost": "the driver lost contact with the GPU (NV_ERR_GPU_IS_LOST)",
}

_ROOTS = {
    "mismatch": ("driver.module-userspace@node", "driver.answers@node"),
    "no-gpu": ("driver.gpus-present@any",),
    "refused": ("driver.modules@node",),
    **dict.fromkeys(_SYMPTOMS, ("driver.recovery-action@any",)),
}
"""What else tells of the same trouble, about the node instead of the log."""


def _has_xid(event: DriverEvent, log: KernelLog) -> bool:
    """Whether an Xid tells of the same fault: near it, or earlier for work that is still rejected."""
    for xid in log.xids:
        row = table.xid(xid.code)
        if row is None or (row.level != "fatal" and xid.code != 154):
            continue
        if None in (xid.when.seconds, event.when.seconds):
            return True
        delay = (event.when.seconds or 0.0) - (xid.when.seconds or 0.0)
        if abs(delay) <= _XID_SECONDS or (delay > 0 and event.kind != "no-heartbeat"):
            return True
    return False


def _is_helper(event: DriverEvent) -> bool:
    return (event.client or "").startswith(_HELPERS)


def _driver_trouble(
    event: DriverEvent, times: int, log: KernelLog, gpus: Gpus | None, pci: Pci | None
) -> Finding:
    """Before the last driver load it is history; a driver without any GPU to drive is no fault."""
    hung = event.kind in _SYMPTOMS
    subject = subject_of(event.device, gpus, pci) if event.device else f"driver:{event.kind}"
    numbered = event.gpu is not None and event.device is None  # the driver's number need not be NVML's
    subject += f"/GPU{event.gpu}" if numbered else ""
    evidence = [line_of(event)]
    versions = f" ({event.version.replace(' ', ' and ')})" if event.version else ""
    name = f"GPU{event.gpu}: " if numbered else ""  # a number of the driver's log
    trouble = "driver mismatch" if _is_helper(event) else _TROUBLE[event.kind]
    summary = (
        name + trouble + versions + (f", {times} times" if times > 1 and event.kind != "peermem" else "")
    )
    starts = log.starts(event.device, any_device=hung and event.device is None)
    excuse = "before the last driver load or reset" if hung else "before the last driver load"
    excuse = excuse if is_over(event.when, starts) else _find_excuse(event, log, gpus, pci)
    if excuse:
        return Finding.info(f"{summary}: {excuse}", subject=subject, evidence=evidence)
    build = Finding.warn if event.kind == "peermem" else Finding.fail
    index = gpu_index(event.device, gpus, pci) if event.device else None
    fix = _hung_fix(index) if hung else _driver_fix(event.kind, event.text)
    finding = build(summary, subject=subject, evidence=evidence, fix=fix)
    if event.kind == "peermem":
        finding = finding.matters_as(
            "The GPUs work; GPUDirect RDMA is off, so NICs copy through host memory."
        )
    return finding.explained_by(*_ROOTS.get(event.kind, ()))


def _find_excuse(event: DriverEvent, log: KernelLog, gpus: Gpus | None, pci: Pci | None) -> str:
    """Why nothing has to be done; empty where something has."""
    if _is_helper(event):
        return f"{event.client} only, not used to compute"
    if event.kind in _SYMPTOMS and gpus and gpus.gpus and not gpus.lost:
        is_healthy = all(gpu.recovery_action == "none" for gpu in gpus.gpus)
        return "no GPU requests a reset now" if is_healthy else ""
    if event.kind != "no-gpu":
        return ""
    if pci is not None and not pci.gpus:
        return "none on the bus"
    holders = {holder.version for holder in log.driver if holder.kind == "bound"}
    return "reserved for virtual machines" if holders == {"vfio-pci"} else ""


def _hung_fix(index: int | None) -> Fix:
    """Find the GPU, keep what the vendor asks for, reset it."""
    find = look("nvidia-smi -q | grep -E '^GPU |Recovery Action|Reset Required'")
    return Fix(
        "Find the GPU, drain the node and reset that GPU; power-cycle the node if it does not come back.",
        (KERNEL_LOG, find, keep("sudo nvidia-bug-report.sh"), *gpu_reset(index)),
        "reset-gpu",
        ONE_GPU,
        "nodedoctor driver kernel.driver",
    )


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
    if kind == "peermem":
        return Fix(
            "Rebuild or reinstall the NVIDIA module: that builds nvidia_peermem for the installed MLNX_OFED. "
            "Then load it; the open module with DMA-BUF needs none.",
            (
                look("modinfo nvidia_peermem"),
                look("ofed_info -s"),
                look("dkms status"),
                repair("sudo modprobe nvidia_peermem", when="it is rebuilt"),
            ),
            "config",
            "nothing",
            "nodedoctor ib.gdr",
        )
    advice = "Collect nvidia-bug-report.sh; reinstall the driver for this kernel, or power-cycle the node."
    return Fix(
        advice, (KERNEL_LOG, keep("sudo nvidia-bug-report.sh")), "investigate", "nothing", "nodedoctor driver"
    )
