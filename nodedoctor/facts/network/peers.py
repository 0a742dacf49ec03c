"""The way to the other nodes of a job, as tried from here: only where the person named them."""

from __future__ import annotations

import re
from typing import Literal

from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command, Options, fact, probe, skipped
from nodedoctor.json_shapes import Json, document, part, text, texts, whole_number
from nodedoctor.model import Observation, Outcome, Unseen
from nodedoctor.patterns import regex
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
    def parse(cls, observation: Observation) -> Peers | Unseen:
        """Read the child's document; a recording without one is of a run that named no host."""
        if observation.outcome in (Outcome.SKIPPED, Outcome.MISSING):
            return Unseen.skip(NOBODY)
        answer = document(observation)
        port = whole_number(answer, "port") if answer else None
        if not answer or port is None or not isinstance(answer.get("peers"), dict):
            return Unseen.of(observation)
        hosts = part(answer, "peers")
        peers = tuple(_read_peer(str(host), part(hosts, host)) for host in hosts)
        return cls(port, answer.get("port_named") is True, peers)


def _read_peer(host: str, entry: Json) -> Peer:
    answer, sizes = part(entry, "ping"), part(entry, "sizes")
    tried = {int(size): Ping.parse(text(part(sizes, size), "text")) for size in sizes if _is_size(size)}
    spoke = {size: ping for size, ping in tried.items() if ping.received or _is_unanswered(ping)}
    through = [size for size, ping in spoke.items() if ping.received]
    return Peer(
        host,
        texts(entry, "addresses"),
        text(entry, "name_error"),
        whole_number(entry, "interface_mtu"),
        Ping.parse(text(answer, "text")) if "text" in answer else None,
        text(answer, "error"),
        max(through, default=0) if spoke else None,
        min((ping.told_mtu for ping in tried.values() if ping.told_mtu), default=None),
        text(entry, "tcp"),
        entry.get("finished") is True,
    )


def _is_size(text: object) -> bool:
    return isinstance(text, str) and text.isascii() and text.isdecimal() and len(text) < 7


def _is_unanswered(ping: Ping) -> bool:
    """Packets were sent, or the kernel refused to send any of this size."""
    return ping.refused is None and (ping.sent > 0 or ping.told_mtu is not None)


Refusal = Literal["denied", "unsupported", "unreachable"]

_COUNTS = regex(r"(\d{1,9}) packets transmitted, (\d{1,9}) (?:packets )?received")
_TIMES = regex(r"(?:rtt|round-trip) min/avg/max(?:/\w+)? = [\d.]{1,12}/(\d{1,9}(?:\.\d{1,9})?)/")
_TOLD_MTU = regex(r"(?i)(?:frag needed|packet too big|message too long)[^\n]{0,60}?mtu ?= ?(\d{1,6})")
_REFUSED: tuple[tuple[Refusal, re.Pattern[str]], ...] = (
    ("denied", regex(r"(?i)operation not permitted|permission denied|lacking privilege|missing cap_net")),
    ("unsupported", regex(r"(?i)(?:invalid|unrecognized|illegal) option|invalid number|bad number")),
    ("unreachable", regex(r"(?i)(?:network|host) (?:is )?unreachable|no route to host")),
)


@record
class Ping:
    """One run of ping. `sent` is 0 when it said nothing of packets, `average_ms` None when nothing came back.

    `told_mtu` is the largest packet a router or the own kernel allows, `refused` why it did not run.
    """

    sent: int = 0
    received: int = 0
    average_ms: float | None = None
    told_mtu: int | None = None
    refused: Refusal | None = None

    @classmethod
    def parse(cls, text: str) -> Ping:
        """Read the output; what is not in it stays at its default."""
        counts, times = _COUNTS.search(text), _TIMES.search(text)
        mtus = [int(size) for size in _TOLD_MTU.findall(text)]
        sent, received = (int(counts.group(1)), int(counts.group(2))) if counts else (0, 0)
        return cls(
            sent=sent,
            received=min(received, sent),
            average_ms=float(times.group(1)) if times else None,
            told_mtu=min(mtus, default=0) or None,
            refused=None if received else next((why for why, sign in _REFUSED if sign.search(text)), None),
        )

    @property
    def loss(self) -> float:
        """The share of packets that did not come back, 0 to 1; 0 when none was sent."""
        return (self.sent - self.received) / self.sent if self.sent else 0.0
