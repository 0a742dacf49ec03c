"""What the ports of RDMA adapters are there for, as the PCI tree and the board tell."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nodedoctor.declare.unread import Unread, unread
from nodedoctor.facts.pci.pci import Pci, bdf
from nodedoctor.facts.rdma.port import IbPort
from nodedoctor.knowledge.gpus import gpu_model, platforms_of
from nodedoctor.model import Unseen

_BRIDGE_MODEL = "MT4129"
_BRIDGE_FUNCTIONS = 4
"""HGX B200 and B300 show their NVSwitches to the host as four functions of one ConnectX-7 (PCI 15b3:1021, as
the rails may have), whose VPD says SMDL=SW_MNG: siderolabs/extensions, issue 893 and pull request 895. Only
root reads the VPD; that four InfiniBand functions of one ConnectX-7 are on such a board shows without it.

The VPD is not read as a proof: some devices answer such a read with a panic of the system (linux, commit
7c20078a8197, "PCI: Prevent VPD access for buggy devices"), and checks that must not wait need these roles."""


def switch_bridges(ports: Sequence[IbPort], pci: Pci | Unseen) -> frozenset[str]:
    """Names of the ports through which this host manages NVSwitches that are not on its own PCI bus."""
    if isinstance(pci, Unseen) or not any(_hides_switches(gpu.pci_id) for gpu in pci.gpus):
        return frozenset()
    functions = [port for port in ports if _may_bridge(port)]
    names: set[str] = set()
    for port in functions:
        card = {sibling.name for sibling in functions if sibling.card == port.card}
        if port.card and len(card) >= _BRIDGE_FUNCTIONS:
            names |= card
    return frozenset(names)


def beside_gpus(ports: Iterable[IbPort], pci: Pci | Unseen) -> frozenset[str]:
    """Names of the ports whose adapter shares a PCIe switch with a GPU.

    Where some do, these carry the traffic between GPUs, and the others storage or management: so does NVIDIA
    tell them apart (NVIDIA/NVSentinel, docs/nic-health-monitor/link-state-detection.md, PIX and PXB). What
    one is whose place is not known stays open.
    """
    if isinstance(pci, Unseen):
        return frozenset()
    places = [(port, pci.at(bdf(port.pci_address)) if port.pci_address else None) for port in ports]
    near = {
        port.name
        for port, device in places
        if device is not None and any(gpu.shares_switch(device) for gpu in pci.gpus)
    }
    for port, device in places:
        if near and device is None:
            unread(
                Unread(f"{port.hca} port {port.number}", "its place on the PCI bus is not known", "ib.ports")
            )
    return frozenset(near)


def _may_bridge(port: IbPort) -> bool:
    return port.model == _BRIDGE_MODEL and not port.virtual and port.link_layer in ("InfiniBand", None)


def _hides_switches(pci_id: str) -> bool:
    model = gpu_model("", pci_id)
    boards = platforms_of(model) if model else ()
    return any(board.fabric_manager == "needed" and not board.switches_on_host_bus for board in boards)
