"""What the driver means by a GPU recovery action, whether NVML, nvidia-smi or an Xid 154 says it.

Source: nvmlDeviceGpuRecoveryAction_t (nvml.h), and nvidia-smi(1), GPU Recovery Action, for the first five:
for a node reboot a warm one suffices. Values from 5 on came with drivers 595 and 615
(docs.nvidia.com/deploy/nvml-api/change-log.html); of them only one line each is published: `Recover IMEX
Domain`, `Reset the GPU's PCIe bus` (nvidia-smi(1): `-r bus`), `Reboot the system`. Driver 610 calls the node
reboot `OS Reboot` in Xid 154; a system reboot is taken for more than that, a power cycle.
"""

from __future__ import annotations

from nodedoctor.knowledge.fixes.recipes import HOLDERS, ONE_GPU, gpu_reset
from nodedoctor.model import Fix, Step
from nodedoctor.steps import ALL_JOBS, keep, last_resort, look, power_cycle, reboot, repair


def recovery_fix(action: str, index: int | str, verify: str = "nodedoctor driver.recovery-action") -> Fix:
    """The fix for an action by its word (gpu-reset, node-reboot ...) on the GPU of that index."""
    asked = look("nvidia-smi -q -i {} | grep -A1 'GPU Recovery Action'", index)
    steps: tuple[Step, ...]
    if action == "gpu-reset":
        text = "Stop the processes using this GPU, then reset it."
        return Fix(text, (asked, *gpu_reset(index)), "reset-gpu", ONE_GPU, verify)
    if action == "node-reboot":
        return Fix(
            "Drain the node and reboot it.",
            (asked, reboot("the node is drained")),
            "reboot",
            ALL_JOBS,
            verify,
        )
    if action == "drain-p2p":
        text = (
            "Stop all processes that use P2P between GPUs and disable persistence mode, then check again: "
            "the driver then requests another action. If it does not, reset the GPU."
        )
        whom = "every multi-GPU job on this node"
        off = repair("sudo nvidia-smi -i {} -pm 0", index, when="persistence mode is on", disturbs="nothing")
        return Fix(text, (asked, HOLDERS, off), "drain", whom, verify)
    if action == "recover-imex-domain":
        text, whom = (
            "Restart the IMEX service on every node of the NVLink domain.",
            "every job of the NVLink domain",
        )
        when = "no job runs in the NVLink domain"
        restart = last_resort("sudo systemctl restart nvidia-imex", when=when, disturbs=whom)
        return Fix(text, (look("nvidia-imex-ctl -N"), restart), "restart-service", whom, verify)
    if action == "bus-reset":
        when = "no process uses the GPU (not tried on this model)"
        reset = repair("sudo nvidia-smi -r bus -i {}", index, when=when, disturbs=ONE_GPU)
        text = "Stop the processes using this GPU, then reset it over the bus."
        return Fix(text, (asked, HOLDERS, reset), "reset-gpu", ONE_GPU, verify)
    if action == "system-reboot":
        text = "Drain the node and power-cycle it from its BMC or the provider's console."
        steps = (asked, keep("sudo nvidia-bug-report.sh"), power_cycle("the node is drained"))
        return Fix(text, steps, "reboot", ALL_JOBS, verify)
    if action == "drain-and-reset":
        text = "Let the processes on this GPU finish, start nothing new on it, then reset it."
        return Fix(text, (asked, *gpu_reset(index)), "reset-gpu", ONE_GPU, verify)
    text = "Start nothing new on this GPU and look the action up in the manual of this driver's nvidia-smi."
    return Fix(text, (asked,), "investigate", "nothing", verify)
