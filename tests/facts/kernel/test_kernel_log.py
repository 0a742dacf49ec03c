"""The kernel's log: from lines in every form to findings."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from datetime import datetime, timezone
from functools import cache
from pathlib import Path

import pytest
from asking import ask, brief, judge, said, write
from hypothesis import given
from hypothesis import strategies as st

from nodedoctor.facts.gpu.gpu import Gpu
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.host.container import Container
from nodedoctor.facts.kernel.kernel_log import _WORDS, KernelLog, kernel_log
from nodedoctor.facts.pci.pci import Pci, PciDevice
from nodedoctor.model import Moment, Observation, Outcome, Unseen
from nodedoctor.probes.kernel import kernel_log as child

NOW = datetime(2026, 11, 21, 12, tzinfo=timezone.utc)
ON_HOST = Unseen("missing-tool", "not asked")
GPU3 = "0000:4b:00.0"


def log(*lines: str) -> KernelLog:
    found = KernelLog.parse(said("\n".join(lines) + "\n"), ON_HOST)
    assert isinstance(found, KernelLog)
    return found


def found(
    check: str, *lines: str, gpus: Gpus | None = None, pci: Pci | None = None, since: datetime | None = None
):
    facts = [fact for fact in (gpus, pci) if fact is not None]
    return judge(check, log(*lines), Moment(NOW, since), *facts)


def xid(code: int, rest: str = "", *, bus: str = "0000:4b:00", seconds: float = 100.0) -> str:
    return f"[{seconds:12.6f}] NVRM: Xid (PCI:{bus}): {code}, {rest}"


def gpus(**fields: object) -> Gpus:
    return Gpus("nvml", gpus=(Gpu(3, bus_id=GPU3, recovery_action="none", **fields),))  # type: ignore[arg-type]


def pci(*devices: PciDevice) -> Pci:
    return Pci(devices)


BRIDGE = PciDevice("0000:4a:00.0", "8086", "352a", "060400")
A_GPU = PciDevice(GPU3, "10de", "2330", "030200", upstream=("0000:4a:00.0",))
ADAPTER = PciDevice("0000:5d:00.0", "15b3", "1021", "020700")
DISK = PciDevice("0000:02:00.0", "144d", "a80a", "010802")


# How a line may begin: formats of journalctl, dmesg and syslog, and of a mail that quotes one.
@pytest.mark.parametrize(
    ("head", "seconds", "absolute"),
    [
        ("[   12.345678] ", 12.345678, False),
        ("[Sun Feb 23 16:24:18 2025] ", 1740327858.0, False),
        ("2025-02-23T16:24:18+0000 gpu-7 kernel: ", 1740327858.0, True),
        ("2025-02-23T16:24:18.250000+01:00 gpu-7 kernel: ", 1740324258.25, True),
        ("2025-02-23T16:24:18,250000+00:00 ", 1740327858.25, True),
        ("2025-02-23 16:24:18 ", 1740327858.0, False),
        ("kern  :err   : [   12.345678] ", 12.345678, False),
        ("Feb 23 16:24:18 gpu-7 kernel: [   12.345678] ", None, False),
        ("Okt 06 17:59:27 gpu-7 kernel: ", None, False),
        (">  [   12.345678] ", 12.345678, False),
        ("[   12.345678] [T4242] ", 12.345678, False),
        ("[  +0.000844] ", None, False),
        ("[Feb23 16:24] ", None, False),
        ("<3>", None, False),
        ("", None, False),
    ],
)
def test_every_prefix_leads_to_the_message(head, seconds, absolute):
    event = log(
        f"{head}NVRM: Xid (PCI:0000:4b:00): 79, pid=7, name=python3, GPU has fallen off the bus."
    ).xids[0]
    assert (event.code, event.device, event.pid, event.name) == (79, GPU3, 7, "python3")
    assert event.text.startswith("NVRM: Xid")
    assert event.when.absolute is absolute
    if seconds is not None:
        assert event.when.seconds == pytest.approx(seconds)


@pytest.mark.parametrize(
    ("line", "code", "device", "pid", "name", "mig"),
    [
        (xid(13, "pid='<unknown>', name=<unknown>, Graphics SM Warp Exception"), 13, GPU3, None, None, None),
        (xid(31, "pid=9, name=ray::train, Ch 0000000a", bus="0000:4b:00.0"), 31, GPU3, 9, "ray::train", None),
        (
            xid(43, "pid=9, name=a, Ch 1", bus="0000:4b:00 GPU-I:05 GPU-CI:00"),
            43,
            GPU3,
            9,
            "a",
            "GPU-I:05 GPU-CI:00",
        ),
        ("NVRM: Xid (0000:4b:00): 14, Channel 00000001", 14, GPU3, None, None, None),
        ("NVRM: Xid (4b:00): 8, Channel 0000", 8, GPU3, None, None, None),
        ("Xid (PCI:0008:01:00): 149, NETIR", 149, "0008:01:00.0", None, None, None),
        (xid(79, "pid=1122, GPU has fallen off the bus."), 79, GPU3, 1122, None, None),
    ],
)
def test_forms_of_an_xid(line, code, device, pid, name, mig):
    event = log(line).xids[0]
    assert (event.code, event.device, event.pid, event.name, event.mig) == (code, device, pid, name, mig)


def test_a_gpu_off_the_bus_without_a_number_counts_as_79_and_only_once():
    told = (
        "[ 9.1] NVRM: The NVIDIA GPU 0000:b3:00.0",
        "               NVRM: (PCI ID: 10de:26b5) installed in this system has",
        "               NVRM: fallen off the bus and is not responding to commands.",
        "[ 9.2] NVRM: GPU 0000:4b:00.0: GPU has fallen off the bus.",
    )
    assert [(x.code, x.device) for x in log(*told).xids] == [(79, "0000:b3:00.0"), (79, GPU3)]
    assert len(log(xid(79, "GPU has fallen off the bus."), told[3]).xids) == 1


XIDS = [
    (["[1.0] usb 1-1: new high-speed USB device"], "pass", None),
    ([xid(79, "GPU has fallen off the bus.")], "fail", "reboot"),
    ([xid(48), xid(63), xid(94), xid(45)], "fail", "reset-gpu"),
    ([xid(94, "Contained")], "fail", "restart-job"),
    ([xid(64, "Row Remapper Error: (0x1) - All reserved rows for bank are remapped")], "fail", "replace"),
    ([xid(94), xid(64, "Row Remapper Error: Table is full", seconds=300.0)], "fail", "replace"),
    (
        [
            xid(64, "All reserved rows for bank are remapped"),
            xid(154, "GPU recovery action changed from 0x0 (None) to 0x1 (GPU Reset Required)"),
        ],
        "fail",
        "replace",
    ),
    ([xid(64, "Row Remapper Error: (0x1, 0x0) - InfoROM could not be written")], "fail", "reset-gpu"),
    ([xid(63, "Row Remapper: New row marked for remapping")], "warn", "drain"),
    ([xid(13), xid(13)], "note", None),
    ([xid(13, "pid=7, name=a, Ch 1"), xid(13, "pid=8, name=b, Ch 1", seconds=999)], "warn", "restart-job"),
    ([xid(31, f"pid={n}, name=a, Ch 1", seconds=999.0 * n) for n in range(1, 5)], "note", None),
    ([xid(31, f"pid={n}, name=a, Ch 1", seconds=999.0 * n) for n in range(1, 6)], "warn", "restart-job"),
    ([xid(43)], "note", None),
    ([xid(92)], "note", None),
    ([xid(44)], "note", None),
    ([xid(44), xid(44)], "warn", "none"),
    ([xid(45, f"pid={n}, name=python3, Ch {n}") for n in range(300)], "note", None),
    ([xid(31), xid(45)], "note", None),
    ([xid(45, "Ch 1 caused by previous Xid 119")], "fail", "reset-gpu"),
    ([xid(999)], "warn", "investigate"),
    (
        [xid(31), xid(154, "GPU recovery action changed from 0x0 (None) to 0x2 (Node Reboot Required)")],
        "fail",
        "reboot",
    ),
    ([xid(154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)")], "note", None),
    (
        [xid(154, "GPU recovery action changed from 0x0 (None) to 0x5 (Recover IMEX)")],
        "fail",
        "restart-service",
    ),
    ([xid(154, "GPU recovery action changed from 0x0 (None) to 0x1 (PF FLR)")], "fail", "reset-gpu"),
    ([xid(154, "GPU recovery action changed from 0x0 (None) to 0x2 (OS Reboot)")], "fail", "reboot"),
    ([xid(154, "GPU recovery action changed from 0x0 (None) to 0x6 (Bus Reset)")], "fail", "reset-gpu"),
    ([xid(154, "GPU recovery action changed from 0x0 (None) to 0x7 (System Reboot)")], "fail", "reboot"),
    ([xid(154, "GPU recovery action changed from 0x0 (None) to 0x1e (New)")], "fail", "investigate"),
    (
        [
            xid(95),
            xid(154, "GPU recovery action changed from 0x1 (GPU Reset Required) to 0x0 (None)", seconds=200),
        ],
        "note",
        None,
    ),
    (
        [xid(149, "NETIR_LINK_EVT  Fatal   XC0 i0 Link 14 (0x99999999 0x00000000 0x0 0x0 0x0 0x0)")],
        "fail",
        "reset-gpu",
    ),
    (
        [xid(145, "RLW_X Nonfatal XC0 i0 Link 13 (0x99999999 0x00000000 0x0 0x0 0x0 0x0)")],
        "warn",
        "investigate",
    ),
    # The layout of an older driver, in a log that does not say which driver wrote it.
    ([xid(145, "RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008 0x1 0x0 0x0 0x0)")], "note", None),
    # A word of neither layout, of a unit that NVIDIA always answers in the same way for this status.
    ([xid(145, "RLW_CTRL Nonfatal XC1 i0 Link 09 (0x00008025 0x80000000 0x0 0x0 0x0 0x0)")], "note", None),
    (
        [xid(145, "RLW_SRC_TRACK Nonfatal XC0 i0 Link 2 (0x00000e2 0x00000004 0x0 0x0)")],
        "warn",
        "restart-job",
    ),
    # Somebody took the link down: no reset is asked for, and the link is gone.
    ([xid(149, "NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x026001c6 0x0 0x0 0x0 0x0 0x0)")], "warn", "none"),
    ([xid(149, "NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x0 0x0 0x0 0x0 0x0)")], "fail", "reset-gpu"),
]


@pytest.mark.parametrize(("lines", "status", "action"), XIDS)
def test_xids_by_what_the_catalogue_says(lines, status, action):
    (one,) = found("kernel.xid", *lines)
    assert ("note" if one.note else one.status.value) == status, one.summary
    assert (one.fix.action if one.fix else None) == action


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ("(0x0, 0x0, 0x10000, 0x0, 0x0, 0x0, 0x0)", ["link 7", "when it repeats: diagnostics"]),
        ("(0x200010, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", ["marginal signal", "ECC or parity error"]),
        ("(0x0, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)", []),
        ("", []),
        ("(0x10", []),
    ],
)
def test_the_registers_of_a_link_are_read(words: str, told: list[str]) -> None:
    (one,) = found("kernel.xid", xid(74, f"NVLink: fatal error detected on link 7{words}"))
    assert one.fix is not None and all(word in one.fix.text for word in told)
    assert ("the registers of link 7" in one.fix.text) == bool(told)


DAYS = 86400.0


def test_a_programs_error_is_the_programs_until_another_one_fails_on_the_gpu():
    last = f"[{20 * DAYS:.6f}] usb 1-1: new device"
    old = xid(31, "pid=9, name=python3, MMU Fault")
    (one,) = found("kernel.xid", old, last, gpus=gpus())
    assert one.note and "python3" in one.summary and one.status.value == "pass"
    assert brief(found("kernel.xid", old, last)) == [("note", "xid:programs")]
    assert brief(found("kernel.xid", old, last, gpus=gpus(remap_pending=True))) == [("warn", "gpu:3")]
    # Different programs on one GPU speak against the GPU, however long ago.
    another = xid(31, "pid=77, name=train.py, MMU Fault", seconds=5000)
    assert brief(found("kernel.xid", old, another, last, gpus=gpus())) == [("warn", "gpu:3")]
    hardware = xid(79, "GPU has fallen off the bus.")
    assert brief(found("kernel.xid", old, hardware, last, gpus=gpus()))[0] == ("fail", "gpu:3")


def test_an_api_mismatch_names_both_versions_and_no_time_of_the_log():
    told = ("[  132.1] NVRM: API mismatch: the client has the version 550.90.07, but",)
    (one,) = found("kernel.driver", *told, "[  132.1] NVRM: this kernel module has the version 550.54.15.")
    assert "550.90.07 and 550.54.15" in one.summary


def test_what_a_broken_link_leaves_behind_is_no_error_of_the_program():
    last = f"[{20 * DAYS:.6f}] usb 1-1: new device"
    removed = xid(45, "pid=9, name=python3, Ch 1 caused by previous Xid 149")
    (one,) = found("kernel.xid", removed, last, gpus=gpus())
    assert (one.status.value, one.subject) == ("warn", "gpu:3") and "NVLink" in one.summary
    refused = xid(137, "pid=9, name=python3", seconds=120)
    down = xid(149, "NETIR_LINK_EVT Fatal XC0 i0 Link 00 (0x025001c6 0x0)", bus="0000:09:00.0", seconds=100)
    assert brief(found("kernel.xid", refused, last, gpus=gpus())) == [("note", "xid:programs")]
    both = {one.subject: one for one in found("kernel.xid", refused, down, last, gpus=gpus())}
    assert both["gpu:3"].status.value == "warn" and len(both) == 2
    other = next(subject for subject in both if subject != "gpu:3")
    assert f"kernel.xid@{other}" in both["gpu:3"].explainers
    assert "kernel.xid@gpu:3" not in both[other].explainers


def test_one_buggy_job_on_many_gpus_is_one_note():
    ranks = [
        xid(13, f"pid={100 + n}, name=python3, Ch 1", bus=f"0000:{n:02x}:00.0", seconds=50 + n)
        for n in range(8)
    ]
    (one,) = found("kernel.xid", *ranks)
    assert one.note and "8 GPUs" in one.summary
    assert found("kernel.xid", ranks[0], xid(13, "pid=5, name=other, Ch 1", bus="0000:09:00.0", seconds=51))[
        0
    ].note


def test_a_remapped_row_is_only_told_while_it_waits_for_a_reset():
    row = xid(63, "Row Remapper: New row marked for remapping")
    (calm,) = found("kernel.xid", row, gpus=gpus(remap_pending=False))
    assert (calm.note, calm.subject) == (True, "xid:remapped") and "program" not in calm.summary
    assert brief(found("kernel.xid", row, gpus=gpus(remap_pending=True))) == [("warn", "gpu:3")]


def test_xid_names_the_gpu_by_number_when_it_can():
    assert brief(found("kernel.xid", xid(79), gpus=gpus())) == [("fail", "gpu:3")]
    assert brief(found("kernel.xid", xid(79), pci=pci(A_GPU))) == [("fail", "gpu:0")]
    assert brief(found("kernel.xid", xid(79))) == [("fail", f"pci:{GPU3}")]
    (one,) = found("kernel.xid", xid(119), gpus=gpus())
    assert one.fix is not None and "sudo nvidia-smi --gpu-reset -i 3" in one.fix.commands


def test_the_driver_s_recovery_action_decides_the_fix_and_the_error_is_named():
    (one,) = found(
        "kernel.xid",
        xid(74),
        xid(154, "GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)"),
    )
    assert one.fix is not None and one.fix.action == "drain"
    assert "Xid 74" in one.summary and "Xid 154" in one.summary


LOADED = "[  500.000000] NVRM: loading NVIDIA UNIX Open Kernel Module for x86_64  570.86.10  Release Build"


def test_an_error_before_the_last_driver_load_is_history_only_with_clean_counters():
    assert brief(found("kernel.xid", xid(79), LOADED, gpus=gpus(ecc_volatile_uncorrectable=0))) == [
        ("note", "gpu:3")
    ]
    assert brief(found("kernel.xid", xid(79), LOADED)) == [("fail", f"pci:{GPU3}")]
    assert brief(found("kernel.xid", xid(48), LOADED, gpus=gpus(remap_pending=True))) == [("fail", "gpu:3")]
    assert brief(found("kernel.xid", LOADED, xid(79, seconds=600), gpus=gpus())) == [("fail", "gpu:3")]
    # The driver says that it was loaded after it has tried its GPUs.
    assert brief(found("kernel.xid", xid(79, seconds=499), LOADED, gpus=gpus())) == [("fail", "gpu:3")]
    # A program's fault needs no counters to be over.
    assert brief(found("kernel.xid", xid(31), LOADED)) == [("note", "xid:programs")]


def test_a_memory_error_that_the_gpu_counts_no_more_is_history():
    """A GPU counts it until it is reset, and the kernel need not say that it was."""
    reset = gpus(ecc_volatile_uncorrectable=0)
    for code in (48, 94, 95):
        assert brief(found("kernel.xid", xid(code), gpus=reset)) == [("note", "gpu:3")]
        assert brief(found("kernel.xid", xid(code), gpus=gpus(ecc_volatile_uncorrectable=1))) == [
            ("fail", "gpu:3")
        ]
        assert brief(found("kernel.xid", xid(code), gpus=gpus(ecc_volatile_uncorrectable=None))) == [
            ("fail", "gpu:3")
        ]
        pending = gpus(ecc_volatile_uncorrectable=0, remap_pending=True)
        assert brief(found("kernel.xid", xid(code), gpus=pending)) == [("fail", "gpu:3")]
    assert brief(found("kernel.xid", xid(79), gpus=reset)) == [("fail", "gpu:3")]


def test_what_a_switch_or_the_bus_reported_before_the_driver_was_loaded_again_is_history():
    fatal = sxid(20034, "Fatal", "Link 48 LTSSM Fault Up")
    assert brief(found("kernel.sxid", fatal, LOADED)) == [("note", "nvswitch:0")]
    assert brief(found("kernel.sxid", LOADED, sxid(20034, "Fatal", "Link 48", seconds=900))) == [
        ("fail", "nvswitch:0")
    ]
    lost = f"[100.0] pcieport 0000:4a:00.0: AER: Uncorrected (Fatal) error received: {GPU3}"
    error = f"[100.1] nvidia {GPU3}: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer"
    devices = pci(BRIDGE, A_GPU)
    assert "fail" in {f.status.value for f in found("kernel.pcie", lost, error, pci=devices)}
    after = found("kernel.pcie", error, LOADED, pci=devices)
    assert [(f.status.value, f.note) for f in after] == [("pass", True)]


def test_since_leaves_out_what_is_older_where_the_time_is_certain():
    old = (
        "2026-11-20T01:00:00+00:00 gpu-7 kernel: NVRM: Xid (PCI:0000:4b:00): 79, GPU has fallen off the bus."
    )
    yesterday = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)
    assert brief(found("kernel.xid", old, since=yesterday)) == [("pass", "")]
    assert brief(found("kernel.xid", old)) == [("fail", f"pci:{GPU3}")]
    assert brief(found("kernel.xid", old.replace("+00:00", ""), since=yesterday)) == [("fail", f"pci:{GPU3}")]


def sxid(code: int, kind: str, rest: str, switch: int = 0, seconds: float = 110.0) -> str:
    return f"[{seconds:.3f}] nvidia-nvswitch{switch}: SXid (PCI:0000:05:00.0): {code}, {kind}, {rest}"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([sxid(12028, "Non-fatal", "Link 32 egress")], [("note", "nvswitch:0")]),
        ([sxid(12028, "Non-fatal", "Link 32 egress")] * 2, [("warn", "nvswitch:0")]),
        ([sxid(20034, "Fatal", "Link 48 LTSSM Fault Up")], [("fail", "nvswitch:0")]),
        ([sxid(20034, "Severity 1", "Engine instance 60")], [("pass", "")]),
        ([xid(79), sxid(20034, "Fatal", "Link 48", switch=2)], [("warn", "nvswitch:2")]),
        ([xid(79), sxid(20034, "Fatal", "Link 48", seconds=9000)], [("fail", "nvswitch:0")]),
    ],
)
def test_sxids(lines, expected):
    assert brief(found("kernel.sxid", *lines)) == expected


MISMATCH = (
    "[  52.1] NVRM: API mismatch: the client 'nvidia-smi' (pid 77)",
    "[  52.1] NVRM: has the version 570.86.10, but this kernel module has",
    "[  52.1] NVRM: the version 550.54.15.",
)


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            ["[1.0] nvidia: module verification failed: signature missing - tainting kernel", LOADED],
            [("pass", "")],
        ),
        (MISMATCH, [("fail", "driver:mismatch")]),
        ([*MISMATCH, LOADED], [("note", "driver:mismatch")]),
        (["[9.0] NVRM: GPU 0000:4b:00.0: RmInitAdapter failed! (0x62:0x40:2300)"], [("fail", f"pci:{GPU3}")]),
        (
            ["[9.0] nvidia 0000:4b:00.0: probe with driver nvidia failed with error -1"],
            [("fail", f"pci:{GPU3}")],
        ),
        (["[9.0] NVRM: No NVIDIA GPU found."], [("fail", "driver:no-gpu")]),
        (
            [
                "[9.0] NVRM: GPU 0000:4b:00.0 is already bound to vfio-pci.",
                "[9.1] NVRM: The NVIDIA probe routine was not called for 1 device(s).",
            ],
            [("note", "driver:no-gpu")],
        ),
        (
            ["[9.0] nvidia_peermem: disagrees about version of symbol ib_register_peer_memory_client"],
            [("warn", "driver:peermem")],
        ),
        (["[9.0] NVRM: GPU0 Failed to enter state 1"], [("pass", "")]),
    ],
)
def test_the_driver_about_itself(lines, expected):
    assert brief(found("kernel.driver", *lines)) == expected


def test_mismatch_tells_both_versions():
    (one,) = found("kernel.driver", *MISMATCH)
    assert "570.86.10 and 550.54.15" in one.summary


def test_a_driver_without_gpus_on_the_bus_is_no_fault():
    assert brief(found("kernel.driver", "[9.0] NVRM: No NVIDIA GPU found.", pci=pci(DISK))) == [
        ("note", "driver:no-gpu")
    ]


def aer(device: str, severity: str, driver: str = "pcieport") -> list[str]:
    return [
        f"[5.0] {driver} {device}: PCIe Bus Error: severity={severity}, type=Physical Layer, (Receiver ID)",
        f"[5.0] {driver} {device}:   device [8086:352a] error status/mask=00000001/00002000",
    ]


def repeated(lines: list[str], times: int, *, every: int) -> list[str]:
    """The lines again and again, so many seconds apart."""
    return [line.replace("[5.0]", f"[{5 + n * every}.0]") for n in range(times) for line in lines]


@pytest.mark.parametrize(
    ("lines", "devices", "expected"),
    [
        (aer("0000:02:00.0", "Corrected", "nvme"), None, "note"),
        (aer("0000:02:00.0", "Correctable", "nvme"), None, "note"),
        (aer("0000:4a:00.0", "Corrected") * 100, None, "warn"),
        (repeated(aer("0000:4a:00.0", "Corrected"), 24, every=40), None, "warn"),
        (repeated(aer("0000:4a:00.0", "Corrected"), 24, every=300), None, "note"),
        (repeated(aer("0000:4a:00.0", "Corrected"), 24, every=1), None, "note"),
        ([*aer("0000:4a:00.0", "Corrected"), "[9.0] aer_irq: 4021 callbacks suppressed"], None, "warn"),
        ([*aer("0000:4a:00.0", "Corrected"), "[9.0] aer_irq: 40 callbacks suppressed"], None, "note"),
        ([*aer("0000:4a:00.0", "Corrected"), "[9.0] net_ratelimit: 4021 callbacks suppressed"], None, "note"),
        (aer(GPU3, "Uncorrected (Fatal)", "nvidia"), None, "fail"),
        (aer(GPU3, "Uncorrectable (Non-Fatal)", "nvidia"), None, "fail"),
        (aer("0000:02:00.0", "Uncorrected (Non-Fatal)", "nvme"), None, "note"),
        (aer("0000:4a:00.0", "Uncorrected (Non-Fatal)"), None, "warn"),
        (aer("0000:4a:00.0", "Uncorrected (Fatal)"), None, "warn"),
        (aer("0000:4a:00.0", "Uncorrected (Fatal)"), pci(BRIDGE, A_GPU), "fail"),
        (
            [
                *aer("0000:4a:00.0", "Uncorrected (Fatal)"),
                f"[5.0] nvidia {GPU3}: AER: can't recover (no callback)",
            ],
            None,
            "fail",
        ),
        (aer("0000:02:00.0", "Uncorrected (Fatal)", "nvme"), pci(BRIDGE, A_GPU, DISK), "warn"),
        (
            ["[5.0] pcieport 0000:4a:00.0: DPC: containment event, status:0x1f01 source:0x0000"],
            pci(BRIDGE, A_GPU),
            "fail",
        ),
        (["[5.0] pcieport 0000:4a:00.0: pciehp: Slot(12): Link Down"], pci(BRIDGE, A_GPU), "fail"),
        (["[5.0] pcieport 0000:4a:00.0: pciehp: Slot(12): Link Up"], pci(BRIDGE, A_GPU), "pass"),
        (
            [
                "[5.0] {1}[Hardware Error]: event severity: fatal",
                "[5.0] {1}[Hardware Error]:   section_type: PCIe error",
                f"[5.0] {{1}}[Hardware Error]:   device_id: {GPU3}",
            ],
            pci(A_GPU),
            "fail",
        ),
        (
            [
                "[5.0] {1}[Hardware Error]: event severity: corrected",
                "[5.0] {1}[Hardware Error]:   node:0 card:1",
            ],
            None,
            "pass",
        ),
    ],
)
def test_pci_errors_by_whose_device_it_is(lines, devices, expected):
    (one,) = found("kernel.pcie", *lines, pci=devices)
    assert ("note" if one.note else one.status.value) == expected, one.summary


@pytest.mark.parametrize(
    ("lines", "status", "words"),
    [
        (
            [
                "[7.0] oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=x,oom_memcg=/slurm/job_9,"
                "task_memcg=/slurm/job_9/step,task=python3,pid=77,uid=1000",
                "[7.0] Memory cgroup out of memory: Killed process 77 (python3) anon-rss:104857600kB,"
                " file-rss:0kB, shmem-rss:2097152kB, UID:1000 pgtables:1kB oom_score_adj:0",
            ],
            "warn",
            ["pid 77", "102 GiB", "/slurm/job_9", "cgroup limit"],
        ),
        (
            ["[7.0] Out of memory: Killed process 77 (python3) anon-rss:104857600kB, file-rss:0kB"],
            "fail",
            ["pid 77", "100 GiB", "node out of memory"],
        ),
        (  # before Linux 4.19 only the first line names the control group
            [
                "[7.0] Memory cgroup out of memory: Kill process 77 (python3) score 900 or sacrifice child",
                "[7.0] Killed process 77 (python3) total-vm:9kB, anon-rss:1048576kB, file-rss:0kB",
            ],
            "warn",
            ["pid 77", "1 GiB", "cgroup limit"],
        ),
        (  # a kill for the whole node is never hidden by a later one for a limit
            [
                "[7.0] Out of memory: Killed process 77 (python3) anon-rss:1048576kB, file-rss:0kB",
                "[9.0] Memory cgroup out of memory: Killed process 78 (python3) anon-rss:1048576kB",
            ],
            "fail",
            ["pid 77", "node out of memory"],
        ),
        (
            [
                "[7.0] Out of memory: Kill process 78 (mysqld) score 900 or sacrifice child",
                "[7.0] Killed process 78 (mysqld) total-vm:9kB, anon-rss:1048576kB, file-rss:0kB",
            ],
            "warn",
            ["pid 78", "1 GiB", "node out of memory"],
        ),
        (["[7.0] oom_reaper: reaped process 77 (python3), now anon-rss:0kB"], "pass", []),
    ],
)
def test_killed_for_memory(lines, status, words):
    (one,) = found("kernel.oom", *lines)
    assert one.status.value == status
    told = f"{one.summary} {one.fix.text if one.fix else ''}"
    assert all(word in told for word in words), told


@pytest.mark.parametrize("stop", [":", "."])
def test_memory_that_the_kernel_did_not_get_for_itself_is_a_note(stop: str):
    """mm/page_alloc.c, warn_alloc; 2.6.32 wrote a full stop."""
    lines = (
        f"[7.0] kworker/3:1: page allocation failure{stop} order:9, mode:0x40dc0(GFP_KERNEL)",
        "[7.0] Call Trace:",
        "[7.0]  mlx5_frag_buf_alloc_node+0x8b/0x1c0 [mlx5_core]",
        "[7.0]  </TASK>",
    )
    well, one = found("kernel.oom", *lines)
    assert (well.status.value, one.subject) == ("pass", "kernel:pages")
    assert "mlx5_core" in one.summary and one.fix is None
    assert [finding.status.value for finding in found("kernel.hung", *lines)] == ["pass"]


@pytest.mark.parametrize(
    ("lines", "status", "words"),
    [
        (["[8.0] INFO: task python3:77 blocked for more than 120 seconds."], "fail", ["python3", "120 s"]),
        (
            [
                "[8.0] INFO: task kworker/1:2:77 blocked for more than 122 seconds.",
                "[8.0]  nv_open+0x12/0x90 [nvidia]",
            ],
            "fail",
            ["in nvidia"],
        ),
        (["[8.0] INFO: task jbd2/sda1-8:77 blocked for more than 120 seconds."], "warn", ["jbd2/sda1-8"]),
        (["[8.0] watchdog: BUG: soft lockup - CPU#12 stuck for 22s! [kworker/1:3:77]"], "warn", ["22 s"]),
        (
            ["[8.0] BUG: unable to handle page fault", "[8.0] RIP: 0010:_nv012+0x1/0x2 [nvidia]"],
            "fail",
            ["nvidia"],
        ),
        (["[8.0] Kernel panic - not syncing: Fatal exception"], "fail", []),
        (["[8.0] nfs: server store-1 not responding, still trying"], "warn", ["store-1"]),
        (["[8.0] nfs: server s not responding, still trying", "[9.0] nfs: server s OK"], "pass", []),
        (["[8.0] Oops: 0000 [#1] PREEMPT SMP NOPTI"], "fail", []),
        (["[8.0] rcu: INFO: rcu_sched self-detected stall on CPU"], "warn", []),
        (
            ["[8.0] python3[77]: segfault at 0 ip 00007f sp 00007f error 4 in libnccl.so.2.27.5[7f00+1]"],
            "warn",  # a bug of a job's as a rule, as Xid 13 is
            ["libnccl"],
        ),
        (
            ["[8.0] traps: pt_main[77] general protection fault ip:7f sp:7f error:0 in libcuda.so.1[7f+1]"],
            "warn",
            [],
        ),
        (["[8.0] traps: python3[77] trap int3 ip:7f sp:7f error:0 in libtorch_cpu.so[7f+1]"], "pass", []),
        (["[8.0] traps: python3[77] trap divide error ip:7f sp:7f in libtorch_cpu.so[7f+1]"], "warn", []),
        (["[8.0] chrome[77]: segfault at 0 ip 00007f sp 00007f error 4 in chrome[55+1]"], "note", ["chrome"]),
    ],
)
def test_hangs_and_crashes(lines, status, words):
    (one,) = found("kernel.hung", *lines)
    assert ("note" if one.note else one.status.value) == status, one.summary
    assert all(word in one.summary for word in words), one.summary


NIC = "mlx5_core 0000:5d:00.0"


def slot(bus: str, has: float) -> str:
    """What the kernel says of the slot of an adapter that can do 252 Gb/s."""
    limit = "" if has == 252.048 else ", limited by 8.0 GT/s PCIe x8 link at 0000:00:02.0"
    can = " (capable of 252.048 Gb/s with 16.0 GT/s PCIe x16 link)" if limit else " (16.0 GT/s PCIe x16 link)"
    return f"[9.0] mlx5_core 0000:{bus}:00.0: {has:.3f} Gb/s available PCIe bandwidth{limit}{can}"


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            [
                f"[9.0] {NIC}: firmware version: 28.43.2026",
                f"[9.0] {NIC}: 252.048 Gb/s available PCIe bandwidth (32 GT/s x16 link)",
            ],
            ["pass"],
        ),
        (["[9.0] mlx5_core: probe of 0000:5d:00.0 failed with error -22"], ["fail"]),
        ([f"[9.0] {NIC}: poll_health:800:(pid 0): Fatal error 1 detected"], ["fail"]),
        (
            [f"[9.0] {NIC}: mlx5_pcie_event:299: Detected insufficient power on the PCIe slot (27W)."],
            ["note"],
        ),
        ([f"[9.0] {NIC}: Port module event[error]: module 0, Cable error, Power budget exceeded"], ["warn"]),
        (
            [
                f"[9.0] {NIC}: mlx5_cmd_out_err:808:(pid 1): ACCESS_REG(0x805) op_mod(0x1) failed, "
                "status bad operation(0x2), syndrome (0x305684), err(-22)"
            ],
            ["note"],
        ),
        (
            [f"[9.0] {NIC}: mlx5_pcie_event:301:(pid 1): PCIe slot advertised sufficient power (75W)."],
            ["pass"],
        ),
        ([f"[9.0] {NIC}: temp_warn:181:(pid 0): High temperature on sensors with bit set 0x0 0x1"], ["warn"]),
        ([f"[9.0] {NIC}: Port module event[error]: module 0, Cable error, Bus stuck"], ["warn"]),
        ([f"[9.0] {NIC}: Port module event: module 0, Cable plugged"], ["pass"]),
        (["[9.0] NETDEV WATCHDOG: ens1np0 (mlx5_core): transmit queue 5 timed out"], ["warn"]),
        (["[9.0] efa 0000:60:00.0 rdmap96s0: Wait for completion (polling) timeout"], ["fail"]),
        (["[9.0] efa 0000:60:00.0 rdmap96s0: Device isn't ready, abort com init 0x0"], ["fail"]),
        (
            [
                "[9.0] efa 0000:60:00.0 rdmap96s0: The device sent a completion but the driver didn't "
                "receive any MSI-X interrupt for admin cmd CREATE_CQ(11) status 1 (ctx: 0x0, sq producer: 3)"
            ],
            ["fail"],
        ),
        (
            [
                "[9.0] efa 0000:60:00.0 rdmap96s0: Failed to process command CREATE_QP (opcode 1) "
                "comp_status 1 err -12",
            ],
            ["note"],
        ),
        ([f"[9.0] {NIC} ens1np0: Link down"], ["note"]),
        ([f"[9.0] {NIC} ens1np0: Link up"], ["pass"]),
        ([f"[9.0] {NIC} ens1np0: Link up", f"[9000.0] {NIC} ens1np0: Link down"], ["warn"]),
        ([f"[9000.0] {NIC} ens1np0: Link down"], ["warn"]),
        (
            [f"[{9 + n}.0] {NIC} ens1np0: Link {way}" for n, way in enumerate(["up", "down"] * 3 + ["up"])],
            ["warn"],
        ),
        (
            [f"[9.0] {NIC}: 63.008 Gb/s available PCIe bandwidth, limited by 8 GT/s x8 link at 0000:00:02.0"],
            ["note"],
        ),
        ([slot("5d", 63.008), slot("9c", 252.048)], ["warn"]),
        ([slot("5d", 126.024), slot("9c", 252.048)], ["note"]),
        ([slot("5d", 63.008), slot("9c", 63.008)], ["note", "note"]),
        ([slot("5d", 0), slot("9c", 252.048)], ["note"]),
        ([slot("5d", 63.008), slot("5d", 252.048)], ["pass"]),
        (
            ["[9.0] nvidia-peermem nv_get_p2p_free_callback:127 ERROR detected invalid context, skipping"],
            ["pass"],
        ),
    ],
)
def test_adapters(lines, expected):
    results = found("kernel.nic", *lines)
    assert ["note" if one.note else one.status.value for one in results] == expected, [
        one.summary for one in results
    ]


@pytest.mark.parametrize(
    ("line", "devices", "expected"),
    [
        (
            "DMAR: [DMA Read NO_PASID] Request device [4b:00.0] fault addr 0x1000 [fault reason 0x06]",
            pci(A_GPU),
            ("fail", "gpu:0"),
        ),
        (
            "DMAR:[DMA Read] Request device [4b:00.0] fault addr 0 [fault reason 05]",
            pci(A_GPU),
            ("fail", "gpu:0"),
        ),
        (
            "DMAR: [DMA Write] Request device [02:00.0] fault addr 0 [fault reason 05]",
            pci(A_GPU, DISK),
            ("warn", "pci:0000:02:00.0"),
        ),
        (
            "nvidia 0000:4b:00.0: AMD-Vi: Event logged [IO_PAGE_FAULT domain=0x20 address=0x1]",
            None,
            ("fail", f"pci:{GPU3}"),
        ),
        (
            "AMD-Vi: Event logged [IO_PAGE_FAULT device=5d:00.0 domain=0x20]",
            pci(ADAPTER),
            ("fail", "pci:0000:5d:00.0"),
        ),
        ("DMAR: IOMMU enabled", None, ("pass", "")),
    ],
)
def test_iommu_faults(line, devices, expected):
    assert brief(found("kernel.iommu", f"[3.0] {line}", pci=devices)) == [expected]


UE = "[3.0] EDAC MC1: 1 UE memory read error on CPU_SrcID#1_MC#0_Chan#1_DIMM#0 (channel:1 slot:0 page:0x9)"
CE = UE.replace(" UE ", " CE ")


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (
            [CE.replace(" 1 CE", " 1500 CE")],
            ("warn", "ram:CPU_SrcID#1_MC#0_Chan#1_DIMM#0"),
        ),  # the line says how many
        (["[3.0] EDAC MC: Ver: 3.0.0", "[3.0] EDAC i10nm: v0.0.6"], ("pass", "")),
        ([CE], ("note", "ram:CPU_SrcID#1_MC#0_Chan#1_DIMM#0")),
        ([CE] * 200, ("warn", "ram:CPU_SrcID#1_MC#0_Chan#1_DIMM#0")),
        ([UE], ("fail", "ram:CPU_SrcID#1_MC#0_Chan#1_DIMM#0")),
        (
            ["[3.0] Memory failure: 0x12: Sending SIGBUS to python3:7 due to hardware"],
            ("fail", "ram:unknown"),
        ),
    ],
)
def test_host_memory(lines, expected):
    assert brief(found("kernel.memory", *lines)) == [expected]


def test_a_message_that_mail_broke_into_lines_is_whole_again():
    told = log(
        "[94.1] mlx5_core 0000:0b:00.1: init_one:1329:(pid 13): mlx5_load_one",
        "failed with error code -22",
        "",
        "text",
    )
    assert [event.kind for event in told.nics] == ["dead"]
    assert told.nics[0].text.endswith("mlx5_load_one failed with error code -22")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("dmesg: read kernel buffer failed: Operation not permitted\n", "denied"),
        ("-- No entries --\n", "not-visible-here"),
        ("", "not-visible-here"),
    ],
)
def test_a_paste_without_a_log_is_no_clean_log(text, reason):
    unseen = KernelLog.parse(said(text), ON_HOST)
    assert isinstance(unseen, Unseen) and unseen.reason == reason and unseen.way_out


def no_source(why: str) -> Observation:
    failed = [{"source": "dmesg", "why": why, "said": "dmesg: Operation not permitted"}]
    return said(json.dumps({"source": None, "text": "", "failed": failed}))


def test_denied_everywhere_says_what_would_help_and_a_container_points_to_the_host():
    denied = KernelLog.parse(no_source("denied"), Container())
    inside = KernelLog.parse(no_source("denied"), Container(runtime="docker"))
    assert isinstance(denied, Unseen) and denied.reason == "denied" and "systemd-journal" in denied.way_out
    assert isinstance(inside, Unseen) and inside.reason == "not-visible-here" and "host" in inside.way_out
    assert isinstance(KernelLog.parse(Observation("kernel-log", Outcome.TIMEOUT), ON_HOST), Unseen)


def test_root_is_not_told_to_become_root():
    nothing = {"source": None, "text": "", "failed": [{"source": "dmesg", "why": "empty", "said": "nothing"}]}
    root, user = (KernelLog.parse(said(json.dumps(nothing | {"uid": uid})), Container()) for uid in (0, 1000))
    assert isinstance(root, Unseen) and "Run as root" not in root.way_out and "journald" in root.way_out
    assert isinstance(user, Unseen) and "Run as root" in user.way_out


def test_the_child_says_as_whom_it_found_nothing(tmp_path: Path):
    document = json.loads(ask(kernel_log, root=tmp_path, env={"PATH": str(tmp_path)}).text)
    assert document["source"] or document["uid"] == os.geteuid()


def test_the_child_reads_syslog_below_a_root(tmp_path: Path):
    write(
        tmp_path / "var/log/kern.log", f"Nov 21 10:00:00 h kernel: {xid(79)}\nNov 21 10:00:00 h sshd: noise\n"
    )
    write(tmp_path / "proc/stat", "cpu 1 2\nbtime 1700000000\n")
    failing = Path(sys.executable).parent  # a PATH on which neither journalctl nor dmesg is found
    seen = ask(kernel_log, root=tmp_path, env={"PATH": str(failing)})
    document = json.loads(seen.text)
    if document["source"] == "dmesg":  # the ring is the kernel's, whatever the root
        pytest.skip("this machine's dmesg may be read")
    told = KernelLog.parse(seen, ON_HOST)
    assert isinstance(told, KernelLog)
    assert (told.source, told.lines, len(told.xids)) == ("/var/log/kern.log", 1, 1)


def test_the_child_reads_this_machine():
    document = json.loads(ask(kernel_log).text)
    assert document["source"] is None or document["text"]
    assert all(one["why"] in ("denied", "absent", "empty", "error") for one in document["failed"])


FLOOD = """#!/bin/sh
head -c {size} /dev/zero | tr '\\0' '{of}'
printf '\\n[  100.000000] NVRM: Xid (PCI:0000:4b:00): 79, GPU has fallen off the bus.\\n'
"""


@pytest.mark.slow
@pytest.mark.parametrize("of", ["x", "\\n"])
def test_a_flood_fills_no_memory_and_its_end_is_read(tmp_path: Path, of: str):
    """One line of 200 MB, and 200 million empty ones, with less memory than lists of them would take."""
    tool = tmp_path / "journalctl"
    tool.write_text(FLOOD.format(size=200_000_000, of=of))
    tool.chmod(0o755)
    limit = 700 << 20
    code = (
        f"import resource, runpy, sys; resource.setrlimit(resource.RLIMIT_AS, ({limit}, {limit}));"
        f"sys.argv = [{child.__file__!r}]; runpy.run_path(sys.argv[0], run_name='__main__')"
    )
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=120)
    document = json.loads(done.stdout)
    answers = {document["source"], *(one["said"] for one in document["failed"])}
    # On a slow machine it has no end in time, which is said.
    assert "journalctl -k" in answers or any("no end of its answer" in said for said in answers)
    if document["source"] == "journalctl -k":
        assert document["text"].endswith("fallen off the bus.\n")


def test_a_storm_does_not_push_out_what_explains_it():
    storm = "".join(
        f"[{n}.0] NVRM: Xid (PCI:0000:19:00): 45, pid={n}, name=python3, Ch {n}\n" for n in range(60_000)
    )
    text, cut = child.shorten(f"{xid(79)}\n{storm}".encode())
    assert cut and len(text) <= child.TEXT_BYTES
    codes = {event.code for event in KernelLog.of(text.decode(), "dmesg").xids}
    assert codes == {45, 79}


@cache
def many_links() -> bytes:
    return "".join(f"[{n}.0] veth{n}: link becomes ready\n" for n in range(80_000)).encode()


@pytest.mark.sampled(6)
@pytest.mark.parametrize("word", _WORDS)
def test_no_line_that_a_check_reads_is_left_out_of_a_long_log(word: str):
    """A check that says there was nothing must have had the lines it looks for."""
    text, cut = child.shorten(f"[0.5] it says {word} once\n".encode() + many_links())
    assert cut and word in text.decode()


lines = st.one_of(
    st.text(max_size=80), st.sampled_from([line for case in XIDS for line in case[0][:2]] + list(MISMATCH))
)


@given(st.lists(st.tuples(lines, st.integers(0, 60)), max_size=12))
def test_no_text_raises(parts):
    """Cut-off, mixed and hostile lines become a fact or the reason why not."""
    text = "\n".join(line[: len(line) - cut] if cut < len(line) else line for line, cut in parts)
    told = KernelLog.parse(said(text), ON_HOST)
    assert isinstance(told, (KernelLog, Unseen))
    if isinstance(told, KernelLog):
        assert json.dumps(told.public())
        for check in (
            "kernel.xid",
            "kernel.sxid",
            "kernel.driver",
            "kernel.pcie",
            "kernel.oom",
            "kernel.hung",
            "kernel.nic",
            "kernel.iommu",
            "kernel.memory",
        ):
            assert judge(check, told, Moment(NOW))


scalars = st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5)
values = scalars | st.lists(scalars, max_size=3) | st.dictionaries(st.text(max_size=3), scalars, max_size=3)


@given(st.dictionaries(st.sampled_from(["source", "text", "failed", "cut", "boot_epoch"]), values) | values)
def test_no_document_raises(value):
    assert isinstance(KernelLog.parse(said(json.dumps(value)), ON_HOST), (KernelLog, Unseen))


@pytest.mark.parametrize(
    ("line", "subject"),
    [
        ("nf_conntrack: nf_conntrack: table full, dropping packet", "table:connections"),
        ("nf_conntrack: table full, dropping packet.", "table:connections"),  # before Linux 4.14
        ("neighbour: arp_cache: neighbor table overflow!", "table:neighbours"),
        ("TCP: out of memory -- consider tuning tcp_mem", "table:tcp-memory"),
        ("VFS: file-max limit 1048576 reached", "table:files"),
    ],
)
def test_full_tables_of_the_network(line, subject):
    (one,) = found("kernel.network", f"[8.0] {line}", f"[9.0] {line}")
    assert (one.status.value, one.subject) == ("warn", subject) and "2 times" in one.summary
    boot = "[9.5] Linux version 6.8.0-64-generic"
    (old,) = found("kernel.network", f"[8.0] {line}", boot)
    assert old.note, "before this boot"


def test_an_interface_of_ip_over_infiniband_that_stops_sending():
    (one,) = found("kernel.nic", "[8.0] ib0: transmit timeout: latency 1680 msecs")
    assert one.status.value == "warn" and "stopped sending" in one.summary
