"""The way to other nodes: ping's texts, the child on the loopback range, and what is made of it."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from asking import brief, judge, said
from hypothesis import given
from hypothesis import strategies as st
from test_net import ALONE, net
from test_plugins import nodedoctor, results

from nodedoctor.children import child_process
from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command, Options
from nodedoctor.facts.network.peers import NOBODY, Peer, Peers, Ping, peers
from nodedoctor.model import Observation, Outcome, Unseen

IPUTILS = """\
PING 10.0.0.8 (10.0.0.8) 56(84) bytes of data.
64 bytes from 10.0.0.8: icmp_seq=1 ttl=64 time=0.112 ms

--- 10.0.0.8 ping statistics ---
10 packets transmitted, {received} received, {lost}% packet loss, time 1843ms
rtt min/avg/max/mdev = 0.098/0.131/0.240/0.021 ms
"""
BUSYBOX = """\
PING 10.0.0.8 (10.0.0.8): 56 data bytes
64 bytes from 10.0.0.8: seq=0 ttl=64 time=0.052 ms

--- 10.0.0.8 ping statistics ---
10 packets transmitted, 9 packets received, 10% packet loss
round-trip min/avg/max = 0.033/0.042/0.055 ms
"""
SILENT = """\
PING 10.0.0.9 (10.0.0.9) {size}({packet}) bytes of data.

--- 10.0.0.9 ping statistics ---
3 packets transmitted, 0 received, 100% packet loss, time 409ms
"""
NOWHERE = """\
PING 10.0.0.9 (10.0.0.9) 56(84) bytes of data.
From 10.0.0.7 icmp_seq=1 Destination Host Unreachable

--- 10.0.0.9 ping statistics ---
10 packets transmitted, 0 received, +9 errors, 100% packet loss, time 1840ms
pipe 4
"""
FRAGMENT = """\
PING 10.0.0.9 (10.0.0.9) 8972(9000) bytes of data.
From 10.0.0.1 icmp_seq=1 Frag needed and DF set (mtu = 1500)
ping: local error: message too long, mtu=1500

--- 10.0.0.9 ping statistics ---
3 packets transmitted, 0 received, +3 errors, 100% packet loss, time 409ms
"""
SIX = """\
PING fd00::9(fd00::9) 8952 data bytes
From fd00::1 icmp_seq=1 Packet too big: mtu=1480

