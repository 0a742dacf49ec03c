"""Does the Ethernet under RDMA lose packets?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodedoctor.declare.peers import Attribute, odd_ones
from nodedoctor.declare.registry import check
from nodedoctor.facts.network.net import LOSS, NAME, Ethtool, loss_share
from nodedoctor.facts.rdma.port import IbPort
from nodedoctor.facts.rdma.ports import Ib, Rails
from nodedoctor.model import Evidence, Finding, Fix, reading
from nodedoctor.record import record
from nodedoctor.steps import look
from nodedoctor.wording import count_with_noun

RESENT_RATIO = 10.0
RESENT_LEAST = 1000
"""A rail that had to resend so many times as often as its peers (median), and so often at least, has a path
of its own that loses packets (chosen by us, no external source)."""

_RESENT = ("packet_seq_err", "local_ack_timeout_err")
"""Packets that the other end missed, and answers that never came (NVIDIA, understanding mlx5 Linux counters).
out_of_sequence is left out: adaptive routing makes it rise without a loss."""


@record
class _Rail:
    """A rail, the name of its network interface, and what the interface's driver counted."""

    port: IbPort
    interface: str
    counts: dict[str, int]

    @property
    def loss(self) -> float | None:
        """The share of packets that found no buffer; None where too few arrived, or none are counted."""
        return loss_share(self.counts.get("rx_discards_phy"), self.counts.get("rx_packets_phy"))

    @property
    def paused(self) -> int:
        """Pause frames of a priority (PFC), sent and received."""
        return sum(count for name, count in self.counts.items() if name.endswith("_pause"))


def _count_resent(rail: _Rail) -> int | None:
    counts = [rail.port.hw_counters[name] for name in _RESENT if name in rail.port.hw_counters]
    return sum(counts) if counts else None


_ATTRIBUTES: tuple[Attribute[_Rail], ...] = (
    Attribute("packets resent", "growth", _count_resent, "high", RESENT_RATIO - 1, RESENT_LEAST),
)


@check("net.roce", "RoCE packet loss", tags={"ib"}, stage="preview")
def roce(ib: Ib, rails: Rails, ethtool: Ethtool | None) -> Iterator[Finding]:
    """Discarded packets, pause storms and resent packets of rails on Ethernet, since their driver was loaded.

    Why: RoCE resends a whole window for each lost packet; a rail that loses some slows every collective.
    Fix disturbs: traffic of the rail.
    Judges: WARN when a rail discarded 1 packet in 10000, stopped pausing after a pause storm, or had to
    resend far more often than its peers.
    Fix: Use the same lossless priority (PFC, ECN) on adapter and switch, and look for the slow receiver.
    Threshold: 1 in 10000 is a tenth of where RoCE breaks down (DCQCN, SIGCOMM 2015); 10 times the peers is
    ours.
    False positives: Counters of an incident that is over stay until the driver is loaded again.
    """
    ports = [port for port in rails.ports if port.active and port.link_layer == "Ethernet" and not port.efa]
    if not ports:
        yield Finding.skip("no active RDMA port uses Ethernet")
        return
    ethernet_rails = [_read_rail(port, ethtool) for port in ports]
    findings = [
        *_judge_storms(ethernet_rails),
        *_judge_losses(ethernet_rails),
        *_judge_resending(ethernet_rails, ib),
    ]
    yield from findings
    counting = [rail for rail in ethernet_rails if rail.loss is not None or _count_resent(rail) is not None]
    if findings:
        return
    if not counting:
        yield Finding.unknown("not-visible-here", "neither discarded nor resent packets are reported")
        return
    paused = sum(rail.paused for rail in ethernet_rails)
    pauses = f"; {count_with_noun(paused, 'pause frame')} (PFC)" if paused else ""
    yield Finding.ok(f"{count_with_noun(len(counting), 'rail')} without packet loss{pauses}")


def _read_rail(port: IbPort, ethtool: Ethtool | None) -> _Rail:
    names = [device.name for device in port.netdevs if device.port in (None, port.number)]
    name = names[0] if names else ""
    return _Rail(port, name, dict(ethtool.interfaces.get(name, {})) if ethtool else {})


def _judge_storms(rails: Sequence[_Rail]) -> Iterator[Finding]:
    """The adapter gave up pausing the switch, because its buffers stayed full: what came then was lost."""
    for rail in rails:
        times = rail.counts.get("tx_pause_storm_error_events", 0)
        if times:
            summary = f"{rail.interface} sends no pause frames after {count_with_noun(times, 'pause storm')}"
            text = "Its host stopped taking packets: check the PCIe link, the IOMMU and the kernel log."
            evidence = _counter_evidence(rail, "tx_pause_storm_error_events")
            yield Finding.warn(
                summary, subject=rail.port.subject, evidence=evidence, fix=_rail_fix(rail, text)
            )


def _judge_losses(rails: Sequence[_Rail]) -> Iterator[Finding]:
    for rail in rails:
        if rail.loss is not None and rail.loss >= LOSS:
            summary = f"{rail.interface} discarded {rail.loss:.2%} of packets (no buffers)"
            unpaused = "" if rail.paused else " No pause frames were seen: PFC seems to be off."
            text = f"Use the same lossless priority (PFC, ECN) on adapter and switch.{unpaused}"
            evidence = _counter_evidence(rail, "rx_discards_phy", "rx_packets_phy")
            yield Finding.warn(
                summary, subject=f"{rail.port.subject}/discards", evidence=evidence, fix=_rail_fix(rail, text)
            )


def _judge_resending(rails: Sequence[_Rail], ib: Ib) -> Iterator[Finding]:
    for diff in odd_ones(rails, _ATTRIBUTES):
        port = diff.device.port
        summary = f"{diff.value} packets resent, others {diff.usual:g}"
        text = "Check its cable, switch port and path for drops; compare PFC and ECN with its peers."
        evidence = port.counted(ib.source, *(name for name in _RESENT if name in port.hw_counters))
        yield Finding.warn(
            summary, subject=f"{port.subject}/resent", evidence=evidence, fix=_rail_fix(diff.device, text)
        )


def _counter_evidence(rail: _Rail, *names: str) -> list[Evidence]:
    return [reading(NAME, f'interfaces["{rail.interface}"].{name}') for name in names]


def _rail_fix(rail: _Rail, text: str) -> Fix:
    steps = [look("rdma statistic show link {}/{}", rail.port.hca, rail.port.number)]
    if rail.interface:
        steps += [
            look("ethtool -S {} | grep -E 'discard|pause'", rail.interface),
            look("sudo mlnx_qos -i {}", rail.interface),
        ]
    return Fix(text, tuple(steps), "investigate", "traffic of this rail", "nodedoctor net.roce")
