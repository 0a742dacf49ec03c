"""May other nodes connect to the ports that NCCL and Gloo take here?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.host.limits import Limits
from nodedoctor.facts.host.processes import Processes
from nodedoctor.facts.network.net import Net, several_nodes
from nodedoctor.knowledge.limits import limit
from nodedoctor.model import Finding, Fix
from nodedoctor.steps import look, repair
from nodedoctor.wording import count_with_noun

_FEW_PORTS = 4096
"""Every connection of NCCL and gloo takes a port; the kernel's default range has 28 232 of them."""


@check("net.ports", "Local ports and firewall", tags={"fast"})
def ports(net: Net, limits: Limits | None, processes: Processes | None) -> Iterator[Finding]:
    """The local port range, and firewalls of this node that may drop connections between nodes.

    Why: NCCL and Gloo listen on ports of that range; a dropped connection hangs the first collective.
    Fix disturbs: nothing.
    Judges: WARN when fewer than 4096 local ports can be used, or a local rule drops what comes in.
    Fix: Widen net.ipv4.ip_local_port_range; allow the job's ports in the firewall.
    Threshold: 4096 is our threshold; NVIDIA/nccl names 32768 to 60999.
    False positives: Firewalls outside the node are not seen.
    Error texts:
    - The server socket has failed to listen on any local network address
    - [Errno 98] Address already in use
    """
    row = limit("local_port_range")
    span = limits.local_ports if limits else None
    if span is not None and span[1] - span[0] + 1 < _FEW_PORTS:
        fix = Fix(
            "Widen the local port range.",
            (repair("sudo sysctl -w net.ipv4.ip_local_port_range='32768 60999'"),),
            "config",
            "nothing",
            "nodedoctor net.ports",
        )
        yield Finding.warn(
            f"only {count_with_noun(span[1] - span[0] + 1, 'local port')} ({span[0]}-{span[1]})",
            subject="net:ports",
            fix=fix,
        )
    wall = _firewall_signs(net)
    several = several_nodes(processes)
    if wall:
        fix = Fix(
            f"{row.text} Open the range between the nodes of the cluster.",
            (look("sudo nft list ruleset"),),
            "config",
            "nothing",
            "nodedoctor net.ports",
        )
        build = Finding.warn if several else Finding.info
        yield build(f"{wall}: ports {row.value} must be open between nodes", subject="net:firewall", fix=fix)
    elif net.input_rules is None and span is None:
        yield Finding.unknown("not-visible-here", "neither local ports nor the packet filter were seen")
    elif net.input_rules is None:
        where = "only root can read the packet filter"
        yield Finding.info(f"{_port_span(span)}; {where}", subject="net:firewall")
    else:
        yield Finding.ok(f"{_port_span(span)}; no rule drops incoming packets")


def _port_span(span: tuple[int, int] | None) -> str:
    return f"local ports {span[0]}-{span[1]}" if span else "local ports unknown"


def _firewall_signs(net: Net) -> str:
    """What speaks for a firewall; empty when nothing does."""
    rules = net.input_rules or ()
    closed = [rule for rule in rules if re.match(r"-P INPUT (?:DROP|REJECT)", rule)]
    closed += [
        rule for rule in rules if re.match(r"-A INPUT(?: -m comment --comment \S+)? -j (?:DROP|REJECT)", rule)
    ]
    if closed:
        return f"the packet filter rejects by default ({closed[0]})"
    return "ufw is enabled" if net.ufw else ""