--- fd00::9 ping statistics ---
3 packets transmitted, 0 received, +3 errors, 100% packet loss, time 409ms
"""
NO_OPTION = "ping: invalid option -- 'M'\nBusyBox v1.35.0 multi-call binary.\n\nUsage: ping [OPTIONS] HOST\n"
DENIED = "ping: socktype: SOCK_RAW\nping: socket: Operation not permitted\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (IPUTILS.format(received=10, lost=0), Ping(10, 10, 0.131)),
        (IPUTILS.format(received=8, lost=20), Ping(10, 8, 0.131)),
        (BUSYBOX, Ping(10, 9, 0.042)),
        (SILENT.format(size=8972, packet=9000), Ping(3, 0)),
        (NOWHERE, Ping(10, 0, refused="unreachable")),
        (FRAGMENT, Ping(3, 0, told_mtu=1500)),
        (SIX, Ping(3, 0, told_mtu=1480)),
        ("ping: local error: Message too long, mtu=1400\n", Ping(told_mtu=1400)),
        ("ping: connect: Network is unreachable\n", Ping(refused="unreachable")),
        ("ping: sendto: Network is unreachable\n", Ping(refused="unreachable")),
        (DENIED, Ping(refused="denied")),
        ("ping: permission denied (are you root?)\n", Ping(refused="denied")),
        (NO_OPTION, Ping(refused="unsupported")),
        ("ping: invalid number '0.2'\n", Ping(refused="unsupported")),
        ("", Ping()),
    ],
)
def test_what_ping_prints(text, expected):
    assert Ping.parse(text) == expected


WORDS = st.sampled_from(
    [
        "9" * 12,
        "3 packets transmitted, ",
        "5 received",
        "5 packets received",
        "rtt min/avg/max = 1/2/",
        "mtu=9 ",
    ]
)


@given(st.lists(WORDS | st.text(max_size=20), max_size=8).map("".join))
def test_any_text_of_ping_is_bearable(text):
    ping = Ping.parse(text)
    assert 0 <= ping.received <= ping.sent
    assert 0 <= ping.loss <= 1


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers(-9, 99999) | st.text(max_size=9),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["text", "ping", "sizes", "1500", "tcp", "addresses"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(st.dictionaries(st.text(max_size=5), JSON, max_size=3), st.booleans(), JSON)
def test_any_answer_is_bearable(hosts, whole, port):
    seen = said(json.dumps({"peers": hosts, "port": 29500 if whole else port}), "peers")
    fact = Peers.parse(seen)
    assert isinstance(fact, Peers) or fact.reason == "unparsable"
    if isinstance(fact, Peers):
        assert len(judge("net.peers", fact)) >= max(1, len(hosts))


def test_cut_off_and_absent_answers():
    assert isinstance(Peers.parse(said('{"peers": {"a"', "peers")), Unseen)
    for outcome in (Outcome.SKIPPED, Outcome.MISSING):
        nobody = Peers.parse(Observation("peers", outcome))
        assert isinstance(nobody, Unseen) and not nobody.applies
    late = Peers.parse(Observation("peers", Outcome.TIMEOUT))
    assert isinstance(late, Unseen) and late.reason == "timeout"


def test_nothing_is_sent_where_nobody_was_named():
    planned = peers(Options())
    assert isinstance(planned, Observation)
    assert (planned.outcome, planned.note) == (Outcome.SKIPPED, NOBODY)


GOOD = Peer("node-2", ("10.0.0.8",), "", 9000, Ping(10, 10, 0.13), "", 9000, None, "ECONNREFUSED", True)


def judged(port_named: bool = False, **changes: object) -> list[tuple[str, str]]:
    peer = replace(GOOD, **changes)  # type: ignore[arg-type]
    return brief(judge("net.peers", Peers(29500, port_named, (peer,))))


WAY, MTU, PORT = "peer:node-2", "peer:node-2/mtu", "peer:node-2/port"
NO_PING = {"ping": None, "ping_error": "ENOENT", "path_mtu": None}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [("note", WAY)]),
        ({"tcp": "open"}, [("pass", WAY)]),
        ({"tcp": "open", "path_mtu": None}, [("note", WAY)]),
        ({"finished": False, "path_mtu": 0}, [("unknown", WAY)]),
        ({"addresses": (), "name_error": "Name or service not known"}, [("fail", WAY)]),
        ({"addresses": (), "finished": False}, [("fail", WAY)]),
        ({"addresses": ("127.0.1.1",)}, [("warn", WAY)]),
        ({"ping": Ping(10, 9, 0.1)}, [("warn", WAY)]),
        ({"ping": Ping(10, 8, 0.1)}, [("fail", WAY)]),
        ({"ping": Ping(10, 0), "tcp": "ETIMEDOUT", "path_mtu": None}, [("fail", WAY)]),
        ({"ping": Ping(10, 0, refused="unreachable"), "tcp": "EHOSTUNREACH"}, [("fail", WAY)]),
        ({"ping": Ping(10, 0), "path_mtu": None}, [("unknown", WAY)]),
        (NO_PING, [("unknown", WAY)]),
        ({**NO_PING, "tcp": "ETIMEDOUT"}, [("unknown", WAY)]),
        ({**NO_PING, "tcp": "EHOSTUNREACH"}, [("fail", WAY)]),
        ({**NO_PING, "tcp": "ETIMEDOUT", "port_named": True}, [("fail", WAY)]),
        ({"path_mtu": 1500}, [("fail", MTU)]),
        ({"path_mtu": 1500, "told_mtu": 1500}, [("warn", MTU)]),
        ({"path_mtu": 0}, [("warn", MTU)]),
        ({"ping": Ping(10, 7, 0.1), "path_mtu": 1500}, [("fail", WAY)]),
        ({"tcp": "ETIMEDOUT"}, [("warn", PORT)]),
        ({"tcp": "ETIMEDOUT", "port_named": True}, [("fail", PORT)]),
        ({"tcp": "EHOSTUNREACH", "path_mtu": 1500}, [("fail", MTU), ("warn", PORT)]),
    ],
)
def test_judgements(changes, expected):
    assert judged(**changes) == expected


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        (NO_PING, "missing-tool"),
        ({"ping": Ping(refused="denied")}, "denied"),
        ({"ping": None, "ping_error": "TIMEOUT"}, "timeout"),
        ({"ping": Ping(10, 0)}, "not-visible-here"),
    ],
)
def test_why_loss_was_not_seen(changes, reason):
    (one,) = judge("net.peers", Peers(29500, False, (replace(GOOD, **changes),)))
    assert one.reason == reason
    assert one.fix is not None or reason == "timeout"


def test_the_own_name_matters_to_peers():
    own = net(name_addresses=("127.0.1.1",))
    assert brief(judge("net.hostname", own, ALONE)) == [("note", "")]
    assert brief(judge("net.hostname", own, ALONE, Peers(29500, False, (GOOD,)))) == [("warn", "")]


def test_names_in_commands_are_quoted():
    hostile = replace(GOOD, host="x; reboot", addresses=(), name_error="no")
    (one,) = judge("net.peers", Peers(29500, False, (hostile,)))
    assert one.fix is not None and one.fix.commands == ("getent hosts 'x; reboot'",)


@pytest.fixture
def tools(tmp_path) -> Path:
    """A folder to be PATH, with a ping that knows how large packets may be on the way to each address."""
    ping = tmp_path / "ping"
    ping.write_text(
        f"#!{sys.executable} -IS\n"
        "import sys\n"
        "words = sys.argv[1:]\n"
        "size = int(words[words.index('-s') + 1]) + 28 if '-s' in words else 84\n"
        "most = {'127.0.0.4': 1500, '127.0.0.5': 60}.get(words[-1], 65536)\n"
        "back = 10 if size <= most else 0\n"
        "print(f'10 packets transmitted, {back} received, {100 - 10 * back}% packet loss, time 9ms')\n"
        "sys.exit(0 if back else 1)\n"
    )
    ping.chmod(0o755)
    return tmp_path


def tried(path: Path, *hosts: str, port: int | None = None) -> dict[str, Peer]:
    """Run the child as it is planned, with this PATH."""
    planned = peers(Options(peers=hosts))
    assert isinstance(planned, Command)
    env = {"PATH": str(path), "MASTER_PORT": str(port or "")}
    seen = asyncio.run(child_process.run("peers", Command(planned.argv, env), 30))
    assert (seen.outcome, seen.rc, seen.note) == (Outcome.OK, 0, "")
    fact = Peers.parse(seen)
    assert isinstance(fact, Peers)
    assert (fact.port, fact.port_named) == (port or 29500, port is not None)
    return {peer.host: peer for peer in fact.peers}


@pytest.fixture
def listening() -> Iterator[int]:
    with socket.create_server(("127.0.0.2", 0)) as server:
        yield server.getsockname()[1]


def test_ways_are_tried_at_once(tools, listening):
    found = tried(tools, "127.0.0.2", "127.0.0.4", "127.0.0.5", "no such.invalid", port=listening)
    assert found["127.0.0.2"].tcp == "open"
    assert found["127.0.0.4"].tcp == "ECONNREFUSED"
    whole = found["127.0.0.2"].interface_mtu
    assert whole is not None and whole > 1500
    assert [found[f"127.0.0.{n}"].path_mtu for n in (2, 4)] == [whole, 1500]
    assert (found["127.0.0.5"].answers_ping, found["127.0.0.5"].path_mtu) == (False, None)
    assert found["no such.invalid"].name_error and not found["no such.invalid"].addresses
    assert all(peer.finished for peer in found.values())


def test_without_ping_the_port_still_answers(tmp_path):
    peer = tried(tmp_path, "127.0.0.2")["127.0.0.2"]
    assert (peer.ping, peer.ping_error, peer.answers) == (None, "ENOENT", True)


def test_the_command_line_takes_hosts_and_refuses_options(tools, monkeypatch):
    monkeypatch.setenv("PATH", str(tools), prepend=os.pathsep)
    done = nodedoctor("--json", "--peers", "127.0.0.2,127.0.0.4", "--peers", "127.0.0.2", "net.peers")
    found = results(done)["net.peers"]["findings"]
    assert [one["subject"] for one in found] == ["peer:127.0.0.2", "peer:127.0.0.4/mtu"]
    refused = nodedoctor("--peers=-f,x", "net.peers")
    assert refused.returncode == 64
    assert "'-f' is no name or address" in refused.stderr


def test_a_recording_keeps_the_way_to_peers(tools, tmp_path, monkeypatch):
    kept = tmp_path / "node.zip"
    monkeypatch.setenv("PATH", str(tools), prepend=os.pathsep)
    live = nodedoctor("--json", "--peers", "127.0.0.4", "--record", str(kept), "net.peers")
    again = nodedoctor("--json", "--replay", str(kept), "net.peers")
    assert results(again)["net.peers"]["findings"] == results(live)["net.peers"]["findings"]


def test_a_ping_that_never_ends_costs_no_more_than_was_given(tmp_path):
    (tmp_path / "ping").write_text(f"#!{sys.executable} -IS\nimport time\ntime.sleep(60)\n")
    (tmp_path / "ping").chmod(0o755)
    argv = child("network/peers", "--seconds", "0.3", "127.0.0.2")
    seen = asyncio.run(child_process.run("peers", Command(argv, {"PATH": str(tmp_path)}), 30))
    fact = Peers.parse(seen)
    assert isinstance(fact, Peers)
    (peer,) = fact.peers
    assert (peer.ping, peer.tcp) == (None, "ECONNREFUSED")
    (one,) = judge("net.peers", fact)
    assert one.reason == "timeout"
