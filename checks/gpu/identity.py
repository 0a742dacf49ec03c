"""Is one of several like GPUs different in what it is: model, firmware, memory, settings?"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from nodedoctor.declare.peers import Attribute, Outlier, compared, odd_ones
from nodedoctor.declare.registry import check
from nodedoctor.facts.gpu.board import Board
from nodedoctor.facts.gpu.evidence import identity_evidence, values
from nodedoctor.facts.gpu.gpu import Gpu
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.grouping import group_by
from nodedoctor.knowledge.fixes.gpu import look_at
from nodedoctor.knowledge.gpus import gpu_model
from nodedoctor.model import Action, Evidence, Finding, Step
from nodedoctor.steps import look, repair
from nodedoctor.wording import comma_list, count_with_noun, singular_or_plural

from ..unavailable import NOT_KNOWN, none_shown

_ECC = "ECC after the next reset"

MEMORY_STEP_MIB = 1024
"""Memory sizes are compared in whole GiB: what a driver reserves differs by some MiB between like GPUs."""
ABSENT = "none"
BOARD_PEERS = 6
"""GPUs that agree, from which one that differs is on their board, though no model is shown: of eight, two
may differ. Ours; workstations hold fewer, of any models."""


def _count_links(gpu: Gpu) -> object:
    """How many NVLinks a GPU reports; MIG hides them, so a GPU in that mode tells nothing."""
    if gpu.mig_mode:
        return None
    if gpu.nvlinks:
        refused = all(link.errors.get("active") in NOT_KNOWN for link in gpu.nvlinks)
        return ABSENT if refused else len(gpu.nvlinks)
    return ABSENT if gpu.nvlinks == () or gpu.errors.get("nvlinks") in NOT_KNOWN else None


def _gsp_state(gpu: Gpu) -> object:
    """Whether the GPU system processor runs; its version is the driver's, so only its absence tells."""
    if version := gpu.gsp_firmware_version:
        return "on" if any(character.isdigit() for character in version) else "off"
    return "off" if gpu.errors.get("gsp_firmware_version") in NOT_KNOWN else None


def _read_field(field: str) -> Callable[[Gpu], object]:
    return lambda gpu: getattr(gpu, field)


def _read_gib(field: str) -> Callable[[Gpu], object]:
    def read(gpu: Gpu) -> object:
        value = getattr(gpu, field)
        return None if value is None else f"{round(value / MEMORY_STEP_MIB)} GiB"

    return read


def _ecc_to_come(gpu: Gpu) -> object:
    """Whether ECC is on after the next reset; a GPU that has it off already is a finding of memory.ecc."""
    if not gpu.ecc_mode or gpu.ecc_mode_pending is None:
        return None
    return "on" if gpu.ecc_mode_pending else "off"


def _read_watts(field: str) -> Callable[[Gpu], object]:
    def read(gpu: Gpu) -> object:
        value = getattr(gpu, field)
        return None if value is None else f"{value:g} W"

    return read


MODEL: tuple[Attribute[Gpu], ...] = (Attribute("model", "identity", _read_field("name")),)
FUNCTIONS: tuple[Attribute[Gpu], ...] = (
    Attribute("NVLinks reported", "capability", _count_links),
    Attribute("PCI device id", "identity", _read_field("pci_device_id")),
    Attribute("memory", "identity", _read_gib("memory_total_mib")),
    Attribute("BAR1", "identity", _read_gib("bar1_total_mib")),
    Attribute(_ECC, "capability", _ecc_to_come),
    Attribute("GSP firmware", "capability", _gsp_state),
    Attribute("default power limit", "identity", _read_watts("power_limit_default_w")),
    Attribute("maximum power limit", "identity", _read_watts("power_limit_max_w")),
)
"""What changes how a GPU works: one that differs slows or breaks what runs on all of them."""
PARTS: tuple[Attribute[Gpu], ...] = (
    Attribute("VBIOS", "identity", _read_field("vbios_version")),
    Attribute("part number", "identity", _read_field("board_part_number")),
    Attribute("InfoROM image", "identity", _read_field("inforom_image_version")),
)
"""What a replaced part brings with it. On module boards one VBIOS is expected (Azure/azurehpc-health-checks:
gpu_vbios); part numbers and InfoROM images differ by revision on healthy boards."""


@check("gpu.identity", "GPU model, firmware and settings", tags={"fast", "gpu"}, without=(Board,))
def identity(gpus: Gpus, board: Board | None) -> Iterator[Finding]:
    """Model, ids, firmware, memory, BAR1, ECC, GSP, NVLink and power limits of each GPU against its peers.

    The value that more than half of the GPUs share is the reference; at least three GPUs must report it.
    Why: all ranks wait for the slowest GPU; one without NVLink or with less memory fails jobs that run
    elsewhere.
    Fix disturbs: nothing for the look-ups; the node while a GPU is reset or replaced.
    Judges: FAIL when one module of a joined board reports no NVLink; WARN for other functions that differ
    from most peers, notes for part numbers.
    Fix: Set the odd setting as on the others; a difference that stays belongs to the module.
    Threshold: More than half of at least three like GPUs; one VBIOS on module boards
    (Azure/azurehpc-health-checks, gpu_vbios).
    False positives: Boards repaired with a later revision: part numbers and InfoROM images differ on healthy
    boards.
    """
    if not gpus.gpus:
        yield none_shown(gpus)
        return
    models = list(odd_ones(gpus.gpus, MODEL))
    findings = [_other_model(diff, gpus.source) for diff in models]
    kinds = group_by(gpus.gpus, lambda gpu: gpu.name)
    looked: list[str] = []
    for like in kinds.values():
        looked += [name for name in compared(like, (*FUNCTIONS, *PARTS)) if name not in looked]
        findings += [_functional_difference(diff, gpus.source, board) for diff in odd_ones(like, FUNCTIONS)]
        findings += [_other_part(diff, gpus.source) for diff in odd_ones(like, PARTS)]
    yield from findings
    if not looked and not models:
        few = len(gpus.gpus) < 3 or len(kinds) > 1
        why = (
            "fewer than 3 GPUs of a kind: nothing to compare"
            if few
            else "no model, firmware or settings were reported"
        )
        yield Finding.skip(why) if few else Finding.unknown("not-visible-here", why)
    elif not any(finding.severity.is_problem for finding in findings):
        differing = {finding.subject.partition("/")[0] for finding in findings}
        largest = max(sum(gpu.subject not in differing for gpu in like) for like in kinds.values())
        # A GPU whose ECC is off now is a finding of memory.ecc: the others do not make it alike.
        left_out = any(gpu.ecc_mode is False for gpu in gpus.gpus)
        if same_in := [name for name in looked if name != _ECC or not left_out]:
            yield Finding.ok(f"{count_with_noun(largest, 'GPU')} alike in {comma_list(same_in, 4)}")
        else:
            yield Finding.skip("only ECC was reported, and memory.ecc judges that it is off")


