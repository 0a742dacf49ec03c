"""Eight hosts of namespaces, all shaped to one rate: what is wrong is named, and nothing on healthy ones.

The kernel's netem is not needed: rates are those of tbf, losses of nftables.
"""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from importlib import resources
from pathlib import Path

import pytest
from hosts import Host, Hosts, is_blurred, need, quietly
from jsonschema import validate

from nodedoctor.pairs import agent_pool

pytestmark = [pytest.mark.real, pytest.mark.alone]

RATE = 40
"""Mb/s of a host: two cores carry eight of them, so that the shaper is the bound and not the machine."""
NODES = "gpu-node-[0-7]"
SCHEMA = json.loads((resources.files("nodedoctor.report") / "schemas/pairs.schema.json").read_text())


def shape(host: Host, share: float = 1.0) -> None:
    rate = f"{RATE * share:g}mbit"
    limits = ("burst", "32kb", "limit", "2mb")
    host.run("tc", "qdisc", "replace", "dev", "eth0", "root", "tbf", "rate", rate, *limits, check=True)


@pytest.fixture(scope="module")
def hosts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hosts]:
    need("ssh", "sshd", "ssh-keygen", "ip", "nft", "tc", "unshare", "nsenter")
    with Hosts(tmp_path_factory.mktemp("hosts"), count=8) as made:
        for host in made:
            # No offload: a lost packet is one segment. Small buffers: the shaper drops none.
            host.run("ip", "link", "set", "dev", "eth0", "gso_max_segs", "1", check=True)
            host.run("sysctl", "-w", "net.ipv4.tcp_wmem=4096 65536 131072", check=True)
            shape(host)
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PATH", made.path)
            yield made


def start(*words: str, nodes: str = NODES) -> subprocess.Popen[str]:
    pairs = [] if any(word.startswith("--pairs") for word in words) else ["--pairs"]
    way = [] if any(word.startswith("--kube") for word in words) else ["--ssh", nodes]
    argv = [sys.executable, "-m", "nodedoctor", "fleet", *way, *pairs, "--seconds=1"]
    argv += ["--load-busy", "--json", *words]
    pipe = subprocess.PIPE
    return subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True)


def measure(*words: str, nodes: str = NODES) -> tuple[dict[str, object], int]:
    run = start(*words, nodes=nodes)
    told, errors = run.communicate(timeout=240)
    assert errors == "" and told, errors
    document = json.loads(told)
    validate(document, SCHEMA)
    return document, run.returncode


def odd(document: dict[str, object]) -> set[str]:
    findings: list[dict[str, str]] = document["findings"]  # type: ignore[assignment]
    return {one["id"] for one in findings if one["status"] not in ("pass", "skip") and not is_blurred(one)}


def running(hosts: Hosts) -> int:
    """How many processes besides sshd run on the hosts, a moment after everybody has gone."""
    for _ in range(150):
        count = sum("sshd" not in line for host in hosts for line in host.processes())
        if not count:
            return 0
        time.sleep(0.1)
    return count


@pytest.mark.race
def test_healthy_hosts_are_silent(hosts: Hosts):
    document, code = measure()
    assert (odd(document), code) == (set(), 0)
    measured: list[dict[str, list[str]]] = document["measurements"]  # type: ignore[assignment]
    assert len({tuple(one["pair"]) for one in measured}) == 28, "every pair, some of them again"
    assert running(hosts) == 0


@pytest.mark.parametrize("share", [0.7, 0.5, 0.1])
def test_a_slow_host_is_named(hosts: Hosts, share: float, tmp_path: Path):
    shape(hosts[3], share)
    try:
        document, code = measure(f"--failing={tmp_path / 'bad'}")
    finally:
        shape(hosts[3])
    assert (odd(document), code) == ({"pairs.node@gpu-node-3"}, 2)
    assert (tmp_path / "bad").read_text() == "gpu-node-3\n"
    assert running(hosts) == 0


