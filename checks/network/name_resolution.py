"""Do this host's name and its resolver lead other nodes to it?"""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.host.container import Container
from nodedoctor.facts.host.processes import Processes
from nodedoctor.facts.network.net import Net, is_loopback, several_nodes
from nodedoctor.facts.network.peers import Peers
from nodedoctor.model import Evidence, Finding, Fix, reading
from nodedoctor.steps import look
from nodedoctor.wording import comma_list, count_with_noun

_SLOW_SECONDS = 1.0
"""A resolver answers in milliseconds; each of several hundred connections may ask it."""


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
    summary = f"{net.hostname} resolves to {comma_list(net.name_addresses)}"
    if any(owned) or None in owned or (container is not None and container.inside):
        return Finding.ok(summary, evidence=evidence)
    return Finding.warn(f"{summary}, not an address of this node", evidence=evidence, fix=fix)


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
    servers = (
        f"{count_with_noun(len(net.nameservers), 'name server')}" if net.nameservers else "no name server"
    )
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
    elif net.name_source != "hosts":
        yield Finding.unknown("not-visible-here", "neither name servers nor /etc/hosts were seen")
    elif not net.resolver_shown:
        yield Finding.unknown("not-visible-here", "this host's name is in /etc/hosts; name servers not shown")
    elif not net.nameservers:
        yield Finding.info("no name server; this host's name is in /etc/hosts")
    else:
        yield Finding.info(f"{servers}, not queried: this host's name is in /etc/hosts")
