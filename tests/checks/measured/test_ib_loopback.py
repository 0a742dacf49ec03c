"""ib_write_bw through a rail and back: with a stand-in for perftest, and judged against the port's rate."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from asking import ask
from hypothesis import given
from hypothesis import strategies as st
from ib_tree import add_hca

from checks.measured.deep_ib import ib_write_bw
from nodedoctor.declare.registry import Command, Options
from nodedoctor.facts.rdma.loopback import LOOPBACK, NO_PORT, IbLoopback, average_gbps, loopback
from nodedoctor.facts.rdma.port import IbPort
from nodedoctor.facts.rdma.ports import Ib
from nodedoctor.facts.rdma.sysfs import rdma_devices
from nodedoctor.model import Observation, Outcome, Status, Unseen

PROGRAM = Path(__file__).parents[3] / "nodedoctor" / "probes" / "measured/ib_write_bw.py"
LINE = "-" * 87

OUTPUT = f"""\
{LINE}
                    RDMA_Write BW Test
 Dual-port       : OFF\t\tDevice         : mlx5_0
 Number of qps   : 1\t\tTransport type : IB
 Connection type : RC\t\tUsing SRQ      : OFF
 TX depth        : 128
 CQ Moderation   : 1
 Mtu             : 4096[B]
 Link type       : IB
 Max inline data : 0[B]
 rdma_cm QPs\t : OFF
 Data ex. method : Ethernet
{LINE}
 local address: LID 0x0a QPN 0x0108 PSN 0x6b1ad1 RKey 0x182d00 VAddr 0x007f3c1a6c0000
 remote address: LID 0x0a QPN 0x0109 PSN 0x41c2ee RKey 0x182e00 VAddr 0x007f11e2ac0000
{LINE}
 #bytes     #iterations    BW peak[Gb/sec]    BW average[Gb/sec]   MsgRate[Mpps]
