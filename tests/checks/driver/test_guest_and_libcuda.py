"""A guest that owns NVSwitches needs the fabric manager; a host of GPUs needs libcuda."""

from __future__ import annotations

import pytest
from asking import brief, judge

from nodedoctor.facts.driver.driver import Driver, DriverLibrary
from nodedoctor.facts.driver.services import Service, Services
from nodedoctor.facts.gpu.board import Board
from nodedoctor.facts.gpu.gpu import Gpu, NvLink
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.gpu.links.nvlink_smi import GpuLinks
from nodedoctor.facts.gpu.links.nvlinks import NvLinks
from nodedoctor.facts.gpu.links.p2p import PeerAccess
from nodedoctor.facts.host.container import Container
from nodedoctor.facts.host.machine import Machine
from nodedoctor.facts.host.processes import Processes

GUEST = Board("H100 SXM5 80GB", "HGX H100/H200 8-GPU", 8, 8, 4, True)
HOST = Board("H100 SXM5 80GB", "HGX H100/H200 8-GPU", 8, 8, 4, False)
ALONE = Board("H100 SXM5 80GB", "HGX H100/H200 8-GPU", 8, 8, 0, True)


PAIRS = {f"{a}-{b}": "ok" for a in range(8) for b in range(8) if a != b}
ACCESS = PeerAccess("nvml", tuple(range(8)), {"read": PAIRS, "nvlink": PAIRS})
LINKS = NvLinks("nvml", tuple(GpuLinks(n, links=(NvLink(0, active=True),)) for n in range(8)))


def manager(active: str, loaded: str = "loaded") -> Services:
    return Services((Service("nvidia-fabricmanager", loaded, active, active),))


def fabric(state: str) -> Gpus:
    return Gpus("nvml", gpus=tuple(Gpu(n, fabric_state=state, fabric_status="SUCCESS") for n in range(8)))


def test_the_guest_that_owns_switches_runs_the_fabric_manager():
    assert brief(judge("fabric.guest", GUEST, manager("active"))) == [("pass", "")]
    assert brief(judge("fabric.guest", GUEST, manager("failed"))) == [("warn", "")]
    assert brief(judge("fabric.guest", GUEST, manager("failed"), fabric("in-progress"))) == [("warn", "")]
    (absent,) = judge("fabric.guest", GUEST, manager("inactive", "not-found"))
    assert absent.status.value == "warn" and "not installed" in absent.summary
    assert absent.fix and not any("enable" in command for command in absent.fix.commands)


def test_what_works_is_no_alarm_and_hosts_have_their_own_check():
    assert brief(judge("fabric.guest", GUEST, manager("failed"), fabric("completed"))) == [("note", "")]
    assert brief(judge("fabric.guest", GUEST)) == [("unknown", "")]
    for board in (HOST, ALONE):
        assert brief(judge("fabric.guest", board, manager("failed"))) == [("skip", "")]


@pytest.mark.parametrize(
    ("state", "status", "proof", "shown"),
    [
        ("completed", "SUCCESS", (), "note"),
        ("completed", "SUCCESS", (LINKS,), "note"),
        ("completed", "ERROR_UNKNOWN", (LINKS, ACCESS), "trouble"),
        ("in-progress", "SUCCESS", (LINKS, ACCESS), "trouble"),
        ("not-supported", None, (LINKS, ACCESS), "note"),
        (None, None, (LINKS, ACCESS), "note"),
        (None, None, (LINKS,), "trouble"),  # links of Hopper come up without anybody
        (None, None, (ACCESS,), "trouble"),
        (None, None, (), "trouble"),
    ],
)
def test_guest_and_host_ask_for_the_same_proof_of_a_fabric(state, status, proof, shown):
    gpus = Gpus("nvml", gpus=tuple(Gpu(n, fabric_state=state, fabric_status=status) for n in range(8)))
    (guest,) = judge("fabric.guest", GUEST, manager("inactive", "not-found"), gpus, *proof)
    (host,) = judge("fabric.manager", HOST, manager("inactive", "not-found"), gpus, Processes(()), *proof)
    assert brief([guest]) == [("note" if shown == "note" else "warn", "")]
    assert brief([host]) == [("note" if shown == "note" else "fail", "")]


FOLDER = "/usr/lib/x86_64-linux-gnu"
NVML, CUDA = (DriverLibrary(name, FOLDER, "570.86.10") for name in ("libnvidia-ml.so.1", "libcuda.so.1"))


def driver(*libraries: DriverLibrary, **fields: object) -> Driver:
    return Driver(loaded=True, version="570.86.10", libraries=libraries, **fields)  # type: ignore[arg-type]


def test_libcuda_is_missed_where_the_drivers_libraries_are_kept():
    assert brief(judge("driver.libcuda", driver(NVML, CUDA))) == [("pass", "")]
    (missing,) = judge("driver.libcuda", driver(NVML), Machine(distro_id="ubuntu"))
    assert missing.status.value == "fail" and missing.fix is not None
    assert "dpkg-query -S libnvidia-ml.so.1" in missing.fix.commands[-1]  # whoever owns the one has both
    (other,) = judge("driver.libcuda", driver(NVML), Machine(distro_id="gentoo"))
    assert other.fix and other.fix.commands and "apt-get" not in " ".join(other.fix.commands)


def test_libcuda_is_not_missed_elsewhere():
    assert brief(judge("driver.libcuda", driver())) == [("skip", "")]  # kept in a folder we do not know
    assert brief(judge("driver.libcuda", driver(NVML, platform="wsl2"))) == [("skip", "")]
    assert brief(judge("driver.libcuda", driver(NVML, errors={FOLDER: "EACCES"}))) == [("unknown", "")]
    assert brief(judge("driver.libcuda", driver(NVML), Container(runtime="docker"))) == [("note", "")]
    assert brief(judge("driver.libcuda", Driver(loaded=False, libraries=(NVML,)))) == [("skip", "")]
