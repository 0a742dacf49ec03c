"""Are all NVSwitches of this board on the PCI bus?"""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.gpu.board import Board
from nodedoctor.facts.pci.pci import Pci, device_evidence
from nodedoctor.model import Finding, Fix, Unseen
from nodedoctor.steps import keep, look
from nodedoctor.wording import count_with_noun

from .manager import GUIDE


@check("fabric.nvswitch", "NVSwitches present", tags={"fast", "nvlink", "pcie"}, stage="preview")
def nvswitch(pci: Pci, board: Board) -> Iterator[Finding]:
    """The number of NVSwitches on the host's PCI bus against the board's, and whether each one responds.

    Why: with a switch missing the fabric manager does not start, or all GPUs lose some of their NVLinks.
    Fix disturbs: every job on the node (power cycle).
    Judges: FAIL when an NVSwitch is missing from the PCI bus or does not answer.
    Fix: Power cycle the node; if the switch stays away, request a replacement.
    Threshold: Number of switches per board in the gpus table.
    False positives: B200 and newer boards have no switches on the host's bus and are left out.
    """
    switches = pci.nvswitches
    platform = board.known_platform
    fix = Fix(
        "Drain and power-cycle the node; if the switch is still missing, request a replacement of the board.",
        (
            look("lspci -d 10de: | grep -i bridge"),
            look("sudo dmesg | grep -iE 'sxid|nvswitch'"),
            keep("sudo nvidia-bug-report.sh"),
        ),
        "drain",
        "every job on this node",
        "nodedoctor fabric.nvswitch",
        GUIDE,
    )
    dead = [switch for switch in switches if switch.off_bus]
    for switch in dead:
        evidence = device_evidence(switch, "config", "device")
        summary = f"NVSwitch {switch.address} has fallen off the bus"
        yield Finding.fail(summary, subject=f"pci:{switch.address}", evidence=evidence, fix=fix)
    if platform is None or not platform.switches_on_host_bus:
        if not dead:
            yield Finding.skip(f"{board.model or 'this node'}: no NVSwitch on the host's bus")
    elif not switches or board.virtual is not False:
        if not dead:
            yield Finding.skip(
                f"{count_with_noun(len(switches), 'NVSwitch')} visible here; only the host knows "
                "the right number"
            )
    elif isinstance(missing := pci.missing(len(switches), platform.nvswitches), Unseen):
        yield Finding.unseen(missing)
    elif missing:
        evidence = [quote for switch in switches for quote in device_evidence(switch, "device")]
        summary = f"{len(switches)} of {platform.nvswitches} NVSwitches on the bus of a {platform.name}"
        yield Finding.fail(summary, evidence=evidence, fix=fix)
    elif not dead:
        yield Finding.ok(f"{count_with_noun(len(switches), 'NVSwitch')}, as on every {platform.name}")
