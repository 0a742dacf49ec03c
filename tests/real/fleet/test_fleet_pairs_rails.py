"""Rails between hosts of namespaces: TCP on two interfaces each, and RDMA by a made-up ib_write_bw."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

import pytest
from fake_rails import program, rails
from hosts import Host, Hosts, is_blurred, need, quietly

pytestmark = [pytest.mark.real, pytest.mark.alone]


RATE = 40
"""Mb/s of a rail: two cores carry all of them, so that the shaper is the bound and not the machine."""
RAILS = ("eth1", "eth2")


def shape(host: Host, rail: str, share: float = 1.0) -> None:
    limits = ("rate", f"{RATE * share:g}mbit", "burst", "32kb", "limit", "2mb")
    host.run("tc", "qdisc", "replace", "dev", rail, "root", "tbf", *limits, check=True)


@pytest.fixture
def wired(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    """Four hosts with two rails each, on a switch a rail, beside the slower interface that leads to all."""
    need("ssh", "sshd", "ssh-keygen", "ip", "tc", "unshare", "nsenter")
    made = Hosts(tmp_path_factory.mktemp("wired"), count=4)
    for host in made:
        for rail in RAILS:  # veth has a speed without being hardware
            folder = host.folder / "tree/sys/class/net" / rail
            (folder / "device").mkdir(parents=True)
            (folder / "speed").write_text("400000\n")
    with made, pytest.MonkeyPatch.context() as patch:
        for number, rail in enumerate(RAILS, 1):
            quietly(*made.in_lab, "ip", "link", "add", f"br{number}", "type", "bridge")
            quietly(*made.in_lab, "ip", "link", "set", f"br{number}", "up")
            for index, host in enumerate(made):
                wire, ends = f"r{number}x{index}", ("type", "veth", "peer", "name", rail)
                quietly(*made.in_lab, "ip", "link", "add", wire, *ends, "netns", str(host.pid))
                quietly(*made.in_lab, "ip", "link", "set", wire, "master", f"br{number}", "up")
                host.run("ip", "addr", "add", f"10.{88 + number}.0.{index + 1}/24", "dev", rail, check=True)
                host.run("ip", "link", "set", rail, "up", check=True)
                shape(host, rail)
        patch.setenv("PATH", made.path)
        yield made


def odd_of(document: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        one for one in document["findings"] if one["status"] not in ("pass", "skip") and not is_blurred(one)
    ]


def test_tcp_on_each_rail_names_the_host_and_the_interface(wired: Hosts):
    document, code = measure("--what", "rails")
    assert odd_of(document) == [] and code == 0, document["findings"]
    assert [node["rails"] for node in document["nodes"]] == [list(RAILS)] * 4
    shape(wired[2], "eth2", 0.1)
    document, _ = measure("--what", "rails")
    (odd,) = odd_of(document)
    assert (odd["id"], odd["status"]) == ("pairs.node@gpu-node-2", "warn"), odd
    assert "on rail eth2" in odd["summary"]
    shape(wired[2], "eth2")
    quietly(*wired.in_lab, "ip", "link", "set", "r1x3", "nomaster")  # its cable is out of the switch
    document, _ = measure("--what", "rails")
    assert len(odd_of(document)) == 1, document["findings"]
    (odd,) = odd_of(document)
    assert odd["id"] == "pairs.node@gpu-node-3" and "on rail eth1" in odd["summary"], odd
    assert "eth1: no answer" in str(odd["evidence"])
    for index in range(4):
        quietly(*wired.in_lab, "ip", "link", "set", f"r1x{index}", "nomaster")
    document, code = measure(
        "--what", "rails"
    )  # a rail without a way between any two nodes is nobody's fault
    assert odd_of(document) == [] and code == 0
    assert "no two nodes could connect on eth1: not measured" in document["untried"]


@pytest.fixture
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    need("ssh", "sshd", "ssh-keygen", "ip", "unshare", "nsenter")
    made = Hosts(tmp_path_factory.mktemp("rails"), count=4)
    for host in made:
        rails(host.folder / "tree", 2)
    with made, pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", made.path)
        yield made


def measure(*words: str) -> tuple[dict[str, Any], int]:
    argv = [sys.executable, "-m", "nodedoctor", "fleet", "--ssh", "gpu-node-[0-3]", "--pairs", "--seconds=1"]
    argv += ["--load-busy", "--json", *words]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=240)
    assert done.stderr == ""
    return json.loads(done.stdout), done.returncode


def test_a_slow_rail_is_named_and_rdma_that_fails_everywhere_falls_back_to_tcp(hosts: Hosts):
    for host in hosts:
        slow = host is hosts[2]
        host.command("ib_write_bw", program({"mlx5_0": 391.5, "mlx5_1": 201.3 if slow else 390.1}))
    document, code = measure()
    assert document["plan"]["what"] == "rdma" and code == 0, "in preview: it warns"
    (odd,) = [one for one in document["findings"] if one["status"] not in ("pass", "skip")]
    assert (odd["id"], odd["status"]) == ("pairs.node@gpu-node-2", "warn") and "mlx5_1" in odd["summary"]
    assert document["failing"] == []
    for host in hosts:
        host.command("ib_write_bw", program({"mlx5_0": -1, "mlx5_1": -1}))
    document, _ = measure()  # how fast TCP is between four hosts of one busy machine is nobody's fault
    assert document["plan"]["what"] == "tcp"
    assert "RDMA failed between all nodes" in document["untried"][0]
    for _ in range(50):
        left = [line for host in hosts for line in host.processes() if "sshd" not in line]
        if not left:
            break
        time.sleep(0.1)
    assert left == []
