"""Have the interfaces of one bond or bridge one MTU?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nodedoctor.declare.peers import Attribute, odd_ones
from nodedoctor.declare.registry import check
from nodedoctor.facts.network.net import Interface, Net, rail_sets
from nodedoctor.grouping import group_by
from nodedoctor.model import Finding, Fix
from nodedoctor.steps import look

_RAIL = re.compile(r"(?:rdma|rail|roce|ib|hsn|fabric)[_-]?\d{1,3}")
"""Names that administrators give to the interfaces of a training network; eth0 may be of any network."""
_MTU: Attribute[Interface] = Attribute("MTU", "capability", lambda link: link.mtu)
FEWEST_PEERS = 3
"""Rails that agree in their MTU, from which another one is a mistake; ours."""


@check("net.mtu", "MTU of network interfaces", tags={"fast"})
def mtu(net: Net) -> Iterator[Finding]:
    """The MTU of the interfaces of one bond or group, and of the default route's interface.

    Why: with different MTUs, large packets are lost and small ones pass: connections open, then hang.
    Fix disturbs: the network connections of this node.
    Judges: WARN when the parts of a bond or bridge differ in MTU, or one of the interfaces named as rails
    (rdma0 to rdma7), or of 4, 8 or 16 whose names differ in numbers, from three or more others.
    Fix: Set one MTU on all parts.
    Threshold: No threshold: values are compared.
    False positives: None known.
    """
    bundles = group_by(
        (link for link in net.interfaces if link.master and link.physical), lambda link: link.master
    )
    mixed = {name: parts for name, parts in bundles.items() if len({part.mtu for part in parts}) > 1}
    for name, parts in mixed.items():
        mtus = ", ".join(f"{part.name} {part.mtu}" for part in parts)
        fix = Fix(
            "Set one MTU on all of them and on the switch.",
            (look("ip link show"),),
            "config",
            "network connections of this node",
            "nodedoctor net.mtu",
        )
        yield Finding.warn(f"members of {name} have different MTUs: {mtus}", subject=f"net:{name}", fix=fix)
    rails = group_by(
        (link for link in net.interfaces if link.up and _RAIL.fullmatch(link.name)),
        lambda link: (link.name.rstrip("0123456789"), link.speed_mbps),
    )
    by_name = [group for group in rails.values() if len(group) > FEWEST_PEERS]
    compared = {link.name for group in by_name for link in group}
    by_number = [group for group in rail_sets(net) if compared.isdisjoint(link.name for link in group)]
    outliers = [
        outlier
        for group in (*by_name, *by_number)
        for outlier in odd_ones(group, (_MTU,))
        if outlier.peers >= FEWEST_PEERS
    ]
    for outlier in outliers:
        name = outlier.device.name
        fix = Fix(
            f"Give {name} the MTU that the other rails have, {outlier.usual}, here and on its switch port.",
            (look("ip link show {}", name),),
            "config",
            "traffic on this rail",
            "nodedoctor net.mtu",
        )
        summary = f"{name}: MTU {outlier.value}, {outlier.peers} other rails {outlier.usual}"
        yield Finding.warn(summary, subject=f"net:{name}", fix=fix)
    routes = [link for link in map(net.get, net.default_routes) if link and link.mtu]
    if mixed or outliers:
        return
    if routes:
        yield Finding.ok(f"MTU {routes[0].mtu} on {routes[0].name}")
    else:
        yield Finding.skip("no default route over a visible interface")
