"""This node's network as seen from inside: interfaces and their counters, name, resolver, firewall, clock."""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Mapping
from typing import Any

from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command, Lane, Options, fact, probe, skipped
from nodedoctor.facts.files import whole_number
from nodedoctor.facts.host.processes import Processes
from nodedoctor.grouping import group_by
from nodedoctor.json_shapes import document, mapping, number, part, texts
from nodedoctor.json_shapes import document as document_of
from nodedoctor.model import Observation, Unseen
from nodedoctor.record import field, record

LOOPBACK_TYPE = 772  # ARPHRD_LOOPBACK, linux, include/uapi/linux/if_arp.h
INFINIBAND_TYPE = 32
_UP = 0x1
LOSS = 1e-4
"""Share of the packets received that may be discarded. Go-back-N makes one lost packet resend a whole window,
so RoCE loses much of its bandwidth from about one in a thousand (Zhu et al., Congestion Control for
Large-Scale RDMA Deployments, SIGCOMM 2015); we warn at a tenth of it."""
DAMAGED = 1e-6
"""Share of frames that arrive damaged from which a link is bad: IEEE 802.3 allows 6.2e-10 of short frames
(118.2, of 400GBASE-R), which frames of 9000 bytes reach 140 times as often; ten times that, ours."""
FEW_DAMAGED = 1000
"""Damaged frames below which pulling a cable may have made them; ours."""
ENOUGH = 1_000_000
"""Packets received from which a share says something (chosen by us, no external source)."""


@probe("net", timeout=6, lane=Lane.FS)
def network(options: Options) -> Command:
    """Interfaces, addresses, default routes, own name, firewall, clock; nothing is sent but a name lookup."""
    return Command(child("network/net", "--root", options.root))


@record
class Interface:
    """A network interface. `up` is whether it can carry traffic now; speed in Mbit/s, None when not known.

    `index` is the order in which libraries find it; `physical` has a device behind it, `master` bundles it.
    `bond` is a master that spreads traffic over its legs. `carrier_changes` counts how often the link came or
    went since the interface was made. `no_carrier`: switched on, without a link. `received` counts
    packets and `damaged` those with an error, where a paste shows them.
    """

    name: str
    up: bool = False
    index: int | None = None
    mtu: int | None = None
    speed_mbps: int | None = None
    kind: int | None = None
    physical: bool = False
    master: str | None = None
    bond: bool = False
    carrier_changes: int | None = None
    no_carrier: bool = False
    addresses: tuple[str, ...] = ()
    received: int | None = None
    damaged: int | None = None

    @property
    def loopback(self) -> bool:
        """True for lo."""
        return self.kind == LOOPBACK_TYPE or self.name == "lo"


@fact("net")
@record
class Net:
    """The network of this namespace.

    `name_addresses` are those of the own host name, `name_source` who said so (hosts or resolver),
    `name_error` why it has none. `input_rules` are those of the packet filter, None where we may not look.
    `clock_error_seconds` is the kernel's own bound; `synchronised` None where not known;
    `clock_offset_seconds` what a pasted `chronyc tracking` says the clock is away from NTP time.
    `resolver_shown`: name servers were looked for.
    """

    interfaces: tuple[Interface, ...] = ()
    default_routes: tuple[str, ...] = ()
    hostname: str = ""
    name_addresses: tuple[str, ...] = ()
    name_source: str = ""
    name_error: str | None = None
    name_seconds: float | None = None
    nameservers: tuple[str, ...] = ()
    resolver_shown: bool = True
    ufw: bool = False
    input_rules: tuple[str, ...] | None = None
    synchronised: bool | None = None
    clock_error_seconds: float | None = None
    clock_offset_seconds: float | None = None

    @classmethod
    def parse(cls, observation: Observation) -> Net | Unseen:
        """Read the child's document; parts of a wrong shape are left out."""
        document = document_of(observation)
        if document is None or not isinstance(document.get("interfaces"), dict):
            return Unseen.of(observation)
        hosts, answer = texts(document, "hosts"), part(document, "resolved")
        error, clock = answer.get("error"), part(document, "clock")
        fire, unsynced = part(document, "firewall"), clock.get("unsynchronised")
        host = document.get("hostname")
        return cls(
            interfaces=tuple(
                sorted(
                    (
                        _read_interface(str(name), mapping(entry))
                        for name, entry in document["interfaces"].items()
                    ),
                    key=lambda interface: (interface.index is None, interface.index, interface.name),
                )
            ),
            default_routes=texts(document, "default_routes"),
            hostname=host if isinstance(host, str) else "",
            name_addresses=hosts or texts(answer, "addresses"),
            name_source="hosts" if hosts else "resolver" if answer else "",
            name_error=error if isinstance(error, str) else None,
            name_seconds=number(answer.get("seconds")),
            nameservers=texts(document, "nameservers"),
            resolver_shown="nameservers" in document,
            ufw=fire.get("ufw") is True,
            input_rules=texts(fire, "input") if fire.get("looked") is True else None,
            synchronised=not unsynced if isinstance(unsynced, bool) else None,
            clock_error_seconds=number(clock.get("maxerror_seconds")),
            clock_offset_seconds=number(clock.get("offset_seconds")),
        )

    def get(self, name: str) -> Interface | None:
        """The interface of that name."""
        return next((interface for interface in self.interfaces if interface.name == name), None)

    def owns(self, address: str) -> bool | None:
        """Whether an address is one of this node's; None when no interface has any."""
        own = {own_address for interface in self.interfaces for own_address in interface.addresses}
        return address in own if own else None


