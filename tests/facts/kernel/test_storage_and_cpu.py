"""Disks, file systems and processors in the kernel log: from lines to findings."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from asking import judge, said
from examples import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from nodedoctor.facts.kernel.kernel_log import KernelLog
from nodedoctor.model import Finding, Moment, Unseen

NOW = datetime(2026, 11, 21, 12, tzinfo=timezone.utc)
ON_HOST = Unseen("missing-tool", "not asked")


def found(check: str, *lines: str) -> list[Finding]:
    log = KernelLog.parse(said("\n".join(lines) + "\n"), ON_HOST)
    assert isinstance(log, KernelLog)
    return judge(check, log, Moment(NOW, None))


def told(check: str, *lines: str) -> list[tuple[str, str]]:
    return [("note" if one.note else one.status.value, one.subject) for one in found(check, *lines)]


def at(*lines: str, start: float = 100.0, step: float = 400.0) -> list[str]:
    return [f"[{start + step * n:12.6f}] {line}" for n, line in enumerate(lines)]


DOWN = "nvme nvme2: controller is down; will reset: CSTS=0xffffffff, PCI_STATUS=0xffff"
TIMEOUT = (
    "nvme nvme2: I/O tag 12 (100c) opcode 0x2 (I/O Cmd) QID 3 timeout, aborting req_op:READ(0) size:4096"
)
LOST = (
    "Lustre: lustre-OST0003-osc-ffff9a: Connection to lustre-OST0003 (at 10.0.0.5@o2ib) was lost; in progress"
    " operations using this service will wait for recovery to complete"
)
BACK = "Lustre: lustre-OST0003-osc-ffff9a: Connection restored to lustre-OST0003 (at 10.0.0.5@o2ib)"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([DOWN], [("warn", "disk:nvme2/dead")]),
        (["nvme nvme2: Removing after probe failure status: -19"], [("warn", "disk:nvme2/dead")]),
        ([TIMEOUT], [("note", "disk:nvme2/timeout")]),
        ([TIMEOUT] * 3, [("warn", "disk:nvme2/timeout")]),
        (["nvme nvme0: I/O 12 QID 3 timeout, completion polled"] * 9, [("note", "disk:nvme0/interrupt")]),
        (
            ["I/O error, dev nvme1n1, sector 88 op 0x0:(READ) flags 0x0 phys_seg 1 prio class 2"] * 2,
            [("warn", "disk:nvme1n1/io-error")],
        ),
        (["blk_update_request: I/O error, dev sda, sector 0"], [("note", "disk:sda/io-error")]),
        (
            ["critical medium error, dev sdb, sector 99 op 0x0:(READ) flags 0x0"] * 2,
            [("warn", "disk:sdb/io-error")],
        ),
        (
            [
                "md/raid1:md0: Disk failure on nvme1n1, disabling device.",
                "md/raid1:md0: Operation continuing on 1 devices.",
            ],
            [("warn", "disk:md0/raid")],
        ),
        (
            ["EXT4-fs error (device nvme0n1p2): ext4_find_entry:1455: inode #2: comm ls: reading directory"],
            [("warn", "disk:nvme0n1p2/file-system")],
        ),
        (["EXT4-fs (sda1): Remounting filesystem read-only"], [("warn", "disk:sda1/read-only")]),
        (
            ["XFS (md0): Filesystem has been shut down due to log error (0x2)."],
            [("warn", "disk:md0/read-only")],
        ),
        (
            ['XFS (dm-0): metadata I/O error in "xfs_imap_to_bp+0x5b/0x80 [xfs]" at daddr 0x10 error 5'],
            [("warn", "disk:dm-0/file-system")],
        ),
        ([LOST], [("warn", "lustre:lustre-OST0003")]),
        ([LOST, BACK], [("note", "lustre:lustre-OST0003")]),
    ],
)
def test_disks_and_file_systems(lines, expected):
    assert told("kernel.storage", *at(*lines)) == expected


USUAL = [
    "nvme nvme0: pci function 0000:e1:00.0",
    "nvme nvme0: 127/0/0 default/read/poll queues",
    "nvme nvme0: Shutdown timeout set to 10 seconds",
    "EXT4-fs (nvme0n1p2): mounted filesystem 1b2c r/w with ordered data mode. Quota mode: none.",
    "EXT4-fs (nvme0n1p2): re-mounted 1b2c r/w. Quota mode: none.",
    "XFS (md0): Mounting V5 Filesystem",
    "XFS (md0): Ending clean mount",
    "md/raid1:md0: active with 2 out of 2 mirrors",
    "I/O error, dev loop3, sector 0 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2",
    "I/O error, dev sr0, sector 0",
    "I/O error, dev fd0, sector 0 op 0x0:(READ) flags 0x0",
    "BTRFS info (device sdb1): using crc32c",
    "Lustre: Mounted lustre-client",
    "mce: CPU0: Thermal monitoring enabled (TM1)",
    "mce: Using 32 MCE banks",
    "MCE: In-kernel MCE decoding enabled.",
    "mce: CPU46: Package temperature/speed normal",
    "CPU0: Core temperature/speed normal",
]


def test_what_every_boot_prints_is_no_trouble():
    assert [one.status.value for one in found("kernel.storage", *at(*USUAL))] == ["pass"]
    assert [one.status.value for one in found("kernel.cpu", *at(*USUAL))] == ["pass"]


def test_what_happened_before_this_boot_is_over():
    lines = at(
        DOWN, "Linux version 6.8.0-64-generic (buildd@lcy02) (gcc 12.3.0)", "XFS (md0): Ending clean mount"
    )
    assert told("kernel.storage", *lines) == [("note", "disk:nvme2/dead")]


HOT = "mce: CPU12: Package temperature above threshold, cpu clock throttled (total events = 4)"
HOTTER = "CPU12: Core temperature is above threshold, cpu clock is throttled (total events = 9)"  # Linux 5.6
APEI = (
    "{1}[Hardware Error]: Hardware error from APEI Generic Hardware Error Source: 1",
    "{1}[Hardware Error]: event severity: recoverable",
    "{1}[Hardware Error]:  Error 0, type: recoverable",
    "{1}[Hardware Error]:   section_type: general processor error",
)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            ["mce: [Hardware Error]: CPU 12: Machine Check: 0 Bank 5: be00000000800400"],
            [("warn", "cpu:uncorrected")],
        ),
        (
            ["mce: [Hardware Error]: CPU 12: Machine Check: 0 Bank 5: 9c00004000010091"],
            [("note", "cpu:corrected")],
        ),
        (["mce: [Hardware Error]: Machine check events logged"], [("note", "cpu:recorded")]),
        (["[Hardware Error]: Corrected error, no action required."] * 100, [("warn", "cpu:corrected")]),
        (["[Hardware Error]: Uncorrected, software restartable error."], [("warn", "cpu:uncorrected")]),
        (list(APEI), [("warn", "cpu:uncorrected")]),
        ([HOT], [("note", "cpu:hot")]),
        ([HOT] * 3, [("warn", "cpu:hot")]),
        ([HOTTER] * 3, [("warn", "cpu:hot")]),
    ],
)
def test_processors(lines, expected):
    assert told("kernel.cpu", *at(*lines)) == expected


def test_one_hot_spell_on_all_processors_is_one():
    lines = [f"mce: CPU{n}: Package temperature above threshold, cpu clock throttled" for n in range(96)]
    assert told("kernel.cpu", *at(*lines, step=0.01)) == [("note", "cpu:hot")]


def test_errors_of_the_bus_are_not_told_twice():
    bus = [
        *APEI[:3],
        "{1}[Hardware Error]:   section_type: PCIe error",
        "{1}[Hardware Error]:   device_id: 0000:5d:00.0",
    ]
    assert [one.status.value for one in found("kernel.cpu", *at(*bus, step=0.01))] == ["pass"]


@settings(max_examples=examples(60))
@given(st.text(max_size=80), st.sampled_from([DOWN, TIMEOUT, LOST, HOT, *APEI]), st.integers(0, 60))
def test_half_a_line_and_noise_are_read_without_harm(noise, line, cut):
    for check in ("kernel.storage", "kernel.cpu"):
        assert found(check, f"[ 9.0] {noise}{line[:cut]}", f"[10.0] {line[cut:]}{noise}")
