"""Is the NVLink fabric up: manager running, of the driver's version, GPUs registered, switches there?"""

import re
from collections.abc import Iterator

from nodedoctor.engine.registry import check
from nodedoctor.facts.driver.driver import Driver, module_version
from nodedoctor.facts.driver.packages import DriverPackages
from nodedoctor.facts.driver.services import Service, Services
from nodedoctor.facts.fabric.fabric_manager import FabricManager
from nodedoctor.facts.gpu.board import Board
from nodedoctor.facts.gpu.gpu import Gpu
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.gpu.links.nvlinks import NvLinks
from nodedoctor.facts.gpu.links.p2p import PeerAccess
from nodedoctor.facts.gpu.places import card, values
from nodedoctor.facts.host.container import Container
from nodedoctor.facts.host.machine import Machine
from nodedoctor.facts.host.processes import Processes
from nodedoctor.facts.pci.pci import Pci, said_of
from nodedoctor.knowledge.fixes.gpu import look_at
from nodedoctor.knowledge.fixes.recipes import package_tool
from nodedoctor.model import Evidence, Finding, Fix, Step, reading
from nodedoctor.steps import keep, look, repair
from nodedoctor.wording import counted

from ..unavailable import all_of, none_shown, not_reported

GUIDE = "https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide"
SETTLED_SECONDS = 600.0
"""After boot registration takes seconds to a few minutes; NVIDIA's guide tells to wait for `Completed`."""
_UNIT = "nvidia-fabricmanager"
_PACKAGE = r"nvidia-fabric-?manager(?:-\d+)?"
_ZERO = "00000000-0000-0000-0000-000000000000"
_BAD_HEALTH = {
    "bandwidth": ("degraded",),
    "route_unhealthy": ("true",),
    "gfm_state": ("disconnected",),
    "summary": ("unhealthy",),
}
_SICK_HEALTH = {
    "route_recovery_in_progress": ("true",),
    "access_timeout_recovery": ("true",),
    "summary": ("limited capacity", "limited_capacity", "limited"),
}

_START = Fix(
    "Install the fabric manager in exactly the driver's version, enable and start it; its log shows why it "
    "does not start. Until it runs, every CUDA program on this board fails with error 802 (system not yet "
    "initialized).",
    (
        look("systemctl status nvidia-fabricmanager"),
        look("sudo journalctl -u nvidia-fabricmanager -b | tail -50"),
        repair("sudo systemctl enable --now nvidia-fabricmanager"),
        look("tail -50 /var/log/fabricmanager.log"),
    ),
    "restart-service",
    "every job on the board's GPUs",
    "nodedoctor fabric.manager fabric.state",
    GUIDE,
)


