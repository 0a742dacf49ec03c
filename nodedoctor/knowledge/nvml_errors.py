"""What NVML's errors mean for a training node, and what to do about each.

Names are those of nvmlReturn_t (nvml.h); causes and cures come from the documents named beside them.
"""

from __future__ import annotations

from dataclasses import replace

from nodedoctor.model import Fix
from nodedoctor.record import record

VERIFY = "nodedoctor driver.answers"
XID_GUIDE = "https://docs.nvidia.com/deploy/xid-errors/"
INSTALL_GUIDE = "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/"
TOOLKIT_GUIDE = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/"
CGROUP_LOSS = "https://github.com/NVIDIA/nvidia-container-toolkit/issues/48"

_EVERY_JOB = "every job on this node"
_TICKET = (
    "On a cloud machine, stop and start it to get another host, and put the GPU's address, the kernel log's "
    "Xid lines and nvidia-bug-report.log.gz into the ticket."
)
_KERNEL_LOG = "sudo dmesg | grep -iE 'xid|nvrm|fallen off'"


@record
class NvmlError:
    """One error: what it means, and the fix on a host and, where that differs, in a container."""

    name: str
    meaning: str
    fix: Fix
    in_container: Fix | None = None

    def fix_here(self, container: bool, index: int | None = None) -> Fix:
        """The fix for where we stand; its commands name the GPU when its index is given."""
        fix = self.in_container if container and self.in_container else self.fix
        if index is None:
            return fix
        return replace(fix, commands=tuple(line.replace("INDEX", str(index)) for line in fix.commands))


RELOAD = Fix(
    "Stop what holds the driver and load the new kernel module, or reboot. Then hold the driver's "
    "packages, so that unattended upgrades do not do it again in the middle of a job.",
    (
        "sudo systemctl stop nvidia-persistenced nvidia-fabricmanager nvidia-dcgm",
        "sudo modprobe -r nvidia_peermem nvidia_drm nvidia_modeset nvidia_uvm nvidia",
        "sudo modprobe nvidia_uvm",
        "sudo systemctl start nvidia-persistenced nvidia-fabricmanager",
        "sudo reboot  # when modprobe says that a module is in use",
        "dpkg -l '*nvidia*' | awk '/^ii/ {print $2}' | xargs sudo apt-mark hold",
        "grep -h -A4 nvidia /var/log/apt/history.log",
    ),
    action="reboot",
    disturbs=_EVERY_JOB,
    verify="nodedoctor driver.module-userspace",
)
RECREATE = Fix(
    "Start the container anew: the driver's libraries and devices are put into it when it starts, and the "
    "host's driver has changed since. If it fails again, the image brings driver libraries of its own: "
    "remove them.",
    ("docker restart CONTAINER", "find / -xdev -name 'libnvidia-ml.so*' -o -xdev -name 'libcuda.so*'"),
    action="restart-job",
    disturbs="what runs in this container",
    verify="nodedoctor driver.module-userspace",
    docs=TOOLKIT_GUIDE,
)
NO_DRIVER = Fix(
    "Load the driver, or find out why it does not load: no headers for this kernel (DKMS), secure boot "
    "refusing an unsigned module, nouveau holding the GPU, or no driver installed at all.",
    (
        "sudo modprobe nvidia; sudo dmesg | tail -20",
        "dkms status; uname -r",
        "mokutil --sb-state",
        "ubuntu-drivers list --gpgpu",
    ),
    action="config",
    disturbs="nothing: no program can be using the GPUs",
    verify=VERIFY,
    docs=INSTALL_GUIDE,
)
OFF_THE_BUS = Fix(
    "Drain the node and power it off and on again; a reboot alone often does not bring the GPU back. If "
    f"it comes back, burn it in before it works again; if not, have it reseated or replaced. {_TICKET}",
    (_KERNEL_LOG, "sudo nvidia-bug-report.sh"),
    action="drain",
    disturbs=_EVERY_JOB,
    verify="nodedoctor driver.gpus-present",
    docs=XID_GUIDE,
)
HUNG = Fix(
    "Drain the node and reboot it: a process in uninterruptible sleep inside the driver cannot be ended. "
    f"Keep the kernel's stacks first, they are what NVIDIA asks for. {_TICKET}",
    (
        "echo w | sudo tee /proc/sysrq-trigger; sudo dmesg | tail -200",
        _KERNEL_LOG,
        "sudo nvidia-bug-report.sh --safe-mode",
        "sudo reboot",
    ),
    action="reboot",
    disturbs=_EVERY_JOB,
    verify=VERIFY,
    docs=XID_GUIDE,
)
DEVICES_LOST = Fix(
    "Restart the container. `systemctl daemon-reload` on the host (also run by package updates) made "
    "systemd apply its device rules again, and those do not know the GPUs that were added behind its "
    "back. To prevent it: create the /dev/char links on the host, or name the devices with --device, or "
    "use CDI.",
    (
        "docker restart CONTAINER",
        "sudo nvidia-ctk system create-dev-char-symlinks --create-all",
        "docker run --gpus all --device /dev/nvidiactl --device /dev/nvidia-uvm --device /dev/nvidia0 ...",
    ),
    action="restart-job",
    disturbs="what runs in this container",
    verify=VERIFY,
    docs=CGROUP_LOSS,
)
GIVE_GPUS = Fix(
    "Start the container with GPUs: the NVIDIA runtime puts devices and libraries into it.",
    (
        "docker run --gpus all -e NVIDIA_DRIVER_CAPABILITIES=compute,utility ...",
        "srun --gpus=8 --container-image=... ...",
    ),
    action="restart-job",
    disturbs="what runs in this container",
    verify=VERIFY,
    docs=TOOLKIT_GUIDE,
)
_NO_DEVICES = Fix(
    f"The kernel log says why the driver could not start them (RmInitAdapter failed, Xid 79). {_TICKET}",
    (_KERNEL_LOG, "sudo reboot"),
    action="reboot",
    disturbs=_EVERY_JOB,
    verify=VERIFY,
    docs=XID_GUIDE,
)
_NODES = Fix(
    "Give the user the device nodes: they are usually readable and writable for everybody.",
    ("ls -l /dev/nvidia*", "grep DeviceFile /proc/driver/nvidia/params", "id"),
    action="config",
    disturbs="nothing",
    verify=VERIFY,
)
_RESET = Fix(
    "End what runs on the GPU and reset it; on boards with NVSwitch all GPUs are reset together. If that "
    f"does not help, reboot. {_TICKET}",
    ("sudo nvidia-smi --gpu-reset -i INDEX", _KERNEL_LOG),
    action="reset-gpu",
    disturbs="what runs on that GPU, and on its NVLink neighbours",
    verify=VERIFY,
)
_INVESTIGATE = Fix(
    f"Look at the kernel log; reboot when it shows nothing. {_TICKET}",
    (_KERNEL_LOG, "sudo nvidia-bug-report.sh", "sudo reboot"),
    action="reboot",
    disturbs=_EVERY_JOB,
    verify=VERIFY,
    docs=XID_GUIDE,
)
_ON_THE_HOST = Fix(
    "Nothing inside the container can help: look at the driver on the host.",
    ("nodedoctor driver",),
    action="investigate",
    verify=VERIFY,
)
_LIBRARY = Fix(
    "Install the driver's libraries, of exactly the version of the kernel module.",
    ("cat /proc/driver/nvidia/version", "ldconfig -p | grep libnvidia-ml"),
    action="config",
    disturbs="nothing",
    verify=VERIFY,
    docs=INSTALL_GUIDE,
)
_STUB = Fix(
    "Take the folder with the stub out of the loader's way: the real library belongs to the driver.",
    ("ldconfig -p | grep libnvidia-ml", "echo $LD_LIBRARY_PATH"),
    action="config",
    disturbs="nothing",
    verify=VERIFY,
)
_WINDOWS = Fix(
    "Update the driver on the Windows side and WSL itself, then start WSL again. Inside WSL no driver is "
    "installed.",
    ("wsl --update", "wsl --shutdown"),
    action="restart-service",
    disturbs="everything in WSL",
    verify=VERIFY,
    docs="https://docs.nvidia.com/cuda/wsl-user-guide/",
)
_POWER = Fix(
    f"Check the GPU's power cables and the power supplies. {_TICKET}",
    (_KERNEL_LOG, "sudo ipmitool sel list | tail"),
    action="drain",
    disturbs=_EVERY_JOB,
    verify=VERIFY,
)

