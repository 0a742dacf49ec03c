"""One RDMA port, whichever source said it: sysfs, ibstat, ibstatus, ibv_devinfo; in the words of sysfs."""

from __future__ import annotations

import re
from collections.abc import Mapping

from nodedoctor.facts.rdma.sysfs import CLASS, Gid, Hca, NetDevice, RdmaPort
from nodedoctor.knowledge.infiniband import phys_state, port_state
from nodedoctor.model import Evidence, file_reading, quoted_like
from nodedoctor.record import field, field_names, record, replace

_TRAFFIC = ("port_xmit_data", "port_rcv_data", "port_xmit_packets", "port_rcv_packets", "link_downed")


_BLOCK = {
    "ibstat": (
        r"CA:? '{0}'(?:(?:\n(?![> \t]*(?:Port \d|CA:? ')).*)*?(?=\n[> \t]*State:)"
        r"|(?:\n(?![> \t]*CA:? ').*)*?(?=\n[> \t]*Port {1}:))\n"
        r"([> \t]*(?:Port {1}|State):(?:\n(?![> \t]*(?:Port \d|CA:? ')).*)*)"
    ),
    "rdma-link": r"^([ \t]*(?:link )?{0}/{1} .*)",
    "ibstatus": r"^([> \t]*Infiniband device '{0}' port {1} status:(?:\n(?![> \t]*Infiniband)[^\S\n]*\S.*)*)",
    "ibv-devinfo": (
        r"hca_id:[ \t]*{0}(?:\n(?:(?![> \t]*hca_id:).*\n)*?(?=[> \t]*port:[ \t]*{1}\b)"
        r"|(?:\n(?![> \t]*(?:hca_id|port):).*)*?\n(?=[> \t]*state:))"
        r"([> \t]*(?:port|state):.*(?:\n(?![> \t]*(?:port|hca_id):)[^\S\n]*\S.*)*)"
    ),
}
"""What each tool prints about one port, adapter and number to be filled in."""


@record
class IbPort:
    """One port. `model` is the adapter as MT4129, `card` what ports of one card have in common.

    `driver` is the kernel's, `gdr` whether it reaches GPU memory where it says so itself (EFA), else None.
    `active_mtu` is the largest payload of its packets in bytes.
    `state` is ACTIVE INIT ARMED DOWN, `phys_state` LinkUp Polling Disabled ...; None was not said.
    """

    hca: str
    number: int
    state: str | None = None
    phys_state: str | None = None
    rate_gbps: float | None = None
    link_layer: str | None = None
    lid: int | None = None
    sm_lid: int | None = None
    width: str | None = None
    generation: str | None = None
    model: str | None = None
    firmware: str | None = None
    board_id: str | None = None
    card: str | None = None
    pci_address: str | None = None
    virtual: bool = False
    netdevs: tuple[NetDevice, ...] = ()
    gids: tuple[Gid, ...] = ()
    counters: Mapping[str, int] = field(default_factory=dict)
    hw_counters: Mapping[str, int] = field(default_factory=dict)
    driver: str | None = None
    gdr: bool | None = None
    active_mtu: int | None = None

    @property
    def name(self) -> str:
        """As NCCL and findings write it: mlx5_0/1."""
        return f"{self.hca}/{self.number}"

    @property
    def subject(self) -> str:
        """How findings call this port."""
        return f"port:{self.name}"

    @property
    def active(self) -> bool:
        """True when it carries traffic."""
        return self.state == "ACTIVE"

    @property
    def infiniband(self) -> bool:
        """True for InfiniBand, False for Ethernet (RoCE) and where it is not said."""
        return self.link_layer == "InfiniBand"

    @property
    def efa(self) -> bool:
        """True for Amazon's Elastic Fabric Adapter, which NCCL uses through libfabric instead of verbs."""
        return self.driver == "efa"

    @property
    def kind(self) -> str:
        """What people call its network."""
        return "EFA" if self.efa else self.link_layer or "RDMA"

    @property
    def never_linked(self) -> bool:
        """True when its counters say that it had no link at all since the driver was loaded."""
        traffic = [self.counters[name] for name in _TRAFFIC if name in self.counters]
        return bool(traffic) and not any(traffic)

    @property
    def carried(self) -> bool:
        """True when its counters say that it has been up since the driver was loaded."""
        return any(self.counters.get(name) for name in _TRAFFIC)

    def said(self, source: str) -> list[Evidence]:
        """What the source said of it: the files of sysfs, or the block of a tool's output."""
        if source == "rdma":
            physical = None if self.active and self.phys_state == "LinkUp" else self.phys_state
            fields = (("state", self.state), ("phys_state", physical), ("rate", self.rate_gbps))
            here = f"{CLASS}/{self.hca}/ports/{self.number}"
            return [file_reading(source, f"{here}/{name}") for name, value in fields if value is not None]
        return [quoted_like(source, _BLOCK[source].format(re.escape(self.hca), self.number))]

    def firmware_said(self, source: str) -> list[Evidence]:
        """The file with the firmware of its adapter, or the block of a tool's output."""
        return [file_reading(source, f"{CLASS}/{self.hca}/fw_ver")] if source == "rdma" else self.said(source)

    def counted(self, source: str, *names: str) -> list[Evidence]:
        """The files of its error counters; a tool's output has none."""
        groups = (("counters", self.counters), ("hw_counters", self.hw_counters))
        here = f"{CLASS}/{self.hca}/ports/{self.number}"
        return [
            file_reading(source, f"{here}/{group}/{name}")
            for group, counts in groups
            for name in names
            if source == "rdma" and name in counts
        ]


