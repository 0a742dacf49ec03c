"""Is every GPU registered with the NVLink fabric, and in good health there?"""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.gpu.board import Board
from nodedoctor.facts.gpu.evidence import identity_evidence, values
from nodedoctor.facts.gpu.gpu import Gpu
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.host.machine import Machine
from nodedoctor.knowledge.fixes.gpu import look_at
from nodedoctor.model import Finding, Fix
from nodedoctor.steps import look

from ..unavailable import all_of, none_shown, not_reported
from .manager import START, registered

SETTLED_SECONDS = 600.0
"""After boot registration takes seconds to a few minutes; NVIDIA's guide tells to wait for `Completed`."""
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
    fabric_gpus = [gpu for gpu in gpus.gpus if gpu.fabric_state not in (None, *_idle_states(board))]
    young = bool(machine and (machine.uptime_seconds or SETTLED_SECONDS) < SETTLED_SECONDS)
    start = _TRAY if _is_of_rack(board) else START
    findings = [finding for gpu in fabric_gpus for finding in _judge_fabric(gpu, gpus.source, young, start)]
    findings += _find_strangers(fabric_gpus, gpus, board)
    yield from findings
    if not fabric_gpus:
        yield _without_fabric(gpus, board)
    elif not findings:
        yield Finding.ok(f"{all_of(fabric_gpus)} registered")


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


_TRAY = Fix(
    "The fabric manager of this rack runs on its switch trays, not here: see the rack's NVLink controller "
    "(NMX) for this tray's links, whether nvidia-imex is up, and the cables.",
    (
        look("nvidia-smi -q | grep -A 12 -E 'Fabric$'"),
        look("systemctl status nvidia-imex"),
        look("nvidia-imex-ctl -N"),
        look("sudo dmesg | grep -iE 'xid|nvlink'"),
    ),
    "investigate",
    "nothing",
    "nodedoctor fabric.state",
    "https://docs.nvidia.com/multi-node-nvlink-systems/imex-guide/",
)
"""What to do on a tray of GB200 or GB300 (knowledge: platforms whose fabric manager is elsewhere)."""


def _is_of_rack(board: Board | None) -> bool:
    platform = board.known_platform if board else None
    return bool(platform and platform.fabric_manager == "elsewhere")


def _judge_fabric(gpu: Gpu, source: str, young: bool, start: Fix) -> Iterator[Finding]:
    evidence = [*values(source, gpu, "fabric_state", "fabric_status"), *identity_evidence(source, gpu)]
    fix = look_at(
        gpu,
        f"{start.text} Check the kernel log for SXid and Xid, then reset all GPUs or reboot.",
        "fabric.state",
        start.steps,
        start.action,
        start.disturbs,
        start.docs,
    )
    if gpu.fabric_state != "completed":
        judge = Finding.warn if young and gpu.fabric_state == "in-progress" else Finding.fail
        since = " shortly after boot" if young else ""
        summary = f"fabric registration {(gpu.fabric_state or '').replace('-', ' ')}{since}"
        yield judge(summary, subject=gpu.subject, evidence=evidence, fix=fix)
    elif gpu.fabric_status not in (None, "SUCCESS"):
        words = gpu.fabric_status.replace("_", " ").lower()
        summary = f"fabric registration failed: {words}"
        yield Finding.fail(summary, subject=gpu.subject, evidence=evidence, fix=fix)
    else:
        yield from _judge_health(gpu, source, fix)


def _judge_health(gpu: Gpu, source: str, fix: Fix) -> Iterator[Finding]:
    """The parts of the health mask (nvml.h, NVML_GPU_FABRIC_HEALTH_MASK) that say something is wrong."""
    health = gpu.fabric_health or {}
    bad = [name for name, words in _BAD_HEALTH.items() if health.get(name) in words]
    wrong = health.get("incorrect_configuration", "none")
    if wrong not in ("none", "false", "not supported"):
        bad.append("incorrect_configuration")
    sick = [name for name, words in _SICK_HEALTH.items() if health.get(name) in words]
    troubles = [f"{name.replace('_', ' ')}: {health[name]}" for name in bad or sick]
    if troubles:
        evidence = values(source, gpu, "fabric_health")
        judge = Finding.fail if bad else Finding.warn
        yield judge(", ".join(troubles), subject=gpu.subject, evidence=evidence, fix=fix)


def _find_strangers(fabric_gpus: list[Gpu], gpus: Gpus, board: Board | None) -> list[Finding]:
    """On multi-node NVLink all GPUs of a tray belong to one clique of one cluster."""
    platform = board.known_platform if board else None
    members = {(gpu.fabric_cluster_uuid, gpu.fabric_clique_id) for gpu in fabric_gpus if registered(gpu)}
    if platform is None or not platform.imex or not members:
        return []
    evidence = [
        quote
        for gpu in fabric_gpus
        for quote in values(gpus.source, gpu, "fabric_cluster_uuid", "fabric_clique_id")
    ]
    if len(members) > 1:
        summary = "the GPUs of this tray are in different NVLink cliques"
        return [Finding.fail(summary, evidence=evidence, fix=_TRAY)]
    if {uuid for uuid, _ in members} == {_ZERO}:
        summary = "no NVLink domain (zero cluster UUID): this tray runs alone"
        return [Finding.info(summary, evidence=evidence)]
    return []