@check(
    "fabric.manager",
    "Fabric manager service",
    tags={"fast", "nvlink", "service"},
    without=(
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
    board: Board,
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
    Judges: FAIL when the board needs a fabric manager and neither its service nor its process runs.
    Fix: Start nvidia-fabricmanager, or install the version of the driver.
    Threshold: NVIDIA's fabric manager guide: which boards need it.
    False positives: A fabric manager in a container of the GPU operator is recognised by its process, not by
    its service.
    Error texts:
    - CUDA error 802: system not yet initialized
    """
    needed = board.fabric
    unit = services.get(_UNIT) if services else None
    well = _works(gpus, links, access)
    running = next(iter(processes.of("fabricmanager")), None) if processes else None
    blind = board.virtual is None or board.nvswitches is None
    if needed is False:
        yield from _not_needed(board, unit)
    elif needed is None and blind and services and not (unit and unit.running) and not well:
        summary = "not running; unknown whether this host must run it"
        yield Finding.unknown("not-visible-here", summary)
    elif needed is None:
        yield Finding.skip("unknown whether it must run here; fabric.state shows whether the fabric works")
    elif running and not (unit and unit.running):
        said = running.said("program")
        yield Finding.ok(f"running outside systemd ({board.platform} needs it)", evidence=said)
    elif services is None or not services.reported(_UNIT):
        if well:
            yield Finding.info(f"service not visible from here; {well}")
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
        if well:
            yield Finding.info(f"{summary}; {well}")
        elif processes is None or processes.left_out or processes.unread:
            summary += "; not visible whether it runs in a driver container"
            yield Finding.unknown("not-visible-here", summary, fix=_START)
        else:
            yield Finding.fail(summary, fix=_START)
    elif not unit.running:
        summary = f"{_UNIT} {unit.state}, {board.platform} needs it"
        yield Finding.fail(summary, evidence=[unit.said], fix=_START)
    else:
        yield Finding.ok(f"{_UNIT} is running ({board.platform} needs it)", evidence=[unit.said])


def _works(gpus: Gpus | None, links: NvLinks | None, access: PeerAccess | None) -> str:
    """What proves that somebody has programmed the switches; empty when nothing does."""
    if gpus and gpus.gpus and all(_registered(gpu) for gpu in gpus.gpus):
        return "all GPUs are registered with the fabric"
    if gpus and any(gpu.fabric_state in ("not-started", "in-progress") for gpu in gpus.gpus):
        return ""
    listed = [gpu.links for gpu in links.gpus] if links else []
    up = bool(listed) and all(rows and all(link.active for link in rows) for rows in listed)
    pairs = [
        status for kind in ("read", "nvlink") for status in (access.told(kind) if access else {}).values()
    ]
    if up and pairs and all(status == "ok" for status in pairs):
        return "all NVLinks are up and all GPUs reach each other"
    return ""


def _not_needed(board: Board, unit: Service | None) -> Iterator[Finding]:
    if unit and unit.active == "failed":
        said = [unit.said]
        yield Finding.info(f"{_UNIT} failed, but this node does not need it", evidence=said)
        return
    platform = board.known_platform
    elsewhere = platform is not None and platform.fabric_manager == "elsewhere"
    where = "it runs in the rack's switch trays" if elsewhere else "no NVSwitch to configure from this host"
    yield Finding.skip(f"{board.model}: {where}")


def _registered(gpu: Gpu) -> bool:
    return gpu.fabric_state == "completed" and gpu.fabric_status == "SUCCESS"


@check(
    "fabric.version",
    "Fabric manager version",
    tags={"nvlink", "service"},
    explained_by=("driver.module-userspace",),
    stage="preview",
)
def version(
    board: Board,
    manager: FabricManager | None,
    driver: Driver | None,
    gpus: Gpus | None,
    packages: DriverPackages | None,
    machine: Machine | None,
) -> Iterator[Finding]:
    """Version of the installed fabric manager against the driver's; both must be equal to the last digit.

    Where the driver was upgraded and its old module is still loaded, the installed driver is what counts.

    Why: a fabric manager of another version does not start; this happens when only one of them is upgraded.
    Fix disturbs: every job on the board's GPUs.
    Judges: FAIL when the fabric manager's version differs from the driver's.
    Fix: Install the fabric manager of the driver's exact version.
    Threshold: The fabric manager refuses other versions (AWS: Get started with EFA and NCCL).
    False positives: None known.
    """
    driving = (driver.version if driver else None) or (gpus.driver_version if gpus else None)
    if board.fabric is False:
        yield Finding.skip(f"{board.model}: no fabric manager needed")
    elif manager is None and board.fabric is None:
        yield Finding.skip("no fabric manager here; unknown whether one is needed")
    elif manager is None:
        fix = Fix(
            "Run on the host, where it is installed.",
            (look("nv-fabricmanager --version", when="you are on the host"),),
            action="none",
        )
        yield Finding.unknown("missing-tool", "fabric manager version not visible here", fix=fix)
    elif not driving:
        yield Finding.unknown("not-visible-here", f"fabric manager {manager.version}, driver version unknown")
    elif manager.version == driving:
        yield Finding.ok(f"fabric manager and driver {driving}")
    elif packages and _drivers(packages) == {manager.version}:
        summary = (
            f"the driver was upgraded to {manager.version} too, reboot pending (driver.module-userspace)"
        )
        yield Finding.skip(summary)
    else:
        said = [*manager.said, _driving(driver, gpus)]
        fix = _same_version(driving, packages, machine)
        yield Finding.fail(f"fabric manager {manager.version}, driver {driving}", evidence=said, fix=fix)


def _driving(driver: Driver | None, gpus: Gpus | None) -> Evidence:
    if driver and driver.version:
        return module_version()
    return reading(gpus.source if gpus else "", "system.values.driver_version", "driver_version")


def _drivers(packages: DriverPackages) -> set[str]:
    """Versions of the installed driver itself, less those of the fabric manager's own packages."""
    listed = [package for package in packages.packages if not package.name.startswith("nvidia-fabric")]
    return {package.driver for package in listed if package.driver}


def _same_version(driving: str, packages: DriverPackages | None, machine: Machine | None) -> Fix:
    """Install what belongs to the driver, with the tool of this distribution.

    The revision behind the driver's version differs between NVIDIA's and Ubuntu's archive (580.159.03-1,
    580.159.03-0ubuntu0.24.04.1), so it is left open. In Debian packages up to 580 the branch is a part of the
    name; NVIDIA's later ones leave it out (driver installation guide, recent updates): the name of the
    installed package shows which it is.
    """
    tool = package_tool(machine.distro_id if machine else None)
    listed = [package.name for package in packages.packages] if packages else []
    installed = next((name for name in listed if re.fullmatch(_PACKAGE, name)), "")
    branch = driving.partition(".")[0]
    steps: list[Step] = []
    if tool == "apt":
        bare = installed and not installed[-1].isdecimal()
        name = _UNIT if bare else f"{_UNIT}-{branch}"
        steps += (look("apt-cache madison {}", name), repair("sudo apt-get install {}", f"{name}={driving}*"))
        steps.append(repair("sudo apt-mark hold {}", name, disturbs="its upgrades, until apt-mark unhold"))
    elif tool:
        steps.append(repair("sudo {} install {}", tool, f"{installed or _UNIT}-{driving}"))
    if tool:
        steps.append(repair("sudo systemctl start nvidia-fabricmanager", when="the versions are equal"))
    return Fix(
        "Install the fabric manager in the driver's version, and hold both packages.",
        tuple(steps),
        "config",
        "every job on the board's GPUs",
        "nodedoctor fabric.version",
        GUIDE,
    )


@check(
    "fabric.state",
    "NVLink fabric registration",
    tags={"fast", "gpu", "nvlink"},
    without=(Machine,),
    explained_by=(
        "driver.answers",
        "driver.gpus-present",
        "nvlink.links",
        "fabric.manager@node",
        "fabric.guest@node",
    ),
)
def state(gpus: Gpus, board: Board | None, machine: Machine | None) -> Iterator[Finding]:
    """Fabric state, status and health of each GPU (Hopper and newer): completed counts only with success.

    A zero cluster UUID is normal on HGX; only multi-node NVLink (GB200, GB300) has one.
    Why: until registration is complete CUDA fails with error 802 on that GPU.
    Fix disturbs: every job on the board's GPUs.
    Judges: FAIL when a GPU is not registered with the fabric or its health is bad; WARN within ten minutes of
    boot and for lesser signs.
    Fix: Check the fabric manager, then reset the GPU.
    Threshold: NVIDIA's guide: wait for Completed with status Success; 600 s of patience are our threshold.
    False positives: A node that booted a moment ago.
    Error texts:
    - CUDA error 802: system not yet initialized
    """
    if not gpus.gpus:
        yield none_shown(gpus)
        return
    told = [gpu for gpu in gpus.gpus if gpu.fabric_state not in (None, *_idle_states(board))]
    young = bool(machine and (machine.uptime_seconds or SETTLED_SECONDS) < SETTLED_SECONDS)
    findings = [finding for gpu in told for finding in _fabric(gpu, gpus.source, young)]
    findings += _strangers(told, gpus, board)
    yield from findings
    if not told:
        yield _without_fabric(gpus, board)
    elif not findings:
        yield Finding.ok(f"{all_of(told)} registered")


def _idle_states(board: Board | None) -> tuple[str, ...]:
    """States that say that there is nothing to register with: a card with bridges may also never start."""
    platform = board.known_platform if board else None
    switched = board is None or not board.model or (platform is not None and platform.fabric_state)
    return ("not-supported",) if switched else ("not-supported", "not-started")


def _without_fabric(gpus: Gpus, board: Board | None) -> Finding:
    unsaid = [gpu for gpu in gpus.gpus if gpu.fabric_state is None]
    platform = board.known_platform if board else None
    if platform and platform.fabric_state and unsaid:
        return not_reported("fabric state", unsaid, "fabric_state")
    return Finding.skip("these GPUs have no NVLink fabric")


def _fabric(gpu: Gpu, source: str, young: bool) -> Iterator[Finding]:
    said = [
        *values(source, gpu, "fabric_state", "fabric_status"),
        *card(source, gpu),
    ]
    fix = look_at(
        gpu,
        f"{_START.text} Check the kernel log for SXid and Xid, then reset all GPUs or reboot.",
        "fabric.state",
        _START.steps,
        "restart-service",
        _START.disturbs,
        GUIDE,
    )
    if gpu.fabric_state != "completed":
        judge = Finding.warn if young and gpu.fabric_state == "in-progress" else Finding.fail
        since = " shortly after boot" if young else ""
        summary = f"fabric registration {(gpu.fabric_state or '').replace('-', ' ')}{since}"
        yield judge(summary, subject=gpu.subject, evidence=said, fix=fix)
    elif gpu.fabric_status not in (None, "SUCCESS"):
        words = gpu.fabric_status.replace("_", " ").lower()
        summary = f"fabric registration failed: {words}"
        yield Finding.fail(summary, subject=gpu.subject, evidence=said, fix=fix)
    else:
        yield from _health(gpu, source, fix)


def _health(gpu: Gpu, source: str, fix: Fix) -> Iterator[Finding]:
    """The parts of the health mask (nvml.h, NVML_GPU_FABRIC_HEALTH_MASK) that say something is wrong."""
    health = gpu.fabric_health or {}
    bad = [name for name, words in _BAD_HEALTH.items() if health.get(name) in words]
    wrong = health.get("incorrect_configuration", "none")
    if wrong not in ("none", "false", "not supported"):
        bad.append("incorrect_configuration")
    sick = [name for name, words in _SICK_HEALTH.items() if health.get(name) in words]
    told = [f"{name.replace('_', ' ')}: {health[name]}" for name in bad or sick]
    if told:
        said = values(source, gpu, "fabric_health")
        judge = Finding.fail if bad else Finding.warn
        yield judge(", ".join(told), subject=gpu.subject, evidence=said, fix=fix)


def _strangers(told: list[Gpu], gpus: Gpus, board: Board | None) -> list[Finding]:
    """On multi-node NVLink all GPUs of a tray belong to one clique of one cluster."""
    platform = board.known_platform if board else None
    members = {(gpu.fabric_cluster_uuid, gpu.fabric_clique_id) for gpu in told if _registered(gpu)}
    if platform is None or not platform.imex or not members:
        return []
    said = [
        one for gpu in told for one in values(gpus.source, gpu, "fabric_cluster_uuid", "fabric_clique_id")
    ]
    if len(members) > 1:
        summary = "the GPUs of this tray are in different NVLink cliques"
        return [Finding.fail(summary, evidence=said, fix=_START)]
    if {uuid for uuid, _ in members} == {_ZERO}:
        summary = "no NVLink domain (zero cluster UUID): this tray runs alone"
        return [Finding.info(summary, evidence=said)]
    return []


@check(
    "fabric.nvswitch",
    "NVSwitches present",
    tags={"fast", "nvlink", "pcie"},
    stage="preview",
)
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
        said = said_of(switch, "config", "device")
        summary = f"NVSwitch {switch.address} has fallen off the bus"
        yield Finding.fail(summary, subject=f"pci:{switch.address}", evidence=said, fix=fix)
    if platform is None or not platform.switches_on_host_bus:
        if not dead:
            yield Finding.skip(f"{board.model or 'this node'}: no NVSwitch on the host's bus")
    elif not switches or board.virtual is not False:
        if not dead:
            yield Finding.skip(
                f"{counted(len(switches), 'NVSwitch')} visible here; only the host knows the right number"
            )
    elif len(switches) < platform.nvswitches:
        said = [one for switch in switches for one in said_of(switch, "device")]
        summary = f"{len(switches)} of {platform.nvswitches} NVSwitches on the bus of a {platform.name}"
        yield Finding.fail(summary, evidence=said, fix=fix)
    elif not dead:
        yield Finding.ok(f"{counted(len(switches), 'NVSwitch')}, as on every {platform.name}")
