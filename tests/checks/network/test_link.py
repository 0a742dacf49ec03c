"""Bonds that lost a leg and links that flap, against the other interfaces of the node."""

from __future__ import annotations

from pathlib import Path

import pytest
from asking import ask, brief, judge, write
from hypothesis import given
from hypothesis import strategies as st
from recorded import alarms, replay

from nodedoctor.facts.host.machine import Machine
from nodedoctor.facts.network.net import Interface, Net, network
from nodedoctor.intake.outputs import NodeOutput, snapshot_of
from nodedoctor.intake.split import split


def interface(name: str, changes: int | None = 3, **fields: object) -> Interface:
    return Interface(name, **{"up": True, "physical": True, "carrier_changes": changes, **fields})  # type: ignore[arg-type]


def found(*interfaces: Interface) -> list[tuple[str, str]]:
    return [one for one in brief(judge("net.link", Net(interfaces))) if one[0] != "pass"]


BOND = Interface("bond0", up=True, bond=True)
RAILS = [interface(f"ens{n}np0", 2 + n % 3) for n in range(8)]


def leg(name: str, up: bool = True) -> Interface:
    return interface(name, up=up, master="bond0")


def test_a_bond_on_one_leg_is_named():
    (one,) = judge("net.link", Net((BOND, leg("eno1"), leg("eno2", up=False))))
    assert (one.status.value, one.subject) == ("warn", "net:bond0") and "eno2" in one.summary
    assert found(BOND, leg("eno1"), leg("eno2")) == []


def test_a_bridge_is_no_bond_and_a_bond_nobody_uses_is_down_as_a_whole():
    bridge = Interface("br0", up=True)
    assert found(bridge, interface("eno1", master="br0"), interface("eno2", up=False, master="br0")) == []
    assert found(BOND, leg("eno1", up=False), leg("eno2", up=False), *RAILS) == []


def test_a_link_that_flaps_unlike_the_others():
    assert found(*RAILS) == []
    assert found(*RAILS[:7], interface("ens7np0", 240)) == [("warn", "net:ens7np0/link")]
    assert found(*RAILS[:7], interface("ens7np0", 15)) == []
    assert found(*(interface(f"ens{n}np0", 200 + n) for n in range(8))) == []  # the switch was restarted


def test_a_default_route_over_a_cable_with_a_broken_pair():
    slow, metal = interface("eno1", speed_mbps=100), Machine(form="bare-metal")
    (one,) = judge("net.link", Net((slow,), default_routes=("eno1",)), metal)
    assert (one.status.value, one.subject) == ("warn", "net:eno1/speed") and "100 Mbit/s" in one.summary
    under = Net((BOND, interface("eno1", speed_mbps=100, master="bond0")), default_routes=("bond0",))
    assert [one.subject for one in judge("net.link", under, metal)] == ["net:eno1/speed"]
    for node, machine in (
        (Net((slow,), default_routes=("eno2",)), metal),  # the management board's own network
        (Net((slow,), default_routes=("eno1",)), Machine(form="vm")),  # a virtual NIC may say anything
        (Net((interface("eno1", speed_mbps=-1),), default_routes=("eno1",)), metal),
        (Net((interface("eno1", speed_mbps=1000),), default_routes=("eno1",)), metal),
    ):
        assert brief(judge("net.link", node, machine)) == [("pass", "")]


def test_older_recordings_do_not_tell():
    assert found(interface("eno1", None)) == [("unknown", "")]
    assert found(Interface("lo", up=True)) == [("skip", "")]


def test_the_probe_reads_bonds_and_changes(tmp_path):
    for name, changes in (("eno1", 5), ("eno2", 7), ("bond0", 2)):
        here = tmp_path / "sys/class/net" / name
        for file, text in {"operstate": "up", "flags": "0x1003", "carrier_changes": f"{changes}"}.items():
            write(here / file, text + "\n")
        if name == "bond0":
            write(here / "bonding/mode", "802.3ad 4\n")
        else:
            (here / "device").mkdir()
            (here / "master").symlink_to("../bond0")
    seen = Net.parse(ask(network, root=tmp_path))
    assert isinstance(seen, Net)
    told = {one.name: (one.bond, one.carrier_changes, one.master) for one in seen.interfaces}
    assert told == {"eno1": (False, 5, "bond0"), "eno2": (False, 7, "bond0"), "bond0": (True, 2, None)}
    assert found(*seen.interfaces) == []


