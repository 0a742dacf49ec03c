"""Do the other nodes of the job answer, without loss, with large packets, and at the rendezvous port?"""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.network.net import is_loopback
from nodedoctor.facts.network.peers import Peer, Peers
from nodedoctor.model import Evidence, Finding, Fix, Step, quoted_like, reading
from nodedoctor.steps import line, look, repair

_LOSS_FAILS = 0.2
"""Two of ten packets. A wired network loses none; TCP slows down with the root of the loss (RFC 5348)."""
_VERIFY = "nodedoctor net.peers --peers {}"
_TORCHRUN = "https://docs.pytorch.org/docs/stable/elastic/run.html"


@check("net.peers", "Connections to other nodes", stage="preview")
def reached(peers: Peers) -> Iterator[Finding]:
    """Name resolution, packet loss, latency, path MTU and rendezvous port of every host in --peers.

    Why: one unreachable node, or one reachable only with small packets, stops the job at its first step.
    Fix disturbs: nothing here; an MTU or firewall change affects all connections of that node.
    Judges: FAIL when a peer cannot be resolved or reached, or large packets do not pass; WARN for losses and
    closed ports.
    Fix: Check firewall, route and MTU on the way to that peer.
    Threshold: Two of ten packets lost; TCP slows with the root of the loss (RFC 5348).
    False positives: Networks that drop ping: the port is tried as well.
    Error texts:
    - No route to host
    """
    if not peers.peers:
        yield Finding.unknown("unparsable", "the answer names no peer")
    for peer in peers.peers:
        findings = [*_judge_way(peer, peers), *_judge_packets(peer), *_judge_port(peer, peers)]
        yield from findings or [_healthy_peer(peer, peers)]


def _judge_way(peer: Peer, peers: Peers) -> Iterator[Finding]:
    """Whether it has a name and an answer, and how much got lost."""
    evidence = _peer_evidence(peer)
    if not peer.addresses:
        yield _nameless_peer(peer)
    elif peer.by_name and all(is_loopback(address) for address in peer.addresses):
        summary = f"{peer.host} resolves to {peer.addresses[0]}, an address of this node"
        fix = _peer_fix(peer, "Set its real address in /etc/hosts of every node.")
        yield Finding.warn(summary, subject=_peer_subject(peer), evidence=evidence, fix=fix)
    elif not peer.answers and _was_tried(peer, peers):
        fix = _peer_fix(
            peer, "Check that it is up, and the route to it.", look("ip route get {}", peer.addresses[0])
        )
        summary = f"{peer.host} ({peer.addresses[0]}) does not respond: {_reached_peers(peer)}"
        yield Finding.fail(summary, subject=_peer_subject(peer), evidence=evidence, fix=fix)
    elif not peer.answers_ping:
        yield _untested_peer(peer)
    elif peer.ping is not None and peer.ping.loss > 0:
        loss = f"{peer.ping.sent - peer.ping.received} of {peer.ping.sent} packets to {peer.host} lost"
        build = Finding.fail if peer.ping.loss >= _LOSS_FAILS else Finding.warn
        fix = _peer_fix(
            peer, "Check interfaces and cables at both ends, and the switch, for errors.", look("ip -s link")
        )
        yield build(loss, subject=_peer_subject(peer), evidence=evidence, fix=fix)


def _was_tried(peer: Peer, peers: Peers) -> bool:
    """Whether silence means something: ping asked, or the port is the job's, or the kernel knows no way."""
    pinged = peer.ping is not None and peer.ping.refused not in ("denied", "unsupported")
    return pinged or (peer.tcp == "ETIMEDOUT" and peers.port_named) or peer.tcp not in ("", "ETIMEDOUT")


def _nameless_peer(peer: Peer) -> Finding:
    if not peer.finished and not peer.name_error:
        why, hint = "the resolver timed out", "Repair the resolver (net.dns), or use /etc/hosts."
    else:
        why, hint = peer.name_error or "no address", "Add it to /etc/hosts or DNS, or correct the name."
    fix = _peer_fix(peer, hint, look("getent hosts {}", peer.host))
    return Finding.fail(f"{peer.host} cannot be resolved: {why}", subject=_peer_subject(peer), fix=fix)


def _untested_peer(peer: Peer) -> Finding:
    """Loss and packet sizes were not seen, whatever the port said."""
    lead = f"{peer.host}: {_port_word(peer)}; loss and packet sizes not tested, "
    subject, refused = _peer_subject(peer), peer.ping.refused if peer.ping else None
    if peer.ping_error == "ENOENT":
        fix = Fix("Install ping: iputils-ping (Debian, Ubuntu) or iputils (RHEL, SLES).", action="none")
        return Finding.unknown("missing-tool", f"{lead}no ping here", subject=subject, fix=fix)
    if refused == "denied" or peer.ping_error in ("EACCES", "EPERM"):
        fix = Fix(
            "Allow ping for all users, or run as root.",
            (repair("sudo sysctl -w net.ipv4.ping_group_range='0 2147483647'"),),
            "none",
        )
        return Finding.unknown("denied", f"{lead}ping has no permission to send", subject=subject, fix=fix)
    if peer.ping is None:
        return Finding.unknown("timeout", f"{lead}ping timed out", subject=subject)
    if refused == "unsupported" or not peer.ping.sent:
        return Finding.unknown("unparsable", f"{lead}unknown version of ping", subject=subject)
    fix = Fix("Allow ICMP echo between the nodes.", action="none")
    return Finding.unknown("not-visible-here", f"{lead}no answer to ping", subject=subject, fix=fix)


