"""Will ranks of several nodes find each other: name, interface, packet size, ports, clock, resolver?"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from nodedoctor.engine.registry import check
from nodedoctor.facts.driver.services import Services
from nodedoctor.facts.host.container import Container
from nodedoctor.facts.host.limits import Limits
from nodedoctor.facts.host.processes import Processes
from nodedoctor.facts.network.net import Interface, Net, is_loopback, several_nodes
from nodedoctor.facts.network.peers import Peers
from nodedoctor.knowledge.limits import limit
from nodedoctor.model import Evidence, Finding, Fix, reading
from nodedoctor.steps import look, repair
from nodedoctor.wording import counted, listed

_FEW_PORTS = 4096
"""Every connection of NCCL and gloo takes a port; the kernel's default range has 28 232 of them."""
_SLOW_SECONDS = 1.0
"""A resolver answers in milliseconds; each of several hundred connections may ask it."""
_TIME = ("chrony", "chronyd", "systemd-timesyncd", "ntp", "ntpd", "phc2sys")
_UNKEPT_SECONDS = 16.0
"""The kernel's bound on the clock's error when nobody has kept it for hours (NTP_PHASE_LIMIT, linux
include/linux/timex.h); a service that does not tell the kernel of its success still lowers it."""
_NEVER_TELL = ("phc2sys",)
"""Services that keep the clock and never say so to the kernel (linuxptp, phc2sys.c)."""


@check("net.hostname", "Hostname resolution", tags={"fast"}, without=(Container,))
def hostname(
    net: Net, processes: Processes | None, container: Container | None, peers: Peers | None
) -> Iterator[Finding]:
    """The address of this host's name in /etc/hosts, else from the resolver.

    Why: Gloo and launchers announce this address to other nodes; with 127.0.1.1 the others connect to
    themselves.
    Fix disturbs: nothing; jobs see it after a restart.
    Judges: WARN when the host's name resolves to nothing, to 127.0.0.1 or to an address this node lacks.
    Fix: Correct the entry of the name in /etc/hosts or DNS.
    Threshold: No threshold.
    False positives: Fine on a single node: there it is only noted.
    Error texts:
    - The hostname of the client socket cannot be retrieved. err=-3
    """
    by = "hosts" if net.name_source == "hosts" else "resolved"
    evidence = [reading("net", "hostname"), reading("net", by)]
    fix = Fix(
        "Set the real address of this host in /etc/hosts, or set GLOO_SOCKET_IFNAME and MASTER_ADDR.",
        (look("hostname -I"), look("cat /etc/hosts")),
        "config",
        "nothing",
        "nodedoctor net.hostname",
    )
    if not net.name_source:
        yield Finding.unknown("not-visible-here", f"{net.hostname}: not in /etc/hosts, resolver not queried")
    elif not net.name_addresses:
        why = net.name_error or "no address"
        yield Finding.warn(f"{net.hostname} cannot be resolved: {why}", evidence=evidence, fix=fix)
    elif all(is_loopback(address) for address in net.name_addresses):
        summary = f"{net.hostname} resolves to {net.name_addresses[0]}"
        if peers is not None or several_nodes(processes):
            yield Finding.warn(f"{summary}, unreachable from other nodes", evidence=evidence, fix=fix)
        else:
            yield Finding.info(f"{summary}, correct for single-node jobs only", evidence=evidence)
    else:
        yield _own_address(net, container, evidence, fix)


def _own_address(net: Net, container: Container | None, evidence: list[Evidence], fix: Fix) -> Finding:
    owned = [net.owns(address) for address in net.name_addresses]
    summary = f"{net.hostname} resolves to {listed(net.name_addresses)}"
    if any(owned) or None in owned or (container is not None and container.inside):
        return Finding.ok(summary, evidence=evidence)
    return Finding.warn(f"{summary}, not an address of this node", evidence=evidence, fix=fix)


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
    bundles: dict[str, list[Interface]] = {}
    for one in net.interfaces:
        if one.master and one.physical:
            bundles.setdefault(one.master, []).append(one)
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
            f"only {counted(span[1] - span[0] + 1, 'local port')} ({span[0]}-{span[1]})",
            subject="net:ports",
            fix=fix,
        )
    wall = _firewall(net)
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
    elif net.input_rules is None:
        where = "only root can read the packet filter" if span else "local port range not reported"
        yield Finding.info(f"{_span(span)}; {where}", subject="net:firewall")
    else:
        yield Finding.ok(f"{_span(span)}; no rule drops incoming packets")


