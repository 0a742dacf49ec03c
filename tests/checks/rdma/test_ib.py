"""InfiniBand and RoCE: from sysfs and the tools' texts to findings."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from asking import ask, brief, judge, said, write
from hypothesis import given
from hypothesis import strategies as st
from ib_tree import add_hca

from nodedoctor.declare.registry import Command, Options
from nodedoctor.facts.driver.driver import Driver, driver_files
from nodedoctor.facts.host.container import Container
from nodedoctor.facts.host.env import Env, EnvFile
from nodedoctor.facts.host.machine import Machine
from nodedoctor.facts.host.processes import Process, Processes
from nodedoctor.facts.kernel.kernel_log import KernelLog
from nodedoctor.facts.network.net import Interface, Net
from nodedoctor.facts.pci.pci import Pci, PciDevice
from nodedoctor.facts.rdma.error_growth import RdmaGrowth, rdma_growth
from nodedoctor.facts.rdma.ibstat import IbStat, IbStatus, IbvDevinfo, ibstat
from nodedoctor.facts.rdma.port import IbPort
from nodedoctor.facts.rdma.ports import NO_ADAPTER, Ib, Rails, by_class, by_name
from nodedoctor.facts.rdma.sysfs import Gid, NetDevice, Rdma, rdma_devices
from nodedoctor.facts.stack.libraries import Libraries, LibraryCopy, Resolved
from nodedoctor.facts.stack.loaded_nccl import LoadedNccl, Mapped
from nodedoctor.model import Expect, Observation, Outcome, Unseen

NOT_THERE = Unseen("missing-tool", "not in this recording")
CHECKS = ("ib.ports", "ib.rate", "ib.width", "ib.sm", "ib.firmware", "ib.counters", "ib.roce")


def port(name: str, **fields: object) -> IbPort:
    """An active NDR port of a ConnectX-7 of its own, but for what a test changes."""
    healthy = IbPort(
        name,
        1,
        "ACTIVE",
        "LinkUp",
        400.0,
        "InfiniBand",
        12,
        1,
        "4X",
        "NDR",
        "MT4129",
        "28.43.2026",
        card=name,
    )
    return replace(healthy, **fields)  # type: ignore[arg-type]


def down(name: str, **fields: object) -> IbPort:
    return port(name, **{"state": "DOWN", "phys_state": "Polling", "rate_gbps": 10.0, "sm_lid": 0, **fields})


def eth(name: str, **fields: object) -> IbPort:
    return port(name, **{"link_layer": "Ethernet", "sm_lid": 0, "lid": 0, **fields})


def rails(count: int = 8, **fields: object) -> list[IbPort]:
    return [port(f"mlx5_{n}", **fields) for n in range(count)]


def node(
    *ports: IbPort, env: Env | None = None, processes: Processes | None = None, pci: Pci | None = None
) -> tuple[Ib, Rails]:
    ib = Ib(tuple(ports), "rdma")
    chosen = Rails.parse(ib, env or NOT_THERE, processes or NOT_THERE, pci or NOT_THERE)
    assert isinstance(chosen, Rails)
    return ib, chosen


def sick(*ports: IbPort, check: str = "ib.ports", env: Env | None = None) -> list[tuple[str, str]]:
    """What a check says of these ports, less what passes without a note."""
    return [told for told in brief(judge(check, *node(*ports, env=env))) if told[0] != "pass"]


FRONT_END = [eth(f"mlx5_{n}", model="MT4125", rate_gbps=100.0, card=f"card{n // 2}") for n in range(8, 12)]


@pytest.mark.parametrize(
    ("ports", "expected"),
    [
        (rails(), []),
        ([*rails(7), down("mlx5_7")], [("fail", "port:mlx5_7/1")]),
        ([*rails(7), down("mlx5_7", phys_state="Disabled")], [("fail", "port:mlx5_7/1")]),
        ([*rails(7), port("mlx5_7", state="INIT", sm_lid=0)], [("fail", "port:mlx5_7/1")]),
        ([*rails(7), port("mlx5_7", state="ARMED")], [("warn", "port:mlx5_7/1")]),
        ([down(f"mlx5_{n}") for n in range(2)], [("fail", "port:mlx5_0/1"), ("fail", "port:mlx5_1/1")]),
        ([*rails(7), port("mlx5_7", phys_state="LinkErrorRecovery")], [("warn", "port:mlx5_7/1")]),
        # An Ethernet port nobody uses, beside rails or alone.
        ([*rails(), eth("mlx5_8", state="DOWN", model="MT4117")], [("note", "ib:others")]),
        (
            [eth("mlx5_0", rate_gbps=25.0), eth("mlx5_1", state="DOWN", rate_gbps=25.0)],
            [("note", "port:mlx5_1/1")],
        ),
        ([eth("mlx5_0", state="DOWN"), eth("mlx5_1", state="DOWN")], [("note", "ib:others")]),
        # RoCE rails are missed; the front-end of another kind is not.
        (
            [
                *(eth(f"mlx5_{n}") for n in range(7)),
                eth("mlx5_7", state="DOWN", phys_state="Disabled"),
                *FRONT_END,
            ],
            [("fail", "port:mlx5_7/1")],
        ),
        (
            [*(eth(f"mlx5_{n}") for n in range(8)), *(replace(p, state="DOWN") for p in FRONT_END)],
            [("note", "ib:others")],
        ),
        # Rails of which none works are not forgotten over a working front-end.
        (
            [*(down(f"mlx5_{n}") for n in range(8)), *FRONT_END],
            [("fail", f"port:mlx5_{n}/1") for n in range(8)],
        ),
        # Two-port cards of which only the first ports have a cable.
        (
            [
                p
                for n in range(4)
                for p in (port(f"mlx5_{2 * n}", card=f"c{n}"), down(f"mlx5_{2 * n + 1}", card=f"c{n}"))
            ],
            [("note", f"port:mlx5_{2 * n + 1}/1") for n in range(4)],
        ),
        # All eight rails work; a ninth port of the same kind serves something else.
        ([*rails(8), down("mlx5_8")], [("note", "port:mlx5_8/1")]),
        ([], [("skip", "")]),
    ],
)
def test_only_ports_that_training_uses_can_fail(ports, expected):
    assert sick(*ports) == expected


H100, B200 = "2330", "2901"


def tree(gpu: str, *nics: tuple[str, str], switches: int = 4) -> Pci:
    """Eight GPUs, two below each PCIe switch; adapters by address and switch, which may be none."""
    devices = [
        PciDevice(f"0000:{0x10 + n:02x}:00.0", "10de", gpu, "030200", upstream=below(str(n * switches // 8)))
        for n in range(8)
    ]
    devices += [PciDevice(at, "15b3", "1021", "020700", upstream=below(switch, at)) for at, switch in nics]
    return Pci(tuple(devices))


def below(switch: str, address: str = "0000:ff:00.0") -> tuple[str, ...]:
    """The bridges above a device: root port, switch's upstream and downstream port."""
    if not switch:
        return (f"0000:00:{address[5:7]}.0",)
    return (f"0000:0{switch}:01.0", f"0000:0{switch}:02.0", f"0000:0{switch}:03.{int(address[5:7], 16) % 8}")


