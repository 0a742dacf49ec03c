"""Real sshd on hosts made of namespaces: healthy, broken, hanging and cut off; shells, banners, no Python."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hosts import BIN, CHECKOUT, Host, Hosts, need

from nodedoctor.fleet.model import FleetRequest, Node
from nodedoctor.fleet.transports import node_side
from nodedoctor.fleet.transports.ssh import Ssh

pytestmark = pytest.mark.real

PYZ = Path(__file__).parents[3] / "dist/nodedoctor.pyz"
FEW = ("--json", "nvlink.links", "driver.gpus-present")
DEAF = "#!/bin/sh\ntrap '' TERM HUP INT\nwhile :; do sleep 1; done\n"
FROZEN = "#!/bin/sh\nkill -STOP $(ps -C sshd -o pid=,args= | sed -n 's/ sshd: root@notty.*//p')\nsleep 1000\n"


@pytest.fixture
def boot(
    tmp_path: Path, nvml_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Hosts]]:
    """Boot so many hosts; `ssh` then reaches them."""
    need("ssh", "sshd", "ssh-keygen", "ip", "nft", "unshare", "nsenter")
    with ExitStack() as stack:

        def boot(count: int, **more: Any) -> Hosts:
            hosts = stack.enter_context(Hosts(tmp_path, count=count, nvml=nvml_folder, **more))
            monkeypatch.setenv("PATH", hosts.path)
            return hosts

        yield boot


@pytest.fixture
def host(boot: Callable[..., Hosts]) -> Host:
    return boot(1)[0]


async def collect(hosts: str, request: FleetRequest) -> dict[str, Node]:
    return {node.host: node async for node in Ssh(hosts).ask(request)}


def ask(hosts: str, **request: object) -> dict[str, Node]:
    return asyncio.run(collect(hosts, FleetRequest(**request)))  # type: ignore[arg-type]


def fleet(*words: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "nodedoctor", "fleet", *words]
    return subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=90)


def one(**request: object) -> Node:
    return ask("gpu-node-0", **request)["gpu-node-0"]


def left_on(host: Host) -> list[str]:
    """What still runs on a host besides sshd, a moment after everybody has gone."""
    for _ in range(100):
        left = [line for line in host.processes() if "sshd" not in line]
        if not left:
            break
        time.sleep(0.1)
    return left


def test_a_healthy_a_broken_a_hanging_and_a_cut_host(boot: Callable[..., Hosts]):
    hosts = boot(4)
    hosts[1].tell({"gpu3.link4": "down", "gpu3.link11": "down"})
    hosts[2].cut()
    hosts[3].command("nodedoctor", DEAF)
    began = time.monotonic()
    nodes = ask("gpu-node-[0-3]", deadline=20.0, arguments=FEW)
    assert time.monotonic() - began < 30
    states = [nodes[host.name].state for host in hosts]
    assert states == ["answered", "answered", "unreachable", "silent"]
    assert nodes["gpu-node-0"].statuses["nvlink.links"] == "pass"
    assert "nvlink.links@gpu:3" in {problem.id for problem in nodes["gpu-node-1"].problems}
    assert "timed out" in nodes["gpu-node-2"].note
    assert [left_on(hosts[i]) for i in (0, 1, 3)] == [[], [], []]


def test_the_command_names_every_host_and_the_odd_one(boot: Callable[..., Hosts], tmp_path: Path):
    hosts = boot(4, drivers={1: "550.54.15"})
    hosts[1].tell({"gpu3.link4": "down", "gpu3.link11": "down"})
    hosts[2].cut()
    hosts[3].command("nodedoctor", DEAF)
    failing = tmp_path / "failing"
    ended = fleet("--ssh", "gpu-node-[0-3]", "--json", "--deadline=20", f"--failing={failing}", *FEW[1:])
    assert (ended.returncode, ended.stderr) == (2, "")
    document = json.loads(ended.stdout)
    states = {node["host"]: node["state"] for node in document["nodes"]}
    assert [states[host.name] for host in hosts] == ["answered", "answered", "unreachable", "silent"]
    assert document["failing"] == "gpu-node-[1-3]"
    assert failing.read_text().split() == ["gpu-node-1", "gpu-node-2", "gpu-node-3"]


def test_the_command_sees_an_older_driver(boot: Callable[..., Hosts]):
    boot(4, drivers={1: "550.54.15"})
    ended = fleet("--ssh", "gpu-node-[0-3]", "--json", "driver")
    (oddity,) = [entry for entry in json.loads(ended.stdout)["oddities"] if entry["key"] == "driver"]
    assert (oddity["odd"], oddity["majority"]["nodes"]) == ("gpu-node-1", "gpu-node-[0,2-3]")


def test_a_host_whose_sshd_froze_is_silent(host: Host):
    host.command("nodedoctor", FROZEN)
    began = time.monotonic()
    assert one(deadline=3.0).state == "silent"
    assert time.monotonic() - began < 12


def test_a_host_without_sshd_refuses(host: Host):
    host.run("sh", "-c", "kill $(cat /run/sshd.pid)", check=True)
    node = one()
    assert node.state == "unreachable" and "refused" in node.note


def test_a_host_with_another_key_is_not_talked_to(host: Host):
    known = host.folder.parent / "known_hosts"
    other = host.folder / "other"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(other)], check=True)
    known.write_text(f"* {other.with_suffix('.pub').read_text()}")
    node = one()
    assert node.state == "unreachable" and "host key has changed" in node.note


@pytest.mark.parametrize("shell", ["dash", "fish", "csh", "tcsh", "zsh"])
def test_every_login_shell_will_do(host: Host, shell: str):
    host.shell(shutil.which(shell) or pytest.skip(f"{shell} is not installed"))
    told = 'it\'s a \\ "b" !$HOME\n'
    node = one(arguments=(*FEW, "--expect", f"gpu={told}"))
    assert node.state == "answered"
    assert any("it's a" in problem.summary for problem in node.problems), node.problems


def test_a_shell_that_talks_before_and_a_banner_do_no_harm(host: Host):
    (host.home / ".bashrc").write_text("echo 'Welcome to {the} cluster'\necho maintenance on Monday >&2\n")
    node = one(arguments=FEW)
    assert node.state == "answered" and "banner of 1 line" in node.note


def test_a_cut_connection_leaves_nothing_running(host: Host):
    host.command("nodedoctor", f'#!/bin/sh\n{BIN}/nodedoctor "$@"\nsleep 1000\n')
    script = node_side.line(node_side.script(FleetRequest(), stays_open=True))
    ssh = subprocess.Popen(["ssh", "gpu-node-0", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert ssh.stdin and ssh.stdout
    ssh.stdin.write(node_side.stdin(stays_open=True))
    ssh.stdin.flush()
    assert ssh.stdout.readline()
    assert any("nodedoctor" in line for line in host.processes())
    ssh.send_signal(signal.SIGKILL)
    ssh.communicate()
    assert left_on(host) == []


def test_ctrl_c_ends_it_on_the_hosts_too(boot: Callable[..., Hosts]):
    hosts = boot(2)
    hosts[0].command("nodedoctor", "#!/bin/sh\ntouch /tmp/asked\nsleep 1000\n")
    argv = [sys.executable, "-m", "nodedoctor", "fleet", "--ssh", "gpu-node-[0-1]", *FEW]
    asking = subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    while hosts[0].run("test", "-e", "/tmp/asked").returncode:
        time.sleep(0.1)
    asking.send_signal(signal.SIGINT)
    told, _ = asking.communicate(timeout=30)
    assert asking.returncode == 130
    assert {node["host"] for node in json.loads(told)["nodes"]} == {"gpu-node-0", "gpu-node-1"}
    assert left_on(hosts[0]) == []


def test_shared_connections_of_the_users_own_stay_theirs(boot: Callable[..., Hosts], tmp_path: Path):
    boot(1)
    sockets = tempfile.mkdtemp(prefix="nd-")  # a socket's path has 108 characters at most
    shared = f"ControlMaster auto\nControlPath {sockets}/%C\nControlPersist 60\nRequestTTY force\n"
    config = tmp_path / "ssh_config"
    config.write_text(config.read_text() + shared)
    check = ["ssh", "-O", "check", "gpu-node-0"]
    assert subprocess.run(check, capture_output=True).returncode != 0
    try:
        for _ in range(2):
            node = one(arguments=FEW)
            assert (node.state, node.note) == ("answered", "")
            assert subprocess.run(check, capture_output=True).returncode == 0, "the master is still there"
    finally:
        subprocess.run(["ssh", "-O", "exit", "gpu-node-0"], capture_output=True)
        shutil.rmtree(sockets)


def test_a_host_without_python_says_so(host: Host):
    junk = host.folder / "nodedoctor.pyz"
    junk.write_text("#" * 300_000)
    host.hide(BIN, *Path("/usr/bin").glob("python3*"))
    node = one(pyz=str(junk))
    assert node.state == "unable" and node.note.startswith(node_side.NO_PYTHON)


def test_a_host_without_room_says_so(host: Host):
    junk = host.folder / "nodedoctor.pyz"
    junk.write_text("#" * 300_000)
    host.hide(BIN)
    host.run("mount", "-o", "remount,size=100k", "/tmp", check=True)
    host.run("mount", "-o", "remount,ro", "/dev/shm", check=True)
    node = one(pyz=str(junk))
    assert node.state == "unable" and node.note.startswith(node_side.NO_ROOM)


def test_a_host_without_nodedoctor_is_brought_it(host: Host):
    if not PYZ.exists():
        pytest.skip("no dist/nodedoctor.pyz: make pyz builds it")
    host.hide(BIN)
    node = one(pyz=str(PYZ))
    assert node.state == "answered" and node.gpus == 8
    ours = {path.parts[2] for path in (host.folder, CHECKOUT) if path.is_relative_to("/tmp")}
    assert set(host.run("ls", "-A", "/tmp").stdout.split()) - ours == {f"nodedoctor-{os.getuid()}"}
    assert len(host.run("find", "/tmp/nodedoctor-0", "-type", "f").stdout.split()) == 1
    assert left_on(host) == []
