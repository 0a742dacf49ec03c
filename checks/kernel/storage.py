"""What the kernel reported of disks, file systems and processors."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from nodedoctor.declare.registry import check
from nodedoctor.facts.kernel.events import CpuEvent, StorageEvent, StorageKind, evidence_of, times
from nodedoctor.facts.kernel.kernel_log import KernelLog
from nodedoctor.grouping import group_by
from nodedoctor.model import Action, Finding, Fix, Moment, Step
from nodedoctor.steps import look

TIMEOUTS = 3
"""Commands that a disk did not answer in 30 s (nvme_core.io_timeout) from which it is no accident: the driver
repeats a lost one, and nothing is lost but the time."""
CORRECTED = 100
"""Corrected errors of processors in one log that deserve a look: operational experience, as for PCI."""
HOT_SPELLS = 3
"""Spells of five minutes (the kernel reports at most one per processor in that time) that are no accident."""
_SPELL_SECONDS = 300.0

_STORAGE: dict[StorageKind, tuple[str, str, Action]] = {
    "dead": (
        "the controller stopped responding",
        "Power-cycle the node; replace the disk if it returns.",
        "replace",
    ),
    "raid": ("the array lost a disk", "Replace the disk and let the array rebuild.", "replace"),
    "read-only": (
        "the file system was shut down or made read-only",
        "Unmount it, run its file system check, and check the disk below it.",
        "drain",
    ),
    "file-system": (
        "the file system is damaged",
        "Unmount it, run its file system check, and check the disk below it.",
        "drain",
    ),
    "io-error": (
        "reads or writes failed",
        "Check the disk's SMART data and replace the disk if it has errors.",
        "investigate",
    ),
    "timeout": ("commands timed out", "Update the disk's firmware; replace it if it returns.", "investigate"),
    "interrupt": ("completions arrived without interrupt", "Update kernel and disk firmware.", "investigate"),
}


@check("kernel.storage", "Disk and file system errors", tags={"fast"}, stage="preview")
def storage(log: KernelLog, moment: Moment) -> Iterator[Finding]:
    """NVMe controllers, arrays (md), ext4, XFS, Btrfs, servers of Lustre and Ceph in the kernel log.

    An NFS server that does not respond is kernel.hung's.

    Why: ranks wait for data or fail to write a checkpoint; the training log only shows a slow step.
    Fix disturbs: every job on this node.
    Judges: WARN for unanswered commands and errors of disks, file systems, RAID and network file systems.
    Fix: Look at the disk's SMART data and the server, and move data off a failing disk.
    Threshold: 3 timeouts of 30 s (nvme_core.io_timeout) are our threshold.
    False positives: A network file system that was restarted on purpose.
    Error texts:
    - nvme nvme0: controller is down
    - EXT4-fs error
    """
    by_device = group_by(log.since(log.storage, moment), lambda event: event.device)
    findings = [
        finding.explained_by(*_failures_of(device))
        for device, events in by_device.items()
        for finding in _judge_device(device, events, log)
    ]
    yield from findings
    if not findings:
        yield Finding.ok(f"no disk or file system error in {log.span}")


def _judge_device(device: str, events: Sequence[StorageEvent], log: KernelLog) -> Iterator[Finding]:
    for kind, (meaning, advice, action) in _STORAGE.items():
        same = [event for event in events if event.kind == kind]
        if not same:
            continue
        now = [event for event in same if event.when.at >= log.booted]
        few = (
            kind == "interrupt"
            or (kind == "timeout" and len(now) < TIMEOUTS)
            or (kind == "io-error" and len(now) < 2)
        )
        summary, subject = f"{device}: {meaning}{times(same)}", f"disk:{device}/{kind}"
        if few or not now:
            yield Finding.info(summary, subject=subject, evidence=evidence_of(same))
            continue
        fix = Fix(
            advice, _look_at_disk(device), action, "every job on this node", "nodedoctor kernel.storage"
        )
        yield Finding.warn(summary, subject=subject, evidence=evidence_of(same), fix=fix)
    connections = [event for event in events if event.kind in ("connection-lost", "connection-back")]
    if connections:
        yield _judge_connection(device, connections)


def _failures_of(device: str) -> tuple[str, ...]:
    """What explains the errors of a disk: its controller, or it itself, is dead; then its file system."""
    match = re.match(r"nvme\d{1,4}|[a-z]{1,8}", device)
    disks = dict.fromkeys((match[0] if match else device, device))
    return tuple(f"kernel.storage@disk:{disk}/{kind}" for kind in _EXPLAINING for disk in disks)


_EXPLAINING: tuple[StorageKind, ...] = ("dead", "read-only")


def _look_at_disk(device: str) -> tuple[Step, ...]:
    if device.startswith("nvme"):
        match = re.match(r"nvme\d{1,4}", device)
        controller = match[0] if match else device
        return (look("sudo nvme smart-log {}", f"/dev/{controller}"), look("lsblk"))
    if device.startswith("md"):
        return (look("cat /proc/mdstat"), look("sudo mdadm --detail {}", f"/dev/{device}"))
    return (look("lsblk"), look("findmnt"))


_NAMES = {"lustre": "Lustre", "ceph": "Ceph"}
_SERVERS = {"lustre": (look("lfs check servers"),), "ceph": (look("findmnt -t ceph"),)}


def _judge_connection(device: str, events: Sequence[StorageEvent]) -> Finding:
    """A server of a network file system that was lost: over again as soon as it is back."""
    losses = [event for event in events if event.kind == "connection-lost"]
    system = events[-1].system
    subject, evidence = f"{system}:{device}", evidence_of(events)
    if events[-1].kind == "connection-back":
        return Finding.info(
            f"{device}: connection lost and restored{times(losses)}"
            if losses
            else f"{device}: connection restored",
            subject=subject,
            evidence=evidence,
        )
    fix = Fix(
        "Check the server and the network path to it.",
        _SERVERS[system],
        "investigate",
        "nothing",
        "nodedoctor kernel.storage",
    )
    summary = f"{device}: connection to this {_NAMES[system]} server lost{times(losses)}"
    return Finding.warn(summary, subject=subject, evidence=evidence, fix=fix)


@check("kernel.cpu", "CPU errors and throttling", tags={"fast"}, stage="preview")
def cpu(log: KernelLog, moment: Moment) -> Iterator[Finding]:
    """Machine checks, errors reported by the firmware, and CPUs throttled by heat.

    Why: an uncorrected error kills programs or the node; a hot CPU delays every rank on it.
    Fix disturbs: every job on this node.
    Judges: WARN for machine checks, many corrected errors and repeated overheating of processors.
    Fix: Run the vendor's hardware diagnostic and drain the node when it is idle.
    Threshold: 100 corrected errors and 3 hot spells are our thresholds, no external source.
    False positives: Test injections, and corrected errors that a firmware counts loudly.
    Error texts:
    - mce: [Hardware Error]: Machine check events logged
    """
    # Where EDAC names the module, kernel.memory tells of the same error.
    events = [event for event in log.since(log.cpus, moment) if not (log.ram and "EDAC" in event.text)]
    now = [event for event in events if event.when.at >= log.booted]
    findings: list[Finding] = []
    for kind in _MEANING:
        same = [event for event in events if event.kind == kind]
        if same:
            findings.append(_judge_processors(kind, same, [event for event in now if event.kind == kind]))
    yield from findings
    if not findings:
        yield Finding.ok(f"no CPU error or throttling in {log.span}")


_MEANING = {
    "uncorrected": "uncorrected errors of CPU or memory",
    "corrected": "corrected errors of CPU or memory",
    "recorded": "machine checks recorded, no details in this log",
    "hot": "CPU throttled by heat",
}


_ERRORS = "An uncorrected error of CPU or memory kills programs or the node."


def _judge_processors(kind: str, events: Sequence[CpuEvent], now: Sequence[CpuEvent]) -> Finding:
    summary, subject = f"{_MEANING[kind]}{times(events)}", f"cpu:{kind}"
    spells = len({int((event.when.seconds or 0.0) // _SPELL_SECONDS) for event in now})
    enough = {"uncorrected": 1, "corrected": CORRECTED, "recorded": CORRECTED, "hot": HOT_SPELLS}[kind]
    if (spells if kind == "hot" else len(now)) < enough:
        return Finding.info(summary, subject=subject, evidence=evidence_of(events))
    if kind == "hot":
        steps = (look("sudo ipmitool sdr type Temperature"), look("sudo ipmitool sdr type Fan"))
        fix = Fix(
            "Check fans, filters and CPU coolers.", steps, "investigate", "nothing", "nodedoctor kernel.cpu"
        )
    else:
        steps = (look("sudo ras-mc-ctl --errors"), look("sudo ipmitool sel list | tail -20"))
        fix = Fix(
            "Drain the node and update its firmware; if errors return, request a replacement "
            "of CPU, board or memory.",
            steps,
            "drain",
            "every job on this node",
            "nodedoctor kernel.cpu",
        )
    warning = Finding.warn(summary, subject=subject, evidence=evidence_of(events), fix=fix)
    return warning.matters_as("A hot CPU delays every rank on it." if kind == "hot" else _ERRORS)
