"""The network from inside: from the child's document to findings."""

from __future__ import annotations

import json
import socket

import pytest
from asking import ask, brief, judge, said
from hypothesis import given
from hypothesis import strategies as st

from nodedoctor.facts.driver.services import Service, Services
from nodedoctor.facts.host.container import Container
from nodedoctor.facts.host.env import Env
from nodedoctor.facts.host.limits import Limits
from nodedoctor.facts.host.processes import Process, Processes
from nodedoctor.facts.network.net import Interface, Net, network
from nodedoctor.model import Unseen

LO = Interface("lo", True, 1, 65536, kind=772, addresses=("127.0.0.1",))
DOCKER = Interface("docker0", True, 4, 1500, kind=1, addresses=("172.17.0.1",))
ETH = Interface("ens1f0", True, 2, 9000, 100_000, 1, True, addresses=("10.0.0.7",))
IDLE = Interface("ens1f1", False, 3, 1500, kind=1, physical=True)

SEVERAL = Processes((Process(9, program="python3", role="rank", rank=0, world_size=16),))
ALONE = Processes((Process(9, program="python3", role="rank", rank=0, world_size=1),))


def net(**fields: object) -> Net:
    usual = {
        "interfaces": (LO, ETH, IDLE, DOCKER),
        "default_routes": ("ens1f0",),
        "hostname": "gpu-7",
        "name_addresses": ("10.0.0.7",),
        "name_source": "hosts",
        "nameservers": ("10.0.0.53",),
        "synchronised": True,
        "input_rules": (),
    }
    return Net(**{**usual, **fields})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "facts", "status"),
    [
        ({}, (), "pass"),
        ({"name_addresses": ("127.0.1.1",)}, (ALONE,), "note"),
        ({"name_addresses": ("127.0.1.1",)}, (SEVERAL,), "warn"),
        ({"name_addresses": ("10.9.9.9",)}, (), "warn"),
        ({"name_addresses": ("10.9.9.9",)}, (Container(runtime="docker"),), "pass"),
        (
            {"name_addresses": (), "name_source": "resolver", "name_error": "Name or service not known"},
            (),
            "warn",
        ),
        ({"name_addresses": (), "name_source": ""}, (), "unknown"),
    ],
)
def test_hostname(fields, facts, status):
    assert [word for word, _ in brief(judge("net.hostname", net(**fields), *facts))] == [status]


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({"NCCL_SOCKET_IFNAME": "ens1f0"}, [("pass", "env:NCCL_SOCKET_IFNAME")]),
        ({"NCCL_SOCKET_IFNAME": "ens"}, [("pass", "env:NCCL_SOCKET_IFNAME")]),
        ({"NCCL_SOCKET_IFNAME": "=ens"}, [("fail", "env:NCCL_SOCKET_IFNAME")]),
        ({"NCCL_SOCKET_IFNAME": "^docker,lo"}, [("pass", "env:NCCL_SOCKET_IFNAME")]),
        ({"NCCL_SOCKET_IFNAME": "eth0"}, [("fail", "env:NCCL_SOCKET_IFNAME")]),
        ({"NCCL_SOCKET_IFNAME": "ens1f1"}, [("fail", "env:NCCL_SOCKET_IFNAME")]),
        ({"GLOO_SOCKET_IFNAME": "ens"}, [("fail", "env:GLOO_SOCKET_IFNAME")]),
        ({"GLOO_SOCKET_IFNAME": "ens1f0"}, [("pass", "env:GLOO_SOCKET_IFNAME")]),
        ({}, [("pass", "")]),
    ],
)
def test_interfaces_that_variables_name(env, expected):
    assert brief(judge("net.interface", net(), Env(env))) == expected


def test_the_interface_a_running_rank_was_told_counts():
    rank = Process(9, program="python3", role="rank", environment={"NCCL_SOCKET_IFNAME": "eth9"})
    assert brief(judge("net.interface", net(), Processes((rank,)))) == [("fail", "env:NCCL_SOCKET_IFNAME")]


def test_what_nccl_would_take_matters_only_between_nodes():
    bridge = net(interfaces=(LO, Interface("br-4f", True, 2, 1500, addresses=("172.18.0.1",)), ETH))
    assert brief(judge("net.interface", bridge, ALONE)) == [("pass", "")]
    assert brief(judge("net.interface", bridge, SEVERAL)) == [("warn", "net:br-4f")]
    assert brief(judge("net.interface", net(interfaces=()))) == [("unknown", "")]


@pytest.mark.parametrize("names", ["rdma{0}", "ib{0}", "rail-{0}", "eth{0}", "ens{0}np0"])
@pytest.mark.parametrize("count", [2, 3, 4, 8, 9])
@pytest.mark.parametrize("other", [1500, 9000])
def test_a_rail_with_another_mtu_than_three_or_more_is_a_warning(names: str, count: int, other: int):
    rails = tuple(Interface(names.format(n), True, n, 9000 if n else other) for n in range(count))
    counts = {"eth{0}": (), "ens{0}np0": (4, 8)}.get(names, (4, 8, 9))
    sick = other != 9000 and count in counts
    judged = brief(judge("net.mtu", net(interfaces=rails, default_routes=())))
    assert judged == [("warn", f"net:{names.format(0)}") if sick else ("skip", "")]


