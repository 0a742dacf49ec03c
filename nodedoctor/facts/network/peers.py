"""The way to the other nodes of a job, as tried from here: only where the person named them."""

from __future__ import annotations

from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command, Options, fact, probe, skipped
from nodedoctor.facts.network.ping import Ping
from nodedoctor.json_shapes import Json, document, part, text, texts, whole_number
from nodedoctor.model import Observation, Outcome, Unseen
from nodedoctor.record import record

NOBODY = "no peer was named: --peers HOST,... tries the way to other nodes"


@probe("peers", timeout=8)
def peers(options: Options) -> Command | Observation:
    """Name, ping, path MTU and the rendezvous port of every host named with --peers, all at once."""
    if not options.peers:
        return skipped("peers", NOBODY)
    return Command(child("network/peers", *options.peers))


@record
class Peer:
    """What came of trying to reach one host.

    `ping` is None when there is no ping here (`ping_error` ENOENT) or it was not done in time. `path_mtu` is
    the largest packet that came through whole, 0 for none of those tried, None when that could not be tried.
    `told_mtu` is what a router named. `tcp` is `open` or the error's name: ECONNREFUSED means that the host
    answered and nothing listens, ETIMEDOUT that something drops the packets.
    """

    host: str
    addresses: tuple[str, ...] = ()
    name_error: str = ""
    interface_mtu: int | None = None
    ping: Ping | None = None
    ping_error: str = ""
    path_mtu: int | None = None
    told_mtu: int | None = None
    tcp: str = ""
    finished: bool = False

    @property
    def by_name(self) -> bool:
        """Whether it was given as a name and not as an address."""
        return self.host not in self.addresses

    @property
    def answers_ping(self) -> bool:
        """Whether one packet at least came back."""
        return self.ping is not None and self.ping.received > 0

    @property
    def answers(self) -> bool:
        """Whether the host itself, or a firewall in its place, was heard."""
        return self.answers_ping or self.tcp in ("open", "ECONNREFUSED")


@fact("peers")
@record
class Peers:
    """The hosts that were named. `port_named` is whether MASTER_PORT says so or it is torchrun's default."""

    port: int
    port_named: bool = False
    peers: tuple[Peer, ...] = ()

    @classmethod
    def parse(cls, seen: Observation) -> Peers | Unseen:
        """Read the child's document; a recording without one is of a run that named nobody."""
        if seen.outcome in (Outcome.SKIPPED, Outcome.MISSING):
            return Unseen.skip(NOBODY)
        told = document(seen)
        port = whole_number(told, "port") if told else None
        if not told or port is None or not isinstance(told.get("peers"), dict):
            return Unseen.of(seen)
        hosts = part(told, "peers")
        found = tuple(_peer(str(host), part(hosts, host)) for host in hosts)
        return cls(port, told.get("port_named") is True, found)


def _peer(host: str, told: Json) -> Peer:
    answer, sizes = part(told, "ping"), part(told, "sizes")
    tried = {int(size): Ping.parse(text(part(sizes, size), "text")) for size in sizes if _is_size(size)}
    spoke = {size: one for size, one in tried.items() if one.received or _silent(one)}
    through = [size for size, one in spoke.items() if one.received]
    return Peer(
        host,
        texts(told, "addresses"),
        text(told, "name_error"),
        whole_number(told, "interface_mtu"),
        Ping.parse(text(answer, "text")) if "text" in answer else None,
        text(answer, "error"),
        max(through, default=0) if spoke else None,
        min((one.told_mtu for one in tried.values() if one.told_mtu), default=None),
        text(told, "tcp"),
        told.get("finished") is True,
    )


def _is_size(text: object) -> bool:
    return isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) < 7


def _silent(one: Ping) -> bool:
    """Packets were sent, or the kernel refused to send any of this size."""
    return one.refused is None and (one.sent > 0 or one.told_mtu is not None)