def test_halving_the_all_reduce_of_gloo_ends_at_a_slow_host(hosts: Hosts, python: str):
    # Gloo computes as much as it sends, so that on a busy machine rates scatter by a sixth, and half a rate
    # is then rightly in doubt. A tenth is not.
    words = ("--pairs=bisect", "--what=collective", f"--python={python}")
    shape(hosts[2], 0.1)
    try:
        document, code = measure(*words, nodes="gpu-node-[0-3]")
    finally:
        shape(hosts[2])
    assert (odd(document), code) == ({"pairs.node@gpu-node-2"}, 2), document["findings"]
    assert "gpu-node-2" in document["bisection"]["smallest"]  # type: ignore[index]
    assert document["bisection"]["tries"][0]["gbps"] > 0  # type: ignore[index]
    assert running(hosts) == 0


@pytest.fixture
def leaf(hosts: Hosts) -> Iterator[str]:
    """Hosts 0 to 2 behind a switch of their own whose uplink has half the rate of one host."""
    lab = ("nsenter", "-t", str(hosts.pid), "-n")
    group = [hosts[number] for number in range(3)]
    for words in (
        "ip link add br1 up type bridge",
        "ip link add up0 type veth peer name up1",
        "ip link set up0 master br0 up",
        "ip link set up1 master br1 up",
        *(f"ip link set v{host.pid} master br1" for host in group),
        *(f"tc qdisc add dev up{n} root tbf rate {RATE / 2:g}mbit burst 32kb limit 2mb" for n in (0, 1)),
    ):
        quietly(*lab, *words.split())
    topology = hosts.folder / "topology"
    topology.write_text("gpu-node-[0-2] leaf1\ngpu-node-[3-7] leaf2\n")
    yield str(topology)
    for words in (*(f"ip link set v{host.pid} master br0" for host in group), "ip link del up0"):
        quietly(*lab, *words.split())


def test_a_group_behind_a_slow_uplink_is_one_finding(hosts: Hosts, leaf: str):
    assert odd(measure("--topology", leaf)[0]) == {"pairs.group@leaf1"}


