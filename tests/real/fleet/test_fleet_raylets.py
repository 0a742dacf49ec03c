"""A real Ray on hosts of namespaces: four nodes, of which some become sick, cut off, hanging or dead."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hosts import BIN, Hosts, need

pytestmark = [pytest.mark.real, pytest.mark.alone]

PATIENCE = 90  # seconds; a hang guard
DEADLINE = 30
PORT = 6379
SMALL = ("--num-cpus=1", "--object-store-memory=80000000")


class Cluster:
    """A head on host 0, raylets on the others."""

    def __init__(self, hosts: Hosts, python: str) -> None:
        self.hosts = hosts
        self.python = python
        self._ray = str(Path(python).parent / "ray")

    def start(self) -> None:
        head = ("--head", f"--port={PORT}", "--include-dashboard=false", "--disable-usage-stats")
        self._start(0, *head)
        for index in range(1, 4):
            self._start(index, f"--address={self.hosts[0].address}:{PORT}")

    def fleet(self, *words: str, **env: str) -> tuple[dict[str, Any], int]:
        """The fleet document as somebody on host 0 sees it."""
        pairs = [f"{name}={value}" for name, value in env.items()]
        argv = ("env", *pairs, str(BIN / "nodedoctor"), "fleet", "--json", *words)
        done = self.hosts[0].run(*argv, timeout=2 * PATIENCE)
        assert done.stdout, done.stderr
        return json.loads(done.stdout), done.returncode

    def _start(self, index: int, *words: str) -> None:
        host = self.hosts[index]
        done = host.run(self._ray, "start", f"--node-ip-address={host.address}", *words, *SMALL, timeout=120)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, nvml_folder: Path) -> Iterator[Cluster]:
    need("nft")
    python = os.environ.get("NODEDOCTOR_RAY_PYTHON", sys.executable)
    if subprocess.run([python, "-c", "import ray"], capture_output=True).returncode != 0:
        pytest.skip("no Ray: set NODEDOCTOR_RAY_PYTHON to a Python that has it")
    folder = tmp_path_factory.mktemp("ray")
    folder.chmod(0o755)
    with Hosts(folder, count=4, nvml=nvml_folder) as hosts:
        if hosts[0].run(python, "-c", "import ray").returncode != 0:
            pytest.skip(f"{python} is not on the hosts, which have a /tmp of their own")
        made = Cluster(hosts, python)
        made.start()
        yield made


def by_host(fleet: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {node["host"]: node for node in fleet["nodes"]}


def test_every_node_of_a_real_ray_answers_and_nothing_is_left(cluster):
    fleet, _ = cluster.fleet("--ray", "--python", cluster.python, "driver", "nvlink")
    nodes = by_host(fleet)
    assert fleet["source"] == "ray"
    assert list(nodes) == [f"gpu-node-{index}" for index in range(4)]
    assert not {host: node["note"] for host, node in nodes.items() if node["state"] != "answered"}
    assert {node["gpus"] for node in nodes.values()} == {8}, "Ray hides GPUs from tasks that ask for none"
    assert not any(node["note"] for node in nodes.values())
    for host in cluster.hosts:
        assert not [line for line in host.processes() if "nodedoctor" in line]


def test_the_node_probe_names_the_node_that_may_start_nothing(cluster):
    recipe = Path(__file__).parents[3] / "docs" / "recipes" / "ray" / "node_probe.py"
    script = recipe.read_text().replace("/usr/local/bin/nodedoctor", str(BIN / "nodedoctor"))
    script = script.replace('"--gate"]', '"--gate", "--deadline", "25"]')  # four nodes share this machine
    assert "--deadline" in script
    probe = cluster.hosts.folder / "node_probe.py"
    probe.write_text(script)
    head = cluster.hosts[0]

    def expect(codes: dict[str, int], ended: int, *needed: str) -> None:
        done = head.run(cluster.python, str(probe), *needed, timeout=2 * PATIENCE)
        rows = [line.split()[1:3] for line in done.stdout.splitlines()]
        told = {host: int(code) for host, code in rows}
        assert (told, done.returncode) == (codes, ended), done.stdout + done.stderr

    well = {f"gpu-node-{index}": 0 for index in range(4)}
    expect(well, 0)
    cluster.hosts[2].tell({"gpu3.link4": "down"})
    sick = {**well, "gpu-node-2": 2}
    expect(sick, 2)
    expect(sick, 0, "3")
    cluster.hosts[2].tell({})
    expect(well, 0)


def test_the_python_behind_the_ray_command_is_found(cluster):
    path = f"{Path(cluster.python).parent}:/usr/bin:/bin"
    fleet, _ = cluster.fleet("driver", "--ray", f"{cluster.hosts[0].address}:{PORT}", PATH=path)
    assert {node["state"] for node in fleet["nodes"]} == {"answered"}, fleet


def test_where_there_is_no_ray_and_no_cluster_one_line_says_so(cluster):
    fleet = (str(BIN / "nodedoctor"), "fleet", "--text", "--ray")
    done = cluster.hosts[1].run("env", "PATH=/usr/bin:/bin", *fleet)
    assert done.returncode == 64
    assert "no Python with Ray here: tried /usr/bin/python3" in done.stderr
    assert "--python PATH" in done.stderr
    done = cluster.hosts[0].run(*fleet, "127.0.0.1:6555", "--python", cluster.python, timeout=PATIENCE)
    assert done.returncode == 64
    assert "127.0.0.1:6555" in done.stderr and len(done.stderr.splitlines()) == 1


def test_nodes_without_nodedoctor_are_brought_it(cluster):
    brought = cluster.hosts.folder / "nodedoctor.pyz"
    report = {
        "schema": "nodedoctor.report/1",
        "verdict": "pass",
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "node": {"gpus": 8},
        "results": [{"check": "a.b", "title": "t", "status": "pass", "findings": []}],
        "facts": {},
    }
    brought.write_text(f"print({json.dumps(report)!r})\n#{'x' * 3_000_000}\n")
    for host in list(cluster.hosts)[2:]:
        host.hide(BIN / "nodedoctor")
    words = ("driver", "--ray", "--python", cluster.python, "--pyz", str(brought))
    fleet, _ = cluster.fleet(*words)
    nodes = by_host(fleet)
    assert not {host: node["note"] for host, node in nodes.items() if node["state"] != "answered"}
    assert nodes["gpu-node-1"]["tool"] and not nodes["gpu-node-2"]["tool"]
    nodes = by_host(cluster.fleet(*words)[0])
    assert {node["state"] for node in nodes.values()} == {"answered"}, "they have kept it"
    for host in list(cluster.hosts)[2:]:
        host.run("umount", str(BIN / "nodedoctor"), check=True)


def test_pairs_name_a_slow_node_and_leave_nothing(cluster):
    for host in cluster.hosts:
        share = 0.5 if host is cluster.hosts[2] else 1
        limits = ("rate", f"{40 * share:g}mbit", "burst", "32kb", "limit", "2mb")
        host.run("tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", *limits, check=True)
    document, code = cluster.fleet(
        "--ray", "--python", cluster.python, "--pairs", "--seconds=2", "--load-busy"
    )
    for host in cluster.hosts:
        host.run("tc", "qdisc", "del", "dev", "eth0", "root", check=True)
    odd = [finding for finding in document["findings"] if finding["status"] not in ("pass", "skip")]
    named = [finding["id"] for finding in odd]
    assert (named, code, document["source"]) == (["pairs.node@gpu-node-2"], 2, "ray"), odd
    for host in cluster.hosts:
        assert not [line for line in host.processes() if "types.ModuleType" in line]


def test_sick_cut_off_hanging_and_dead_nodes_are_each_named_in_time(cluster):
    hosts = cluster.hosts
    hosts[0].tell({"gpu3.link4": "down"})
    held = hosts.folder / "hang"
    held.write_text("#!/bin/sh\ntrap '' TERM\nsleep 600 & wait\nsleep 600\n")
    held.chmod(0o755)
    hosts[1].run("mount", "--bind", str(held), str(BIN / "nodedoctor"), check=True)
    hosts[2].cut()
    raylet = hosts[3].run("pgrep", "-x", "raylet", check=True).stdout.split()
    hosts[3].run("kill", "-9", *raylet, check=True)
    began = time.monotonic()
    words = ("--ray", "--python", cluster.python, "--deadline", str(DEADLINE), "nvlink")
    fleet, code = cluster.fleet(*words)
    took = time.monotonic() - began
    nodes = by_host(fleet)
    assert nodes["gpu-node-0"]["state"] == "answered", fleet
    assert "nvlink.links@gpu:3" in [problem["id"] for problem in nodes["gpu-node-0"]["problems"]]
    assert nodes["gpu-node-1"]["state"] == "silent"
    assert nodes["gpu-node-2"]["state"] == "silent"
    assert nodes["gpu-node-3"]["state"] in ("unreachable", "silent")
    assert all(nodes[f"gpu-node-{index}"]["note"] for index in (1, 2, 3))
    assert code == 2
    assert took < DEADLINE + PATIENCE
    # Ray has noticed by then that the raylet is gone; its word for it is passed on.
    time.sleep(max(0.0, 30 - took))
    nodes = by_host(cluster.fleet(*words[:3], "--deadline", "10", "driver")[0])
    assert nodes["gpu-node-3"]["state"] == "unreachable", nodes["gpu-node-3"]
    assert "Ray has it as dead" in nodes["gpu-node-3"]["note"]