@pytest.mark.parametrize(
    ("names", "counts"),
    [("ens{0}np0", (4, 8, 16)), ("rdma{0}", tuple(range(4, 18))), ("eth{0}", ()), ("eno{0}", ())],
)
@pytest.mark.parametrize("down", [0, 1, 2, 4])
@given(st.integers(2, 17), st.booleans())
def test_one_rail_without_a_link_is_a_warning(
    names: str, counts: tuple[int, ...], down: int, count: int, is_route: bool
):
    """Ports that nobody cabled are several, or none of a set; names of rails tell any number of them."""
    rails = tuple(
        interface(names.format(n), up=n >= down, no_carrier=n < down, carrier_changes=None)
        for n in range(count)
    )
    routes = (names.format(0),) if is_route else ()
    shown = [subject for status, subject in brief(judge("net.link", Net(rails, routes))) if status == "warn"]
    members = rails[is_route:]
    lost = [f"net:{rail.name}/link" for rail in members if rail.no_carrier]
    assert shown == (lost if len(lost) == 1 and len(members) in counts else [])


FULL = (
    "1: lo: <LOOPBACK,UP,LOWER_UP> mtu 65536 qdisc noqueue state UNKNOWN\n"
    "{n}: ens{n}np0: <{flags}> mtu {mtu} qdisc mq state {state} mode DEFAULT group default qlen 1000\n"
)
BRIEF = "ens{n}np0          {state}             b8:3f:d2:1a:00:0{n} <{flags}> \n"
ADDRESSES = "ens{n}np0          {state}             {address}\n"


@pytest.mark.parametrize("layout", [FULL, BRIEF, ADDRESSES])
@pytest.mark.parametrize(
    ("flags", "state", "sick"),
    [
        ("NO-CARRIER,BROADCAST,MULTICAST,UP", "DOWN", True),
        ("BROADCAST,MULTICAST,UP,LOWER_UP", "UP", False),
    ],
)
def test_a_rail_that_is_down_in_a_paste_of_ip(
    tmp_path: Path, layout: str, flags: str, state: str, sick: bool
):
    def row(n: int, flags: str, state: str) -> str:
        address = f"10.0.{n}.7/24" if state == "UP" else ""
        return layout.format(n=n, flags=flags, state=state, mtu=9000, address=address)

    rows = [row(n, "BROADCAST,MULTICAST,UP,LOWER_UP", "UP") for n in range(1, 8)] + [row(8, flags, state)]
    pieces = [NodeOutput(piece, "paste") for piece in split("$ ip something\n" + "".join(rows)).pieces]
    seen = snapshot_of(pieces, "").observations
    shown = alarms(replay(tmp_path, {name: item.text for name, item in seen.items()}))
    assert [alarm.partition(": ")[0] for alarm in shown] == (
        ["WARN net.link@net:ens8np0/link"] if sick else []
    )


SETTINGS = (
    "Settings for ens{n}np0:\n\tSupported ports: [ FIBRE ]\n\tSpeed: {speed}\n\tDuplex: Full\n"
    "\tLink detected: {link}\n"
)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("count", [1, 3, 4, 8])
@pytest.mark.parametrize(
    ("speed", "link", "subject"),
    [("400000Mb/s", "yes", ""), ("100000Mb/s", "yes", "speed"), ("Unknown!", "no", "link")],
)
def test_a_port_in_a_paste_of_ethtool(tmp_path: Path, count: int, speed: str, link: str, subject: str):
    rows = [SETTINGS.format(n=n, speed="400000Mb/s", link="yes") for n in range(1, count)]
    rows.append(SETTINGS.format(n=count, speed=speed, link=link))
    text = "".join(f"$ ethtool ens{n}np0\n{row}" for n, row in enumerate(rows, 1))
    pieces = [NodeOutput(piece, "paste") for piece in split(text).pieces]
    seen = snapshot_of(pieces, "").observations
    shown = alarms(replay(tmp_path, {name: item.text for name, item in seen.items()}))
    is_sick = bool(subject) and (count > 3 or (count == 1 and subject == "link"))
    assert [alarm.partition(": ")[0] for alarm in shown] == (
        [f"WARN net.link@net:ens{count}np0/{subject}"] if is_sick else []
    )


@pytest.mark.parametrize(("count", "sick"), [(4, False), (8, True)])
def test_four_ports_of_adapters_with_two_are_no_set_of_rails(count: int, sick: bool):
    ports = [interface(f"ens{n // 2}f{n % 2}np0", None, up=bool(n), no_carrier=not n) for n in range(count)]
    assert any(status == "warn" for status, _ in found(*ports)) is sick
