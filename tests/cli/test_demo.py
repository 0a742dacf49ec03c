"""The recorded nodes that ship: they say what they promise, on the command line and on the screen."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from forked import nodedoctor_forked
from recorded import judged
from textual.pilot import Pilot
from tuidriver import drive, frame, press

from nodedoctor.demo import DEMOS
from nodedoctor.engine.session import Request, Session
from nodedoctor.facts.pci.pci import Pci
from nodedoctor.facts.rdma.sysfs import Rdma
from nodedoctor.model import Observation, Status
from nodedoctor.tui.app import NodeDoctor

DEMO = Path(__file__).parents[2] / "nodedoctor" / "demo"
SICK = {
    "healthy": set(),
    "nvlinks-down": {"nvlink.links", "topo.matrix", "kernel.xid"},
    "raylet-1024-files": {"limits.nofile"},
    "driver-mismatch": {"driver.module-userspace", "driver.answers"},
}


def run(*words: str) -> subprocess.CompletedProcess[str]:
    return nodedoctor_forked(*words, cwd=DEMO.parent.parent)


def test_every_folder_is_listed_and_every_name_is_a_folder():
    assert set(DEMOS) == set(SICK) == {path.parent.name for path in DEMO.glob("*/manifest.json")}
    listed = run("demo")
    assert listed.returncode == 0 and all(f"nodedoctor demo {name} " in listed.stdout for name in DEMOS)
    assert run("demo", "nope").returncode == 64


@pytest.mark.parametrize("name", DEMOS)
def test_a_demo_says_what_is_wrong_there_and_nothing_else_is(name: str):
    report = judged(DEMO / name)
    failed = {result.check for result in report.results if result.status is Status.FAIL}
    assert failed >= SICK[name]
    if name == "healthy":
        bad = {result.check: result.worst.summary for result in report.results if result.severity.is_problem}
        assert not bad


def test_a_demo_takes_options_and_exits_with_the_verdict():
    done = run("demo", "nvlinks-down", "--json", "nvlink")
    assert done.returncode == 2 and json.loads(done.stdout)["node"]["hostname"] == "gpu-a3-017"


def test_a_demo_opens_on_the_screen_at_its_first_problem():
    async def act(app: NodeDoctor, pilot: Pilot[None]) -> None:
        await press("slash", *"nvlink.links", "enter")(app, pilot)
        assert "16 of 18 NVLinks up" in frame(app)
        await press("2", "j", "j", "j")(app, pilot)
        assert "NV16<" in frame(app)
        await press("m")(app, pilot)
        assert "PCIe path" in frame(app)

    drive(Session(Request(replay=DEMO / "nvlinks-down")), act)


@pytest.mark.parametrize("name", DEMOS)
def test_every_rdma_device_of_a_demo_is_on_its_pci_bus(name: str):
    """A recording whose parts contradict each other shows what no node shows."""
    probes = DEMO / name / "probes"
    rdma = Rdma.parse(Observation("rdma", text=(probes / "rdma.txt").read_text()))
    pci = Pci.parse(Observation("pci", text=(probes / "pci.txt").read_text()))
    assert isinstance(rdma, Rdma) and isinstance(pci, Pci)
    assert {hca.pci_address for hca in rdma.hcas} == {nic.address for nic in pci.mellanox_nics}
