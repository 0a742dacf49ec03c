"""Do the links of this node's network interfaces hold, and has no bond lost a leg?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodedoctor.declare.peers import Attribute, Outlier, odd_ones
from nodedoctor.declare.registry import check
from nodedoctor.facts.host.machine import Machine
from nodedoctor.facts.network.net import Interface, Net, is_damaging, rail_sets
from nodedoctor.model import Finding, Fix, reading
from nodedoctor.steps import look
from nodedoctor.wording import count_with_noun

FLAPS = 20
"""Times a link came or went from which it flaps: loading a driver and an adapter's reset make a handful."""
PEERS_RATIO = 4.0
"""An interface whose link changed so many times as often as its peers (median) has a fault of its own."""

HALF_CABLE_MBPS = 100
"""1000BASE-T needs four pairs of a cable and 100BASE-TX two (IEEE 802.3): so servers show a bad cable."""

_CARRIER: tuple[Attribute[Interface], ...] = (
    Attribute("link changes", "growth", lambda one: one.carrier_changes, "high", PEERS_RATIO - 1, FLAPS),
)


_SPEED: tuple[Attribute[Interface], ...] = (
    Attribute("speed", "capability", lambda link: link.speed_mbps if link.up else None),
)


@check("net.link", "Link flaps and bonds", tags={"fast"}, without=(Machine,), stage="preview")
def link(net: Net, machine: Machine | None) -> Iterator[Finding]:
    """Bond members that are down while another is up, link changes against peers, and a slow default route.

    Why: a bond with one member has half the bandwidth and no spare; a flapping link kills jobs at random; on
    a cable with a broken pair, checkpoints, data and rendezvous pass at a tenth of the speed.
    Fix disturbs: traffic on that interface.
    Judges: WARN when a link came and went often, a bond runs on fewer legs than it has, one of 4, 8 or 16
    rails (of 4 or more, where their name shows them to be rails) has no link or another speed, the only
    interface of a paste has none, a pasted `ip -s link` counts more damaged packets than a sound link has, or
    the default route of a bare-metal node goes over 100 Mbit/s.
    Fix: Check cable, transceiver and switch port of the named interface.
    Threshold: 20 changes, or 4 times the peers' median: our thresholds, no external source. 100 Mbit/s is
    what a copper cable for 1 Gbit/s falls back to (IEEE 802.3).
    False positives: Reloaded drivers and adapter resets make a handful of changes.
    """
    bonds = [interface for interface in net.interfaces if interface.bond]
    legs = {
        bond.name: [interface for interface in net.interfaces if interface.master == bond.name]
        for bond in bonds
    }
    findings = [finding for name, members in legs.items() for finding in _judge_legs(name, members)]
    real = [interface for interface in net.interfaces if interface.physical and interface.up]
    for diff in odd_ones(real, _CARRIER):
        interface = diff.device
        evidence = [reading("net", f'interfaces["{interface.name}"].carrier_changes')]
        summary = f"{interface.name}: link changed {diff.value} times, others {diff.usual:g}"
        fix = _link_fix(interface.name, "Reseat or replace cable and transceiver; check the switch port.")
        finding = Finding.warn(summary, subject=f"net:{interface.name}/link", evidence=evidence, fix=fix)
        findings.append(finding.matters_as("A flapping link kills jobs at random."))
    slow = [interface for interface in real if _on_half_a_cable(interface, net.default_routes)]
    if machine is not None and machine.form == "bare-metal":
        findings += map(_slow_route, slow)
    elif machine is None and slow and not findings:
        summary = f"{slow[0].name}: {slow[0].speed_mbps} Mbit/s; whether this is a virtual machine is unknown"
        findings = [Finding.unknown("not-visible-here", summary, subject=f"net:{slow[0].name}/speed")]
    families = rail_sets(net)
    shown = [interface for interface in net.interfaces if not interface.loopback]
    findings += [alarm for family in families if (alarm := _lost_rail(family))]
    findings += [_slow_rail(outlier) for family in families for outlier in odd_ones(family, _SPEED)]
    findings += [_no_link(shown[0])] if len(shown) == 1 and shown[0].no_carrier else []
    findings += [_damaged(link) for link in shown if is_damaging(link.damaged, link.received)]
    yield from findings
    if findings:
        return
    if not real:
        yield Finding.skip("no physical interface is up here")
    elif not bonds and all(interface.carrier_changes is None for interface in real):
        yield Finding.unknown("not-visible-here", "link changes were not reported")
    else:
        pairs = f", {count_with_noun(len(bonds), 'bond')} complete" if bonds else ""
        yield Finding.ok(f"{count_with_noun(len(real), 'interface')} up, no link flaps{pairs}")


