"""One RDMA port, whichever source said it: sysfs, ibstat, ibstatus, ibv_devinfo; in the words of sysfs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields, replace

from nodedoctor.facts.rdma.sysfs import Gid, Hca, NetDevice, RdmaPort
from nodedoctor.knowledge.infiniband import phys_state, port_state
from nodedoctor.record import record


@record
class IbPort:
    """One port. `model` is the adapter as MT4129, `card` what ports of one card have in common.

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
    def down(self) -> bool:
        """True when it is said to carry none and no subnet manager could change that."""
        return self.state in ("DOWN", "NOP") or (
            self.state is None and self.phys_state in ("Polling", "Disabled")
        )

    @property
    def infiniband(self) -> bool:
        """True for InfiniBand, False for Ethernet (RoCE) and where it is not said."""
        return self.link_layer == "InfiniBand"

    @property
    def text(self) -> str:
        """The port in one line, for evidence."""
        rate = f"rate {self.rate_gbps:g}" if self.rate_gbps is not None else None
        words = (self.state, self.phys_state, rate, self.width, self.link_layer, self.model)
        return f"{self.name}: {', '.join(word for word in words if word)}"


def of_sysfs(hca: Hca, port: RdmaPort) -> IbPort:
    """A port as sysfs shows it. Two functions of one PCI device are one card."""
    address = hca.pci_address
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
        address.rpartition(".")[0] if address else None,
        address,
        hca.physfn is not None,
        hca.netdevs,
        port.gids,
        port.counters,
        port.hw_counters,
    )


def filled(port: IbPort, other: IbPort) -> IbPort:
    """The port with what only the other source knows."""
    gaps = {
        item.name: getattr(other, item.name) for item in fields(IbPort) if getattr(port, item.name) is None
    }
    return replace(port, **gaps)


def differs(port: IbPort, other: IbPort) -> str:
    """What two sources say differently of a port, in words; empty when they agree."""
    names = ("state", "phys_state", "rate_gbps", "link_layer")
    pairs = ((name, getattr(port, name), getattr(other, name)) for name in names)
    told = [f"{name} {one} and {two}" for name, one, two in pairs if None not in (one, two) and one != two]
    return f"{port.name}: {', '.join(told)}" if told else ""


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
