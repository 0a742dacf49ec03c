"""Do the links of this node's network interfaces hold, and has no bond lost a leg?"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodedoctor.engine.peers import Attribute, odd_ones
from nodedoctor.engine.registry import check
from nodedoctor.facts.network.net import Interface, Net
from nodedoctor.model import Evidence, Finding, Fix
from nodedoctor.steps import look

FLAPS = 20
"""Times a link came or went from which it flaps: loading a driver and an adapter's reset make a handful."""
PEERS_RATIO = 4.0
"""An interface whose link changed so many times as often as its peers (median) has a fault of its own."""

_CARRIER: tuple[Attribute[Interface], ...] = (
    Attribute("link changes", "growth", lambda one: one.carrier_changes, "high", PEERS_RATIO, FLAPS),
)


@check("net.link", "No link flaps and no bond has lost a leg", tags={"fast"}, stage="preview")
def link(net: Net) -> Iterator[Finding]:
    """Legs of bonds that are down while another one is up, and how often links changed, against peers.

    Why: a bond on one leg has half the bandwidth and no spare; a flapping link ends jobs at random.
    Fix disturbs: what uses that interface.
    Judges: WARN when a link came and went often, or a bond runs on fewer legs than it has.
    Fix: Check cable, transceiver and switch port of the named interface.
    Threshold: 20 changes, or 4 times the peers' median: our thresholds, no external source.
    False positives: Reloaded drivers and adapter resets make a handful of changes.
    """
    bonds = [one for one in net.interfaces if one.bond]
    legs = {bond.name: [one for one in net.interfaces if one.master == bond.name] for bond in bonds}
    findings = [finding for name, members in legs.items() for finding in _legs(name, members)]
    real = [one for one in net.interfaces if one.physical and one.up]
    for odd in odd_ones(real, _CARRIER):
        one = odd.device
        said = [Evidence("net", f"{one.name}: carrier_changes {odd.value}")]
        summary = f"{one.name}: its link changed {odd.value} times; {odd.peers} others: {odd.usual:g}"
        fix = _fix(one.name, "Reseat or replace cable and transceiver; look at the switch port.")
        findings.append(Finding.warn(summary, subject=f"net:{one.name}/link", evidence=said, fix=fix))
    yield from findings
    if findings:
        return
    if not real:
        yield Finding.skip("no interface with a device behind it is up here")
    elif not bonds and all(one.carrier_changes is None for one in real):
        yield Finding.unknown("not-visible-here", "how often links changed was not reported")
    else:
        pairs = f", {len(bonds)} bonds with all legs" if bonds else ""
        yield Finding.ok(f"{len(real)} interfaces up, no link flaps{pairs}")


def _legs(bond: str, members: Sequence[Interface]) -> Iterator[Finding]:
    """A bond without any leg up is down as a whole, which whoever needs it tells."""
    down = [one for one in members if not one.up]
    if not down or len(down) == len(members):
        return
    said = [Evidence("net", f"{one.name}: {'up' if one.up else 'down'}, master {bond}") for one in members]
    names = ", ".join(one.name for one in down)
    summary = f"{bond}: {len(down)} of {len(members)} legs down: {names}"
    fix = _fix(down[0].name, "Look at cable, transceiver and switch port of the leg that is down.")
    yield Finding.warn(summary, subject=f"net:{bond}", evidence=said, fix=fix)


def _fix(interface: str, text: str) -> Fix:
    steps = (look("ip -details link show {}", interface), look("sudo ethtool {}", interface))
    return Fix(text, steps, "investigate", "what uses that interface", "nodedoctor net.link")
