"""What repairs one GPU, and what a ticket must name for those who cannot reset or replace it themselves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nodedoctor.knowledge.fixes.recipes import HOLDERS, ONE_GPU, gpu_reset
from nodedoctor.model import Action, Fix, Step
from nodedoctor.steps import ALL_JOBS, keep, last_resort, look, power_cycle, reboot, repair

if TYPE_CHECKING:
    from nodedoctor.facts.gpu.gpu import Gpu


RMA_GUIDE = "https://docs.nvidia.com/deploy/rma-process/"
ERROR_GUIDE = "https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/"


def identity(gpu: Gpu) -> str:
    """What names this very card to its owner: model, serial, UUID, bus address, part number, firmware."""
    parts = (
        ("", gpu.name),
        ("serial ", gpu.serial),
        ("UUID ", gpu.uuid),
        ("bus ", gpu.bus_id),
        ("part ", gpu.board_part_number),
        ("VBIOS ", gpu.vbios_version),
    )
    return ", ".join(f"{label}{value}" for label, value in parts if value)


def ticket(gpu: Gpu | None) -> str:
    """The sentence that says what to put into a ticket."""
    who = identity(gpu) if gpu else ""
    return (
        f"For the ticket: {who or 'serial, UUID and bus address of the GPU'}, this finding with "
        "its evidence, and nvidia-bug-report.log.gz. In a cloud, request a replacement node."
    )


def replace_gpu(gpu: Gpu, text: str, verify: str) -> Fix:
    """Take the GPU out of service and have it replaced."""
    return Fix(
        f"{text} Drain the node and request a replacement of the GPU. {ticket(gpu)}",
        (look("nvidia-smi -q -i {}", gpu.selector), keep("sudo nvidia-bug-report.sh")),
        action="replace",
        disturbs="every job on this node while the card is replaced",
        verify=f"nodedoctor {verify}",
        docs=RMA_GUIDE,
    )


def reset_gpu(gpu: Gpu, text: str, verify: str) -> Fix:
    """Reset the GPU once nothing uses it."""
    return Fix(
        f"{text} Stop the processes using this GPU, then reset it, or reboot the node. If it "
        f"returns: {ticket(gpu)}",
        (
            look("nvidia-smi -q -d ECC,ROW_REMAPPER,PAGE_RETIREMENT -i {}", gpu.selector),
            *gpu_reset(gpu.handle),
        ),
        action="reset-gpu",
        disturbs=ONE_GPU,
        verify=f"nodedoctor {verify}",
        docs=ERROR_GUIDE,
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


def recovery_fix(action: str, index: int | str) -> Fix:
    """The fix for an action by its word (gpu-reset, node-reboot ...) on the GPU of that index.

    The words are those of a recovery action, whether NVML, nvidia-smi or an Xid 154 says it. Source:
    nvmlDeviceGpuRecoveryAction_t (nvml.h), and nvidia-smi(1), GPU Recovery Action, for the first five: for a
    node reboot a warm one suffices. Values from 5 on came with drivers 595 and 615
    (docs.nvidia.com/deploy/nvml-api/change-log.html); of them only one line each is published: `Recover IMEX
    Domain`, `Reset the GPU's PCIe bus` (nvidia-smi(1): `-r bus`), `Reboot the system`. Driver 610 calls the
    node reboot `OS Reboot` in Xid 154; a system reboot is taken for more than that, a power cycle.
    """
    verify = "nodedoctor driver.recovery-action"
    query = look("nvidia-smi -q -i {} | grep -A1 'GPU Recovery Action'", index)
    steps: tuple[Step, ...]
    if action == "gpu-reset":
        text = "Stop the processes using this GPU, then reset it."
        return Fix(text, (query, *gpu_reset(index)), "reset-gpu", ONE_GPU, verify)
    if action == "node-reboot":
        return Fix(
            "Drain the node and reboot it.",
            (query, reboot("the node is drained")),
            "reboot",
            ALL_JOBS,
            verify,
        )
    if action == "drain-p2p":
        text = (
            "Stop all processes that use P2P between GPUs and disable persistence mode, then check again: "
            "the driver then requests another action. If it does not, reset the GPU."
        )
        affected = "every multi-GPU job on this node"
        off = repair("sudo nvidia-smi -i {} -pm 0", index, when="persistence mode is on", disturbs="nothing")
        return Fix(text, (query, HOLDERS, off), "drain", affected, verify)
    if action == "recover-imex-domain":
        text, affected = (
            "Restart the IMEX service on every node of the NVLink domain.",
            "every job of the NVLink domain",
        )
        when = "no job runs in the NVLink domain"
        restart = last_resort("sudo systemctl restart nvidia-imex", when=when, disturbs=affected)
        return Fix(text, (look("nvidia-imex-ctl -N"), restart), "restart-service", affected, verify)
    if action == "bus-reset":
        when = "no process uses the GPU (not tried on this model)"
        reset = repair("sudo nvidia-smi -r bus -i {}", index, when=when, disturbs=ONE_GPU)
        text = "Stop the processes using this GPU, then reset it over the bus."
        return Fix(text, (query, HOLDERS, reset), "reset-gpu", ONE_GPU, verify)
    if action == "system-reboot":
        text = "Drain the node and power-cycle it from its BMC or the provider's console."
        steps = (query, keep("sudo nvidia-bug-report.sh"), power_cycle("the node is drained"))
        return Fix(text, steps, "reboot", ALL_JOBS, verify)
    if action == "drain-and-reset":
        text = "Let the processes on this GPU finish, start nothing new on it, then reset it."
        return Fix(text, (query, *gpu_reset(index)), "reset-gpu", ONE_GPU, verify)
    text = "Start nothing new on this GPU and look the action up in the manual of this driver's nvidia-smi."
    return Fix(text, (query,), "investigate", "nothing", verify)