def test_parts_of_a_bundle_must_agree_in_mtu():
    parts = tuple(
        Interface(f"p{n}", True, n, mtu, physical=True, master="bond0") for n, mtu in enumerate((9000, 1500))
    )
    bond = Interface("bond0", True, 9, 9000, addresses=("10.0.0.7",))
    assert brief(judge("net.mtu", net(interfaces=(*parts, bond)))) == [("warn", "net:bond0")]
    assert brief(judge("net.mtu", net())) == [("pass", "")]
    assert brief(judge("net.mtu", net(default_routes=()))) == [("skip", "")]


REJECTS = (
    "-P INPUT ACCEPT",
    "-A INPUT -i lo -j ACCEPT",
    "-A INPUT -j REJECT --reject-with icmp-host-prohibited",
)
USUAL = Limits(local_ports=(32768, 60999))


@pytest.mark.parametrize(
    ("fields", "facts", "expected"),
    [
        ({}, (USUAL,), [("pass", "")]),
        ({}, (Limits(local_ports=(50000, 50999)),), [("warn", "net:ports"), ("pass", "")]),
        ({"input_rules": REJECTS}, (USUAL, ALONE), [("note", "net:firewall")]),
        ({"input_rules": REJECTS}, (USUAL, SEVERAL), [("warn", "net:firewall")]),
        ({"input_rules": ("-P INPUT DROP",)}, (USUAL, SEVERAL), [("warn", "net:firewall")]),
        (
            {"input_rules": ("-P INPUT ACCEPT", "-A INPUT -s 10.1.2.3/32 -j DROP")},
            (USUAL, SEVERAL),
            [("pass", "")],
        ),
        ({"ufw": True, "input_rules": None}, (USUAL,), [("note", "net:firewall")]),
        ({"input_rules": None}, (USUAL,), [("note", "net:firewall")]),
    ],
)
def test_ports(fields, facts, expected):
    assert brief(judge("net.ports", net(**fields), *facts)) == expected


@pytest.mark.parametrize(("synchronised", "status"), [(True, "pass"), (False, "warn"), (None, "unknown")])
def test_clock(synchronised, status):
    chrony = Services((Service("chrony", "loaded", "active"),))
    assert brief(judge("net.clock", net(synchronised=synchronised), chrony)) == [(status, "")]


@pytest.mark.parametrize(
    ("unit", "bound", "status"),
    [
        ("chronyd", 0.02, "note"),  # without rtcsync
        ("chronyd", 16.0, "warn"),  # nobody answers it
        ("ntpd", 0.02, "warn"),
        ("phc2sys", 16.0, "note"),
        ("docker", 0.02, "warn"),
    ],
)
def test_a_service_that_keeps_the_clock_without_telling_the_kernel(unit: str, bound: float, status: str):
    runs = Services((Service(unit, "loaded", "active", "running"),))
    fields = {"synchronised": False, "clock_error_seconds": bound}
    assert brief(judge("net.clock", net(**fields), runs)) == [(status, "")]


@pytest.mark.parametrize(
    ("fields", "status"),
    [
        ({}, "note"),
        ({"nameservers": ()}, "note"),
        ({"name_seconds": 0.004}, "pass"),
        ({"name_seconds": 2.5}, "warn"),
        ({"name_seconds": 3.0, "name_error": "TIMEOUT"}, "warn"),
    ],
)
def test_dns(fields, status):
    assert [word for word, _ in brief(judge("net.dns", net(**fields)))] == [status]


def test_the_child_knows_this_machine():
    told = Net.parse(ask(network))
    assert isinstance(told, Net)
    lo = told.get("lo")
    assert lo is not None and lo.loopback
    assert told.hostname == socket.gethostname()
    assert told.name_addresses or told.name_error


values = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=4),
    lambda v: st.lists(v, max_size=3) | st.dictionaries(st.text(max_size=4), v, max_size=3),
    max_leaves=6,
)
keys = ("interfaces", "default_routes", "hostname", "hosts", "resolved", "nameservers", "firewall", "clock")
attributes = ("operstate", "mtu", "type", "carrier", "speed", "ifindex", "flags", "master", "addresses")
entries = st.dictionaries(st.sampled_from(attributes), values)


@given(
    st.dictionaries(st.sampled_from(keys), values), st.dictionaries(st.text(max_size=4), entries, max_size=3)
)
def test_no_document_raises(document, interfaces):
    told = Net.parse(said(json.dumps({**document, "interfaces": interfaces})))
    assert isinstance(told, Net)
    for check in ("net.hostname", "net.interface", "net.mtu", "net.ports", "net.clock", "net.dns"):
        assert judge(check, told)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"interfaces": 3}', '{"interfaces"', "[" * 100_000])
def test_a_broken_document_is_no_fact(text):
    assert isinstance(Net.parse(said(text)), Unseen)
