"""Can this host reach NVSwitches that are behind InfiniBand bridges, and does their manager run?"""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.fabric.fabric_nodes import MANAGEMENT, FabricNodes
from nodedoctor.facts.gpu.board import Board
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.host.container import Container
from nodedoctor.facts.host.processes import Processes
from nodedoctor.model import Finding, Fix, reading
from nodedoctor.steps import look, repair

from .manager import GUIDE

_MODULE = Fix(
    "Load ib_umad, now and at every boot; then start the fabric manager.",
    (
        repair("sudo modprobe ib_umad"),
        repair("echo ib_umad | sudo tee /etc/modules-load.d/nvidia-fabricmanager.conf"),
        repair("sudo systemctl start nvidia-fabricmanager"),
    ),
    "config",
    "nothing",
    "nodedoctor fabric",
    GUIDE,
)
_MANAGER = Fix(
    "Install nvlsm of the driver's version beside the fabric manager, whose start script starts it.",
    (look("sudo journalctl -u nvidia-fabricmanager -b | tail -50"), look("ls /opt/nvidia/nvlsm/sbin")),
    "restart-service",
    "every job on the board's GPUs",
    "nodedoctor fabric",
    GUIDE,
)


@check(
    "fabric.nvlsm",
    "NVLink subnet manager",
    tags={"fast", "nvlink", "service"},
    stage="preview",
    without=(Gpus, Container, FabricNodes, Processes),
)
def nvlsm(
    board: Board,
    nodes: FabricNodes | None,
    processes: Processes | None,
    gpus: Gpus | None,
    container: Container | None,
) -> Iterator[Finding]:
    """The kernel's ib_umad and the process nvlsm on HGX B200 and B300, whose switches the host's bus lacks.

    The fabric manager's start script needs both there (fabric manager guide, fourth-generation NVSwitches;
    siderolabs/extensions pull request 717, spectrocloud/CanvOS pull request 700).
    Why: without them the fabric manager does not start, and every CUDA program fails with error 802.
    Fix disturbs: every job on the board's GPUs.
    Judges: WARN when GPUs are not registered and ib_umad is not in the kernel, or no process nvlsm runs.
    Fix: Load ib_umad at boot, install nvlsm beside the fabric manager, and start the fabric manager.
    Threshold: No threshold: what the fabric manager's start script asks for.
    False positives: Boards whose switches another host manages; there nothing is judged.
    """
    platform = board.known_platform
    if platform is None or platform.fabric_manager != "needed" or platform.switches_on_host_bus:
        yield Finding.skip("no NVSwitches behind InfiniBand bridges here")
    elif board.virtual or (container and container.inside):
        yield Finding.skip("they are managed by the host")
    elif gpus and gpus.gpus and all(gpu.fabric_state == "completed" for gpu in gpus.gpus):
        yield Finding.ok("all GPUs are registered with the fabric, so it has done its work")
    elif board.virtual is None:
        yield Finding.unknown("not-visible-here", "whether this is the host that manages them is not known")
    elif nodes and nodes.management is False:
        evidence = [reading("machine", f'errors["{MANAGEMENT}"]')]
        summary = "ib_umad is not loaded: the fabric manager cannot reach the NVSwitches"
        yield Finding.warn(summary, subject="module:ib_umad", evidence=evidence, fix=_MODULE)
    elif gpus is None or not any(gpu.fabric_state for gpu in gpus.gpus):
        yield Finding.unknown("not-visible-here", "whether the GPUs are registered cannot be seen here")
    elif processes is None or processes.left_out or processes.unread:
        yield Finding.unknown("not-visible-here", "whether nvlsm runs cannot be seen here")
    elif running := next(iter(processes.of("nvlsm")), None):
        yield Finding.ok("nvlsm runs", evidence=running.said("program"))
    else:
        yield Finding.warn("nvlsm does not run, and not all GPUs are registered", fix=_MANAGER)
