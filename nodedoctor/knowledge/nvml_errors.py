"""What to do about the errors of NVIDIA's driver; the codes and their meanings are in error_codes.py."""

from __future__ import annotations

from functools import partial

from nodedoctor.knowledge.fixes.recipes import KERNEL_LOG, driver_reload
from nodedoctor.model import Fix
from nodedoctor.steps import keep, last_resort, look, power_cycle, reboot, repair

VERIFY = "nodedoctor driver.answers"
XID_GUIDE = "https://docs.nvidia.com/deploy/xid-errors/"
INSTALL_GUIDE = "https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/"
TOOLKIT_GUIDE = "https://docs.nvidia.com/datacenter/cloud-native/container-toolkit/latest/"
CGROUP_LOSS = "https://github.com/NVIDIA/nvidia-container-toolkit/issues/48"

_EVERY_JOB = "every job on this node"
_TICKET = (
    "On a cloud machine, stop and start it to get another host; put the GPU's address, the "
    "kernel log's Xid lines and nvidia-bug-report.log.gz into the ticket."
)

_answers_fix = partial(Fix, verify=VERIFY)
"""A repair after which the driver answers."""

_UPGRADES = "upgrades of driver and kernel, until they are unlocked again"
HOLD_PACKAGES = (
    repair(
        "dpkg-query -W -f '${db:Status-Abbrev} ${Package}\\n' '*nvidia*' 'linux-image-*' 'linux-headers-*' "
        "'linux-modules-*' 'linux-generic*' 'linux-aws*' 'linux-azure*' 'linux-gcp*' 'linux-oracle*' "
        "'linux-nvidia*' 2>/dev/null | awk '/^ii/ {print $2}' | xargs -r sudo apt-mark hold",
        when="this is Debian or Ubuntu",
        disturbs=_UPGRADES,
    ),
    repair(
        "rpm -qa --qf '%{NAME}\\n' '*nvidia*' kernel 'kernel-core' 'kernel-devel*' 'kernel-modules*' "
        "| sort -u | xargs -r sudo dnf versionlock add",
        when="this is a Red Hat system or Amazon Linux (with python3-dnf-plugin-versionlock)",
        disturbs=_UPGRADES,
    ),
    repair(
        "rpm -qa --qf '%{NAME}\\n' '*nvidia*' 'kernel-default*' 'kernel-macros' 'kernel-devel*' "
        "| sort -u | xargs -r sudo zypper addlock",
        when="this is SUSE",
        disturbs=_UPGRADES,
    ),
)
"""Only what is installed, and with the kernel: Ubuntu has one module package per kernel
(linux-modules-nvidia-580-6.8.0-60-generic), Red Hat's precompiled kmod packages as well: a kernel that is
upgraded alone starts without a driver. Source: docs.nvidia.com/datacenter/tesla/driver-installation-guide/
version-locking.html; apt-mark(8), zypper(8)."""
_USERS, *_RELOADED = driver_reload()
RELOAD = Fix(
    "Reboot, or stop the processes using the driver and load the new kernel module. Hold the "
    "driver packages, so that no unattended upgrade repeats this during a job.",
    (
        _USERS,
        look("grep -h -A4 nvidia /var/log/apt/history.log", when="this is Debian or Ubuntu"),
        *HOLD_PACKAGES,
        *_RELOADED,
    ),
    action="reboot",
    disturbs=_EVERY_JOB,
    verify="nodedoctor driver.module-userspace",
)
RECREATE = Fix(
    "Recreate the container: it got the driver's libraries and devices at its start, and the "
    "host's driver has changed since. If it fails again, remove the driver libraries in the image.",
    (look("find / -xdev -name 'libnvidia-ml.so*' -o -xdev -name 'libcuda.so*'"),),
    action="restart-job",
    disturbs="all processes in this container",
    verify="nodedoctor driver.module-userspace",
    docs=TOOLKIT_GUIDE,
)
NO_DRIVER = _answers_fix(
    "Load the driver, or find out why it does not load: no headers for this kernel (DKMS), "
    "secure boot rejecting an unsigned module, nouveau bound to the GPU, or no driver installed.",
    (
        look("dkms status"),
        look("uname -r"),
        look("mokutil --sb-state"),
        look("ubuntu-drivers list --gpgpu", when="this is Ubuntu and no driver is installed"),
        repair("sudo modprobe nvidia"),
        look("sudo dmesg | tail -20"),
    ),
    action="config",
    disturbs="nothing",
    docs=INSTALL_GUIDE,
)
OPEN_MODULES = Fix(
    "Install the open kernel modules of the same driver version: Blackwell GPUs do not work "
    "with the proprietary ones.",
    (
        look("cat /proc/driver/nvidia/version"),
        look("dpkg -l 'nvidia-*' 'linux-modules-nvidia-*'", when="this is Debian or Ubuntu"),
        look("rpm -qa 'kmod-nvidia*' 'nvidia-*'", when="this is a Red Hat or SUSE system"),
        reboot("the open modules are installed and the node is drained"),
    ),
    action="config",
    disturbs=_EVERY_JOB,
    verify="nodedoctor driver.gpus-present",
    docs="https://docs.nvidia.com/datacenter/tesla/driver-installation-guide/kernel-modules.html",
)
OFF_THE_BUS = Fix(
    "Drain and reboot the node; power it off and on if the reboot does not bring the GPU back. If the GPU is "
    f"lost again, have it reseated or replaced. {_TICKET}",
    (
        KERNEL_LOG,
        keep("sudo nvidia-bug-report.sh"),
        reboot("the logs are saved and the node is drained"),
        power_cycle("the GPU is still missing after the reboot"),
    ),
    action="reboot",
    disturbs=_EVERY_JOB,
    verify="nodedoctor driver.gpus-present",
    docs=XID_GUIDE,
)
"""As NVIDIA's Xid catalogue has it for Xid 79: RESTART_BM at once, CONTACT_SUPPORT when it comes back
(docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html)."""
HUNG = _answers_fix(
    "Drain the node and reboot it: a process in uninterruptible sleep inside the driver cannot be killed. "
    f"Save the kernel stacks first, NVIDIA asks for them. {_TICKET}",
    (
        KERNEL_LOG,
        look("ps -eo pid,stat,wchan:32,comm | awk '$2 ~ /D/'"),
        keep("sudo nvidia-bug-report.sh --safe-mode"),
        last_resort(
            "echo w | sudo tee /proc/sysrq-trigger",
            when="the node is drained and NVIDIA's support asks for the kernel stacks; a full kernel log may "
            "lose its oldest lines",
            disturbs="nothing",
        ),
        reboot("the logs are saved and the node is drained"),
        power_cycle("the reboot does not finish (it waits for processes that cannot be killed)"),
    ),
    action="reboot",
    disturbs=_EVERY_JOB,
    docs=XID_GUIDE,
)
DEVICES_LOST = _answers_fix(
    "Recreate the container. `systemctl daemon-reload` on the host (also run by package updates) made "
    "systemd apply its device rules again, and removed GPUs that it does not know. To "
    "prevent this, create the /dev/char links on the host, pass each device with --device, or use CDI.",
    (
        repair(
            "sudo nvidia-ctk system create-dev-char-symlinks --create-all",
            when="you are on the host",
            disturbs="nothing",
        ),
    ),
    action="restart-job",
    disturbs="all processes in this container",
    docs=CGROUP_LOSS,
)
GIVE_GPUS = _answers_fix(
    "Start the container with GPUs: the NVIDIA runtime adds devices and libraries. docker run takes "
    "`--gpus all` and `-e NVIDIA_DRIVER_CAPABILITIES=compute,utility`; in Slurm, request GPUs for the job.",
    (look("ls -l /dev/nvidiactl /proc/driver/nvidia/version"),),
    action="restart-job",
    disturbs="all processes in this container",
    docs=TOOLKIT_GUIDE,
)
NO_DEVICES = _answers_fix(
    f"Check the kernel log for the reason (RmInitAdapter failed, Xid 79). {_TICKET}",
    (KERNEL_LOG, reboot("the kernel log is saved and the node is drained")),
    action="reboot",
    disturbs=_EVERY_JOB,
    docs=XID_GUIDE,
)
NODES = _answers_fix(
    "Give the user access to the device nodes: usually all users can read and write them.",
    (look("ls -l /dev/nvidia*"), look("grep DeviceFile /proc/driver/nvidia/params"), look("id")),
    action="config",
    disturbs="nothing",
)
RESET = _answers_fix(
    f"Stop the processes using this GPU, then reset it. If that does not help, reboot. {_TICKET}",
    (KERNEL_LOG,),
    action="reset-gpu",
    disturbs="processes on that GPU",
)
INVESTIGATE = _answers_fix(
    f"Check the kernel log; reboot if it shows nothing. {_TICKET}",
    (
        KERNEL_LOG,
        keep("sudo nvidia-bug-report.sh"),
        reboot("the kernel log shows nothing and the node is drained"),
    ),
    action="reboot",
    disturbs=_EVERY_JOB,
    docs=XID_GUIDE,
)
HOST_OR_CONTAINER = _answers_fix(
    "See whether nvidia-smi works on the host. Where it does, this was a container that lost its devices: "
    "recreate it. Where it fails there too, check the kernel log, and reboot if that shows nothing.",
    (
        look("nvidia-smi", when="on the host"),
        KERNEL_LOG,
        keep("sudo nvidia-bug-report.sh"),
        reboot("nvidia-smi fails on the host too, the kernel log shows nothing, and the node is drained"),
    ),
    action="investigate",
    disturbs=_EVERY_JOB,
    docs=CGROUP_LOSS,
)
ON_THE_HOST = _answers_fix(
    "Check the driver on the host: nothing inside the container can help.",
    (look("nodedoctor driver"),),
    action="investigate",
)
LIBRARY = _answers_fix(
    "Install the driver's libraries in exactly the version of the kernel module.",
    (look("cat /proc/driver/nvidia/version"), look("ldconfig -p | grep libnvidia-ml")),
    action="config",
    disturbs="nothing",
    docs=INSTALL_GUIDE,
)
STUB = _answers_fix(
    "Remove the folder with the stub from the library path: the real library is part of the driver.",
    (look("ldconfig -p | grep libnvidia-ml"), look("printenv LD_LIBRARY_PATH")),
    action="config",
    disturbs="nothing",
)
WINDOWS = _answers_fix(
    "Update the driver on the Windows side and WSL itself, then restart WSL. Inside WSL no driver is "
    "installed.",
    (
        repair("wsl --update"),
        last_resort("wsl --shutdown", when="the update is installed", disturbs="all processes in WSL"),
    ),
    action="restart-service",
    disturbs="all processes in WSL",
    docs="https://docs.nvidia.com/cuda/wsl-user-guide/",
)
POWER = _answers_fix(
    f"Check the GPU's power cables and the power supplies. {_TICKET}",
    (KERNEL_LOG, look("sudo ipmitool sel list | tail")),
    action="drain",
    disturbs=_EVERY_JOB,
)
CORRUPT = Fix(
    "Reboot once; an InfoROM that stays corrupt cannot be repaired in the field: have the board replaced. "
    f"{_TICKET}",
    (look("nvidia-smi -q -d INFOROM"), reboot("the node is drained")),
    action="replace",
    disturbs=_EVERY_JOB,
    verify="nodedoctor gpu.inforom",
)
UPDATE = _answers_fix(
    "Bring driver and nvidia-ml-py to versions of the same time: one does not know what the other asks.",
    (look("cat /proc/driver/nvidia/version"),),
    action="config",
    disturbs="nothing",
)
WAIT = _answers_fix(
    "Ask again when the node is idle and up for some minutes; look at the kernel log if it stays so.",
    (look("nvidia-smi"), KERNEL_LOG),
    action="investigate",
    disturbs="nothing",
)