Conflicting CPU frequency values detected: 1500.000000 != 3300.016000. CPU Frequency is not max.
 1048576    93012            0.00               {{}} \t\t     0.046506
{LINE}
"""

STAND_IN = '''#!{python}
"""Like ib_write_bw: a server waits for one client on -p; mlx5_7 does not open, mlx5_8 never ends."""
import os, socket, sys, time
words = sys.argv[1:]
device, port = words[words.index("-d") + 1], int(words[words.index("-p") + 1])
with open(os.environ["STAND_IN_PIDS"], "a") as file:
    file.write(str(os.getpid()) + "\\n")
if device == "mlx5_7":
    print("Couldn't allocate MR")
    sys.exit(1)
if words[-1] == "127.0.0.1":
    socket.create_connection(("127.0.0.1", port)).recv(1)
    time.sleep(600 if device == "mlx5_8" else 0)
    print(os.environ["STAND_IN_OUTPUT"])
else:
    listener = socket.create_server(("", port))
    listener.accept()[0].send(b"x")
    time.sleep(600)
'''


@pytest.fixture
def perftest(tmp_path):
    """Run our program with the stand-in, whose server would stay; gives the fact, sees that none is left."""
    tool = tmp_path / "bin" / "ib_write_bw"
    tool.parent.mkdir()
    tool.write_text(STAND_IN.format(python=sys.executable))
    tool.chmod(tool.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
    pids = tmp_path / "pids"
    env = {**os.environ, "PATH": f"{tool.parent}:/usr/bin:/bin", "STAND_IN_PIDS": str(pids)}
    env["STAND_IN_OUTPUT"] = OUTPUT.format("390.11")

    def run(*ports, limit="8.0"):
        source = PROGRAM.read_text().replace("LIMIT = 8.0", f"LIMIT = {limit}")
        argv = [sys.executable, "-I", "-c", source, *ports]
        done = subprocess.run(argv, env=env, capture_output=True, text=True, timeout=60)
        assert done.stderr == ""
        started = [int(pid) for pid in pids.read_text().split()]
        assert started and not any(Path(f"/proc/{pid}").exists() for pid in started)
        return IbLoopback.parse(Observation(LOOPBACK, text=done.stdout))

    return run


def ib(rate=400.0):
    return Ib(tuple(IbPort(f"mlx5_{n}", 1, "ACTIVE", "LinkUp", rate, "InfiniBand") for n in range(2)))


def told(average):
    ports = [
        {"port": "mlx5_0/1", "text": OUTPUT.format("390.11")},
        {"port": "mlx5_1/1", "text": OUTPUT.format(average)},
    ]
    return IbLoopback.parse(Observation(LOOPBACK, text=json.dumps({"ports": ports})))


def test_server_and_client_on_one_host(perftest):
    found = perftest("mlx5_0/1", "mlx5_1/1@3")
    assert [(one.port, one.average_gbps) for one in found.ports] == [
        ("mlx5_0/1", 390.11),
        ("mlx5_1/1", 390.11),
    ]
    assert [finding.status for finding in ib_write_bw(found, ib())] == [Status.PASS]


def test_an_adapter_that_does_not_open_is_unknown_with_what_was_said(perftest):
    (finding,) = ib_write_bw(perftest("mlx5_7/1"), ib())
    assert finding.status is Status.UNKNOWN and finding.subject == "port:mlx5_7/1"
    assert "Couldn't allocate MR" in finding.summary and "memlock" in finding.fix.text


@pytest.mark.slow
def test_a_test_that_never_ends_is_given_up(perftest):
    (finding,) = ib_write_bw(perftest("mlx5_8/1", limit="1.0"), ib())
    assert finding.reason == "timeout" and finding.subject == "port:mlx5_8/1"


@pytest.mark.parametrize(
    ("average", "status"), [("361.0", Status.PASS), ("340.0", Status.WARN), ("197.2", Status.FAIL)]
)
def test_against_the_rate_of_the_port(average, status):
    findings = list(ib_write_bw(told(average), ib()))
    assert findings[0].status is status
    assert status is Status.PASS or findings[0].subject == "port:mlx5_1/1"


def test_without_a_rate_nothing_passes():
    assert {finding.status for finding in ib_write_bw(told("390.0"), None)} == {Status.UNKNOWN}


def test_another_unit_is_not_taken_for_gbit():
    assert average_gbps(OUTPUT.format("390.11")) == 390.11
    assert average_gbps(OUTPUT.format("46503.12").replace("Gb/sec", "MB/sec")) is None


def test_active_rails_are_asked_for(tmp_path):
    add_hca(tmp_path, "mlx5_0")
    add_hca(tmp_path, "mlx5_1", state="DOWN", physical="Polling")
    none = Observation("nvml", Outcome.SKIPPED, note="no NVIDIA hardware")
    rdma = ask(rdma_devices, root=tmp_path, name="rdma")
    planned = loopback(Options(), rdma, none, none)
    assert isinstance(planned, Command) and planned.argv[-1] == "mlx5_0/1"
    assert loopback(Options(passive=True), rdma, none, none).outcome is Outcome.SKIPPED


def test_a_roce_port_is_asked_with_a_gid_of_version_2(tmp_path):
    gids = {0: ("fe80::1", "IB/RoCE v1"), 3: ("0000:0000:0000:0000:0000:ffff:0a00:0001", "RoCE v2")}
    add_hca(tmp_path, "mlx5_0", layer="Ethernet", gids=gids)
    none = Observation("nvml", Outcome.SKIPPED, note="no NVIDIA hardware")
    planned = loopback(Options(), ask(rdma_devices, root=tmp_path, name="rdma"), none, none)
    assert planned.argv[-1] == "mlx5_0/1@3"


def test_no_active_port_and_no_tool_are_skips(tmp_path):
    (tmp_path / "sys/class/infiniband").mkdir(parents=True)
    none = Observation("nvml", Outcome.SKIPPED, note="no NVIDIA hardware")
    seen = loopback(Options(), ask(rdma_devices, root=tmp_path, name="rdma"), none, none)
    assert seen.note == NO_PORT and not IbLoopback.parse(seen).applies
    argv = [sys.executable, "-I", PROGRAM, "mlx5_0/1"]
    done = subprocess.run(argv, env={"PATH": str(tmp_path)}, capture_output=True, text=True, timeout=60)
    why = IbLoopback.parse(Observation(LOOPBACK, text=done.stdout))
    assert isinstance(why, Unseen) and not why.applies and "not installed" in why.note


@given(
    st.text()
    | st.text(st.sampled_from(" \t\n0123456789.e#[]")).map(lambda end: OUTPUT.partition("\n ")[0] + end)
)
def test_any_text_is_read(text):
    average_gbps(OUTPUT.partition("Conflicting")[0] + text)
    found = IbLoopback.parse(
        Observation(LOOPBACK, text=json.dumps({"ports": [{"port": text, "text": text}]}))
    )
    assert isinstance(found, IbLoopback | Unseen)
    assert isinstance(IbLoopback.parse(Observation(LOOPBACK, text=text)), Unseen)
