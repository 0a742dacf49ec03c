"""What repairs one GPU, and what a ticket must name for those who cannot reset or replace it themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nodedoctor.knowledge.fixes.recipes import ONE_GPU, gpu_reset
from nodedoctor.model import Action, Fix, Step
from nodedoctor.steps import keep, look

if TYPE_CHECKING:
    from nodedoctor.facts.gpu.gpu import Gpu

RMA_GUIDE = "https://docs.nvidia.com/deploy/rma-process/"
ERROR_GUIDE = "https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/"


def identity(gpu: Gpu) -> str:
    """What names this very card to its owner: model, serial, UUID, bus address, part number, firmware."""
    told = (
        ("", gpu.name),
        ("serial ", gpu.serial),
        ("UUID ", gpu.uuid),
        ("bus ", gpu.bus_id),
        ("part ", gpu.board_part_number),
        ("VBIOS ", gpu.vbios_version),
    )
    return ", ".join(f"{label}{value}" for label, value in told if value)


def ticket(gpu: Gpu | None) -> str:
    """The sentence that says what to put into a ticket."""
    who = identity(gpu) if gpu else ""
    return (
        f"For the ticket: {who or 'serial, UUID and bus address of the GPU'}, this finding with "
        "its evidence, and nvidia-bug-report.log.gz. In a cloud, request a replacement node."
    )


def replace_gpu(gpu: Gpu, text: str, verify: str, docs: str = RMA_GUIDE) -> Fix:
    """Take the GPU out of service and have it replaced."""
    return Fix(
        f"{text} Drain the node and request a replacement of the GPU. {ticket(gpu)}",
        (look("nvidia-smi -q -i {}", gpu.index), keep("sudo nvidia-bug-report.sh")),
        action="replace",
        disturbs="every job on this node while the card is replaced",
        verify=f"nodedoctor {verify}",
        docs=docs,
    )


def reset_gpu(gpu: Gpu, text: str, verify: str, docs: str = ERROR_GUIDE) -> Fix:
    """Reset the GPU once nothing uses it."""
    return Fix(
        f"{text} Stop the processes using this GPU, then reset it, or reboot the node. If it "
        f"returns: {ticket(gpu)}",
        (look("nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT -i {}", gpu.index), *gpu_reset(gpu.handle)),
        action="reset-gpu",
        disturbs=ONE_GPU,
        verify=f"nodedoctor {verify}",
        docs=docs,
    )


def look_at(
    gpu: Gpu | None,
    text: str,
    verify: str,
    steps: tuple[Step, ...] = (),
    action: Action = "investigate",
    disturbs: str = "nothing",
    docs: str = "",
) -> Fix:
    """Something to look into; the ticket's sentence comes last, where no command here repairs it."""
    if not any(step.role == "repair" for step in steps):
        text = f"{text} {ticket(gpu)}"
    return Fix(text, steps, action, disturbs, f"nodedoctor {verify}", docs)
