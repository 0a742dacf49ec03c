"""What ping printed, of iputils and of busybox: how much was lost, how long it took, what was refused."""

from __future__ import annotations

import re
from typing import Literal

from nodedoctor.patterns import regex
from nodedoctor.record import record

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
        told = [int(size) for size in _TOLD_MTU.findall(text)]
        sent, received = (int(counts.group(1)), int(counts.group(2))) if counts else (0, 0)
        return cls(
            sent=sent,
            received=min(received, sent),
            average_ms=float(times.group(1)) if times else None,
            told_mtu=min(told, default=0) or None,
            refused=None if received else next((why for why, sign in _REFUSED if sign.search(text)), None),
        )

    @property
    def loss(self) -> float:
        """The share of packets that did not come back, 0 to 1; 0 when none was sent."""
        return (self.sent - self.received) / self.sent if self.sent else 0.0
