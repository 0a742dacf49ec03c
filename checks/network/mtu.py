"""Have the interfaces of one bond or bridge one MTU?"""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.network.net import Net
from nodedoctor.grouping import group_by
from nodedoctor.model import Finding, Fix
from nodedoctor.steps import look


@check("net.mtu", "MTU of network interfaces", tags={"fast"})
def mtu(net: Net) -> Iterator[Finding]:
    """The MTU of the interfaces of one bond or group, and of the default route's interface.

    Why: with different MTUs, large packets are lost and small ones pass: connections open, then hang.
    Fix disturbs: the network connections of this node.
    Judges: WARN when the parts of a bond or bridge differ in MTU.
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
    routes = [link for link in map(net.get, net.default_routes) if link and link.mtu]
    if not mixed and routes:
        yield Finding.ok(f"MTU {routes[0].mtu} on {routes[0].name}")
    elif not mixed:
        yield Finding.skip("no default route over a visible interface")
