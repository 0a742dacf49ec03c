"""Are the GPUs in a mode that fits training: persistence, MIG, compute mode, and no reset outstanding?"""

from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.driver.services import Service, Services
from nodedoctor.facts.gpu.evidence import values
from nodedoctor.facts.gpu.gpu import Gpu
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.gpu.smi.smi import Q
from nodedoctor.facts.host.container import Container
from nodedoctor.facts.host.machine import Machine
from nodedoctor.knowledge.fixes.gpu import recovery_fix
from nodedoctor.knowledge.fixes.recipes import gpu_reset
from nodedoctor.knowledge.gpus import gpu_model
from nodedoctor.model import Finding, Fix, Reason
from nodedoctor.steps import look, repair
from nodedoctor.wording import clause, count_with_noun, numbered, singular_or_plural

from ..unavailable import all_of

_MIG_GUIDE = "https://docs.nvidia.com/datacenter/tesla/mig-user-guide/"
BOARD = 4
"""GPUs from which the only one with MIG was more likely left over than chosen; ours."""
_UNSUPPORTED = frozenset({"NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "ARGUMENT_VERSION_MISMATCH", "NOT_ASKED"})
"""Errors that say that GPU or driver do not know the question."""

_LICENCE = Fix(
    "Give this guest its licence: the client token in place, the licence server reachable, and the licence "
    "service running. No hardware is at fault.",
    (
        look("nvidia-smi -q | grep -A 3 -i 'licensed product'"),
        look("ls -l /etc/nvidia/ClientConfigToken"),
        look("systemctl status nvidia-gridd"),
        repair("sudo systemctl restart nvidia-gridd"),
    ),
    "restart-service",
    "nothing",
    "nodedoctor driver.mode",
    "https://docs.nvidia.com/vgpu/latest/grid-licensing-user-guide/",
)

_PERSIST = Fix(
    "Run the persistence daemon with persistence mode on. Without it the driver shuts GPUs down when the "
    "last program exits, and every start takes seconds per GPU and may hit initialisation errors.",
    (repair("sudo systemctl enable --now nvidia-persistenced"), repair("sudo nvidia-smi -pm 1")),
    action="config",
    disturbs="nothing",
    verify="nodedoctor driver.persistence",
    docs="https://docs.nvidia.com/deploy/driver-persistence/",
)


@check("driver.persistence", "Persistence mode", tags={"fast"}, without=(Machine, Services, Container))
def persistence(
    gpus: Gpus, machine: Machine | None, services: Services | None, container: Container | None
) -> Iterator[Finding]:
    """Persistence mode of each GPU, and the daemon that keeps it on.

    Why: without it GPUs are initialised for every job: slow starts, lost settings, errors at start.
    Fix disturbs: nothing.
    Judges: WARN when persistence is off on a data-centre node with several GPUs whose daemon is down, or on
    some of its GPUs only, else a note.
    Fix: Start nvidia-persistenced, which keeps it on over reboots.
    Threshold: Azure/azurehpc-health-checks, azure_gpu_persistence.nhc.
    False positives: Workstations and single GPUs need none; there it is only noted.
    """
    readable = [gpu for gpu in gpus.gpus if gpu.persistence_mode is not None]
    off = [gpu for gpu in readable if not gpu.persistence_mode]
    daemon = services.get("nvidia-persistenced") if services else None
    if not gpus.gpus:
        yield _no_gpus(gpus)
    elif not readable:
        yield _judge_unread("persistence mode", [gpu.errors.get("persistence_mode") for gpu in gpus.gpus])
    elif not off:
        yield _all_as_expected(gpus, f"persistence mode is on for {all_of(readable)}")
    else:
        evidence = [quote for gpu in off for quote in values(gpus.source, gpu, "persistence_mode")]
        evidence += [daemon.said] if daemon else []
        summary = f"persistence mode is off for {_which_gpus(off, readable)}"
        inside = bool(container and container.inside)
        is_odd = len(off) < len(readable)
        if is_odd or (_startup_matters(gpus.gpus, machine, daemon) and not inside):
            yield Finding.warn(summary, evidence=evidence, fix=_PERSIST)
        else:
            yield Finding.info(summary, evidence=evidence, fix=_PERSIST)


def _startup_matters(gpus: tuple[Gpu, ...], machine: Machine | None, daemon: Service | None) -> bool:
    """Several data-centre GPUs on bare metal, or where a daemon is shown that is down: each start is slow."""
    models = [gpu_model(gpu.name, gpu.pci_device_id or "") for gpu in gpus if gpu.name]
    datacentre = any(model and model.datacentre for model in models)
    may_be_bare = machine.form == "bare-metal" if machine else daemon is not None
    return len(gpus) > 1 and datacentre and may_be_bare and not (daemon and daemon.running)


@check(
    "driver.recovery-action",
    "Pending GPU reset or reboot",
    tags={"fast"},
    explained_by=("driver.answers", "memory.remap", "memory.ecc", "nvlink.links"),
)
def recovery_action(gpus: Gpus) -> Iterator[Finding]:
    """The recovery action the driver requests for each GPU (driver 570 and newer; before, the reset status).

    Why: a GPU that needs a reset fails the next job on it, however healthy its sensors look.
    Fix disturbs: processes on the GPU, or the node.
    Judges: FAIL when the driver itself asks for a reset, reboot, drain or power cycle.
    Fix: Do what the recovery action names, once no job is running.
    Threshold: NVML's GPU recovery action (driver 570 and newer).
    False positives: None known.
    """
    wanting = [(gpu, action) for gpu in gpus.gpus if (action := _wanted_reset(gpu))]
    silent = [gpu for gpu in gpus.gpus if gpu.recovery_action is None and gpu.reset_required is None]
    for gpu, action in wanting:
        fix = recovery_fix(action, gpu.index)
        names = ("recovery_action", "reset_required", "drain_and_reset_recommended", "bus_id")
        fields = (name for name in names if getattr(gpu, name) not in (None, False))
        evidence = values(gpus.source, gpu, *fields)
        summary = f"the driver requests a recovery action: {action.replace('-', ' ')}"
        yield Finding.fail(summary, subject=gpu.subject, evidence=evidence, fix=fix)
    if not gpus.gpus:
        yield _no_gpus(gpus)
    elif len(silent) == len(gpus.gpus):
        yield _judge_unread("a recovery action", [gpu.errors.get("recovery_action") for gpu in silent])
    elif not wanting:
        yield _all_as_expected(gpus, f"no recovery action requested for {all_of(gpus.gpus)}")


def _wanted_reset(gpu: Gpu) -> str | None:
    if gpu.recovery_action not in (None, "none"):
        return gpu.recovery_action
    if gpu.reset_required:
        return "gpu-reset"
    return "drain-and-reset" if gpu.drain_and_reset_recommended else None


@check("driver.mode", "GPU modes (MIG, compute, confidential)", tags={"fast"})
def mode(gpus: Gpus) -> Iterator[Finding]:
    """MIG, compute mode, confidential computing and virtualisation of each GPU.

    Why: MIG disables NVLink and P2P, exclusive mode rejects a second process, both without a clear error.
    Fix disturbs: processes on the GPU whose mode is changed.
    Judges: FAIL when compute mode forbids every CUDA program, WARN for exclusive mode, for MIG on some GPUs
    without an instance, or on one of four or more where instances are not shown, and for a virtual GPU
    without a licence, which after a day refuses CUDA.
    Fix: Set the mode of all GPUs alike with `nvidia-smi -c 0`.
    Threshold: nvidia-smi(1): what the modes forbid.
    False positives: MIG with instances, on every GPU or on some, is a choice and only noted.
    Error texts:
    - all CUDA-capable devices are busy or unavailable
    """
    if not gpus.gpus:
        yield _no_gpus(gpus)
        return
    findings = [*_judge_mig(gpus), *_judge_compute(gpus), *_note_special(gpus)]
    yield from findings
    shown = [gpu for gpu in gpus.gpus if gpu.compute_mode is not None or gpu.mig_mode is not None]
    if findings:
        return
    if shown:
        yield _all_as_expected(gpus, f"default mode on {all_of(shown)}")
    else:
        yield _judge_unread("a mode", [gpu.errors.get("compute_mode") for gpu in gpus.gpus])


def _judge_mig(gpus: Gpus) -> Iterator[Finding]:
    on = [gpu for gpu in gpus.gpus if gpu.mig_mode]
    pending = [gpu for gpu in gpus.gpus if None not in (gpu.mig_mode, gpu.mig_mode_pending)]
    for gpu in pending:
        if gpu.mig_mode != gpu.mig_mode_pending:
            becomes = "on" if gpu.mig_mode_pending else "off"
            fix = Fix(
                "Reset the GPU when it is idle.", gpu_reset(gpu.handle), "reset-gpu", "processes on this GPU"
            )
            yield Finding.info(f"MIG will be {becomes} after a reset", subject=gpu.subject, fix=fix)
    empty = [gpu for gpu in on if not gpu.mig_devices]
    of_query = [gpu for gpu in empty if gpu.sources.get("mig_devices", gpus.source) == Q]
    bare = [gpu for gpu in empty if gpu.mig_devices == 0 and gpu not in of_query]
    if bare and len(on) < len(gpus.gpus):
        yield from (_without_instance(gpu, gpus.source) for gpu in bare)
    elif len(on) == 1 and of_query and len(gpus.gpus) >= BOARD:
        yield _without_instance(on[0], gpus.source, lists_instances=False)
    elif len(on) == len(gpus.gpus):
        slices = sum(gpu.mig_devices or 0 for gpu in on)
        shown = f" ({count_with_noun(slices, 'device')})" if slices or bare else ""
        yield Finding.info(f"MIG is on everywhere{shown}: no P2P, no NVLink between them")
    elif on:
        evidence = [quote for gpu in on for quote in values(gpus.source, gpu, "mig_mode")]
        summary = (
            f"MIG is on for {numbered('GPU', (gpu.index for gpu in on))} only: "
            f"no P2P or NVLink to {singular_or_plural(len(on), 'it', 'them')}"
        )
        fix = Fix("Run multi-GPU jobs on the others.", action="none", docs=_MIG_GUIDE)
        yield Finding.info(summary, evidence=evidence, fix=fix)


def _without_instance(gpu: Gpu, source: str, *, lists_instances: bool = True) -> Finding:
    """MIG on a GPU that has no instance, beside others without MIG: it was cut for no purpose.

    Not every output has a place for instances; there only that it is the one of many tells.
    """
    fix = Fix(
        "Turn MIG off, or create the instances that jobs use.",
        (repair("sudo nvidia-smi -i {} -mig 0", gpu.selector), look("sudo nvidia-smi mig -lgi")),
        "config",
        "processes on this GPU",
        docs=_MIG_GUIDE,
    )
    summary = "MIG is on without an instance, unlike its peers: no CUDA program can use this GPU"
    if not lists_instances:
        summary = "MIG is on, unlike all of its peers: no P2P or NVLink to it, and instances are not shown"
    return Finding.warn(summary, subject=gpu.subject, evidence=values(source, gpu, "mig_mode"), fix=fix)


def _judge_compute(gpus: Gpus) -> Iterator[Finding]:
    for gpu in gpus.gpus:
        if gpu.compute_mode in (None, "default"):
            continue
        fix = Fix(
            "Set the default compute mode, unless this one is intended.",
            (repair("sudo nvidia-smi -i {} -c DEFAULT", gpu.selector),),
            "config",
            "nothing",
            "nodedoctor driver.mode",
        )
        evidence = values(gpus.source, gpu, "compute_mode")
        if gpu.compute_mode == "prohibited":
            summary = "compute mode is prohibited: no CUDA program can use this GPU"
            yield Finding.fail(summary, subject=gpu.subject, evidence=evidence, fix=fix)
        else:
            summary = f"compute mode is {gpu.compute_mode}: a second process cannot use the GPU"
            # MPS wants it so: https://docs.nvidia.com/deploy/mps/
            shared = any(process.kind == "mps" for process in gpu.processes or ())
            judge = Finding.info if shared else Finding.warn
            yield judge(summary, subject=gpu.subject, evidence=evidence, fix=fix)


def _note_special(gpus: Gpus) -> Iterator[Finding]:
    """Modes that are somebody's choice, and change what to expect."""
    if gpus.encrypted:
        yield Finding.info("confidential computing is on: copies to the GPU are encrypted and slower")
    kinds = {gpu.virtualization_mode or "" for gpu in gpus.gpus} & {"vgpu", "host-vgpu", "host-vsga"}
    if kinds:
        yield Finding.info(f"virtual GPUs ({', '.join(sorted(kinds))}): P2P and NVLink may be missing")
    for gpu in gpus.gpus:
        if gpu.vgpu_license and gpu.vgpu_license.lower().startswith("unlicensed"):
            summary = f"the virtual GPU has no licence: {gpu.vgpu_license}"
            evidence = values(gpus.source, gpu, "vgpu_license")
            yield Finding.warn(summary, subject=gpu.subject, evidence=evidence, fix=_LICENCE)


def _all_as_expected(gpus: Gpus, summary: str) -> Finding:
    """All is well with every GPU; of those that were not reached nothing is known."""
    if gpus.interrupted:
        return Finding.unknown(
            gpus.interrupted, f"{summary}; the others were not read: {clause(gpus.interrupted_note)}"
        )
    return Finding.ok(summary)


def _no_gpus(gpus: Gpus) -> Finding:
    """Where no GPU is shown these questions stay open, unless there is none to ask about."""
    if gpus.interrupted:
        return Finding.unknown(gpus.interrupted, f"no GPU was read: {clause(gpus.interrupted_note)}")
    if gpus.init_error or gpus.lost:
        why = gpus.init_error.text if gpus.init_error else gpus.lost[0].text
        return Finding.unknown("not-visible-here", f"no GPU read: {why}")
    return Finding.skip("the driver reports no GPU")


def _judge_unread(what: str, errors: list[str | None]) -> Finding:
    """Not known for any GPU: because it is not supported, or because reading it failed."""
    failed = [error for error in errors if error and error not in _UNSUPPORTED]
    if failed:
        reason: Reason = "denied" if failed[0] == "NO_PERMISSION" else "not-visible-here"
        return Finding.unknown(reason, f"{what} could not be read: {failed[0]}")
    return Finding.skip(f"this driver or source does not report {what}")


def _which_gpus(some: list[Gpu], all_gpus: list[Gpu]) -> str:
    if len(some) == len(all_gpus):
        return all_of(all_gpus)
    return f"{numbered('GPU', (gpu.index for gpu in some))} ({len(some)} of {len(all_gpus)})"
