"""Does a virtual machine that was given NVSwitches run the fabric manager for them?"""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.driver.services import Services
from nodedoctor.facts.gpu.board import Board
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.gpu.links.nvlinks import NvLinks
from nodedoctor.facts.gpu.links.p2p import PeerAccess
from nodedoctor.knowledge.fixes.recipes import START_FABRIC
from nodedoctor.model import Finding, Fix
from nodedoctor.steps import look
from nodedoctor.wording import count_with_noun

from .manager import GUIDE, proof_of_fabric

_UNIT = "nvidia-fabricmanager"


@check(
    "fabric.guest",
    "Fabric manager in a virtual machine",
    tags={"fast", "nvlink", "service"},
    without=(Gpus, NvLinks, PeerAccess),
    stage="preview",
)
def guest(
    board: Board,
    services: Services | None,
    gpus: Gpus | None,
    links: NvLinks | None,
    access: PeerAccess | None,
) -> Iterator[Finding]:
    """The service nvidia-fabricmanager in a virtual machine with NVSwitches on its own PCI bus.

    With full passthrough the guest configures the switches (fabric manager guide); otherwise the host does,
    and the guest sees none.
    Why: without it NVLink stays down and CUDA fails with error 802.
    Fix disturbs: every job on the board's GPUs.
    Judges: WARN when a virtual machine has NVSwitches and no running fabric manager.
    Fix: Install and start the fabric manager of the driver's version in the virtual machine.
    Threshold: NVIDIA's fabric manager guide, full passthrough.
    False positives: A hypervisor that programs the switches although the guest sees them.
    Error texts:
    - CUDA error 802: system not yet initialized
    """
    platform = board.known_platform
    switched = platform is not None and platform.switches_on_host_bus
    if board.virtual is not False and switched and board.nvswitches is None:
        yield Finding.unknown("not-visible-here", "PCI bus not visible: unknown whether there are NVSwitches")
        return
    if board.virtual is None and board.nvswitches:
        yield Finding.unknown("not-visible-here", "unknown whether this is a virtual machine")
        return
    if not board.virtual or not board.nvswitches:
        yield Finding.skip("not a virtual machine with its own NVSwitches")
        return
    unit = services.get(_UNIT) if services else None
    if services is None or not services.reported(_UNIT):
        yield Finding.unknown("not-visible-here", "services not visible from here")
    elif unit is not None and unit.running:
        summary = f"{_UNIT} is running for {count_with_noun(board.nvswitches, 'NVSwitch')}"
        yield Finding.ok(summary, evidence=[unit.said])
    else:
        state = unit.state if unit else "is not installed"
        evidence = [unit.said] if unit else []
        summary = (
            f"{count_with_noun(board.nvswitches, 'NVSwitch')} on this virtual machine's bus, but "
            f"{_UNIT} {state}"
        )
        if works := proof_of_fabric(gpus, links, access):
            yield Finding.info(f"{summary}; {works}", evidence=evidence)
        else:
            yield Finding.warn(summary, evidence=evidence, fix=_start_service(unit is None))


def _start_service(absent: bool) -> Fix:
    text = (
        "Install the fabric manager in exactly the driver's version, then start it."
        if absent
        else "Start the service; its log shows why it failed."
    )
    steps = (
        look("systemctl status nvidia-fabricmanager"),
        look("sudo journalctl -u nvidia-fabricmanager -b | tail -50"),
        *(() if absent else (START_FABRIC,)),
    )
    return Fix(
        text, steps, "restart-service", "every job on the board's GPUs", "nodedoctor fabric.guest", GUIDE
    )
