"""What shows that a port without a link was meant to have one: a cable, an address, a job that needs it."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence

from nodedoctor.facts.host.processes import Processes
from nodedoctor.facts.kernel.kernel_log import KernelLog
from nodedoctor.facts.network.net import Net, several_nodes
from nodedoctor.facts.pci.pci import bdf
from nodedoctor.facts.rdma.port import IbPort

_LAST_UNICAST_LID = 0xBFFF
"""LIDs from here on are multicast, and 0xFFFF means none (InfiniBand Architecture, volume 1, 4.1.3)."""
_CABLED = ("LinkUp", "LinkErrorRecovery", "PortConfigurationTraining")
"""Physical states that only a port with a partner at the other end of its cable reaches."""
_CABLE = ("plugged", "link-up", "link-down")
"""What the kernel log tells of a cable; the last one counts."""


def was_ever_linked(port: IbPort) -> str:
    """What shows that this port has, or had, a partner; empty when nothing does."""
    if port.carried:
        return "its counters show that it had a link"
    if port.phys_state in _CABLED or port.state in ("INIT", "ARMED"):
        return "there is a partner at the other end"
    return ""


def meant_to_link(
    ports: Sequence[IbPort], net: Net | None, log: KernelLog | None, processes: Processes | None
) -> str:
    """Why some of these ports should have a link although none of them has; empty when nothing says so.

    An adapter without a cable and one whose switch is off look alike to the host. A state of Polling proves
    nothing: an enabled InfiniBand port polls without a cable too. So only these count: it had a link, a
    module is plugged in, somebody configured an address for it, or a job here spans several nodes.
    """
    for port in ports:
        if history := was_ever_linked(port):
            return f"{port.name}: {history}"
        if port.lid and 0 < port.lid <= _LAST_UNICAST_LID:
            return f"{port.name}: a subnet manager gave it LID {port.lid}"
        if address := _assigned_address(port, net):
            return f"{port.name} has the address {address}"
    last = {event.device: event.kind for event in log.nics if event.kind in _CABLE} if log else {}
    for port in ports:
        if port.pci_address and last.get(bdf(port.pci_address)) in ("plugged", "link-up"):
            return f"{port.name}: the kernel log shows a cable"
    return "a job on this node spans several nodes" if several_nodes(processes) else ""


def _assigned_address(port: IbPort, net: Net | None) -> str:
    """An address that was given to the port's interface; link-local ones every interface makes itself."""
    names = {netdev.name for netdev in port.netdevs if netdev.port in (None, port.number)}
    for name in names:
        interface = net.get(name) if net else None
        routable = [text for text in interface.addresses if not text.startswith("fe80:")] if interface else []
        if routable:
            return routable[0]
    return next((_readable_gid(gid.gid) for gid in port.gids if not gid.gid.startswith("fe80:")), "")


def _readable_gid(gid: str) -> str:
    """A GID as people write addresses: RoCE keeps an IPv4 address in the last four bytes of one."""
    try:
        address = ipaddress.IPv6Address(gid)
    except ValueError:
        return gid
    return str(address.ipv4_mapped or address)
