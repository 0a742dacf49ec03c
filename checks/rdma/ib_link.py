"""Do the ports that training uses run at full rate, on all lanes, without errors?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodedoctor.declare.peers import Attribute, odd_ones
from nodedoctor.declare.registry import check
from nodedoctor.facts.rdma.error_growth import RdmaGrowth
from nodedoctor.facts.rdma.port import IbPort
from nodedoctor.facts.rdma.ports import Ib, Rails
from nodedoctor.grouping import group_by
from nodedoctor.knowledge.fixes.rdma import cable, port_fix
from nodedoctor.knowledge.infiniband import Counter, adapter, counter
from nodedoctor.knowledge.infiniband import rate as generation
from nodedoctor.model import Evidence, Finding, reading
from nodedoctor.record import replace
from nodedoctor.steps import look
from nodedoctor.wording import count_with_noun

_SETS = (8, 16)
"""How many rails boards have; more ports of the kind than these serve something else."""
MTU_PEERS = 3
"""Ports that agree in their MTU, from which another one is a mistake; ours."""
_LOWEST_GBPS = 20
"""Four lanes of DDR: every adapter since 2008 does more (knowledge: ib rates)."""
_SYMBOLS_PER_SECOND = 10
"""Symbol errors a second above which a link is bad (NVIDIA/NVSentinel:docs/nic-health-monitor)."""


@check("ib.rate", "RDMA port rate", tags={"fast", "ib"}, explained_by=("ib.ports", "ib.width"))
def rate(ib: Ib, rails: Rails) -> Iterator[Finding]:
    """The rate of each active rail against its peers and the NIC's maximum, and the size of its packets.

    Why: a collective runs at the speed of its slowest rail; two ends with different MTUs do not connect.
    Fix disturbs: traffic on that port.
    Judges: FAIL when a rail is slower than most of its peers, WARN when it is less certain which rate is
    right, or when three peers or more agree in another active MTU, or the only other card has another.
    Fix: Reseat or change the cable; check the switch port's speed and MTU.
    Threshold: Rates per lane in the ib table, and the peers; 20 Gb/s at least (four lanes of DDR).
    False positives: Ports that a site runs at a lower rate on purpose, all alike.
    """
    mtus = [*_odd_mtus(rails.ports, ib)]
    yield from mtus
    ports = [port for port in rails.ports if port.active and port.rate_gbps is not None]
    if not ports:
        if not mtus:
            yield ib.nothing(rails, "no active port reports its rate")
        return
    top = max(port.rate_gbps or 0 for port in ports)
    slow = [port for port in ports if port.rate_gbps != top]
    full = len(ports) - len(slow)
    for port in slow:
        yield _slow_rail(port, top, full, len(slow), ib, rails.sure)
    if not slow and ports[0].infiniband and top <= _LOWEST_GBPS:
        summary = (
            f"{count_with_noun(len(ports), 'port')} at {top:g} Gb/s, InfiniBand's fallback after "
            "failed link training"
        )
        yield Finding.warn(summary, evidence=ib.evidence(ports[0]), fix=cable(ports[0].hca, ports[0].number))
    elif not slow:
        yield _equal_rates(ports, top)


_MTU: Attribute[IbPort] = Attribute("active MTU", "capability", lambda port: port.active_mtu)


def _odd_mtus(ports: Sequence[IbPort], ib: Ib) -> Iterator[Finding]:
    """Active ports of one kind and rate whose packets differ from most others', or from their only peer's.

    Of two cards neither needs to be right; the two ports of one card may serve two networks.
    """
    groups = group_by(
        (port for port in ports if port.active), lambda port: (port.model, port.link_layer, port.rate_gbps)
    )
    for group in groups.values():
        for outlier in odd_ones(group, (_MTU,)):
            if outlier.peers >= MTU_PEERS:
                summary = f"active MTU {outlier.value}, {outlier.peers} others {outlier.usual}"
                yield _other_packets(outlier.device, summary, ib.evidence(outlier.device))
        if len(group) != 2:
            continue
        low, high = sorted(group, key=lambda port: port.active_mtu or 0)
        if low.card != high.card and 0 < (low.active_mtu or 0) < (high.active_mtu or 0):
            summary = f"active MTU {low.active_mtu}, its only peer {high.name} {high.active_mtu}"
            yield _other_packets(low, summary, [*ib.evidence(low), *ib.evidence(high)])


def _other_packets(port: IbPort, summary: str, evidence: list[Evidence]) -> Finding:
    text = (
        "Set one MTU on all rails: of the interface for RoCE, of the partition and the switch for InfiniBand."
    )
    fix = port_fix(text, (look("ibv_devinfo -d {}", port.hca),), "config")
    return Finding.warn(summary, subject=port.subject, evidence=evidence, fix=fix)


def _slow_rail(port: IbPort, top: float, full: int, slow: int, ib: Ib, sure: bool) -> Finding:
    summary = f"{port.rate_gbps:g} Gb/s, other rails {top:g} Gb/s"
    evidence = ib.evidence(port)
    if full in _SETS and slow < full / 2:
        return Finding.info(
            f"{summary}; all {full} rails have it without this port", subject=port.subject, evidence=evidence
        )
    fix = cable(port.hca, port.number)
    build = Finding.warn if slow >= full or full < 3 or not sure else Finding.fail
    lead = f"{port.hca} port {port.number} runs at {port.rate_gbps:g} Gb/s, others at {top:g}"
    return build(summary, subject=port.subject, evidence=evidence, fix=fix).led_by(lead)


def _equal_rates(ports: list[IbPort], top: float) -> Finding:
    """Equal rates below what the adapter can do are what the switch or the contract gives: worth a note."""
    card = adapter(ports[0].model or "")
    if card and card.max_port_gbps and top < card.max_port_gbps:
        could = f"{card.name} supports {card.max_port_gbps}"
        summary = f"{count_with_noun(len(ports), 'port')} at {top:g} Gb/s; {could}"
        return Finding.info(summary).matters_as(f"What {card.name} supports: {card.source}.")
    return Finding.ok(f"{count_with_noun(len(ports), 'port')} at {top:g} Gb/s")


@check("ib.width", "RDMA link width", tags={"fast", "ib"}, explained_by=("ib.ports",), stage="preview")
def width(ib: Ib, rails: Rails) -> Iterator[Finding]:
    """The link width of each active rail (4X, 2X, 1X) against its peers.

    Why: a failed lane cuts the bandwidth of the whole collective to a half or a quarter.
    Fix disturbs: traffic on that port.
    Judges: FAIL when a few rails run on fewer lanes than the others, WARN when half of them do or a width is
    unusual.
    Fix: Reseat the cable; replace it when the width stays low.
    Threshold: InfiniBand links run on 4 or 2 lanes (ib table).
    False positives: Split cables that give each port two lanes.
    """
    ports = [port for port in rails.ports if port.active and port.width]
    if not ports:
        yield ib.nothing(rails, "no link width reported (/sys/class/infiniband has it)")
        return
    lanes = {port.name: int((port.width or "0").rstrip("X")) for port in ports}
    most = max(lanes.values())
    narrow = [port for port in ports if lanes[port.name] < most]
    for port in narrow:
        build = Finding.warn if len(narrow) * 2 >= len(ports) else Finding.fail
        yield build(
            f"link width {port.width}, others {most}X",
            subject=port.subject,
            evidence=ib.evidence(port),
            fix=cable(port.hca, port.number),
        ).led_by(f"{port.hca} port {port.number} runs on {lanes[port.name]} of {most} lanes")
    if not narrow:
        single_lane = most == 1 and ports[0].infiniband
        summary = f"{count_with_noun(len(ports), 'port')} at {most}X"
        fix = cable(ports[0].hca, ports[0].number)
        warning = Finding.warn(f"{summary}, InfiniBand uses 4 or 2 lanes", fix=fix)
        yield warning if single_lane else Finding.ok(summary)


@check(
    "ib.counters",
    "RDMA port errors",
    tags={"ib"},
    explained_by=("ib.ports", "ib.width", "ib.rate"),
    stage="preview",
)
def counters(ib: Ib, rails: Rails, growth: RdmaGrowth | None) -> Iterator[Finding]:
    """Error counters of the rails: growth within a second, and totals against their running time.

    Why: a link that retrains or loses packets stalls every collective until the data is sent again.
    Fix disturbs: traffic on that port.
    Judges: FAIL when error counters grow fast while nodedoctor looks, WARN when they grow slowly or totals
    are high.
    Fix: Clean and reseat the cable, try another one, then another switch port.
    Threshold: NVIDIA/NVSentinel, docs/nic-health-monitor: link-counter rules.
    False positives: Counters of a cable that was changed since boot: totals stay, growth is zero.
    Error texts:
    - NET/IB: Got completion from peer
    """
    counting = [port for port in rails.ports if port.counters or port.hw_counters]
    if not counting:
        yield (
            ib.nothing(rails, "no error counter readable (/sys/class/infiniband has them)")
            if rails.ports
            else (Finding.skip(ib.absent or "NCCL uses no RDMA port here"))
        )
        return
    for port in counting:
        yield from _judge_growth(port, growth, ib) if growth else ()
        yield from _judge_totals(port, growth.uptime_seconds if growth else None, ib)
    if growth is None:
        yield Finding.unknown(
            "not-visible-here", "growth unknown: only totals were read", subject="ib:growth"
        )
    else:
        yield Finding.ok(
            f"no new errors on {count_with_noun(len(counting), 'port')} in {growth.seconds:g} s",
            subject="ib:growth",
        )


def _judge_growth(port: IbPort, growth: RdmaGrowth, ib: Ib) -> Iterator[Finding]:
    """Counters that rise now, beyond what each may."""
    for name, rise in growth.growth.items():
        where, _, short = name.rpartition("/")
        row = counter(short)
        if where != port.name or not rise or row is None or row.limit is None:
            continue
        summary = f"{short} rose by {rise} in {growth.seconds:g} s: {row.meaning}"
        subject = f"{port.subject}/{short}"
        evidence = [reading("rdma-growth", f'growth["{name}"]'), *port.counted(ib.source, short)]
        fix = cable(port.hca, port.number)
        fix = replace(fix, text=f"{fix.text} Suspect: {row.suspect}.")
        if row.limit_unit == "growth":
            yield Finding.fail(summary, subject=subject, evidence=evidence, fix=fix)
        elif rise / growth.seconds > _per_second(row, port):
            yield Finding.warn(summary, subject=subject, evidence=evidence, fix=fix)


def _per_second(row: Counter, port: IbPort) -> float:
    """The rate a counter may have. PAM4 lanes make raw symbol errors that are corrected: never too many."""
    if row.counter == "symbol_error":
        return float("inf") if _is_pam4(port) else float(_SYMBOLS_PER_SECOND)
    return (row.limit or 0.0) / {"per_minute": 60.0, "per_hour": 3600.0}.get(row.limit_unit, 1.0)


def _judge_totals(port: IbPort, uptime_seconds: float | None, ib: Ib) -> Iterator[Finding]:
    """What was counted since the driver was loaded: history, unless symbol errors came too fast all along."""
    row = counter("symbol_error")
    symbols = port.counters.get("symbol_error", 0)
    hours = (uptime_seconds or 0.0) / 3600
    if row and row.limit and hours >= 1 and symbols / hours > row.limit and not _is_pam4(port):
        summary = f"{count_with_noun(symbols, 'symbol error')} in {hours:.0f} h, limit {row.limit:g} per hour"
        evidence = port.counted(ib.source, "symbol_error")
        fix = cable(port.hca, port.number)
        fix = replace(fix, text=f"{fix.text} Suspect: {row.suspect}.")
        yield Finding.warn(summary, subject=f"{port.subject}/symbol_error", evidence=evidence, fix=fix)
    rows = ((name, value, counter(name)) for name, value in port.counters.items())
    many = {name: value for name, value, row in rows if row and _is_noteworthy(row, value)}
    if many:
        counts = ", ".join(f"{name} {value}" for name, value in many.items())
        evidence = port.counted(ib.source, *many)
        yield Finding.info(f"since driver load: {counts}", subject=port.subject, evidence=evidence)


def _is_noteworthy(row: Counter, value: int) -> bool:
    never = row.counter in ("port_xmit_wait", "symbol_error")
    return not never and row.ibqueryerrors is not None and value >= row.ibqueryerrors


def _is_pam4(port: IbPort) -> bool:
    """Whether the lanes signal in four levels; from 50 Gbit/s a lane they do, whatever the name says."""
    row = generation(port.generation or "")
    lanes = int((port.width or "4X").rstrip("X") or 4)
    fast = port.rate_gbps is not None and port.rate_gbps / max(lanes, 1) >= 50
    return fast or bool(row and row.pam4 and port.infiniband)
