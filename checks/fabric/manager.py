"""Does the fabric manager run where this board needs it?"""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.driver.services import Service, Services
from nodedoctor.facts.gpu.board import Board
from nodedoctor.facts.gpu.gpu import Gpu
from nodedoctor.facts.gpu.gpu_list import ListedNames
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.gpu.links.nvlinks import NvLinks
from nodedoctor.facts.gpu.links.p2p import PeerAccess
from nodedoctor.facts.host.container import Container
from nodedoctor.facts.host.processes import Processes
from nodedoctor.knowledge.fixes.recipes import START_FABRIC
from nodedoctor.knowledge.gpus import are_cards
from nodedoctor.model import Finding, Fix
from nodedoctor.steps import look

GUIDE = "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide"
"""NVIDIA's guide, which the fixes of all rooms of the fabric point to."""
_UNIT = "nvidia-fabricmanager"

START = Fix(
    "Install the fabric manager in exactly the driver's version, enable and start it; its log shows why it "
    "does not start. Until it runs, every CUDA program on this board fails with error 802 (system not yet "
    "initialized).",
    (
        look("systemctl status nvidia-fabricmanager"),
        look("sudo journalctl -u nvidia-fabricmanager -b | tail -50"),
        START_FABRIC,
        look("tail -50 /var/log/fabricmanager.log"),
    ),
    "restart-service",
    "every job on the board's GPUs",
    "nodedoctor fabric.manager fabric.state",
    GUIDE,
)
"""What brings the fabric up, whichever check sees that it is down."""


@check(
    "fabric.manager",
    "Fabric manager service",
    tags={"fast", "nvlink", "service"},
    without=(
        Board,  # in a paste of its status alone
        ListedNames,
        Services,  # a process that runs, or a fabric that works, says enough
        Gpus,
        Container,
        Processes,
        NvLinks,
        PeerAccess,
    ),
    explained_by=("driver.modules", "driver.module-userspace"),
    stage="preview",
)
def manager(
    board: Board | None,
    gpu_list: ListedNames | None,
    services: Services | None,
    gpus: Gpus | None,
    container: Container | None,
    processes: Processes | None,
    links: NvLinks | None,
    access: PeerAccess | None,
) -> Iterator[Finding]:
    """The service nvidia-fabricmanager, on boards whose NVSwitches this host must configure.

    It may also run as a child of the GPU operator's driver container (NVIDIA/NVSentinel, issue 883): then its
    process, or a working fabric, counts instead of the unit.

    HGX and DGX with NVSwitch need it (also B200, whose switches are not on the host's bus); Grace trays,
    cards with bridges and plain PCIe do not; in a virtual machine it may run on the host.
    Why: without it NVLink stays down and CUDA fails with error 802.
    Fix disturbs: every job on the board's GPUs.
    Judges: FAIL when the board needs a fabric manager and neither its service nor its process runs; WARN when
    the service has failed and nothing shows whether the board needs it.
    Fix: Start nvidia-fabricmanager, or install the version of the driver.
    Threshold: NVIDIA's fabric manager guide: which boards need it.
    False positives: A fabric manager in a container of the GPU operator is recognised by its process, not by
    its service.
    Error texts:
    - CUDA error 802: system not yet initialized
    """
    needed = board.fabric if board else None
    unit = services.get(_UNIT) if services else None
    works = proof_of_fabric(gpus, links, access)
    running = next(iter(processes.of("fabricmanager")), None) if processes else None
    blind = board is None or board.virtual is None or board.nvswitches is None
    if board and needed is False:
        yield from _not_needed(board, unit)
    elif board is None and unit and gpu_list and are_cards(gpu_list.names):
        name = min(gpu_list.names)
        yield Finding.info(f"{_UNIT} {unit.state}; {name} has no NVSwitch", evidence=[unit.said])
    elif board is None and unit and unit.active == "failed" and not works:
        yield Finding.warn(
            f"{_UNIT} has failed; boards with NVSwitches need it", evidence=[unit.said], fix=START
        )
    elif needed is None and blind and services and not (unit and unit.running) and not works:
        summary = "not running; unknown whether this host must run it"
        yield Finding.unknown("not-visible-here", summary)
    elif board is None:
        yield Finding.unknown(
            "not-visible-here", "the board is not known, nor that it needs a fabric manager"
        )
    elif needed is None:
        yield Finding.skip("unknown whether it must run here; fabric.state shows whether the fabric works")
    elif running and not (unit and unit.running):
        evidence = running.said("program")
        yield Finding.ok(f"running outside systemd ({board.platform} needs it)", evidence=evidence)
    elif services is None or not services.reported(_UNIT):
        if works:
            yield Finding.info(f"service not visible from here; {works}")
        else:
            inside = " inside the container" if container and container.inside else ""
            fix = Fix(
                "Run on the host.",
                (look("systemctl status nvidia-fabricmanager", when="you are on the host"),),
                action="none",
            )
            yield Finding.unknown("not-visible-here", f"services not visible{inside}", fix=fix)
    elif unit is None:
        summary = f"{board.platform} needs the fabric manager, {_UNIT} is not installed"
        if works:
            yield Finding.info(f"{summary}; {works}")
        elif processes is None or processes.left_out or processes.unread:
            summary += "; not visible whether it runs in a driver container"
            yield Finding.unknown("not-visible-here", summary, fix=START)
        else:
            yield Finding.fail(summary, fix=START)
    elif not unit.running:
        summary = f"{_UNIT} {unit.state}, {board.platform} needs it"
        yield Finding.fail(summary, evidence=[unit.said], fix=START)
    else:
        yield Finding.ok(f"{_UNIT} is running ({board.platform} needs it)", evidence=[unit.said])


def proof_of_fabric(gpus: Gpus | None, links: NvLinks | None, access: PeerAccess | None) -> str:
    """What proves that somebody has programmed the switches; empty when nothing does.

    Where GPUs register, that decides. Links alone prove nothing: Hopper's and newer ones train by themselves.
    """
    shown = gpus.gpus if gpus else ()
    if shown and all(registered(gpu) for gpu in shown):
        return "all GPUs are registered with the fabric"
    if any(gpu.fabric_state not in (None, "not-supported") and not registered(gpu) for gpu in shown):
        return ""
    links_per_gpu = [gpu.links for gpu in links.gpus] if links else []
    up = bool(links_per_gpu) and all(rows and all(link.active for link in rows) for rows in links_per_gpu)
    pairs = [
        status for kind in ("read", "nvlink") for status in (access.told(kind) if access else {}).values()
    ]
    if up and pairs and all(status == "ok" for status in pairs):
        return "all NVLinks are up and all GPUs reach each other"
    return ""


def _not_needed(board: Board, unit: Service | None) -> Iterator[Finding]:
    if unit and unit.active == "failed":
        evidence = [unit.said]
        yield Finding.info(f"{_UNIT} failed, but this node does not need it", evidence=evidence)
        return
    platform = board.known_platform
    elsewhere = platform is not None and platform.fabric_manager == "elsewhere"
    where = "it runs in the rack's switch trays" if elsewhere else "no NVSwitch to configure from this host"
    yield Finding.skip(f"{board.model}: {where}")


def registered(gpu: Gpu) -> bool:
    """Whether a GPU is registered with the NVLink fabric: completed counts only with success."""
    return gpu.fabric_state == "completed" and gpu.fabric_status == "SUCCESS"