def _span(span: tuple[int, int] | None) -> str:
    return f"local ports {span[0]}-{span[1]}" if span else "local ports unknown"


def _firewall(net: Net) -> str:
    """What speaks for a firewall; empty when nothing does."""
    rules = net.input_rules or ()
    closed = [rule for rule in rules if re.match(r"-P INPUT (?:DROP|REJECT)", rule)]
    closed += [
        rule for rule in rules if re.match(r"-A INPUT(?: -m comment --comment \S+)? -j (?:DROP|REJECT)", rule)
    ]
    if closed:
        return f"the packet filter rejects by default ({closed[0]})"
    return "ufw is enabled" if net.ufw else ""


@check("net.clock", "Clock synchronisation", tags={"fast"}, without=(Services,))
def clock(net: Net, services: Services | None) -> Iterator[Finding]:
    """The kernel's clock state (adjtimex), and the running time services.

    Why: logs of several nodes can be ordered, and tokens verified, only with synchronised clocks.
    Fix disturbs: nothing.
    Judges: WARN when no service keeps the clock in step.
    Fix: Start chrony or systemd-timesyncd.
    Threshold: The kernel's own state (adjtimex).
    False positives: Virtual machines whose host sets their clock. chrony without `rtcsync` and PTP keep the
    clock and leave the kernel's flag (docs.cloudera.com, Kudu: using chrony): a note.
    """
    running = (
        [unit.name for unit in services.units if unit.name in _TIME and unit.running] if services else []
    )
    told = f" ({', '.join(running)})" if running else ""
    if net.synchronised is None:
        yield Finding.unknown("not-visible-here", "the kernel does not report it")
    elif net.synchronised:
        bound = net.clock_error_seconds
        yield Finding.ok(f"synchronised{told}" + (f", within {bound:.3g} s" if bound is not None else ""))
    elif _kept(net, running):
        yield Finding.info(f"kept{told}, which does not report it to the kernel")
    else:
        fix = Fix(
            "Enable one time service.",
            (repair("sudo timedatectl set-ntp true"), look("chronyc tracking")),
            "config",
            "nothing",
            "nodedoctor net.clock",
        )
        yield Finding.warn(f"not synchronised{told}", fix=fix).led_by("the clock is not synchronised")


def _kept(net: Net, running: Sequence[str]) -> bool:
    """Whether a service keeps the clock although the kernel's flag says that none does."""
    told = net.clock_error_seconds is not None and net.clock_error_seconds < _UNKEPT_SECONDS
    return any(unit in _NEVER_TELL or (told and unit.startswith("chrony")) for unit in running)


@check("net.dns", "DNS response", tags={"fast"})
def dns(net: Net) -> Iterator[Finding]:
    """Name servers in /etc/resolv.conf, and the time to look up this host's name, where needed.

    Why: a resolver that waits for a dead server delays every job start and rendezvous.
    Fix disturbs: nothing.
    Judges: WARN when the resolver does not answer or takes longer than 1 s.
    Fix: Repair /etc/resolv.conf or add the nodes to /etc/hosts.
    Threshold: 1 s is our threshold: resolvers answer in milliseconds.
    False positives: Nodes that name all peers in /etc/hosts are not asked.
    Error texts:
    - Temporary failure in name resolution
    """
    servers = f"{counted(len(net.nameservers), 'name server')}" if net.nameservers else "no name server"
    fix = Fix(
        "Repair /etc/resolv.conf, or put the nodes' names into /etc/hosts.",
        (look("resolvectl status"),),
        "config",
        "nothing",
        "nodedoctor net.dns",
    )
    if net.name_error == "TIMEOUT":
        yield Finding.warn(
            f"the resolver did not respond in {net.name_seconds:.0f} s; {servers}"
            if net.name_seconds
            else "no answer",
            fix=fix,
        )
    elif net.name_seconds is not None and net.name_seconds > _SLOW_SECONDS:
        yield Finding.warn(f"the resolver took {net.name_seconds:.1f} s; {servers}", fix=fix)
    elif net.name_seconds is not None:
        yield Finding.ok(f"responded in {net.name_seconds:.2f} s; {servers}")
    elif not net.nameservers:
        yield Finding.info("no name server; this host's name is in /etc/hosts")
    else:
        yield Finding.info(f"{servers}, not queried: this host's name is in /etc/hosts")