def _no_link(interface: Interface) -> Finding:
    """The only interface that is shown: somebody asked for it, and expects a link."""
    evidence = [reading("net", f'interfaces["{interface.name}"].carrier')]
    fix = _link_fix(interface.name, "Check cable, transceiver and switch port, where it should have a link.")
    summary = f"{interface.name}: no link"
    return Finding.warn(summary, subject=f"net:{interface.name}/link", evidence=evidence, fix=fix)


def _damaged(interface: Interface) -> Finding:
    """Frames that arrive damaged: the cable, the transceiver or the other end's laser is bad."""
    names = ("rx_errors", "rx_packets")
    evidence = [reading("net", f'interfaces["{interface.name}"].{name}') for name in names]
    fix = _link_fix(interface.name, "Reseat, clean or replace cable and transceiver; count again under load.")
    summary = f"{interface.name}: {interface.damaged} of {interface.received} packets arrived with errors"
    finding = Finding.warn(summary, subject=f"net:{interface.name}/errors", evidence=evidence, fix=fix)
    return finding.matters_as(
        "What a link damages is sent again, and every rank of the collective waits for it."
    )


def _slow_rail(outlier: Outlier[Interface]) -> Finding:
    name = outlier.device.name
    evidence = [reading("net", f'interfaces["{name}"].speed')]
    summary = f"{name}: {outlier.value} Mbit/s, {count_with_noun(outlier.peers, 'other')} {outlier.usual}"
    fix = _link_fix(name, "Check cable, transceiver and the speed that the switch port is set to.")
    return Finding.warn(summary, subject=f"net:{name}/speed", evidence=evidence, fix=fix)


def _lost_rail(family: Sequence[Interface]) -> Finding | None:
    """One rail without a link among those that have one: it is set up as they are, so none left it out."""
    down = [interface for interface in family if interface.no_carrier]
    if len(down) != 1 or not all(interface.up for interface in family if interface not in down):
        return None
    (rail,) = down
    evidence = [reading("net", f'interfaces["{rail.name}"].carrier')]
    summary = f"{rail.name}: no link, {count_with_noun(len(family) - 1, 'other')} up"
    fix = _link_fix(rail.name, "Check cable, transceiver and switch port of the rail that is down.")
    finding = Finding.warn(summary, subject=f"net:{rail.name}/link", evidence=evidence, fix=fix)
    return finding.matters_as("A rail that is down takes its share of the network from every job.")


def _on_half_a_cable(interface: Interface, routes: Sequence[str]) -> bool:
    """Whether the node's traffic goes over it, at the speed of a cable with broken pairs."""
    used = interface.name in routes or interface.master in routes
    return used and interface.speed_mbps is not None and 0 < interface.speed_mbps <= HALF_CABLE_MBPS


def _slow_route(interface: Interface) -> Finding:
    evidence = [reading("net", f'interfaces["{interface.name}"].speed'), reading("net", "default_routes")]
    summary = f"{interface.name}: the default route goes over {interface.speed_mbps} Mbit/s"
    fix = _link_fix(interface.name, "Replace the cable; check the speed that the switch port is set to.")
    finding = Finding.warn(summary, subject=f"net:{interface.name}/speed", evidence=evidence, fix=fix)
    return finding.matters_as(
        "On a cable with a broken pair, checkpoints, data and rendezvous pass at a tenth of the speed."
    )


def _judge_legs(bond: str, members: Sequence[Interface]) -> Iterator[Finding]:
    """A bond without any leg up is down as a whole; the check of what needs it reports that."""
    down = [member for member in members if not member.up]
    if not down or len(down) == len(members):
        return
    evidence = [
        reading("net", f'interfaces["{member.name}"].{key}')
        for member in members
        for key in ("operstate", "master")
    ]
    names = ", ".join(member.name for member in down)
    summary = f"{bond}: {len(down)} of {count_with_noun(len(members), 'bond member')} down ({names})"
    fix = _link_fix(down[0].name, "Check cable, transceiver and switch port of the member that is down.")
    finding = Finding.warn(summary, subject=f"net:{bond}", evidence=evidence, fix=fix)
    yield finding.matters_as("A bond without one of its members has less bandwidth and may have no spare.")


def _link_fix(interface: str, text: str) -> Fix:
    steps = (look("ip -details link show {}", interface), look("sudo ethtool {}", interface))
    return Fix(text, steps, "investigate", "traffic on that interface", "nodedoctor net.link")