def _judge_packets(peer: Peer) -> Iterator[Finding]:
    """Packets as large as the interface sends them must come through; loss would look the same."""
    mtu, most = peer.interface_mtu, peer.path_mtu
    lossy = peer.ping is not None and peer.ping.loss >= _LOSS_FAILS
    if not peer.answers_ping or mtu is None or most is None or most >= mtu or lossy:
        return
    subject, evidence = f"{_peer_subject(peer)}/mtu", _peer_evidence(peer)
    fix = _peer_fix(
        peer,
        "Set one MTU at both ends and on every switch between them.",
        look("tracepath -n {}", peer.addresses[0]),
    )
    lead = f"interface MTU {mtu}, path to {peer.host}"
    if peer.told_mtu is not None:
        summary = f"{lead} {peer.told_mtu}: TCP adapts, RDMA and UDP do not"
        yield Finding.warn(summary, subject=subject, evidence=evidence, fix=fix)
    elif most:
        summary = f"{lead} {most}: larger packets are lost silently"
        yield Finding.fail(summary, subject=subject, evidence=evidence, fix=fix)
    elif peer.finished:
        summary = f"{peer.host} answers small pings, none of 576 bytes or more"
        yield Finding.warn(summary, subject=subject, evidence=evidence, fix=fix)


def _judge_port(peer: Peer, peers: Peers) -> Iterator[Finding]:
    """A port that is dropped, on a host that answers, is a firewall's work."""
    if not peer.answers_ping or peer.tcp in ("", "open", "ECONNREFUSED"):
        return
    if peer.tcp == "ETIMEDOUT":
        summary = f"connections to port {peers.port} of {peer.host} are dropped"
    else:
        summary = f"connections to port {peers.port} of {peer.host} are rejected: {peer.tcp}"
    origin = "MASTER_PORT names it" if peers.port_named else "torchrun's default; MASTER_PORT is not set here"
    fix = _peer_fix(
        peer,
        "Open all TCP ports between the nodes in the firewalls.",
        look("sudo iptables -S INPUT"),
        _TORCHRUN,
    )
    build = Finding.fail if peers.port_named else Finding.warn
    subject = f"{_peer_subject(peer)}/port"
    yield build(f"{summary} ({origin})", subject=subject, evidence=_peer_evidence(peer), fix=fix)


def _healthy_peer(peer: Peer, peers: Peers) -> Finding:
    ping = peer.ping
    parts = [f"0 of {ping.sent if ping else 0} packets lost"]
    parts += [f"{ping.average_ms:.3g} ms"] if ping and ping.average_ms is not None else []
    parts.append(f"packets of {peer.path_mtu} bytes pass" if peer.path_mtu else "packet sizes not tested")
    if peer.tcp:
        parts.append(
            f"port {peers.port} {'is open' if peer.tcp == 'open' else 'is closed (nothing listens)'}"
        )
    summary, subject, evidence = "; ".join(parts), _peer_subject(peer), _peer_evidence(peer)
    if not peer.finished:
        return Finding.unknown(
            "timeout", f"{summary}; the rest timed out", subject=subject, evidence=evidence
        )
    build = Finding.ok if peer.tcp == "open" and peer.path_mtu else Finding.info
    return build(summary, subject=subject, evidence=evidence)


def _port_word(peer: Peer) -> str:
    return {"open": "its port is open", "ECONNREFUSED": "it refuses the port, so it is there"}.get(
        peer.tcp, "it was not reached"
    )


def _reached_peers(peer: Peer) -> str:
    ping = f"{peer.ping.received} of {peer.ping.sent} pings answered" if peer.ping and peer.ping.sent else ""
    refused = "no route to it" if peer.ping and peer.ping.refused == "unreachable" else ""
    return ", ".join(word for word in (ping, refused, f"TCP says {peer.tcp}" if peer.tcp else "") if word)


def _peer_subject(peer: Peer) -> str:
    return f"peer:{peer.host}"


def _peer_evidence(peer: Peer) -> tuple[Evidence, ...]:
    here = f'peers["{peer.host}"]'
    evidence = [quoted_like("peers", r"^.*packets transmitted.*$", f"{here}.ping.text")] if peer.ping else []
    evidence += [reading("peers", f"{here}.tcp")] if peer.tcp else []
    return (*evidence, reading("peers", f"{here}.addresses"))


def _peer_fix(peer: Peer, text: str, command: Step | None = None, docs: str = "") -> Fix:
    steps = (command,) if command else ()
    return Fix(text, steps, "config", "connections of that node", line(_VERIFY, peer.host), docs)
