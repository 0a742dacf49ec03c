"""Where judgements turn: on a limit and beside it, with a part of what is asked, and in what fixes say."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest
from asking import brief, judge, said

from nodedoctor.facts.driver.services import Service, Services
from nodedoctor.facts.gpu.board import Board
from nodedoctor.facts.gpu.links.error_growth import ErrorGrowth, GpuGrowth, LinkGrowth
from nodedoctor.facts.gpu.links.nvlink_smi import GpuLinks, NvLink
from nodedoctor.facts.gpu.links.nvlinks import NvLinks
from nodedoctor.facts.gpu.links.p2p import PeerAccess
from nodedoctor.facts.host.container import Container
from nodedoctor.facts.host.host import Host
from nodedoctor.facts.host.limits import Limits, Shm
from nodedoctor.facts.host.mounts import Fstab, FstabEntry
from nodedoctor.facts.kernel.kernel_log import KernelLog
from nodedoctor.facts.network.net import Net
from nodedoctor.facts.pci.pci import Pci, PciDevice
from nodedoctor.model import Finding, Moment
from nodedoctor.triage.describe import rank_ranges
from nodedoctor.triage.verdict.causes.groups import are_awaited

SERVICES = {"sshd": "active", "chrony": "active", "ntpd": "inactive"}
NOW = Moment(datetime(2026, 1, 2, 12, tzinfo=timezone.utc))


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ([0], "0"),
        ([3, 4], "3 and 4"),
        ([0, 1, 2], "0-2"),
        ([0, 1, 5], "0, 1 and 5"),
        (range(0, 26, 2), "0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22 and 1 more"),
    ],
)
def test_ranks_in_words(ranks, words):
    assert rank_ranges(ranks) == words


@pytest.mark.parametrize(
    ("few", "waiting", "is_so"), [(0, 3, False), (1, 1, True), (2, 3, True), (2, 1, False), (0, 0, False)]
)
def test_who_is_waited_for_is_no_majority(few, waiting, is_so):
    assert are_awaited([0] * few, [0] * waiting) is is_so


def test_a_running_time_service_is_named():
    units = tuple(Service(name, "loaded", state) for name, state in SERVICES.items())
    (found,) = judge("net.clock", Net(synchronised=True, clock_error_seconds=0.002), Services(units))
    assert found.summary == "the clock is synchronised (chrony), within 0.002 s"


def peers(refused: str, board: Board | None, status: str = "CNS") -> list[Finding]:
    pairs = {f"{a}-{b}": "ok" for a in range(8) for b in range(8) if a != b}
    pairs |= dict.fromkeys(refused.split(), status)
    access = PeerAccess("nvml", tuple(range(8)), {"read": pairs, "write": pairs})
    return judge("p2p.status", access, *([board] if board else []))


def test_a_refused_pair_is_a_fault_on_nvlink_and_where_most_pairs_have_access():
    hgx = Board("H100 SXM5 80GB", "HGX H100/H200 8-GPU", 8, 8, 4, False)
    everywhere = " ".join(f"{a}-{b}" for a in range(8) for b in range(8) if a != b)
    assert {one.status.value for one in peers("0-1 1-0", None)} <= {"warn", "fail"}
    assert {one.status.value for one in peers(everywhere, hgx)} == {"fail"}
    assert {one.note for one in peers(everywhere, None)} == {True}


def test_errors_that_grew_on_one_gpu_only_and_gpus_that_were_not_read_twice():
    links = tuple(GpuLinks(index, links=(NvLink(0, counters={"replay": 0}),)) for index in (0, 1))
    growth = ErrorGrowth(1.0, (GpuGrowth(1, links=(LinkGrowth(0, {"replay": 1000}),)),))
    assert brief(judge("nvlink.errors", NvLinks("nvml", links), growth)) == [("fail", "gpu:1")]


def test_seven_file_systems_of_which_six_are_named():
    entries = tuple(
        FstabEntry(f"server:/{n}", f"/data{n}", "nfs", f"server:/{n} /data{n} nfs") for n in range(7)
    )
    (seven,) = judge("host.mounts", Fstab(entries, ()))
    (six,) = judge("host.mounts", Fstab(entries[:6], ()))
    assert seven.summary.endswith("/data5 and 1 more") and six.summary.endswith("/data5")


@pytest.mark.parametrize(("version", "is_noted"), [("1.17.7", True), ("1.17.8", False), ("1.18.0", False)])
def test_the_toolkit_that_lets_containers_out(version, is_noted):
    host = Host(docker_installed=True, docker="nvidia", toolkit=version, toolkit_installed=True)
    (found,) = judge("container.toolkit", Container(), host)
    assert found.note is is_noted


def test_a_disk_that_failed_in_the_first_line_of_the_log_failed_now():
    text = "[    1.000000] EXT4-fs error (device nvme0n1p1): ext4_find_entry:1455: inode #2: comm ls: bad\n"
    log = KernelLog.parse(said(text, "kernel-log"), Container())
    assert isinstance(log, KernelLog) and log.storage
    assert {one.status.value for one in judge("kernel.storage", log, NOW)} <= {"warn", "fail"}


def test_a_full_shared_memory_is_cleaned_first_and_then_as_any_small_one():
    (full,) = judge("limits.shm", Limits(shm=Shm(64.0, 0.0)))
    (small,) = judge("limits.shm", Limits(shm=Shm(0.5, 0.5)))
    assert full.fix and small.fix
    usual = small.fix.text
    assert full.fix.text.endswith(f"needs all of it: {usual[0].lower()}{usual[1:]}")


def test_two_gpus_that_have_a_nic_say_nothing_of_a_third():
    def place(n: int, kind: str, end: str) -> PciDevice:
        above = (f"0000:{n:02x}:01.0", f"0000:{n:02x}:02.0")
        ids = ("10de", "2330", "030200") if kind == "gpu" else ("15b3", "1021", "020700")
        return PciDevice(f"0000:{n:02x}:{end}.0", *ids, driver="nvidia", upstream=above)

    for gpus in (3, 4):
        devices = [place(n, "gpu", "10") for n in range(gpus)] + [
            place(n, "nic", "20") for n in range(gpus - 1)
        ]
        found = [one.subject for one in judge("nic.inventory", Pci(tuple(devices)))]
        assert ("nic:rails" in found) is (gpus == 4), gpus


@pytest.mark.parametrize("code", [31, 48, 62, 63, 64, 74, 79, 92, 94, 95, 109, 119, 140, 145, 149, 154])
def test_the_logs_are_saved_before_a_gpu_leaves_or_the_node_reboots(code):
    text = f"[  100.000000] NVRM: Xid (PCI:0000:5d:00): {code}, pid=4711, name=python3, it happened\n"
    log = KernelLog.parse(said(text, "kernel-log"), Container())
    (found,) = judge("kernel.xid", log, NOW)
    if found.fix is None:
        assert found.note
        return
    commands = [step.command for step in found.fix.steps]
    saves = any("nvidia-bug-report" in command for command in commands)
    reboots = any(command.endswith("reboot") for command in commands)
    if found.fix.action in ("drain", "replace"):
        assert saves and not reboots, commands
    elif found.fix.action == "reboot":
        assert saves and reboots, commands
    elif found.fix.action == "restart-job":
        assert not saves and not reboots, commands
