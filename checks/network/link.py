"""Do the links of this node's network interfaces hold, and has no bond lost a leg?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodedoctor.declare.peers import Attribute, odd_ones
from nodedoctor.declare.registry import check
from nodedoctor.facts.host.machine import Machine
from nodedoctor.facts.network.net import Interface, Net
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


@check("net.link", "Link flaps and bonds", tags={"fast"}, without=(Machine,), stage="preview")
def link(net: Net, machine: Machine | None) -> Iterator[Finding]:
    """Bond members that are down while another is up, link changes against peers, and a slow default route.

    Why: a bond with one member has half the bandwidth and no spare; a flapping link kills jobs at random; on
    a cable with a broken pair, checkpoints, data and rendezvous pass at a tenth of the speed.
    Fix disturbs: traffic on that interface.
    Judges: WARN when a link came and went often, a bond runs on fewer legs than it has, or the default route
    of a bare-metal node goes over 100 Mbit/s.
    Fix: Check cable, transceiver and switch port of the named interface.
    Threshold: 20 changes, or 4 times the peers' median: our thresholds, no external source. 100 Mbit/s is
    what a copper cable for 1 Gbit/s falls back to (IEEE 802.3).
    False positives: Reloaded drivers and adapter resets make a handful of changes.
    """
    bonds = [one for one in net.interfaces if one.bond]
    legs = {bond.name: [one for one in net.interfaces if one.master == bond.name] for bond in bonds}
    findings = [finding for name, members in legs.items() for finding in _legs(name, members)]
    real = [one for one in net.interfaces if one.physical and one.up]
    for odd in odd_ones(real, _CARRIER):
        one = odd.device
        said = [reading("net", f'interfaces["{one.name}"].carrier_changes')]
        summary = f"{one.name}: link changed {odd.value} times, others {odd.usual:g}"
        fix = _fix(one.name, "Reseat or replace cable and transceiver; check the switch port.")
        finding = Finding.warn(summary, subject=f"net:{one.name}/link", evidence=said, fix=fix)
        findings.append(finding.matters_as("A flapping link kills jobs at random."))
    slow = [one for one in real if _on_half_a_cable(one, net.default_routes)]
    if machine is not None and machine.form == "bare-metal":
        findings += map(_slow, slow)
    elif machine is None and slow and not findings:
        summary = f"{slow[0].name}: {slow[0].speed_mbps} Mbit/s; whether this is a virtual machine is unknown"
        findings = [Finding.unknown("not-visible-here", summary, subject=f"net:{slow[0].name}/speed")]
    yield from findings
    if findings:
        return
    if not real:
        yield Finding.skip("no physical interface is up here")
    elif not bonds and all(one.carrier_changes is None for one in real):
        yield Finding.unknown("not-visible-here", "link changes were not reported")
    else:
        pairs = f", {count_with_noun(len(bonds), 'bond')} complete" if bonds else ""
        yield Finding.ok(f"{count_with_noun(len(real), 'interface')} up, no link flaps{pairs}")


def _on_half_a_cable(one: Interface, routes: Sequence[str]) -> bool:
    """Whether the node's traffic goes over it, at the speed of a cable with broken pairs."""
    used = one.name in routes or one.master in routes
    return used and one.speed_mbps is not None and 0 < one.speed_mbps <= HALF_CABLE_MBPS


def _slow(one: Interface) -> Finding:
    said = [reading("net", f'interfaces["{one.name}"].speed'), reading("net", "default_routes")]
    summary = f"{one.name}: the default route goes over {one.speed_mbps} Mbit/s"
    fix = _fix(one.name, "Replace the cable; check the speed that the switch port is set to.")
    finding = Finding.warn(summary, subject=f"net:{one.name}/speed", evidence=said, fix=fix)
    return finding.matters_as(
        "On a cable with a broken pair, checkpoints, data and rendezvous pass at a tenth of the speed."
    )


def _legs(bond: str, members: Sequence[Interface]) -> Iterator[Finding]:
    """A bond without any leg up is down as a whole, which whoever needs it tells."""
    down = [one for one in members if not one.up]
    if not down or len(down) == len(members):
        return
    said = [
        reading("net", f'interfaces["{one.name}"].{key}')
        for one in members
        for key in ("operstate", "master")
    ]
    names = ", ".join(one.name for one in down)
    summary = f"{bond}: {len(down)} of {count_with_noun(len(members), 'bond member')} down ({names})"
    fix = _fix(down[0].name, "Check cable, transceiver and switch port of the member that is down.")
    finding = Finding.warn(summary, subject=f"net:{bond}", evidence=said, fix=fix)
    yield finding.matters_as("A bond without one of its members has less bandwidth and may have no spare.")


def _fix(interface: str, text: str) -> Fix:
    steps = (look("ip -details link show {}", interface), look("sudo ethtool {}", interface))
    return Fix(text, steps, "investigate", "traffic on that interface", "nodedoctor net.link")