def test_pods_entered_by_kubectl_are_measured(hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """The kubectl is made up: it lists a pod on each host and enters the host for it."""
    four = [hosts[number] for number in range(4)]
    items = [
        {
            "metadata": {"name": f"worker-{n}"},
            "spec": {"nodeName": f"node-{n}"},
            "status": {"phase": "Running"},
        }
        for n in range(4)
    ]
    (tmp_path / "pods.json").write_text(json.dumps({"items": items}))
    enters = "".join(
        f'  worker-{n}) set -- {shlex.join(host.argv())} "$@" ;;\n' for n, host in enumerate(four)
    )
    script = f"""#!/bin/sh
case "$*" in *" get pods "*) exec cat {tmp_path}/pods.json ;; esac
while [ "$1" != --stdin ]; do shift; done
pod=$2
while [ "$1" != -- ]; do shift; done
shift
case $pod in
{enters}esac
exec "$@"
"""
    (tmp_path / "kubectl").write_text(script)
    (tmp_path / "kubectl").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{hosts.path}")
    for host in four:
        host.run("ip", "route", "add", "default", "via", "10.77.0.254", check=True)
    shape(hosts[1], 0.5)
    try:
        document, code = measure("--kube=training/app=x")
    finally:
        shape(hosts[1])
    assert (odd(document), code, document["source"]) == ({"pairs.node@node-1"}, 2, "kube"), document["nodes"]
    assert running(hosts) == 0


def test_a_pair_that_loses_packets_is_named(hosts: Hosts):
    rule = f"ip saddr {hosts[6].address} numgen random mod 100 < 2 drop"
    table = "add table inet l; add chain inet l c { type filter hook input priority 0; }; add rule inet l c "
    hosts[2].run("nft", table + rule, check=True)
    try:
        document, _ = measure()
    finally:
        hosts[2].run("nft", "delete table inet l", check=True)
    assert odd(document) == {"pairs.path@gpu-node-2:gpu-node-6"}


def test_a_host_that_loses_packets_is_named(hosts: Hosts):
    """Of seven hosts it owns six of 21 pairs, more than a quarter."""
    rule = "tcp dport != 22 tcp sport != 22 numgen random mod 100 < 3 drop"
    table = "add table inet l; add chain inet l c { type filter hook input priority 0; }; add rule inet l c "
    hosts[2].run("nft", table + rule, check=True)
    try:
        document, code = measure(nodes="gpu-node-[0-6]")
    finally:
        hosts[2].run("nft", "delete table inet l", check=True)
    assert (odd(document), code) == ({"pairs.node@gpu-node-2"}, 2)


def test_a_filtered_host_is_no_slow_one(hosts: Hosts):
    rules = "add table inet f; add chain inet f c { type filter hook input priority 0; }; add rule inet f c "
    hosts[4].run("nft", rules + "tcp dport != 22 ct state new drop", check=True)
    try:
        document, _ = measure()
    finally:
        hosts[4].run("nft", "delete table inet f", check=True)
    assert odd(document) == {"pairs.node@gpu-node-4"}
    findings: list[dict[str, str]] = document["findings"]  # type: ignore[assignment]
    assert "firewall?" in next(one["summary"] for one in findings if one["subject"] == "gpu-node-4")


def test_a_host_that_stops_answering_is_a_result_and_does_not_stop_the_others(hosts: Hosts):
    def stop() -> None:
        while not any("python" in line for line in hosts[5].processes()):
            time.sleep(0.05)
        time.sleep(4)
        hosts[5].run("pkill", "-STOP", "-f", "nodedoctor-pairs|python")

    thread = threading.Thread(target=stop)
    thread.start()
    try:
        document, code = measure()
    finally:
        thread.join()
        hosts[5].run("pkill", "-CONT", "-f", "nodedoctor-pairs|python")
    assert (odd(document), code) == ({"pairs.node@gpu-node-5"}, 3)
    states = {node["host"]: node["state"] for node in document["nodes"]}  # type: ignore[attr-defined]
    assert states["gpu-node-5"] == "lost" and list(states.values()).count("measured") == 7
    assert running(hosts) == 0


@pytest.mark.parametrize("end", ["interrupt", "kill"])
def test_an_end_in_the_middle_leaves_nothing_running(hosts: Hosts, end: str):
    run = start()
    while sum("python" in line for host in hosts for line in host.processes()) < 12:
        time.sleep(0.05)
    run.send_signal(signal.SIGINT if end == "interrupt" else signal.SIGKILL)
    told, _ = run.communicate(timeout=30)
    if end == "interrupt":
        assert run.returncode == 130 and json.loads(told)["interrupted"]
    assert running(hosts) == 0


def test_a_line_that_is_cut_without_a_word_ends_the_agent(hosts: Hosts):
    """The dead-man timer: no end of stdin comes, only silence."""
    host = hosts[7]
    (host.folder / "agent.sh").write_text(agent_pool.script("tcp", sys.executable))
    hello = json.dumps({"do": "hello", "toward": ["gpu-node-0"], "quiet": 2.0, "what": "tcp"})
    (host.folder / "first").write_bytes(agent_pool.program() + hello.encode() + b"\n")
    agent = f"sh {host.folder}/agent.sh"
    script = f"(cat {host.folder}/first; sleep 1000) | {{ {agent}; touch /tmp/over; }}"
    talk = subprocess.Popen(host.argv("bash", "-c", script), stdout=subprocess.PIPE)
    assert talk.stdout and b'"ready"' in talk.stdout.readline()
    for _ in range(100):
        if host.run("test", "-e", "/tmp/over").returncode == 0:
            break
        time.sleep(0.1)
    else:
        pytest.fail("the agent heard nothing for 10 s and still runs")
    host.run("pkill", "sleep")
    talk.wait(10)
