"""Network adapters against the board, the RDMA devices, their peers and the switches above them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from asking import brief, judge

from nodedoctor.facts.gpu.board import Board
from nodedoctor.facts.host.container import Container
from nodedoctor.facts.pci.pci import Pci, PciDevice, PciLink
from nodedoctor.facts.rdma.sysfs import Hca, Rdma, RdmaPort

H100 = Board("H100 SXM5 80GB", "HGX H100/H200 8-GPU", 8, 8, 4, False)
GEN5, GEN4 = PciLink(32.0, 16, 32.0, 16), PciLink(16.0, 16, 32.0, 16)


def root(n: int) -> str:
    return f"0000:{n:02x}:01.0"


def switch(n: int, link: PciLink = GEN5) -> list[PciDevice]:
    """The upstream port of switch n, and the two downstream ports below it."""
    up = PciDevice(f"0000:{n:02x}:02.0", "1000", "c030", "060400", link=link, upstream=(root(n),))
    above = (root(n), up.address)
    downs = [PciDevice(f"0000:{n:02x}:0{p}.0", "1000", "c030", "060400", upstream=above) for p in (3, 4)]
    return [up, *downs]


def gpu(n: int) -> PciDevice:
    above = (root(n), f"0000:{n:02x}:02.0", f"0000:{n:02x}:03.0")
    return PciDevice(f"0000:{n:02x}:10.0", "10de", "2330", "030200", driver="nvidia", upstream=above)


def nic(n: int, **fields: object) -> PciDevice:
    above = (root(n), f"0000:{n:02x}:02.0", f"0000:{n:02x}:04.0")
    made = PciDevice(
        f"0000:{n:02x}:20.0", "15b3", "1021", "020700", driver="mlx5_core", link=GEN5, upstream=above
    )
    return replace(made, **fields)  # type: ignore[arg-type]


def storage(n: int, **fields: object) -> PciDevice:
    """An adapter of the same kind that has a root port of its own."""
    return nic(n, address=f"0000:{0xC0 + n:02x}:00.0", upstream=(f"0000:{0xB0 + n:02x}:01.0",), **fields)


def hca(n: int, device: PciDevice, layer: str = "InfiniBand") -> Hca:
    port = RdmaPort(1, "ACTIVE", "LinkUp", layer)
    return Hca(f"mlx5_{n}", "MT4129", pci_address=device.address, ports=(port,))


def node(*nics: PciDevice, switches: dict[int, PciLink] | None = None) -> Pci:
    links = switches or {}
    ports = [port for n in range(8) for port in switch(n, links.get(n, GEN5))]
    return Pci((*ports, *(gpu(n) for n in range(8)), *nics))


def rdma(*nics: PciDevice, **layers: str) -> Rdma:
    return Rdma(tuple(hca(n, one, layers.get(f"mlx5_{n}", "InfiniBand")) for n, one in enumerate(nics)))


RAILS = [nic(n) for n in range(8)]
SEVEN = RAILS[:5] + RAILS[6:]


def found(pci: Pci, seen: Rdma | None, *more: object) -> list[tuple[str, str]]:
    facts = [*([seen] if seen else []), *(more or (H100,))]
    return [one for one in brief(judge("nic.inventory", pci, *facts)) if one[0] != "pass"]


@pytest.mark.parametrize(
    "nics",
    [
        RAILS,
        [*RAILS, storage(0), storage(1)],
        [*RAILS, storage(0), replace(storage(0), address="0000:c0:00.1")],
        RAILS[::2],  # a rail for every second GPU
        [storage(0), storage(1)],  # no rails at all
        [nic(0, driver="vfio-pci"), *RAILS[1:]][1::2],
    ],
)
def test_boards_as_they_are_built_get_no_alarm(nics):
    assert found(node(*nics), rdma(*nics)) == []
    (passed,) = judge("nic.inventory", node(*nics), rdma(*nics), H100)
    assert passed.status.value == "pass" and str(len(nics)) in passed.summary


def test_a_lost_rail_is_named_by_its_gpu():
    (one,) = judge("nic.inventory", node(*SEVEN), rdma(*SEVEN), H100)
    assert (one.status.value, one.subject) == ("warn", "nic:rails")
    assert gpu(5).address in one.summary and gpu(4).address not in one.summary


def test_a_lost_rail_is_not_hidden_by_storage_of_its_kind():
    nics = [*SEVEN, storage(0), storage(1)]
    assert found(node(*nics), rdma(*nics)) == [("warn", "nic:rails")]


def test_without_places_the_board_counts():
    flat = [replace(one, upstream=()) for one in SEVEN]
    assert found(Pci((*(gpu(n) for n in range(8)), *flat)), rdma(*flat)) == [("warn", "nic:rails")]
    four = flat[:4]
    assert found(Pci((*(gpu(n) for n in range(8)), *four)), rdma(*four)) == []


def test_a_guest_has_what_its_host_gave():
    guest = replace(H100, virtual=True)
    assert found(node(*SEVEN), rdma(*SEVEN), guest) == []


def test_an_adapter_without_rdma_device():
    unbound = [*RAILS[:3], nic(3, driver=None), *RAILS[4:]]
    served = [one for one in unbound if one.driver]
    assert found(node(*unbound), rdma(*served)) == [("warn", f"pci:{nic(3).address}")]
    assert found(node(*unbound), rdma(*served), H100, Container(runtime="docker")) == []


def test_bonded_ports_of_one_card_have_one_rdma_device():
    pairs = [one for n in range(8) for one in (nic(n), nic(n, address=f"0000:{n:02x}:20.1"))]
    assert found(node(*pairs), rdma(*pairs[::2])) == []


def test_one_rail_of_another_link_type():
    (one,) = judge("nic.inventory", node(*RAILS), rdma(*RAILS, mlx5_6="Ethernet"), H100)
    assert (one.status.value, one.subject) == ("warn", "hca:mlx5_6") and "Ethernet" in one.summary
    mixed = [*RAILS, storage(0)]  # storage of the same kind may speak Ethernet
    assert found(node(*mixed), rdma(*mixed, mlx5_8="Ethernet")) == []


def test_a_slow_link_of_an_adapter():
    slow = [*RAILS[:2], nic(2, link=GEN4), *RAILS[3:]]
    (one,) = judge("nic.inventory", node(*slow), rdma(*slow), H100)
    assert (one.status.value, one.subject) == ("warn", f"pci:{nic(2).address}")
    assert "16 GT/s" in one.summary and "32" in one.summary
    alike = [nic(n, link=GEN4) for n in range(8)]  # what this host can do
    assert found(node(*alike), rdma(*alike)) == []


@pytest.mark.parametrize(
    ("link", "subject"),
    [(GEN4, "pci:0000:05:02.0"), (PciLink(32.0, 8, 32.0, 16), "pci:0000:05:02.0/width")],
)
def test_a_slow_switch_above(link, subject):
    assert found(node(*RAILS, switches={5: link}), rdma(*RAILS)) == [("warn", subject)]


def test_no_adapter_is_no_finding():
    assert brief(judge("nic.inventory", node(), H100)) == [("skip", "")]