def of_sysfs(hca: Hca, port: RdmaPort) -> IbPort:
    """A port as sysfs shows it. Functions with one system GUID, or of one PCI device, are one card."""
    address = hca.pci_address
    slot = address.rpartition(".")[0] if address else None
    return IbPort(
        hca.name,
        port.number,
        state_word(port.state),
        phys_word(port.phys_state),
        port.rate_gbps,
        layer_word(port.link_layer),
        port.lid,
        port.sm_lid,
        port.width,
        port.generation,
        hca.hca_type,
        hca.firmware,
        hca.board_id,
        guid(hca.system_guid) or slot,
        address,
        hca.physfn is not None,
        hca.netdevs,
        port.gids,
        port.counters,
        port.hw_counters,
        hca.driver,
        hca.gdr,
    )


def guid(text: str | None) -> str | None:
    """A GUID; one of zeros names nothing."""
    return text if text and text.lower().removeprefix("0x").strip("0:") else None


def filled(port: IbPort, second_port: IbPort) -> IbPort:
    """The port with what only the other source knows."""
    gaps = {name: getattr(second_port, name) for name in field_names(IbPort) if getattr(port, name) is None}
    return replace(port, **gaps)


def differs(port: IbPort, second_port: IbPort) -> str:
    """What two sources say differently of a port, in words; empty when they agree."""
    names = ("state", "phys_state", "rate_gbps", "link_layer")
    pairs = ((name, getattr(port, name), getattr(second_port, name)) for name in names)
    differences = [f"{name} {a} and {b}" for name, a, b in pairs if None not in (a, b) and a != b]
    return f"{port.name}: {', '.join(differences)}" if differences else ""


def state_word(word: str | None) -> str | None:
    """Any source's word for a logical state as sysfs has it; an unknown word stays as it is."""
    row = port_state((word or "").removeprefix("PORT_"))
    return row.sysfs if row else word


def phys_word(word: str | None) -> str | None:
    """Any source's word for a physical state as sysfs has it; an unknown word stays as it is."""
    row = phys_state((word or "").replace("_", ""))
    return row.sysfs if row else word


def layer_word(word: str | None) -> str | None:
    """The link layer as sysfs has it; libibumad calls InfiniBand IB where the kernel says nothing."""
    return "InfiniBand" if word == "IB" else word
