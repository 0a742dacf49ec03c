"""Are all GPUs of this node there, for us, and does the driver show them?"""

from collections.abc import Iterable, Iterator, Sequence

from nodedoctor.declare.registry import check
from nodedoctor.facts.driver.answers import DriverAnswers
from nodedoctor.facts.driver.driver import Driver, module_version
from nodedoctor.facts.gpu.evidence import init_evidence, lost_evidence
from nodedoctor.facts.gpu.gpu import LostGpu
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.gpu.inventory import Inventory, Slot
from nodedoctor.facts.host.container import Container
from nodedoctor.facts.host.env import Env
from nodedoctor.facts.host.machine import Machine
from nodedoctor.facts.pci.pci import slot_said
from nodedoctor.knowledge.error_codes import nvml_error
from nodedoctor.knowledge.gpus import gpu_model, platforms_of
from nodedoctor.knowledge.nvml_errors import DEVICES_LOST, GIVE_GPUS, NO_DRIVER, OFF_THE_BUS, OPEN_MODULES
from nodedoctor.model import Evidence, Expect, Finding, Fix
from nodedoctor.wording import clause, count_with_noun

from .seven_of_eight import one_missing

_HANGS = ("stuck", "timeout")


@check(
    "driver.gpus-present",
    "GPUs present and usable",
    tags={"fast"},
    without=(Machine, Container, Env),
    explained_by=("driver.answers", "driver.module-userspace", "driver.modules"),
)
def gpus_present(
    inventory: Inventory,
    gpus: Gpus | None,
    answers: DriverAnswers | None,
    driver: Driver | None,
    machine: Machine | None,
    container: Container | None,
    env: Env | None,
    expect: Expect,
) -> Iterator[Finding]:
    """GPUs on the PCI bus, GPUs this user may open, and GPUs the driver reports.

    Why: a job that requests eight GPUs does not start on seven, and one GPU off the bus often hangs the rest.
    Fix disturbs: every job on the node (reset, reboot or replacement).
    Judges: FAIL when a GPU on the PCI bus, or one that is expected, is not usable through the driver.
    Fix: See driver.answers and the kernel log; a GPU that left the bus needs a power cycle.
    Threshold: No threshold: counts from sysfs, NVML, Slurm and --expect; where the bus cannot be seen, eight
    for modules whose boards have eight.
    False positives: GPUs given to virtual machines (vfio-pci) are not counted; a job's own share is not a
    loss, unless it is seven of eight in a pasted table.
    Error texts:
    - No devices were found
    - GPU is lost. Reboot the system to recover this GPU
    """
    inside = bool(container and container.inside)
    granted = _expected_number(env.get("SLURM_GPUS_ON_NODE") if env else None)
    absent = list(_judge_expected(inventory, gpus, expect))
    yield from absent
    if gpus and gpus.gpus:
        yield from _judge_some(inventory, gpus, machine)
    elif (why := inventory.none_by_design) and not granted:
        if not absent:
            yield Finding.skip(why)
    else:
        yield from _judge_none(inventory, gpus, answers, driver, inside)


def _judge_expected(inventory: Inventory, gpus: Gpus | None, expect: Expect) -> Iterator[Finding]:
    """What the person says must be there; where none can be used, the other findings say why."""
    wanted, text = _expected_number(expect.get("gpus")), expect.get("gpus")
    if text is not None and wanted is None:
        yield Finding.unknown("unparsable", f"--expect gpus: not a number: '{text}'")
    shown = inventory.shown or 0
    if wanted and shown < wanted and (shown or not inventory.ours):
        summary = f"{count_with_noun(wanted, 'GPU')} expected, {shown} usable"
        finding = Finding.fail(summary, fix=OFF_THE_BUS if shown else GIVE_GPUS)
        yield finding.explained_by("driver.answers@any", "driver.gpus-present@any")
    model = expect.get("gpu")
    for gpu in gpus.gpus if gpus and model else ():
        if gpu.name and (model or "").lower() not in gpu.name.lower():
            yield Finding.fail(f"{model} expected, found {gpu.name}", subject=gpu.subject)


def _judge_some(inventory: Inventory, gpus: Gpus, machine: Machine | None) -> Iterator[Finding]:
    """The driver shows GPUs: are they all?"""
    missing = [slot for slot in inventory.missing if not _is_unfinished(slot, gpus)]
    troubles = [_missing_gpu(slot) for slot in missing]
    troubles += [_lost_device(gpu, gpus.source) for gpu in _lost_elsewhere(missing, gpus)]
    troubles += _judge_incomplete(inventory, machine)
    troubles += one_missing(inventory, gpus)
    troubles += _fewer_than_nodes(inventory) if not (troubles or gpus.interrupted) else []
    yield from troubles
    yield from _note_hidden(inventory)
    if gpus.interrupted:
        what = "line was read" if gpus.interrupted == "unparsable" else "GPU was queried"
        yield Finding.unknown(gpus.interrupted, f"not every {what}: {gpus.interrupted_note}")
    elif not troubles:
        yield Finding.ok(_gpu_summary(inventory))