_ROWS = (
    NvmlError("DRIVER_NOT_LOADED", "the kernel module is not loaded", NO_DRIVER, _ON_THE_HOST),
    NvmlError(
        "LIB_RM_VERSION_MISMATCH",
        "the driver's libraries and the loaded kernel module are of different versions",
        RELOAD,
        RECREATE,
    ),
    NvmlError("UNKNOWN", "the driver fails without saying why", _INVESTIGATE, DEVICES_LOST),
    NvmlError("NO_PERMISSION", "we may not open the device nodes", _NODES, GIVE_GPUS),
    NvmlError("NOT_FOUND", "the driver is loaded and has no usable GPU", _NO_DEVICES, GIVE_GPUS),
    NvmlError("GPU_NOT_FOUND", "the driver is loaded and has no usable GPU", _NO_DEVICES, GIVE_GPUS),
    NvmlError("LIBRARY_NOT_FOUND", "libnvidia-ml.so.1 is not to be found", _LIBRARY, GIVE_GPUS),
    NvmlError("FUNCTION_NOT_FOUND", "a stub or a foreign libnvidia-ml.so.1 was loaded", _STUB),
    NvmlError("OPERATING_SYSTEM", "the operating system blocks the GPU", _WINDOWS),
    NvmlError("GPU_IS_LOST", "the GPU has fallen off the bus", OFF_THE_BUS),
    NvmlError("RESET_REQUIRED", "the GPU works again only after a reset", _RESET),
    NvmlError("INSUFFICIENT_POWER", "the GPU does not get enough power", _POWER),
    NvmlError("NO_ANSWER", "the driver does not return from this GPU", HUNG),
    NvmlError("CRASH", "NVIDIA's library crashes at this GPU", OFF_THE_BUS),
)


def nvml_error(name: str) -> NvmlError:
    """The row of an error; one the table does not know is to be investigated."""
    known = next((row for row in _ROWS if row.name == name), None)
    return known or NvmlError(name, f"the driver says {name}", _INVESTIGATE)
