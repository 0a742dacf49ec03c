"""A real Slurm on hosts of namespaces: four nodes, of which some are sick, cut off, hanging or drained."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hosts import BIN
from slurm_cluster import PATIENCE, Cluster, running, until

pytestmark = pytest.mark.real

DEADLINE = 25


@pytest.fixture
def cluster(tmp_path: Path, nvml_folder: Path) -> Iterator[Cluster]:
    tmp_path.chmod(0o755)
    with running(tmp_path, nvml_folder) as made:
        yield made


def by_host(fleet: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {node["host"]: node for node in fleet["nodes"]}


def test_every_node_of_a_real_slurm_answers_and_nothing_is_left(cluster):
    fleet, _ = cluster.fleet("nvlink", "driver", "--slurm")
    nodes = by_host(fleet)
    assert fleet["source"] == "slurm"
    assert sorted(nodes) == [f"gpu-node-{n}" for n in (1, 2, 3, 4)]
    assert not {host: node["note"] for host, node in nodes.items() if node["state"] != "answered"}
    assert {node["gpus"] for node in nodes.values()} == {8}
    assert not any(node["note"] for node in nodes.values()), "the TaskProlog's greeting is no banner of ours"
    until(lambda: not cluster.queue())


def test_nodes_without_nodedoctor_are_brought_it(cluster):
    brought = cluster.hosts.folder / "nodedoctor.pyz"
    report = {
        "schema": "nodedoctor.report/1",
        "started": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "verdict": "pass",
        "node": {"gpus": 8},
        "results": [{"check": "a.b", "title": "t", "status": "pass", "findings": []}],
        "facts": {},
    }
    brought.write_text(f"print({json.dumps(report)!r})\n#{'x' * 3_000_000}\n")
    for host in list(cluster.hosts)[2:]:
        host.hide(BIN / "nodedoctor")
    fleet, _ = cluster.fleet("driver", "--slurm", "--pyz", str(brought))
    nodes = by_host(fleet)
    assert not {host: node["note"] for host, node in nodes.items() if node["state"] != "answered"}
    assert nodes["gpu-node-1"]["tool"] and not nodes["gpu-node-2"]["tool"]
    nodes = by_host(cluster.fleet("driver", "--slurm", "--pyz", str(brought))[0])
    assert {node["state"] for node in nodes.values()} == {"answered"}, "they have kept it"
    for host in list(cluster.hosts)[2:]:
        host.run("umount", str(BIN / "nodedoctor"), check=True)


def test_sick_cut_off_and_hanging_nodes_are_each_named_in_time(cluster):
    hosts = cluster.hosts
    hosts[2].tell({"gpu3.link4": "down"})
    hosts[4].run("sh", "-c", "mkdir -p /run/bin", check=True)
    hosts[3].cut()
    held = cluster.hosts.folder / "gpu-node-4" / "hang"
    held.write_text("#!/bin/sh\ntrap '' TERM\nsleep 600 & wait\nsleep 600\n")
    held.chmod(0o755)
    hosts[4].run("mount", "--bind", str(held), str(BIN / "nodedoctor"), check=True)
    began = time.monotonic()
    fleet, code = cluster.fleet("nvlink", "--slurm", "--deadline", str(DEADLINE))
    took = time.monotonic() - began
    nodes = by_host(fleet)
    states = {host: node["state"] for host, node in nodes.items()}
    assert states == {
        "gpu-node-1": "answered",
        "gpu-node-2": "answered",
        "gpu-node-3": "unreachable",
        "gpu-node-4": "silent",
    }, [(node["host"], node["state"], node["note"]) for node in fleet["nodes"]]
    assert "nvlink.links@gpu:3" in [problem["id"] for problem in nodes["gpu-node-2"]["problems"]]
    assert "Slurm could not start anything there" in nodes["gpu-node-3"]["note"]
    assert "nodedoctor runs there" in nodes["gpu-node-4"]["note"]
    assert code == 2
    assert took < DEADLINE + PATIENCE
    until(lambda: "RUNNING" not in cluster.queue())


def test_drained_and_busy_nodes_are_told_with_slurms_reason(cluster):
    cluster.slurm("scontrol", "update", "nodename=gpu-node-1", "state=drain", "reason=Xid 79 | GPU 3")
    busy = ("--exclusive", "-w", "gpu-node-2", "sh", "-c", "echo up; exec sleep 300")
    argv = cluster.hosts[0].argv("env", f"SLURM_CONF={cluster.conf}", "salloc", *busy)
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as job:
        assert job.stdout is not None and job.stdout.readline() == "up\n"
        nodes = by_host(cluster.fleet("--slurm=", "driver")[0])
        assert nodes["gpu-node-1"]["state"] == nodes["gpu-node-2"]["state"] == "unreachable"
        assert "drained: Xid 79 | GPU 3" in nodes["gpu-node-1"]["note"]
        assert "given all its processors to jobs" in nodes["gpu-node-2"]["note"]
        assert nodes["gpu-node-3"]["state"] == nodes["gpu-node-4"]["state"] == "answered"
        # Waited for because it was named, and given up with Slurm's reason.
        words = ("fleet", "--text", "--slurm=-w gpu-node-2 -I3", "driver")
        done = cluster.hosts[0].run("env", f"SLURM_CONF={cluster.conf}", str(BIN / "nodedoctor"), *words)
        assert done.returncode == 64
        assert "Slurm has not given gpu-node-2 within 3 s: job" in done.stderr
        until(lambda: "PENDING" not in cluster.queue())
        # Inside the job the node that is busy with it can be asked.
        job_id = cluster.queue().split()[0]
        nodes = by_host(cluster.fleet("--slurm=-w gpu-node-2", "driver", inside=job_id)[0])
        assert [node["state"] for node in nodes.values()] == ["answered"]
        job.kill()


def test_an_allocation_ends_with_whoever_asked_for_it(cluster):
    held = cluster.hosts.folder / "hang"
    held.write_text("#!/bin/sh\nexec sleep 600\n")
    held.chmod(0o755)
    for host in list(cluster.hosts)[1:]:
        host.run("mount", "--bind", str(held), str(BIN / "nodedoctor"), check=True)
    asks = f"echo $$ >{cluster.hosts.folder}/pid; exec {BIN}/nodedoctor fleet --slurm --json"
    argv = cluster.hosts[0].argv("env", f"SLURM_CONF={cluster.conf}", "sh", "-c", asks)
    asking = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    try:
        until(lambda: "RUNNING" in cluster.queue())
        pid = (cluster.hosts.folder / "pid").read_text().strip()
        cluster.hosts[0].run("kill", "-9", pid, check=True)
        until(lambda: "RUNNING" not in cluster.queue())
    finally:
        asking.kill()
        asking.wait()


@pytest.mark.alone
def test_pairs_name_a_slow_node_and_leave_nothing_when_cut_off(cluster):
    for host in cluster.hosts:
        share = 0.5 if host is cluster.hosts[3] else 1
        limits = ("rate", f"{40 * share:g}mbit", "burst", "32kb", "limit", "2mb")
        host.run("tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", *limits, check=True)
    words = ("--slurm", "--pairs", "--seconds=2", "--load-busy")
    document, code = cluster.fleet(*words)
    odd = [finding["id"] for finding in document["findings"] if finding["status"] not in ("pass", "skip")]
    assert (odd, code, document["source"]) == (["pairs.node@gpu-node-3"], 2, "slurm")
    until(lambda: not cluster.queue())
    nodes = list(cluster.hosts)[1:]

    def agents() -> int:
        return sum("types.ModuleType" in line for host in nodes for line in host.processes())

    argv = ("env", f"SLURM_CONF={cluster.conf}", str(BIN / "nodedoctor"), "fleet", "--json", *words)
    asking = subprocess.Popen(
        cluster.hosts[0].argv("sh", "-c", 'echo $$; exec "$@"', "sh", *argv),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert asking.stdout is not None
        pid = asking.stdout.readline().strip()
        until(lambda: agents() >= 8)
        cluster.hosts[0].run("kill", "-9", pid, check=True)
        until(lambda: not agents() and not cluster.queue())
    finally:
        asking.kill()
        asking.communicate()