def _judge_none(
    inventory: Inventory,
    gpus: Gpus | None,
    answers: DriverAnswers | None,
    driver: Driver | None,
    inside: bool,
) -> Iterator[Finding]:
    """The driver shows no GPU although there should be some: one finding for all of them."""
    slots = _first_evidence(inventory.slots or ())
    if hang := _hang_note(answers):
        yield Finding.unknown("stuck", f"unknown which GPUs work: {clause(hang)}", evidence=slots)
    elif inventory.cut_off:
        summary = "the device cgroup denies access to every NVIDIA device, also /dev/nvidiactl"
        nodes = [node.said for node in (driver.nodes if driver else ())]
        finding = Finding.fail(summary, evidence=nodes[:_SHOWN], fix=DEVICES_LOST)
        yield finding.explained_by("container.devices@container:gpus")
    elif inventory.ours and driver and driver.loaded is False:
        count = len(inventory.ours)
        summary = f"{count_with_noun(count, 'GPU')} on the PCI bus, no driver loaded"
        yield Finding.fail(summary, evidence=slots, fix=NO_DRIVER)
    elif driver and driver.kind == "proprietary" and _all_blackwell(inventory):
        summary = "Blackwell GPUs need the open kernel module; the proprietary one is loaded"
        quote = module_version()
        yield Finding.fail(summary, evidence=[quote, *slots], fix=OPEN_MODULES)
    elif gpus and gpus.init_error:
        error = nvml_error(gpus.init_error.name)
        quote = init_evidence(gpus.source, gpus.init_error)
        summary = f"no GPU usable: {error.meaning}"
        yield Finding.fail(summary, evidence=[quote, *slots], fix=error.fix_here(inside))
    elif gpus and not gpus.interrupted:
        yield from _all_gone(inventory, gpus)
    else:
        yield _nothing_known(answers, slots)


def _all_blackwell(inventory: Inventory) -> bool:
    """Whether all that must be driven here needs NVIDIA's open kernel modules."""
    models = [gpu_model("", slot.pci_id) for slot in inventory.ours]
    return bool(models) and all(model is not None and model.architecture == "Blackwell" for model in models)


def _all_gone(inventory: Inventory, gpus: Gpus) -> Iterator[Finding]:
    """The driver answers, and has no GPU to show."""
    missing = inventory.missing
    for slot in missing:
        finding = _missing_gpu(slot)
        if len(missing) > 1:
            finding = finding.led_by(f"the driver shows none of the {len(missing)} GPUs on the PCI bus")
        alone = slot is missing[0]
        yield finding if alone else finding.explained_by(f"driver.gpus-present@pci:{missing[0].address}")
    yield from (_lost_device(gpu, gpus.source) for gpu in _lost_elsewhere(missing, gpus))
    if not missing and not gpus.lost:
        there = f"{inventory.nvswitches} NVSwitches are" if inventory.nvswitches else "the driver is"
        yield Finding.fail(f"{there} present, but no GPU", fix=OFF_THE_BUS)


def _nothing_known(answers: DriverAnswers | None, slots: list[Evidence]) -> Finding:
    all_answers = answers.answers if answers else ()
    why = next((answer.unseen for answer in all_answers if answer.unseen), "no tool to query the driver")
    fix = Fix("Install nvidia-smi, or nvidia-ml-py in nodedoctor's environment.", action="none")
    return Finding.unknown("missing-tool", f"no GPU could be queried: {why}", evidence=slots, fix=fix)


def _missing_gpu(slot: Slot) -> Finding:
    """A GPU that we may use and the driver does not show."""
    if slot.off_bus or slot.lost == "GPU_IS_LOST":
        why, fix = "has fallen off the bus", OFF_THE_BUS
    elif slot.lost == "UNKNOWN":
        why, fix = "does not answer, and may have fallen off the bus", OFF_THE_BUS
    elif slot.lost:
        error = nvml_error(slot.lost)
        why, fix = f"cannot be opened: {error.meaning}", error.fix
    elif slot.right == "refused":
        why, fix = "cannot be opened by this user", nvml_error("NO_PERMISSION").fix
    elif slot.bound_to != "nvidia":
        why, fix = f"is bound to {slot.bound_to or 'no kernel driver'}, not to nvidia", NO_DRIVER
    else:
        why, fix = "is on the PCI bus but not in the driver's list", OFF_THE_BUS
    return Finding.fail(
        f"GPU {slot.address} {why}", subject=f"pci:{slot.address}", evidence=_slot_evidence(slot), fix=fix
    )


