"""Services that failed, IMEX on trays that need it, and accelerators that nobody judges."""

from __future__ import annotations

import pytest
from asking import brief, judge

from nodedoctor.facts.driver.driver import Driver
from nodedoctor.facts.driver.packages import DriverPackage, DriverPackages
from nodedoctor.facts.driver.services import Service, Services
from nodedoctor.facts.gpu.board import Board
from nodedoctor.facts.pci.pci import Pci, PciDevice

ABSENT = Service("slurmd", "not-found", "inactive", "dead")
TRAY = Board("GB200", "GB200/GB300 NVL72 tray", 4, 4, 0, False)


def unit(name: str, active: str = "active", sub: str = "running", enabled: str = "enabled") -> Service:
    return Service(name, "loaded", active, sub, enabled)


@pytest.mark.parametrize(
    ("units", "expected"),
    [
        ([unit("slurmd"), unit("munge"), unit("containerd")], [("pass", "")]),
        ([unit("slurmd", "failed", "failed"), unit("munge")], [("warn", "service:slurmd")]),
        ([unit("docker", "activating", "auto-restart")], [("warn", "service:docker")]),
        # Stopped or disabled is somebody's choice, also of a service that a socket starts.
        ([unit("docker", "inactive", "dead", "disabled")], [("pass", "")]),
        ([unit("nvidia-dcgm", "inactive", "dead")], [("pass", "")]),
        ([ABSENT], [("skip", "")]),
        ([unit("nvidia-fabricmanager", "failed", "failed")], [("unknown", "")]),  # asked for nothing of ours
    ],
)
def test_services_that_failed(units, expected):
    assert brief(judge("host.services", Services(tuple(units)))) == expected


def packages(version: str) -> DriverPackages:
    return DriverPackages(
        (
            DriverPackage("nvidia-driver-570-server-open", "570.86.10-0ubuntu1", "570.86.10", False),
            DriverPackage("nvidia-imex-570", f"{version}-1", version, False),
        )
    )


DRIVER = Driver(loaded=True, version="570.86.10")


def imex(*facts: object, board: Board = TRAY) -> list[tuple[str, str]]:
    return brief(judge("fabric.imex", board, *facts))


def test_imex():
    runs = Services((unit("nvidia-imex"),))
    assert imex(runs, packages("570.86.10"), DRIVER) == [("pass", "")]
    assert imex(Services((unit("nvidia-imex", "failed", "failed"),))) == [("warn", "service:nvidia-imex")]
    assert imex(runs, packages("570.172.08"), DRIVER)[0] == ("warn", "package:nvidia-imex")
    # Slurm and Kubernetes may start it with each job.
    assert imex(Services((unit("nvidia-imex", "inactive", "dead", "disabled"),))) == [("note", "")]
    assert imex(Services((Service("nvidia-imex", "not-found", "inactive"),))) == [("note", "")]
    assert imex() == [("unknown", "")]
    hgx = Board("H100 SXM5 80GB", "HGX H100/H200 8-GPU", 8, 8, 4, False)
    assert imex(Services((unit("nvidia-imex", "failed", "failed"),)), board=hgx) == [("skip", "")]


def test_amd_accelerators_are_said_once():
    instinct = [PciDevice(f"0000:{n:02x}:00.0", "1002", "74a1", "120000") for n in range(8)]
    (one,) = judge("doctor.amd", Pci(tuple(instinct)))
    assert one.blind and "8 AMD Instinct" in one.summary
    graphics = PciDevice("0000:01:00.0", "1002", "13c0", "030000")  # of a processor
    audio = PciDevice("0000:01:00.1", "1002", "1640", "040300")
    assert brief(judge("doctor.amd", Pci((graphics, audio)))) == [("skip", "")]