_RAILS = (4, 8, 16)
"""How many rails a node has: one for each GPU, or for two. Ours."""
_ANY_NETWORK = ("eth#", "eno#", "docker#", "virbr#", "veth#", "cni#", "dummy#")
"""Names that the kernel or programs count up, whatever network they are of."""


_RAIL_NAME = re.compile(r"(?:ib|rdma|roce|rail)")
"""Names that only rails have: a few of them are a part of them all, as where a paste was cut."""


def rail_sets(net: Net) -> list[list[Interface]]:
    """Interfaces whose names differ in numbers alone, as many as a node has rails: they should be alike.

    Four ports of adapters with two (`ens1f0`) may be of any network.
    """
    own = (link for link in net.interfaces if not link.master and link.name not in net.default_routes)
    families = group_by(own, lambda link: re.sub(r"\d+", "#", link.name))
    return [
        family
        for name, family in families.items()
        if name not in _ANY_NETWORK
        and (
            len(family) in (_RAILS[1:] if "f#" in name else _RAILS)
            or (len(family) > _RAILS[0] and _RAIL_NAME.match(name))
        )
    ]


def several_nodes(processes: Processes | None) -> bool:
    """Whether ranks here belong to a job of more processes than run on this node."""
    ranks = processes.ranks if processes else ()
    return any((rank.world_size or 0) > sum(sibling.job == rank.job for sibling in ranks) for rank in ranks)


def is_loopback(address: str) -> bool:
    """Whether an address is of 127.0.0.0/8 or ::1."""
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False


def _read_interface(name: str, entry: Mapping[str, Any]) -> Interface:
    flags = whole_number(_text_or_none(entry.get("flags"))) or 0
    speed, carrier = whole_number(_text_or_none(entry.get("speed"))), _text_or_none(entry.get("carrier"))
    state = _text_or_none(entry.get("operstate"))
    master = entry.get("master")
    linked = state == "up" or (state in ("unknown", None) and carrier != "0")
    return Interface(
        name,
        bool(flags & _UP) and linked,
        whole_number(_text_or_none(entry.get("ifindex"))),
        whole_number(_text_or_none(entry.get("mtu"))),
        speed if speed is not None and speed > 0 else None,
        whole_number(_text_or_none(entry.get("type"))),
        entry.get("physical") is True,
        master if isinstance(master, str) else None,
        entry.get("bond") is True,
        whole_number(_text_or_none(entry.get("carrier_changes"))),
        bool(flags & _UP) and carrier == "0",
        texts(entry, "addresses"),
        whole_number(_text_or_none(entry.get("rx_packets"))),
        whole_number(_text_or_none(entry.get("rx_errors"))),
    )


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None


NAME = "ethtool"
NO_ETHERNET = "no RDMA port here uses Ethernet"


@probe(NAME, timeout=6, lane=Lane.FS, after=("rdma",))
def ethtool(options: Options, rdma: Observation) -> Command | Observation:
    """Discards and pause frames of each network adapter (`ethtool -S`), where an RDMA port uses Ethernet."""
    if options.root not in ("", "/"):
        return skipped(NAME, "the kernel tells of its own interfaces, not of those of another root")
    if rdma.answered and '"Ethernet\\n"' not in rdma.text:
        return skipped(NAME, NO_ETHERNET)
    return Command(child("network/ethtool"))


def loss_share(discards: int | None, packets: int | None) -> float | None:
    """The share of packets that found no buffer; None where too few arrived, or none are counted."""
    if discards is None or packets is None or packets < ENOUGH:
        return None
    return discards / (discards + packets)


def is_damaging(damaged: int | None, received: int | None) -> bool:
    """Whether a link damages more frames than one that is well."""
    if damaged is None or received is None or damaged < FEW_DAMAGED or received < ENOUGH:
        return False
    return damaged >= (received + damaged) * DAMAGED


@fact(NAME)
@record
class Ethtool:
    """The statistics of each physical interface by name; empty for a driver that keeps none we know."""

    interfaces: Mapping[str, Mapping[str, int]] = field(default_factory=dict)

    @classmethod
    def parse(cls, observation: Observation) -> Ethtool | Unseen:
        """Read the child's document."""
        if not observation.answered:
            return Unseen.skip(NO_ETHERNET) if NO_ETHERNET in observation.note else Unseen.of(observation)
        answer = document(observation)
        if answer is None or not isinstance(answer.get("interfaces"), dict):
            return Unseen.of(observation)
        counts = {
            str(name): {str(key): value for key, value in mapping(counters).items() if type(value) is int}
            for name, counters in answer["interfaces"].items()
        }
        return cls(counts)