def sat(name: str, address: str, **fields: object) -> IbPort:
    return port(name, pci_address=address, **fields)


RAIL_SLOTS = [(f"0000:{0x40 + n:02x}:00.0", str(n // 2)) for n in range(8)]
SAT = [sat(f"mlx5_{n}", address) for n, (address, _) in enumerate(RAIL_SLOTS)]


def test_where_some_ports_share_a_switch_with_a_gpu_the_others_are_no_rails():
    slots = [("0000:60:00.0", ""), ("0000:61:00.0", "")]
    pci = tree(H100, *RAIL_SLOTS, *slots)
    slow = sat("mlx5_8", slots[0][0], rate_gbps=200.0)
    dark = sat("mlx5_9", slots[1][0], state="DOWN", phys_state="Polling")
    _, chosen = node(*SAT[:6], slow, dark, pci=pci)
    assert [p.name for p in chosen.ports] == [p.name for p in SAT[:6]] and chosen.sure
    for check in CHECKS:
        found = brief(judge(check, *node(*SAT[:6], slow, dark, pci=pci)))
        assert not {"warn", "fail"} & {status for status, _ in found}, (check, found)
    # One of those beside a GPU is missed, however many there are.
    ib, chosen = node(*SAT[:5], replace(SAT[5], state="DOWN", phys_state="Disabled"), slow, dark, pci=pci)
    assert ("fail", "port:mlx5_5/1") in brief(judge("ib.ports", ib, chosen))


def test_a_port_without_a_link_beside_a_usual_number_of_others_is_spare():
    spare = down("mlx5_4")
    assert sick(*rails(4), spare) == [("note", "port:mlx5_4/1")]
    assert sick(*rails(2), down("mlx5_2", phys_state="Disabled")) == [("note", "port:mlx5_2/1")]
    assert sick(*rails(3), down("mlx5_3")) == [("warn", "port:mlx5_3/1")]
    assert sick(*rails(3), down("mlx5_3", phys_state="Disabled")) == [("note", "port:mlx5_3/1")]
    assert [status for status, _ in sick(*rails(2), down("mlx5_2"), down("mlx5_3"))] == ["warn"] * 2
    assert sick(*rails(4), replace(spare, counters={"port_rcv_data": 4096})) == [("fail", "port:mlx5_4/1")]
    assert sick(*rails(4), replace(spare, counters={"port_rcv_data": 0})) == [("note", "port:mlx5_4/1")]
    assert sick(*rails(4), replace(spare, phys_state="LinkErrorRecovery")) == [("fail", "port:mlx5_4/1")]
    assert sick(*rails(4), port("mlx5_4", state="INIT", sm_lid=0)) == [("fail", "port:mlx5_4/1")]
    # Two of five work: the others are cabled on no such machine. Of a set of rails that says nothing.
    told = sick(*rails(2), down("mlx5_2"), down("mlx5_3"), down("mlx5_4"))
    assert [status for status, _ in told] == ["note"] * 3
    assert len(sick(*rails(3), *(down(f"mlx5_{n}") for n in range(3, 8)))) == 5
    # Nothing works: what was counted tells whether it ever did.
    never = node(down("mlx5_0", lid=0, counters=NEVER))
    assert brief(judge("ib.ports", *never, *NO_SIGN)) == [("note", "ib:unlinked")]
    assert sick(down("mlx5_0", lid=0, counters={**NEVER, "link_downed": 1})) == [("fail", "port:mlx5_0/1")]
    dark = [down(f"mlx5_{n}", counters=NEVER) for n in range(4)]
    assert [status for status, _ in sick(*dark)] == ["fail"] * 4
    # As many ports as GPUs, or named by the job: each is meant to have a link.
    gpus = Pci(tuple(PciDevice(f"0000:1{n}:00.0", "10de", H100, "030200") for n in range(5)))
    assert ("fail", "port:mlx5_4/1") in brief(judge("ib.ports", *node(*rails(4), spare, pci=gpus)))
    named = Env({"NCCL_IB_HCA": "mlx5"})
    assert sick(*rails(4), spare, env=named) == [("fail", "port:mlx5_4/1")]


NEVER = {"port_xmit_data": 0, "port_rcv_data": 0, "link_downed": 0}
PLUGGED = "[   12.5] mlx5_core 0000:40:00.0: Port module event: module 0, Cable plugged\n"
UNPLUGGED = "[   99.5] mlx5_core 0000:40:00.0: Port module event: module 0, Cable unplugged\n"


def uncabled(count: int = 8, **fields: object) -> list[IbPort]:
    """Rails of a board of which no port ever saw a partner."""
    empty = {"lid": 0, "counters": NEVER, **fields}
    return [down(f"mlx5_{n}", pci_address=address, **empty) for n, (address, _) in enumerate(RAIL_SLOTS)]


NO_SIGN = (Net(()), KernelLog.of("", "dmesg"), Processes(()))
"""All that may show that ports are meant to have a link, and does not."""


def test_a_board_without_any_cable_is_a_note():
    """Eight rails beside their GPUs, all polling: so they look on a node that trains alone."""
    pci = tree(H100, *RAIL_SLOTS)
    for ports in (uncabled(), uncabled(phys_state="Disabled"), uncabled(lid=0xFFFF)):
        for check in CHECKS:
            found = brief(judge(check, *node(*ports, pci=pci)))
            assert not {"warn", "fail"} & {status for status, _ in found}, (check, found)
        assert brief(judge("ib.ports", *node(*ports, pci=pci), *NO_SIGN)) == [("note", "ib:unlinked")]
    net, _, processes = NO_SIGN
    unplugged = KernelLog.of(PLUGGED + UNPLUGGED, "dmesg")
    found = judge("ib.ports", *node(*uncabled(), pci=pci), net, unplugged, processes)
    assert brief(found) == [("note", "ib:unlinked")]


@pytest.mark.parametrize("unread", NO_SIGN)
def test_a_sign_that_could_not_be_seen_is_no_sign_that_none_is_there(unread):
    seen = [fact for fact in NO_SIGN if fact is not unread]
    (found,) = judge("ib.ports", *node(*uncabled(), pci=tree(H100, *RAIL_SLOTS)), *seen)
    assert found.status.value == "unknown" and found.subject == "ib:unlinked" and "not read here" in found.why


@pytest.mark.parametrize(
    ("fields", "fact"),
    [
        ({"lid": 21}, None),
        ({"phys_state": "PortConfigurationTraining"}, None),
        ({"counters": {**NEVER, "link_downed": 2}}, None),
        ({"gids": (Gid(0, "0000:0000:0000:0000:0000:ffff:0a00:0001", "RoCE v2"),)}, None),
        ({"netdevs": (NetDevice("ib0"),)}, Net((Interface("ib0", addresses=("10.4.0.7",)),))),
        ({}, KernelLog.of(UNPLUGGED + PLUGGED, "dmesg")),
        (
            {},
            Processes((Process(9, program="python3", role="rank", rank=0, world_size=64),)),
        ),
    ],
)
def test_one_sign_that_a_link_is_meant_makes_its_absence_a_failure(fields, fact):
    ib, chosen = node(*uncabled(**fields), pci=tree(H100, *RAIL_SLOTS))
    found = judge("ib.ports", ib, chosen, *([fact] if fact else []))
    assert brief(found) == [("fail", f"port:mlx5_{n}/1") for n in range(8)]


def test_half_a_board_without_cables_only_warns():
    """Four of eight rails beside GPUs may be all that were cabled; seven of eight are not."""
    pci = tree(H100, *RAIL_SLOTS)
    half = node(*SAT[:4], *uncabled()[4:], pci=pci)
    found = judge("ib.ports", *half)
    assert all(one.preview for one in found if one.status.value == "warn")
    assert [status for status, _ in brief(found)] == ["pass"] + ["warn"] * 4
    most = judge("ib.ports", *node(*SAT[:7], uncabled()[7], pci=pci))
    assert ("fail", "port:mlx5_7/1") in brief(most)


BRIDGES = [port(f"mlx5_{n}", card="cc40f3030027f62e", firmware="28.44.1036") for n in range(8, 12)]


def test_the_bridge_to_the_nvswitches_is_nobodys_rail():
    """Four functions of one ConnectX-7 on a board that hides its switches; on other boards they are rails."""
    hurt = [
        replace(BRIDGES[0], state="DOWN", phys_state="Disabled"),
        replace(BRIDGES[1], width="2X", rate_gbps=200.0),
        replace(BRIDGES[2], sm_lid=0),
        BRIDGES[3],
    ]
    for check in CHECKS:
        ib, chosen = node(*rails(), *hurt, pci=tree(B200))
        found = brief(judge(check, ib, chosen))
        assert not {"warn", "fail"} & {status for status, _ in found}, (check, found)
        assert [p.name for p in chosen.ports] == [f"mlx5_{n}/1" for n in range(8)]
        assert [p.name for p in chosen.bridges] == [p.name for p in BRIDGES]
    ib, alone = node(*BRIDGES, pci=tree(B200))
    assert alone.ports == () and ("note", "ib:bridges") in brief(judge("ib.ports", ib, alone))
    for check in ("ib.sm", "ib.rate", "ib.width", "ib.firmware", "ib.counters", "ib.roce"):
        assert [told for told, _ in brief(judge(check, ib, alone))] == ["skip"], check
    named = node(*rails(), *hurt, env=Env({"NCCL_IB_HCA": "mlx5"}), pci=tree(B200))
    assert not [told for told in brief(judge("ib.ports", *named)) if told[0] == "fail"]
    assert node(*BRIDGES, pci=tree(H100))[1].bridges == ()
    assert node(*rails(), pci=tree(B200))[1].bridges == ()


EFA = [
    IbPort(f"rdmap{n}s0", 1, "ACTIVE", "LinkUp", 100.0, "Unspecified", driver="efa", gdr=True)
    for n in range(4)
]


@pytest.mark.parametrize(
    ("gdr", "modules", "kind", "status"),
    [
        (True, (), "proprietary", "pass"),
        (None, ("efa_nv_peermem",), "proprietary", "pass"),
        (False, (), "open", "pass"),
        (False, (), "proprietary", "warn"),
        (False, ("nvidia_peermem",), "proprietary", "warn"),
        (None, (), "proprietary", "warn"),
    ],
)
def test_efa_reaches_gpu_memory_by_a_module_of_its_own(gdr, modules, kind, status):
    ports = [replace(one, gdr=gdr) for one in EFA]
    driver = Driver(loaded=True, kind=kind, modules=dict.fromkeys(("nvidia", *modules), "Live"))
    ib, chosen = node(*ports)
    found = judge("ib.gdr", ib, chosen, driver, Machine(kernel="6.8.0-64"), LoadedNccl(()), Libraries(()))
    assert [status] == [told for told, _ in brief(found)], found
    assert "modprobe nvidia_peermem" not in str(found)
    assert "4 EFA active" in judge("ib.ports", ib, chosen)[0].summary


@pytest.mark.parametrize(
    ("spec", "chosen", "unknown"),
    [
        ("mlx5_1", ["mlx5_1/1", "mlx5_10/1"], ()),
        ("=mlx5_1", ["mlx5_1/1"], ()),
        ("=mlx5_1:1,mlx5_0", ["mlx5_0/1", "mlx5_1/1"], ()),
        ("mlx5_0:2", [], ("mlx5_0:2",)),
        ("^mlx5_1", ["mlx5_0/1"], ()),
        ("^=mlx5_1", ["mlx5_0/1", "mlx5_10/1"], ()),
        ("mlx5_9", [], ("mlx5_9",)),
        ("", [], ()),
    ],
)
def test_what_nccl_ib_hca_means(spec, chosen, unknown):
    ports, nothing = by_name(spec, tuple(port(name) for name in ("mlx5_0", "mlx5_1", "mlx5_10")))
    assert ([one.name for one in ports], nothing) == (chosen, unknown)


def test_a_port_named_by_the_job_must_work_and_others_need_not():
    ports = [*rails(6), down("mlx5_6"), down("mlx5_7")]
    env = Env({"NCCL_IB_HCA": "=mlx5_0,mlx5_7,mlx5_44"})
    assert sick(*ports, env=env) == [
        ("fail", "hca:mlx5_44"),
        ("fail", "port:mlx5_7/1"),
        ("note", "ib:others"),
    ]
    assert sick(*ports, env=Env({"NCCL_IB_HCA": "mlx5_0"})) == [("note", "ib:others")]
    off = Env({"NCCL_IB_DISABLE": "1"})
    assert sick(*ports, env=off) == [("note", "port:mlx5_6/1"), ("note", "port:mlx5_7/1")]


def test_the_running_job_s_choice_wins_over_ours_and_over_files():
    rank = Process(9, program="python3", role="rank", environment={"NCCL_IB_HCA": "mlx5_2"})
    env = Env({"NCCL_IB_HCA": "mlx5_1"}, files=(EnvFile("/etc/nccl.conf", {"NCCL_IB_HCA": "mlx5_3"}),))
    _, by_rank = node(*rails(), env=env, processes=Processes((rank,)))
    _, by_us = node(*rails(), env=env)
    _, by_file = node(*rails(), env=replace(env, variables={}))
    assert [[p.hca for p in r.ports] for r in (by_rank, by_us, by_file)] == [
        ["mlx5_2"],
        ["mlx5_1"],
        ["mlx5_3"],
    ]


@pytest.mark.parametrize(
    ("ports", "expected"),
    [
        (rails(), []),
        ([*rails(7), port("mlx5_7", rate_gbps=200.0)], [("fail", "port:mlx5_7/1")]),
        (rails(rate_gbps=200.0), [("note", "")]),
        (
            [*rails(4), *(port(f"mlx5_{n}", rate_gbps=200.0) for n in range(4, 8))],
            [("warn", f"port:mlx5_{n}/1") for n in range(4, 8)],
        ),
        ([*rails(8), port("mlx5_8", rate_gbps=200.0)], [("note", "port:mlx5_8/1")]),
        ([*rails(8), eth("mlx5_8", rate_gbps=100.0)], []),
        ([down("mlx5_0")], [("skip", "")]),
        (rails(rate_gbps=None), [("unknown", "")]),
        (rails(rate_gbps=10.0), [("warn", "")]),
        ([eth("mlx5_0", rate_gbps=10.0)], [("note", "")]),
    ],
)
def test_rates(ports, expected):
    assert sick(*ports, check="ib.rate") == expected


@pytest.mark.parametrize(
    ("ports", "expected"),
    [
        (rails(), []),
        (rails(width="2X", rate_gbps=200.0), []),
        ([*rails(7), port("mlx5_7", width="1X")], [("fail", "port:mlx5_7/1")]),
        (rails(width=None), [("unknown", "")]),
    ],
)
def test_widths(ports, expected):
    assert sick(*ports, check="ib.width") == expected


@pytest.mark.parametrize(
    ("ports", "expected"),
    [
        (rails(), []),
        ([*rails(7), port("mlx5_7", state="INIT", sm_lid=0)], [("fail", "port:mlx5_7/1")]),
        ([*rails(7), port("mlx5_7", sm_lid=0)], [("warn", "port:mlx5_7/1")]),
        ([eth("mlx5_0")], [("skip", "")]),
    ],
)
def test_subnet_manager(ports, expected):
    assert sick(*ports, check="ib.sm") == expected


@pytest.mark.parametrize(
    ("ports", "expected"),
    [
        (rails(), []),
        ([*rails(7), port("mlx5_7", firmware="28.43.1014")], [("note", "model:MT4129")]),
        ([*rails(7), port("mlx5_7", firmware="28.39.1002")], [("warn", "model:MT4129")]),
        ([*rails(8), eth("mlx5_8", model="MT4125", firmware="22.35.1012")], []),
    ],
)
def test_firmware(ports, expected):
    assert sick(*ports, check="ib.firmware") == expected


def growing(**counts: int) -> RdmaGrowth:
    return RdmaGrowth(1.0, {f"mlx5_0/1/{name}": count for name, count in counts.items()}, 36_000.0)


EDR = {"generation": "EDR", "rate_gbps": 100.0}


@pytest.mark.parametrize(
    ("fields", "growth", "expected"),
    [
        ({}, growing(link_downed=0), []),
        ({}, growing(link_downed=1), [("fail", "port:mlx5_0/1/link_downed")]),
        ({}, growing(port_rcv_errors=3), []),
        ({}, growing(port_rcv_errors=30), [("warn", "port:mlx5_0/1/port_rcv_errors")]),
        # PAM4 lanes make symbol errors that are corrected; four lanes of 25 Gb/s must not.
        ({}, growing(symbol_error=500), []),
        (EDR, growing(symbol_error=500), [("warn", "port:mlx5_0/1/symbol_error")]),
        (
            {**EDR, "counters": {"symbol_error": 9000}},
            growing(symbol_error=0),
            [("warn", "port:mlx5_0/1/symbol_error")],
        ),
        ({"counters": {"symbol_error": 9000}}, growing(symbol_error=0), []),
        ({"counters": {"link_downed": 12}}, growing(link_downed=0), [("note", "port:mlx5_0/1")]),
        ({"counters": {"link_downed": 2, "port_xmit_wait": 10**9}}, growing(link_downed=0), []),
        ({}, None, [("unknown", "ib:growth")]),
    ],
)
def test_counters_by_their_growth(fields, growth, expected):
    given_facts = [
        *node(port("mlx5_0", **{"counters": {"link_downed": 0}, **fields})),
        *([growth] if growth else []),
    ]
    told = [one for one in brief(judge("ib.counters", *given_facts)) if one[0] != "pass"]
    assert told == expected


def test_counters_that_could_not_be_read_are_no_pass():
    assert sick(port("mlx5_0"), check="ib.counters") == [("unknown", "")]
    assert sick(check="ib.counters") == [("skip", "")]


@pytest.mark.parametrize(
    ("driver", "kernel", "status"),
    [
        (Driver(loaded=True, modules={"nvidia": "Live", "nvidia_peermem": "Live"}), None, "pass"),
        (Driver(loaded=True, kind="open", modules={"nvidia": "Live"}), "6.8.0-52-generic", "pass"),
        (Driver(loaded=True, kind="open", modules={"nvidia": "Live"}), "5.4.0-150-generic", "warn"),
        (Driver(loaded=True, kind="proprietary", modules={"nvidia": "Live"}), "6.8.0", "warn"),
        (Driver(loaded=True, kind=None, modules=None), "6.8.0", "unknown"),
        (Driver(loaded=False), "6.8.0", "skip"),
    ],
)
def test_gpudirect(driver, kernel, status):
    (one,) = judge("ib.gdr", *node(*rails()), driver, Machine(kernel=kernel))
    assert one.status.value == status


PEERMEM = Driver(loaded=True, kind="proprietary", modules={"nvidia": "Live", "nvidia_peermem": "Live"})
OPEN = replace(PEERMEM, kind="open")


def nccl(version: str) -> Libraries:
    copy = LibraryCopy("nccl", "/t/libnccl.so.2", "/t/libnccl.so.2", version=version)
    return Libraries((copy,), (Resolved("libnccl.so.2", copy.path, copy.real, "torch"),))


@pytest.mark.parametrize(
    ("driver", "kernel", "version", "expected"),
    [
        (PEERMEM, "6.8.0", "2.22.3", [("warn", "nccl:peermem")]),
        (PEERMEM, "6.8.0", "2.20.5", [("warn", "nccl:peermem")]),
        (PEERMEM, "6.8.0", "2.23.4", [("pass", "")]),
        (PEERMEM, "6.8.0", "", [("pass", "")]),
        (replace(PEERMEM, peer_memory=("nv_mem",)), "6.8.0", "2.20.5", [("pass", "")]),
        (OPEN, "6.8.0", "2.20.5", [("pass", "")]),
        (OPEN, "6.8.0", "2.12.12", [("warn", "nccl:peermem")]),
        (OPEN, "5.4.0", "2.20.5", [("warn", "nccl:peermem")]),
        (
            replace(PEERMEM, modules={"nvidia": "Live", "nv_peer_mem": "Live"}),
            "5.4.0",
            "2.20.5",
            [("pass", "")],
        ),
    ],
)
def test_old_nccl_does_not_recognise_peermem(driver, kernel, version, expected):
    assert brief(judge("ib.gdr", *node(*rails()), driver, Machine(kernel=kernel), nccl(version))) == expected


def test_running_ranks_say_which_nccl_it_is():
    loaded = LoadedNccl((Mapped(7, "rank 0", "/t/libnccl.so.2", "2.27.5"),))
    facts = (*node(*rails()), PEERMEM, Machine(kernel="6.8.0"), nccl("2.20.5"))
    assert brief(judge("ib.gdr", *facts)) == [("warn", "nccl:peermem")]
    assert brief(judge("ib.gdr", *facts, loaded)) == [("pass", "")]


def test_names_of_peer_memory_are_read(tmp_path):
    write(tmp_path / "sys/kernel/mm/memory_peers/nv_mem/version", "1.0\n")
    driver = Driver.parse(ask(driver_files, root=tmp_path))
    assert isinstance(driver, Driver)
    assert driver.peer_memory == ("nv_mem",)


def test_gpudirect_needs_rails():
    assert brief(judge("ib.gdr", *node(), Driver(loaded=True))) == [("skip", "")]


V1, V2 = Gid(0, "fe80::1", "IB/RoCE v1"), Gid(3, "::ffff:10.0.0.1", "RoCE v2")


@pytest.mark.parametrize(
    ("ports", "env", "expected"),
    [
        ([eth("mlx5_0", gids=(V1, V2))], {}, []),
        ([eth("mlx5_0", gids=(V1,))], {}, [("fail", "port:mlx5_0/1")]),
        ([eth("mlx5_0", gids=(V1, V2)), eth("mlx5_1")], {}, [("fail", "port:mlx5_1/1")]),
        ([eth("mlx5_0", gids=(V1, V2))], {"NCCL_IB_GID_INDEX": "3"}, []),
        ([eth("mlx5_0", gids=(V1, V2))], {"NCCL_IB_GID_INDEX": "5"}, [("fail", "port:mlx5_0/1")]),
        ([eth("mlx5_0", gids=(V1, V2))], {"NCCL_IB_GID_INDEX": "0"}, [("warn", "port:mlx5_0/1")]),
        ([eth("mlx5_0", gids=(V2,), netdevs=(NetDevice("e0", "up", 1500),))], {}, [("note", "ib:mtu")]),
        (
            [
                eth(f"mlx5_{n}", gids=(V2,), netdevs=(NetDevice(f"e{n}", "up", m),))
                for n, m in enumerate((9000, 1500))
            ],
            {},
            [("warn", "ib:mtu")],
        ),
        (rails(), {}, [("skip", "")]),
    ],
)
def test_roce(ports, env, expected):
    told = brief(judge("ib.roce", *node(*ports, env=Env(env)), Env(env)))
    assert [one for one in told if one[0] != "pass"] == expected


def test_expected_rails_must_be_there():
    ib, chosen = node(*rails(7))
    for wanted, status in (
        ("8x400", "fail"),
        ("7x400", "pass"),
        ("7", "pass"),
        ("7x800", "fail"),
        ("many", "unknown"),
    ):
        told = dict(
            (subject, word) for word, subject in brief(judge("ib.ports", ib, chosen, Expect({"ib": wanted})))
        )
        assert told["ib:expected"] == status
    nothing = node()
    assert ("fail", "ib:expected") in brief(judge("ib.ports", *nothing, Expect({"ib": "8x400"})))


IBSTAT = """CA 'mlx5_0'
\tCA type: MT4129
\tNumber of ports: 1
\tFirmware version: 28.43.2026
\tHardware version: 0
\tNode GUID: 0xa088c20300000001
\tSystem image GUID: 0xa088c20300000001
\tPort 1:
\t\tState: Initializing
\t\tPhysical state: LinkUp
\t\tRate: 400
\t\tBase lid: 65535
\t\tLMC: 0
\t\tSM lid: 0
\t\tCapability mask: 0xa651e848
\t\tPort GUID: 0xa088c20300000001
\t\tLink layer: InfiniBand
"""

IBSTATUS = """Infiniband device 'mlx5_0' port 1 status:
\tdefault gid:\t fe80:0000:0000:0000:a088:c203:0000:0001
\tbase lid:\t 0xffff
\tsm lid:\t\t 0x0
\tstate:\t\t 2: INIT
\tphys state:\t 5: LinkUp
\trate:\t\t 400 Gb/sec (4X NDR)
\tlink_layer:\t InfiniBand
"""

DEVINFO = """hca_id:\tmlx5_0
\ttransport:\t\t\tInfiniBand (0)
\tfw_ver:\t\t\t\t28.43.2026
\tsys_image_guid:\t\t\ta088:c203:0000:0001
\tvendor_part_id:\t\t\t4129
\tboard_id:\t\t\tMT_0000000838
\tphys_port_cnt:\t\t\t1
\t\tport:\t1
\t\t\tstate:\t\t\tPORT_INIT (2)
\t\t\tmax_mtu:\t\t4096 (5)
\t\t\tsm_lid:\t\t\t0
\t\t\tport_lid:\t\t65535
\t\t\tlink_layer:\t\tInfiniBand
\t\t\tactive_width:\t\t4X (2)
\t\t\tactive_speed:\t\t100.0 Gbps (128)
\t\t\tphys_state:\t\tLINK_UP (5)
"""


@pytest.mark.parametrize(("fact", "text"), [(IbStat, IBSTAT), (IbStatus, IBSTATUS), (IbvDevinfo, DEVINFO)])
def test_every_tool_tells_the_same(fact, text):
    told = fact.parse(said(text))
    (one,) = told.ports
    assert (one.name, one.state, one.phys_state, one.rate_gbps) == ("mlx5_0/1", "INIT", "LinkUp", 400.0)
    assert (one.link_layer, one.lid, one.sm_lid) == ("InfiniBand", 65535, 0)


@pytest.mark.parametrize("kept", ["hca_id|state", "hca_id|state|layer", "hca_id|port:|state", "_id|state"])
def test_lines_chosen_out_of_ibv_devinfo_are_of_the_adapter_above_them(kept: str):
    down = DEVINFO.replace("mlx5_0", "mlx5_1").replace("PORT_INIT (2)", "PORT_DOWN (1)")
    text = "".join(line for line in (DEVINFO + down).splitlines(keepends=True) if re.search(kept, line))
    told = IbvDevinfo.parse(said(text))
    assert isinstance(told, IbvDevinfo)
    assert [(port.name, port.state) for port in told.ports] == [("mlx5_0/1", "INIT"), ("mlx5_1/1", "DOWN")]
    quotes = [entry.like for port in told.ports for entry in port.said("ibv-devinfo")]
    found = [re.search(pattern, text, re.MULTILINE) for pattern in quotes]
    states = [match[1].partition("PORT_")[2].split()[0] for match in found if match]
    assert states == ["INIT", "DOWN"]


def test_one_port_asked_for_looks_a_little_different():
    told = IbStat.parse(said(IBSTAT.replace("CA '", "CA: '").replace("\t", "")))
    assert isinstance(told, IbStat) and told.ports[0].name == "mlx5_0/1" and told.ports[0].state == "INIT"


@pytest.mark.parametrize(
    "text",
    [IBSTAT.replace("Rate: 400", "Rate: 40 (FDR10)"), IBSTAT.replace("Rate: 400", "Rate: 2.5")],
)
def test_odd_rates_are_numbers(text):
    told = IbStat.parse(said(text))
    assert isinstance(told, IbStat) and told.ports[0].rate_gbps in (40.0, 2.5)


@pytest.mark.parametrize(
    ("fact", "text"),
    [(IbStat, ""), (IbStatus, "Fatal error:  No devices\n"), (IbvDevinfo, "No IB devices found\n")],
)
def test_no_device_is_nothing_to_judge(fact, text):
    unseen = fact.parse(said(text))
    assert isinstance(unseen, Unseen) and not unseen.applies


def read_tree(root: Path, pasted: str | None = None) -> Ib:
    seen = IbStat.parse(said(pasted)) if pasted else NOT_THERE
    ib = Ib.parse(Rdma.parse(ask(rdma_devices, root=root)), seen, NOT_THERE, NOT_THERE, NOT_THERE, NOT_THERE)
    assert isinstance(ib, Ib)
    return ib


def test_sysfs_alone_tells_what_the_tools_tell(tmp_path: Path):
    for n in range(8):
        add_hca(tmp_path, f"mlx5_{n}", counters={"link_downed": n})
    add_hca(tmp_path, "mlx5_3", state="DOWN", physical="Polling", rate="10 Gb/sec (4X SDR)")
    ib = read_tree(tmp_path)
    _, chosen = node(*ib.ports)
    told = [one for one in brief(judge("ib.ports", ib, chosen)) if one[0] != "pass"]
    assert told == [("fail", "port:mlx5_3/1")]
    assert {p.width for p in ib.ports} == {"4X"} and ib.ports[5].counters == {"link_downed": 5}


def test_sources_that_disagree_are_told_and_gaps_are_filled(tmp_path: Path):
    add_hca(tmp_path, "mlx5_0")
    ib = read_tree(tmp_path, IBSTAT)
    assert [said.split(":")[0] for said in ib.disagreements] == ["rdma and ibstat of mlx5_0/1"]
    assert ib.ports[0].active
    assert (
        Ib.parse(NOT_THERE, IbStat.parse(said(IBSTAT)), NOT_THERE, NOT_THERE, NOT_THERE, NOT_THERE).source
        == "ibstat"
    )


def test_a_node_without_adapters_is_skipped_and_one_nobody_looked_at_is_not(tmp_path: Path):
    write(tmp_path / "sys/class/net/lo/mtu", "65536")
    ib = read_tree(tmp_path)
    _, chosen = node()
    for check in CHECKS:
        assert {status for status, _ in brief(judge(check, ib, chosen))} == {"skip"}, check
    assert Ib.parse(NOT_THERE, NOT_THERE, NOT_THERE, NOT_THERE, NOT_THERE, NOT_THERE) is NOT_THERE


def test_tools_are_asked_only_where_there_is_something_to_ask(tmp_path: Path):
    empty = ask(rdma_devices, root=tmp_path)
    assert isinstance(ibstat(Options(), empty), Observation)
    assert isinstance(rdma_growth(Options(), empty), Observation)
    add_hca(tmp_path, "mlx5_0", counters={"symbol_error": 0})
    there = ask(rdma_devices, root=tmp_path)
    assert ibstat(Options(), there) == Command(("ibstat",))
    assert isinstance(ibstat(Options(root=str(tmp_path)), there), Observation)
    hung = replace(
        there, text=json.dumps({"files": {}, "errors": {"/sys/class/infiniband/mlx5_0": "TIMEOUT"}})
    )
    assert isinstance(ibstat(Options(), hung), Observation)


def test_adapters_without_a_driver_are_missed_but_not_from_inside_a_container():
    bus = Pci((PciDevice("0000:5d:00.0", "15b3", "1021", "020700"),))
    ib = Ib.parse(Rdma(()), NOT_THERE, NOT_THERE, NOT_THERE, NOT_THERE, bus)
    assert isinstance(ib, Ib) and ib.driverless == ("0000:5d:00.0",)
    _, chosen = node()
    assert brief(judge("ib.ports", ib, chosen)) == [("fail", "ib:driver")]
    assert brief(judge("ib.ports", ib, chosen, Container(runtime="docker"))) == [("unknown", "ib:driver")]
    kept = Pci((replace(bus.devices[0], driver="vfio-pci"),))
    assert Ib.parse(Rdma(()), NOT_THERE, NOT_THERE, NOT_THERE, NOT_THERE, kept) == Ib(absent=NO_ADAPTER)


def test_without_sysfs_nothing_was_looked_at():
    hidden = Unseen("not-visible-here", "/sys/bus/pci/devices: ENOENT")
    assert Ib.parse(Rdma((), supported=False), NOT_THERE, NOT_THERE, NOT_THERE, NOT_THERE, hidden) is hidden


def test_an_adapter_that_hangs_is_named():
    hung = Rdma.parse(said(json.dumps({"errors": {"/sys/class/infiniband/mlx5_0": "TIMEOUT"}})))
    ib = Ib.parse(hung, NOT_THERE, NOT_THERE, NOT_THERE, NOT_THERE, NOT_THERE)
    assert isinstance(ib, Ib) and ib.silent == ("mlx5_0",)
    findings = judge("ib.ports", ib, node()[1])
    assert [(one.status.value, one.subject, one.reason) for one in findings] == [
        ("unknown", "hca:mlx5_0", "stuck")
    ]


@pytest.mark.slow
def test_growth_is_measured_by_reading_twice(tmp_path: Path):
    add_hca(tmp_path, "mlx5_0", counters={"symbol_error": 5, "link_downed": 1, "port_xmit_wait": 9})
    write(tmp_path / "proc/uptime", "3600.5 100.0\n")
    told = RdmaGrowth.parse(ask(rdma_growth, ask(rdma_devices, root=tmp_path), root=tmp_path))
    assert isinstance(told, RdmaGrowth)
    assert told.growth == {"mlx5_0/1/symbol_error": 0, "mlx5_0/1/link_downed": 0}
    assert told.seconds >= 1.0 and told.uptime_seconds == 3600.5


@given(st.text(max_size=60), st.integers(0, len(IBSTAT)), st.sampled_from([IBSTAT, IBSTATUS, DEVINFO]))
def test_no_text_raises(noise, cut, text):
    broken = text[:cut] + noise + text[cut:][: len(noise)]
    for fact in (IbStat, IbStatus, IbvDevinfo):
        assert isinstance(fact.parse(said(broken)), (fact, Unseen))
    ib = Ib.parse(NOT_THERE, IbStat.parse(said(broken)), NOT_THERE, NOT_THERE, NOT_THERE, NOT_THERE)
    if isinstance(ib, Ib):
        for check in CHECKS:
            assert judge(check, ib, node(*ib.ports)[1])


scalars = st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5)
values = scalars | st.lists(scalars, max_size=3) | st.dictionaries(st.text(max_size=3), scalars, max_size=3)


@given(st.dictionaries(st.sampled_from(["growth", "seconds", "uptime_seconds", "a/1/b"]), values) | values)
def test_no_document_raises(value):
    assert isinstance(RdmaGrowth.parse(said(json.dumps(value))), (RdmaGrowth, Unseen))


def test_growth_that_was_not_asked_for_is_nothing_to_judge():
    skipped = Observation("rdma-growth", Outcome.SKIPPED, note="no RDMA port here has error counters")
    unseen = RdmaGrowth.parse(skipped)
    assert isinstance(unseen, Unseen) and not unseen.applies


def test_classes_of_ports_when_nothing_is_set():
    assert by_class(()) == ()
    storage = [port("mlx5_8", card="s"), port("mlx5_9", card="s")]
    assert by_class((*rails(), *storage)) == tuple(rails())


def test_no_active_port_goes_unnamed():
    others = [port(f"mlx5_{n}", model="MT4123", rate_gbps=100.0) for n in (8, 9)]
    found = judge("ib.ports", *node(*rails(), *others))
    (active,) = (one.summary for one in found if "active" in one.summary)
    assert active.startswith("8 InfiniBand active") and active.endswith("also mlx5_8/1 and mlx5_9/1")
