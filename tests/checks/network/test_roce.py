"""Packets that RoCE loses: discards, pause storms, and rails that resend more than their peers."""

from __future__ import annotations

import asyncio
import json

import pytest
from asking import brief, judge

from nodedoctor.children import child_process
from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command, Options
from nodedoctor.facts.network.net import NAME, Ethtool, ethtool
from nodedoctor.facts.rdma.port import IbPort
from nodedoctor.facts.rdma.ports import Ib, Rails
from nodedoctor.facts.rdma.sysfs import NetDevice
from nodedoctor.model import Observation, Outcome, Unseen

PACKETS = 10_000_000


def rails(*resent: int, layer: str = "Ethernet") -> Rails:
    ports = (
        IbPort(
            f"mlx5_{i}",
            1,
            "ACTIVE",
            link_layer=layer,
            netdevs=(NetDevice(f"eth{i}", port=1),),
            hw_counters={"packet_seq_err": count},
        )
        for i, count in enumerate(resent)
    )
    return Rails(tuple(ports))


def counts(**told: int) -> Ethtool:
    return Ethtool({"eth0": {"rx_packets_phy": PACKETS, "rx_discards_phy": 0, **told}})


def found(these: Rails, *facts: object) -> list[tuple[str, str]]:
    return brief(judge("net.roce", Ib(these.ports, "rdma"), these, *facts))


@pytest.mark.parametrize(
    ("told", "expected"),
    [
        ({}, ("pass", "")),
        ({"rx_discards_phy": 900}, ("pass", "")),
        ({"rx_discards_phy": 2000}, ("warn", "port:mlx5_0/1/discards")),
        ({"rx_discards_phy": 900, "rx_packets_phy": 999}, ("pass", "")),  # too few to say something
        ({"tx_pause_storm_warning_events": 5, "rx_prio3_pause": 10**9}, ("pass", "")),  # PFC at work
        ({"tx_pause_storm_error_events": 1}, ("warn", "port:mlx5_0/1")),
    ],
)
def test_what_an_adapter_discards_and_stops_pausing(told: dict[str, int], expected: tuple[str, str]):
    assert found(rails(0), counts(**told)) == [expected]


@pytest.mark.parametrize(
    ("resent", "expected"),
    [
        ((100, 120, 90, 110), [("pass", "")]),
        ((100_000, 120_000, 90_000, 400_000), [("pass", "")]),  # all of them, one somewhat more
        ((100, 120, 90, 900), [("pass", "")]),  # few, whatever the peers have
        ((100, 120, 90, 90_000), [("warn", "port:mlx5_3/1/resent")]),
        ((0, 90_000), [("pass", "")]),  # of two nobody knows which one is right
    ],
)
def test_a_rail_is_compared_with_its_peers(resent: tuple[int, ...], expected: list[tuple[str, str]]):
    assert found(rails(*resent), Ethtool()) == expected


def test_infiniband_and_efa_are_not_judged_and_nothing_counted_is_unknown():
    assert found(rails(0, layer="InfiniBand"), counts()) == [("skip", "")]
    assert found(Rails(())) == [("skip", "")]
    silent = Rails((IbPort("bnxt_re0", 1, "ACTIVE", link_layer="Ethernet"),))
    assert found(silent, Ethtool()) == [("unknown", "")]


def test_the_child_reads_the_statistics_of_this_machine():
    """Interfaces of a virtual machine or container have none that are wanted: the answer is whole anyway."""
    seen = asyncio.run(child_process.run(NAME, Command(child("network/ethtool")), 60))
    document = json.loads(seen.text)
    assert set(document) == {"interfaces", "errors", "members"}
    assert isinstance(Ethtool.parse(seen), Ethtool)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"interfaces": 3}'])
def test_no_document_is_unseen(text: str):
    assert isinstance(Ethtool.parse(Observation(NAME, text=text)), Unseen)


def test_values_of_a_wrong_shape_are_left_out():
    text = '{"interfaces": {"eth0": {"a": 1, "b": "x", "c": null}, "eth1": 5}}'
    assert Ethtool.parse(Observation(NAME, text=text)) == Ethtool({"eth0": {"a": 1}, "eth1": {}})


def test_nobody_is_asked_where_no_port_uses_ethernet():
    files = {"/sys/class/infiniband/mlx5_0/ports/1/link_layer": "InfiniBand\n"}
    plain = Observation("rdma", text=json.dumps({"files": files}))
    skipped = ethtool(Options(), plain)
    assert isinstance(skipped, Observation) and skipped.outcome is Outcome.SKIPPED
    assert not Ethtool.parse(skipped).applies  # type: ignore[union-attr]
    roce = Observation("rdma", text=json.dumps({"files": dict.fromkeys(files, "Ethernet\n")}))
    assert isinstance(ethtool(Options(), roce), Command)
    assert isinstance(ethtool(Options(root="/mnt"), roce), Observation)