def _is_unfinished(slot: Slot, gpus: Gpus) -> bool:
    """A GPU that was not asked because the source stopped before it; nothing is known of it."""
    return slot.lost == "NOT_ASKED" or bool(gpus.interrupted and not slot.lost and not slot.off_bus)


def _lost_elsewhere(missing: Sequence[Slot], gpus: Gpus) -> Iterator[LostGpu]:
    """Lost GPUs that no slot accounts for: the bus cannot be seen, or the error names no address."""
    addresses = {slot.address for slot in missing}
    for gpu in gpus.lost:
        if gpu.error != "NOT_ASKED" and gpu.bus_id not in addresses and (gpu.bus_id or not addresses):
            yield gpu


def _lost_device(gpu: LostGpu, source: str) -> Finding:
    error = nvml_error("GPU_IS_LOST" if gpu.error == "UNKNOWN" else gpu.error)
    meaning = "does not answer, and may have fallen off the bus" if gpu.error == "UNKNOWN" else error.meaning
    who = gpu.bus_id or (f"with index {gpu.index}" if gpu.index is not None else "without an address")
    subject = f"pci:{gpu.bus_id}" if gpu.bus_id else f"gpu:{gpu.index}" if gpu.index is not None else ""
    return Finding.fail(
        f"GPU {who}: {meaning}",
        subject=subject,
        evidence=lost_evidence(source, gpu),
        fix=error.fix_here(False, gpu.index),
    )


def _judge_incomplete(inventory: Inventory, machine: Machine | None) -> list[Finding]:
    """A board whose switches are all there and whose GPUs are not.

    Bare metal only: partitions are virtual.
    """
    slots = inventory.slots or ()
    if not slots or not inventory.nvswitches or machine is None or machine.form != "bare-metal":
        return []
    model = gpu_model("", slots[0].pci_id)
    boards = platforms_of(model) if model else ()
    board = next((b for b in boards if b.nvswitches == inventory.nvswitches and b.switches_on_host_bus), None)
    if board is None or len(slots) >= board.gpus or not inventory.bus_readable:
        return []
    summary = f"{len(slots)} of {board.gpus} GPUs on the PCI bus of a {board.name} board"
    return [Finding.fail(summary, evidence=_first_evidence(slots), fix=OFF_THE_BUS)]


def _fewer_than_nodes(inventory: Inventory) -> list[Finding]:
    """In a container the nodes we were given say how many GPUs there must be."""
    shown, nodes = inventory.shown or 0, inventory.nodes or 0
    if not inventory.restricted or nodes <= shown:
        return []
    summary = (
        f"{count_with_noun(nodes, 'GPU device node')} usable here, the driver reports "
        f"{count_with_noun(shown, 'GPU')}"
    )
    return [Finding.fail(summary, fix=OFF_THE_BUS)]


def _note_hidden(inventory: Inventory) -> Iterator[Finding]:
    """GPUs that do not work for us by somebody's decision: worth knowing."""
    for slot in inventory.slots or ():
        if slot.excluded or slot.given_away:
            why = "excluded by an administrator" if slot.excluded else f"bound to {slot.bound_to}"
            yield Finding.info(f"GPU {slot.address} is {why}", subject=f"pci:{slot.address}")


def _gpu_summary(inventory: Inventory) -> str:
    shown, slots = inventory.shown or 0, inventory.slots or ()
    gpus = count_with_noun(shown, "GPU")
    if inventory.platform == "wsl2":
        return f"{gpus} through WSL2 (driver of Windows)"
    if inventory.platform == "tegra":
        return f"{gpus} on Tegra (Jetson)"
    if inventory.restricted and len(slots) > shown:
        return f"{gpus}, all assigned to this container or job ({len(slots)} on the host)"
    return f"{gpus}, all on the PCI bus" if slots else gpus


def _hang_note(answers: DriverAnswers | None) -> str:
    if answers is None:
        return ""
    hung = (f"{answer.probe}: {answer.note}" for answer in answers.answers if answer.outcome in _HANGS)
    return next(hung, answers.tripped)


def _slot_evidence(slot: Slot) -> list[Evidence]:
    return slot_said(slot.address, *(["config"] if slot.off_bus else []), "device", "driver")


_SHOWN = 4
"""GPUs shown as evidence: eight of them say eight times the same."""


def _first_evidence(slots: Iterable[Slot]) -> list[Evidence]:
    return [quote for slot in list(slots)[:_SHOWN] for quote in _slot_evidence(slot)]


def _expected_number(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() and len(text) < 5 else None
