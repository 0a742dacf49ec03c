"""The real ibstat: with a simulated fabric, and on a made-up sysfs where our own reader must agree."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from asking import ask, brief, judge, said
from ib_tree import add_hca

from nodedoctor.facts.rdma.ibstat import IbStat
from nodedoctor.facts.rdma.ports import Ib, Rails
from nodedoctor.facts.rdma.sysfs import Rdma, rdma_devices
from nodedoctor.model import Unseen

pytestmark = pytest.mark.real
NOT_THERE = Unseen("missing-tool", "not asked")
PATH = f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin"
SIMULATED = next(Path("/usr/lib").glob("*/umad2sim/libumad2sim.so"), None)

# One switch, two hosts with one adapter each: ibsim(1).
FABRIC = """Switch\t8 "leaf"\t\t# "leaf" base port 0 lid 1 lmc 0
[1]\t"node-a"[1]\t\t# "node-a" lid 2 4xHDR
[2]\t"node-b"[1]\t\t# "node-b" lid 3 4xHDR

Ca\t1 "node-a"\t\t# "node-a"
[1]\t"leaf"[1]\t\t# lid 2 lmc 0 "leaf" lid 1 4xHDR

Ca\t1 "node-b"\t\t# "node-b"
[1]\t"leaf"[2]\t\t# lid 3 lmc 0 "leaf" lid 1 4xHDR
"""


def tool(name: str) -> str:
    found = shutil.which(name, path=PATH)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


class Fabric:
    """A running ibsim, told what to do on its standard input."""

    def __init__(self, folder: Path) -> None:
        if SIMULATED is None:
            pytest.skip("libumad2sim is not installed")
        net = folder / "net"
        net.write_text(FABRIC)
        self.folder = folder
        self.env = {
            "PATH": PATH,
            "LD_PRELOAD": str(SIMULATED),
            "IBSIM_SOCKNAME": f"nodedoctor-{uuid.uuid4()}",
        }
        self.sim = subprocess.Popen(
            [tool("ibsim"), "-s", str(net)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.STDOUT,
            env={**self.env, "LD_PRELOAD": ""},
            text=True,
        )

    def order(self, words: str) -> None:
        """Type a command to the simulator."""
        assert self.sim.stdin is not None
        self.sim.stdin.write(words + "\n")
        self.sim.stdin.flush()

    def ibstat(self) -> str:
        """What ibstat prints on node-a."""
        return self.run(tool("ibstat")).stdout

    def sweep(self) -> None:
        """Let a subnet manager configure the fabric once."""
        self.run(tool("opensm"), "-o", "-f", str(self.folder / "opensm.log"))

    def run(self, *argv: str) -> subprocess.CompletedProcess[str]:
        env = {
            **self.env,
            "SIM_HOST": "node-a",
            "OSM_TMP_DIR": str(self.folder),
            "OSM_CACHE_DIR": str(self.folder),
        }
        return subprocess.run(argv, env=env, cwd=self.folder, capture_output=True, text=True, timeout=30)

    def until(self, words: str) -> str:
        """Ask ibstat until it says so: the simulator needs a moment."""
        end = time.monotonic() + 20
        while words not in (text := self.ibstat()):
            assert time.monotonic() < end, text
            time.sleep(0.05)
        return text


@pytest.fixture
def fabric(tmp_path: Path) -> Iterator[Fabric]:
    running = Fabric(tmp_path)
    yield running
    running.sim.kill()
    running.sim.wait()


def sick(text: str, check: str) -> list[tuple[str, str]]:
    ib = Ib.parse(NOT_THERE, IbStat.parse(said(text)), NOT_THERE, NOT_THERE, NOT_THERE, NOT_THERE)
    rails = Rails.parse(ib, NOT_THERE, NOT_THERE, NOT_THERE)
    return [told for told in brief(judge(check, ib, rails)) if told[0] not in ("pass", "note")]


def test_a_fabric_without_and_with_subnet_manager_and_a_pulled_cable(fabric):
    waiting = fabric.until("Initializing")
    assert sick(waiting, "ib.ports") == sick(waiting, "ib.sm") == [("fail", "port:ibsim0/1")]
    fabric.sweep()
    active = fabric.until("State: Active")
    assert sick(active, "ib.ports") == sick(active, "ib.sm") == []
    fabric.order('Unlink "node-a"')
    pulled = fabric.until("State: Down")
    assert sick(pulled, "ib.ports") == [("fail", "port:ibsim0/1")]
    fabric.order('Relink "node-a"')
    assert sick(fabric.until("Initializing"), "ib.sm") == [("fail", "port:ibsim0/1")]


def test_ibstat_and_our_own_reader_agree_on_sysfs(tmp_path):
    for n in range(8):
        add_hca(tmp_path, f"mlx5_{n}")
    add_hca(tmp_path, "mlx5_3", state="DOWN", physical="Polling", rate="10 Gb/sec (4X SDR)")
    add_hca(tmp_path, "mlx5_5", state="INIT", sm_lid=0)
    laid_over = f"mount -t overlay o -o lowerdir={tmp_path / 'sys'}:/sys /sys && exec {tool('ibstat')}"
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", laid_over], capture_output=True, text=True, timeout=30
    )
    if done.returncode != 0:
        pytest.skip(f"no mount namespace of our own: {done.stderr.strip()}")
    told = IbStat.parse(said(done.stdout))
    assert isinstance(told, IbStat) and len(told.ports) == 8
    ib = Ib.parse(
        Rdma.parse(ask(rdma_devices, root=tmp_path)), told, NOT_THERE, NOT_THERE, NOT_THERE, NOT_THERE
    )
    assert isinstance(ib, Ib) and ib.source == "rdma" and ib.disagreements == ()
    expected = [("fail", "port:mlx5_3/1"), ("fail", "port:mlx5_5/1")]
    assert sick(done.stdout, "ib.ports") == expected
    rails = Rails.parse(ib, NOT_THERE, NOT_THERE, NOT_THERE)
    assert [one for one in brief(judge("ib.ports", ib, rails)) if one[0] == "fail"] == expected
