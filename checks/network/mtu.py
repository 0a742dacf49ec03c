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
    bundles = group_by((one for one in net.interfaces if one.master and one.physical), lambda one: one.master)
    odd = {name: parts for name, parts in bundles.items() if len({part.mtu for part in parts}) > 1}
    for name, parts in odd.items():
        told = ", ".join(f"{part.name} {part.mtu}" for part in parts)
        fix = Fix(
            "Set one MTU on all of them and on the switch.",
            (look("ip link show"),),
            "config",
            "network connections of this node",
            "nodedoctor net.mtu",
        )
        yield Finding.warn(f"members of {name} have different MTUs: {told}", subject=f"net:{name}", fix=fix)
    ways = [one for one in map(net.get, net.default_routes) if one and one.mtu]
    if not odd and ways:
        yield Finding.ok(f"MTU {ways[0].mtu} on {ways[0].name}")
    elif not odd:
        yield Finding.skip("no default route over a visible interface")
