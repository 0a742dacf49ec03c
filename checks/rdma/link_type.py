"""One of several identical adapters whose port was set to another link type than the others'."""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.declare.peers import Attribute, odd_ones
from nodedoctor.facts.rdma.port import IbPort
from nodedoctor.facts.rdma.ports import FEWEST_RAILS, Ib
from nodedoctor.grouping import group_by
from nodedoctor.model import Finding, Fix
from nodedoctor.steps import look

_SETS = (8, 16)
"""How many rails boards have; one more adapter of another link type serves storage."""

_LAYER: tuple[Attribute[IbPort], ...] = (
    Attribute("link type", "identity", lambda port: port.link_layer or None),
)


def other_link_types(ib: Ib) -> Iterator[Finding]:
    """The only port of a board's set that is Ethernet among InfiniBand, or the other way round.

    Alike are adapters of one part, board and firmware. A set of four may be three rails and a port for
    storage, so there the port is said only where it has no link. Sysfs knows which adapters are beside GPUs:
    what it shows is judged by nic.inventory.
    """
    rails = [port for port in ib.ports if port.model and port.firmware and not (port.virtual or port.efa)]
    for twins in group_by(rails, lambda port: (port.model, port.firmware, port.board_id)).values():
        outliers = odd_ones(twins, _LAYER)
        if ib.source == "rdma" or len(outliers) != 1:
            continue
        port = outliers[0].device
        if len(twins) in _SETS or (len(twins) == FEWEST_RAILS and not port.active):
            fix = Fix(
                "Set the port's link type to that of its peers, and reset the NIC or reboot.",
                (look("sudo mlxconfig -d {} query LINK_TYPE_P1", port.hca),),
                "config",
                "traffic on this NIC",
                "nodedoctor ib.ports",
            )
            layers = f"{outliers[0].value}, {outliers[0].peers} identical adapters: {outliers[0].usual}"
            summary = f"link type {layers} (LINK_TYPE_P1)"
            yield Finding.warn(
                summary, subject=f"{port.subject}/link-type", evidence=ib.evidence(port), fix=fix
            )
