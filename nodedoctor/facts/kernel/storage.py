"""Lines of the kernel about disks, file systems and processors.

Formats: linux, drivers/nvme/host/{pci,core}.c, block/blk-core.c, drivers/md/{raid1,raid10,raid5,md}.c,
fs/ext4/super.c, fs/jbd2/journal.c, fs/xfs/{xfs_message,xfs_fsops,xfs_error}.c, fs/btrfs/messages.c;
lustre-release, lustre/ptlrpc/import.c; fs/ceph/mds_client.c;
arch/x86/kernel/cpu/mce/{core,therm_throt}.c, drivers/edac/mce_amd.c,
drivers/firmware/efi/cper.c.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from nodedoctor.facts.kernel.events import CpuEvent, CpuKind, StorageEvent, StorageKind
from nodedoctor.facts.kernel.lines import EVIDENCE, KernelLine
from nodedoctor.patterns import regex

STORAGE_WORDS = (
    "nvme ",
    "I/O error",
    "medium error",
    "md/raid",
    "EXT4-fs",
    "Aborting journal",
    "XFS (",
    "BTRFS",
    "Lustre",
    "ceph: ",
)
CPU_WORDS = ("Machine Check", "[Hardware Error]", "above threshold, cpu clock")

_DISK = r"(?:nvme\d|sd[a-z]|vd[a-z]|xvd|dm-\d|md\d|rbd\d|mmcblk)[\w-]{0,24}"
"""Loop, floppy, optical and compressed-memory devices are left out: their errors are a missing medium's."""

_PATTERNS: tuple[tuple[re.Pattern[str], StorageKind], ...] = (
    (
        regex(
            r"nvme (?P<device>nvme\d{1,4}): (?:controller is down|Removing after probe failure"
            r"|Device not ready;|Disabling device after reset failure|Identify Controller failed)"
        ),
        "dead",
    ),
    (regex(r"nvme (?P<device>nvme\d{1,4}): I/O (?:tag )?\d.*timeout, completion polled"), "interrupt"),
    (regex(r"nvme (?P<device>nvme\d{1,4}): I/O (?:tag )?\d.*timeout, (?:aborting|reset|disable)"), "timeout"),
    (regex(rf"(?:I/O|critical (?:medium|target)) error, dev (?P<device>{_DISK}), sector"), "io-error"),
    (regex(r"md/raid\w*:(?P<device>md\w{1,16}): Disk failure on (?P<part>[\w-]{1,32})"), "raid"),
    (regex(r"md/raid\w*:(?P<device>md\w{1,16}): (?:not enough operational|Cannot continue)"), "raid"),
    (regex(r"EXT4-fs error \(device (?P<device>[\w.-]{1,32})\)"), "file-system"),
    (regex(r"EXT4-fs \((?P<device>[\w.-]{1,32})\): Remounting filesystem read-only"), "read-only"),
    (regex(r"Aborting journal on device (?P<device>(?:(?!-8\.?(?:\s|$))[\w-]){1,32})"), "read-only"),
    (
        regex(
            r"XFS \((?P<device>[\w.-]{1,32})\): .*"
            r"(?:Filesystem has been shut down|[Ss]hutting down filesystem)"
        ),
        "read-only",
    ),
    (
        regex(r"XFS \((?P<device>[\w.-]{1,32})\): (?:.*metadata I/O error|.*[Cc]orruption|.*log I/O error)"),
        "file-system",
    ),
    (regex(r"BTRFS (?:error|critical) \(device (?P<device>[\w.-]{1,32})"), "file-system"),
    (
        regex(r"(?P<system>Lustre): .{0,200}?Connection to (?P<device>\S{1,128}) \(at \S+\) was lost"),
        "connection-lost",
    ),
    (
        # The import's own name holds the target: what follows "to" is the server's address since 2.11.
        regex(
            r"(?P<system>Lustre): .{0,160}?\b(?P<device>[\w-]{1,128}?)-(?:osc|mdc|mdt|MDT\w{4}-osp)-\w{1,20}:"
            r" Connection restored to"
        ),
        "connection-back",
    ),
    (regex(r"(?P<system>Lustre): .{0,200}?Connection restored to (?P<device>\S{1,128})"), "connection-back"),
    (regex(r"(?P<system>ceph): .{0,80}?(?P<device>mds\d{1,6}) hung$"), "connection-lost"),
    (regex(r"(?P<system>ceph): .{0,80}?(?P<device>mds\d{1,6}) came back$"), "connection-back"),
)


def storage(line: KernelLine) -> StorageEvent | None:
    """What a disk, an array, a file system or its server went through."""
    for pattern, kind in _PATTERNS:
        if match := pattern.search(line.text):
            system = match.groupdict().get("system", "").lower()
            return StorageEvent(line.when, line.text[:EVIDENCE], kind, match.group("device"), system)
    return None


_HOT = regex(r"CPU(\d{1,5}): (?:Core|Package) temperature (?:is )?above threshold")
_BANK = regex(
    r"CPU (?P<cpu>\d{1,5}): Machine Check(?: Exception| Event)?: \w{1,4} Bank \d{1,3}: "
    r"(?:0x)?(?P<status>[0-9a-f]{16})"
)
_AMD = regex(r"\[Hardware Error\]: (?P<kind>Corrected|Deferred|Uncorrected|System Fatal|Machine Check)\b")
_RECORDED = "Machine check events logged"
_APEI = regex(r"event severity: (?P<severity>corrected|recoverable|fatal|panic)")
_SECTION = regex(r"section_type: (?P<type>[\w -]{1,64})")
_UNCORRECTED_BIT = 61
"""MCi_STATUS.UC (Intel SDM volume 3B, 16.3.2.2; AMD APM volume 2, 9.3.2): the error was not corrected."""


def cpu(line: KernelLine, next_lines: Collection[str]) -> CpuEvent | None:
    """A machine check, an error the firmware reports, or a processor that slows itself because of heat.

    An error of the firmware names its section in `next_lines`; those of the PCI bus and of memory modules
    that EDAC names have readers of their own.
    """
    text = line.text[:EVIDENCE]
    if match := _HOT.search(line.text):
        return CpuEvent(line.when, text, "hot", int(match.group(1)))
    if match := _BANK.search(line.text):
        uncorrected = int(match.group("status"), 16) >> _UNCORRECTED_BIT & 1
        kind: CpuKind = "uncorrected" if uncorrected else "corrected"
        return CpuEvent(line.when, text, kind, int(match.group("cpu")))
    if match := _AMD.search(line.text):
        word = match.group("kind")
        if word == "Machine Check":
            return None
        return CpuEvent(line.when, text, "corrected" if word in ("Corrected", "Deferred") else "uncorrected")
    if _RECORDED in line.text:
        return CpuEvent(line.when, text, "recorded")
    if match := _APEI.search(line.text):
        section = next((row.group("type") for row in map(_SECTION.search, next_lines) if row), "")
        if "PCI" in section or not section:
            return None
        corrected = match.group("severity") == "corrected"
        return CpuEvent(line.when, f"{text}; {section}", "corrected" if corrected else "uncorrected")
    return None
