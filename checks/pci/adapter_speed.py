"""Is the PCIe link of each adapter in a pasted `lspci -vv` as fast as those of its kind?"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.pci.lspci import Lspci
from nodedoctor.facts.pci.pci import PciDevice
from nodedoctor.model import Finding, Fix, quoted_like
from nodedoctor.wording import count_with_noun

from .pcie import link_steps

_RESEAT = "Reboot; if the link is still slow, reseat card, riser or cable, and check the slot's BIOS setting."


@check(
    "pcie.adapter-speed",
    "PCIe speed of pasted adapters",
    tags={"pcie", "ib"},
    without=(Lspci,),
    stage="preview",
)
def adapter_speed(lspci: Lspci | None) -> Iterator[Finding]:
    """PCIe speed of each network adapter in a pasted `lspci -vv`, against its own maximum and its kind.

    Why: an adapter at half its speed carries half of what its port can, and all ranks wait for it.
    Fix disturbs: every job on the node while a card is reseated.
    Judges: WARN when an adapter's link is slower than it can be, and most of at least three alike are faster.
    Fix: Reboot, then reseat the card or its riser.
    Threshold: Its own maximum and the peers; what lspci marks as downgraded is less than the maximum.
    False positives: Slots of different generations. GPUs lower their speed while idle and are left out.
    """
    if lspci is None:
        yield Finding.skip("no output of lspci was given")
        return
    nics = [device for device in lspci.devices if device.is_nic and device.link and device.link.speed_gts]
    slow = [nic for nic in nics if _is_slow(nic) and _faster_twins(nic, nics) >= 2]
    for nic in slow:
        link, peers = nic.link, _faster_twins(nic, nics)
        short = re.escape(nic.address.removeprefix("0000:"))
        line = quoted_like("lspci", rf"{short} .*(?:\n[ \t].*)*?\n[ \t]+(LnkSta:.*)")
        speeds = f"{link.speed_gts:g} of {link.max_speed_gts:g}" if link else ""
        yield Finding.warn(
            f"{nic.address}: PCIe link at {speeds} GT/s, {count_with_noun(peers, 'peer')} faster",
            subject=f"pci:{nic.address}",
            evidence=[line],
            fix=Fix(
                _RESEAT,
                link_steps(nic.address),
                "drain",
                "every job on this node",
                "nodedoctor nic.inventory",
            ),
        )
    if not nics:
        yield Finding.skip("no link of a network adapter is shown")
    elif not slow:
        yield Finding.ok(f"no link of {count_with_noun(len(nics), 'adapter')} slower than its kind")


def _is_slow(nic: PciDevice) -> bool:
    return nic.link is not None and (nic.link.speed_gts or 0) < (nic.link.max_speed_gts or 0)


def _faster_twins(nic: PciDevice, nics: list[PciDevice]) -> int:
    """How many of its kind are faster; 0 where these are not most of them."""
    twins = [twin.link for twin in nics if twin is not nic and twin.pci_id == nic.pci_id and twin.link]
    faster = sum((twin.speed_gts or 0) > (nic.link.speed_gts or 0) for twin in twins) if nic.link else 0
    return faster if faster * 2 > len(twins) + 1 else 0
