"""What to do about the errors of NVIDIA's driver; the codes and their meanings stand in error_codes.py."""

from __future__ import annotations

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
    "On a cloud machine, stop and start it to get another host, and put the GPU's address, the kernel log's "
    "Xid lines and nvidia-bug-report.log.gz into the ticket."
)


_HELD = "upgrades of driver and kernel, until they are unlocked again"
HOLD_PACKAGES = (
    repair(
        "dpkg-query -W -f '${db:Status-Abbrev} ${Package}\\n' '*nvidia*' 'linux-image-*' 'linux-headers-*' "
        "'linux-modules-*' 'linux-generic*' 'linux-aws*' 'linux-azure*' 'linux-gcp*' 'linux-oracle*' "
        "'linux-nvidia*' 2>/dev/null | awk '/^ii/ {print $2}' | xargs -r sudo apt-mark hold",
        when="this is Debian or Ubuntu",
        disturbs=_HELD,
    ),
    repair(
        "rpm -qa --qf '%{NAME}\\n' '*nvidia*' kernel 'kernel-core' 'kernel-devel*' 'kernel-modules*' "
        "| sort -u | xargs -r sudo dnf versionlock add",
        when="this is a Red Hat system or Amazon Linux (with python3-dnf-plugin-versionlock)",
        disturbs=_HELD,
    ),
    repair(
        "rpm -qa --qf '%{NAME}\\n' '*nvidia*' 'kernel-default*' 'kernel-macros' 'kernel-devel*' "
        "| sort -u | xargs -r sudo zypper addlock",
        when="this is SUSE",
        disturbs=_HELD,
    ),
)
"""Only what is installed, and with the kernel: Ubuntu has one module package per kernel
(linux-modules-nvidia-580-6.8.0-60-generic), Red Hat's precompiled kmod packages as well: a kernel that is
upgraded alone starts without a driver. Source: docs.nvidia.com/datacenter/tesla/driver-installation-guide/
version-locking.html; apt-mark(8), zypper(8)."""
RELOAD = Fix(
    "Stop what holds the driver and load the new kernel module, or reboot. Hold the driver's "
    "packages, so that unattended upgrades do not do it again in the middle of a job.",
    (
        look("grep -h -A4 nvidia /var/log/apt/history.log", when="this is Debian or Ubuntu"),
        *HOLD_PACKAGES,
        *driver_reload(),
    ),
    action="reboot",
    disturbs=_EVERY_JOB,
    verify="nodedoctor driver.module-userspace",
)
RECREATE = Fix(
    "Restart the container: the driver's libraries and devices are put into it when it starts, and the "
    "host's driver has changed since. If it fails again, the image brings driver libraries of its own: "
    "remove them.",
    (look("find / -xdev -name 'libnvidia-ml.so*' -o -xdev -name 'libcuda.so*'"),),
    action="restart-job",
    disturbs="what runs in this container",
    verify="nodedoctor driver.module-userspace",
    docs=TOOLKIT_GUIDE,
)
NO_DRIVER = Fix(
    "Load the driver, or find out why it does not load: no headers for this kernel (DKMS), secure boot "
    "refusing an unsigned module, nouveau holding the GPU, or no driver installed at all.",
    (
        look("dkms status"),
        look("uname -r"),
        look("mokutil --sb-state"),
        look("ubuntu-drivers list --gpgpu", when="this is Ubuntu and no driver is installed"),
        repair("sudo modprobe nvidia"),
        look("sudo dmesg | tail -20"),
    ),
    action="config",
    disturbs="nothing: no program can be using the GPUs",
    verify=VERIFY,
    docs=INSTALL_GUIDE,
)
OPEN_MODULES = Fix(
    "Install the open flavour of the kernel modules, of the same driver version: Blackwell GPUs do not work "
    "with the proprietary one.",
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
    "Drain the node and power it off and on again; a reboot alone often does not bring the GPU back. If "
    f"it comes back, burn it in before it works again; if not, have it reseated or replaced. {_TICKET}",
    (
        KERNEL_LOG,
        keep("sudo nvidia-bug-report.sh"),
        power_cycle("the evidence is kept and the node is drained"),
    ),
    action="drain",
    disturbs=_EVERY_JOB,
    verify="nodedoctor driver.gpus-present",
    docs=XID_GUIDE,
)
HUNG = Fix(
    "Drain the node and reboot it: a process in uninterruptible sleep inside the driver cannot be ended. "
    f"Keep the kernel's stacks first, they are what NVIDIA asks for. {_TICKET}",
    (
        KERNEL_LOG,
        look("ps -eo pid,stat,wchan:32,comm | awk '$2 ~ /D/'"),
        keep("sudo nvidia-bug-report.sh --safe-mode"),
        last_resort(
            "echo w | sudo tee /proc/sysrq-trigger",
            when="the node is drained and NVIDIA's support wants the kernel's stacks",
            disturbs="nothing, but a full kernel log may lose its oldest lines",
        ),
        reboot("the evidence is kept and the node is drained"),
        power_cycle("the reboot does not end: it waits for processes that cannot be ended"),
    ),
    action="reboot",
    disturbs=_EVERY_JOB,
    verify=VERIFY,
    docs=XID_GUIDE,
)
DEVICES_LOST = Fix(
    "Restart the container. `systemctl daemon-reload` on the host (also run by package updates) made "
    "systemd apply its device rules again, and those do not know the GPUs that were added behind its "
    "back. To prevent it: create the /dev/char links on the host, or name each device with --device, or "
    "use CDI.",
    (
        repair(
            "sudo nvidia-ctk system create-dev-char-symlinks --create-all",
            when="you are on the host",
            disturbs="nothing",
        ),
    ),
    action="restart-job",
    disturbs="what runs in this container",
    verify=VERIFY,
    docs=CGROUP_LOSS,
)
GIVE_GPUS = Fix(
    "Start the container with GPUs: the NVIDIA runtime puts devices and libraries into it. docker run takes "
    "`--gpus all` and `-e NVIDIA_DRIVER_CAPABILITIES=compute,utility`; in Slurm the job asks for its GPUs.",
    action="restart-job",
    disturbs="what runs in this container",
    verify=VERIFY,
    docs=TOOLKIT_GUIDE,
)
NO_DEVICES = Fix(
    f"The kernel log says why the driver could not start them (RmInitAdapter failed, Xid 79). {_TICKET}",
    (KERNEL_LOG, reboot("the kernel log is kept and the node is drained")),
    action="reboot",
    disturbs=_EVERY_JOB,
    verify=VERIFY,
    docs=XID_GUIDE,
)
NODES = Fix(
    "Give the user the device nodes: they are usually readable and writable for everybody.",
    (look("ls -l /dev/nvidia*"), look("grep DeviceFile /proc/driver/nvidia/params"), look("id")),
    action="config",
    disturbs="nothing",
    verify=VERIFY,
)
RESET = Fix(
    f"End what runs on the GPU and reset it. If that does not help, reboot. {_TICKET}",
    (KERNEL_LOG,),
    action="reset-gpu",
    disturbs="what runs on that GPU",
    verify=VERIFY,
)
INVESTIGATE = Fix(
    f"Look at the kernel log; reboot when it shows nothing. {_TICKET}",
    (
        KERNEL_LOG,
        keep("sudo nvidia-bug-report.sh"),
        reboot("the kernel log shows nothing and the node is drained"),
    ),
    action="reboot",
    disturbs=_EVERY_JOB,
    verify=VERIFY,
    docs=XID_GUIDE,
)
ON_THE_HOST = Fix(
    "Nothing inside the container can help: look at the driver on the host.",
    (look("nodedoctor driver"),),
    action="investigate",
    verify=VERIFY,
)
LIBRARY = Fix(
    "Install the driver's libraries, of exactly the version of the kernel module.",
    (look("cat /proc/driver/nvidia/version"), look("ldconfig -p | grep libnvidia-ml")),
    action="config",
    disturbs="nothing",
    verify=VERIFY,
    docs=INSTALL_GUIDE,
)
STUB = Fix(
    "Take the folder with the stub out of the loader's way: the real library belongs to the driver.",
    (look("ldconfig -p | grep libnvidia-ml"), look("printenv LD_LIBRARY_PATH")),
    action="config",
    disturbs="nothing",
    verify=VERIFY,
)
WINDOWS = Fix(
    "Update the driver on the Windows side and WSL itself, then start WSL again. Inside WSL no driver is "
    "installed.",
    (
        repair("wsl --update"),
        last_resort("wsl --shutdown", when="the update is installed", disturbs="everything in WSL"),
    ),
    action="restart-service",
    disturbs="everything in WSL",
    verify=VERIFY,
    docs="https://docs.nvidia.com/cuda/wsl-user-guide/",
)
POWER = Fix(
    f"Check the GPU's power cables and the power supplies. {_TICKET}",
    (KERNEL_LOG, look("sudo ipmitool sel list | tail")),
    action="drain",
    disturbs=_EVERY_JOB,
    verify=VERIFY,
)
CORRUPT = Fix(
    "Reboot once; an InfoROM that stays corrupt cannot be repaired in the field: have the board replaced. "
    f"{_TICKET}",
    (look("nvidia-smi -q -d INFOROM"), reboot("the node is drained")),
    action="replace",
    disturbs=_EVERY_JOB,
    verify="nodedoctor gpu.inforom",
)
UPDATE = Fix(
    "Bring driver and nvidia-ml-py to versions of the same time: one does not know what the other asks.",
    (look("cat /proc/driver/nvidia/version"),),
    action="config",
    disturbs="nothing",
    verify=VERIFY,
)
WAIT = Fix(
    "Ask again when the node is idle and up for some minutes; look at the kernel log if it stays so.",
    (look("nvidia-smi"), KERNEL_LOG),
    action="investigate",
    disturbs="nothing",
    verify=VERIFY,
)
FABRIC = Fix(
    "Restart the fabric manager: without it no CUDA program starts on a board with NVSwitches.",
    (
        look("nodedoctor fabric"),
        last_resort(
            "sudo systemctl restart nvidia-fabricmanager",
            when="no job runs on this node",
            disturbs=_EVERY_JOB,
        ),
    ),
    action="restart-service",
    disturbs=_EVERY_JOB,
    verify="nodedoctor fabric",
)
