"""What the driver means by a GPU recovery action, whether NVML, nvidia-smi or an Xid 154 says it.

Source: nvmlDeviceGpuRecoveryAction_t (nvml.h) and nvidia-smi(1); values from 5 on came with drivers
595 and 615 (docs.nvidia.com/deploy/nvml-api/change-log.html).
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
        text = "End what runs on this GPU and reset it."
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
        text = "End what reaches this GPU from other GPUs (P2P), then ask again: a reset may follow."
        return Fix(text, (asked,), "drain", "every job that spans several GPUs of this node", verify)
    if action == "recover-imex-domain":
        text, whom = (
            "Restart the IMEX service on every node of the NVLink domain.",
            "every job of the NVLink domain",
        )
        when = "no job runs in the NVLink domain"
        restart = last_resort("sudo systemctl restart nvidia-imex", when=when, disturbs=whom)
        return Fix(text, (look("nvidia-imex-ctl -N"), restart), "restart-service", whom, verify)
    if action == "bus-reset":
        when = "nothing holds the GPU any more (not tried on this model)"
        reset = repair("sudo nvidia-smi -r bus -i {}", index, when=when, disturbs=ONE_GPU)
        text = "End what runs on this GPU and reset it through the bus."
        return Fix(text, (asked, HOLDERS, reset), "reset-gpu", ONE_GPU, verify)
    if action == "system-reboot":
        text = "Drain the node and power it off and on again, from its BMC or its provider's console."
        steps = (asked, keep("sudo nvidia-bug-report.sh"), power_cycle("the node is drained"))
        return Fix(text, steps, "reboot", ALL_JOBS, verify)
    text = "Let what runs on this GPU end, give it nothing new, then reset it."
    return Fix(text, (asked, *gpu_reset(index)), "reset-gpu", ONE_GPU, verify)