_FIELDS = {
    "model": "name",
    "NVLinks reported": "nvlinks",
    "PCI device id": "pci_device_id",
    "memory": "memory_total_mib",
    "BAR1": "bar1_total_mib",
    _ECC: "ecc_mode_pending",
    "GSP firmware": "gsp_firmware_version",
    "default power limit": "power_limit_default_w",
    "maximum power limit": "power_limit_max_w",
    "VBIOS": "vbios_version",
    "part number": "board_part_number",
    "InfoROM image": "inforom_image_version",
}
"""The field of a GPU that each attribute is made of."""


def _identity_evidence(diff: Outlier[Gpu], source: str) -> list[Evidence]:
    gpu = diff.device
    return [*values(source, gpu, _FIELDS[diff.attribute]), *identity_evidence(source, gpu)]


def _odd_words(diff: Outlier[Gpu]) -> str:
    others = singular_or_plural(diff.peers, "other", "others")
    return f"{diff.attribute} {diff.value}, {diff.peers} {others} {diff.usual}"


def _other_model(diff: Outlier[Gpu], source: str) -> Finding:
    """Module boards carry one model; what is in the slots of a workstation is its owner's choice."""
    usual = gpu_model(str(diff.usual))
    module = usual is not None and usual.form == "sxm"
    summary = _odd_words(diff)
    steps = (look("nvidia-smi -L"), look("nvidia-smi -q -i {}", diff.device.index))
    fix = look_at(diff.device, "Check which card or module is installed here.", "gpu.identity", steps)
    if not module:
        return Finding.info(summary, subject=diff.device.subject, evidence=_identity_evidence(diff, source))
    return Finding.warn(
        summary, subject=diff.device.subject, evidence=_identity_evidence(diff, source), fix=fix
    )


def _functional_difference(diff: Outlier[Gpu], source: str, board: Board | None) -> Finding:
    """A difference in function. A module without any NVLink on a board that joins all is broken."""
    gpu = diff.device
    model = gpu_model(gpu.name or "", gpu.pci_device_id or "")
    absent = diff.attribute == "NVLinks reported" and diff.value == ABSENT
    text = (
        "Compare `nvidia-smi -q` of this GPU and another one. Change a setting to what the others have; a"
        " difference that remains is in the hardware."
    )
    steps: tuple[Step, ...] = (look("nvidia-smi -q -i {}", gpu.selector),)
    action: Action = "investigate"
    if diff.attribute == _ECC:
        text = "Set ECC as on the other GPUs; the driver applies it at the next reset or reboot."
        steps += (repair("sudo nvidia-smi -i {} -e {}", gpu.selector, int(diff.usual == "on")),)
        action = "config"
    fix = look_at(gpu, text, "gpu.identity", steps, action)
    if absent and model is not None and model.form == "sxm" and model.nvlink_links and board and board.joined:
        summary = f"no NVLink reported; {diff.peers} other modules report {diff.usual}"
        return Finding.fail(summary, subject=gpu.subject, evidence=_identity_evidence(diff, source), fix=fix)
    of_board = not gpu.name and diff.peers >= BOARD_PEERS
    if not of_board and (model is None or not model.datacentre):
        return Finding.info(
            _odd_words(diff), subject=_odd_place(diff), evidence=_identity_evidence(diff, source)
        )
    return Finding.warn(
        _odd_words(diff), subject=_odd_place(diff), evidence=_identity_evidence(diff, source), fix=fix
    )


def _odd_place(diff: Outlier[Gpu]) -> str:
    """The GPU, and which value: one GPU may differ in several."""
    return f"{diff.device.subject}/{diff.attribute.lower().replace(' ', '-')}"


def _other_part(diff: Outlier[Gpu], source: str) -> Finding:
    gpu = diff.device
    model = gpu_model(gpu.name or "", gpu.pci_device_id or "")
    if diff.attribute != "VBIOS" or model is None or model.form != "sxm":
        return Finding.info(
            _odd_words(diff), subject=_odd_place(diff), evidence=_identity_evidence(diff, source)
        )
    text = "Update all modules of the board to one VBIOS with the system vendor's tool."
    fix = look_at(gpu, text, "gpu.identity", (look("nvidia-smi -q -i {}", gpu.selector),), "config")
    return Finding.warn(
        _odd_words(diff), subject=_odd_place(diff), evidence=_identity_evidence(diff, source), fix=fix
    )
