"""Resetting one GPU and loading the driver again: the same steps wherever a check suggests them.

Both write down what ran before and start exactly that again. Sources: nvidia-smi(1) on --gpu-reset (no
process, no monitor and no persistence daemon may hold the device), modprobe(8), and for unloading the modules
docs.nvidia.com/datacenter/tesla/driver-installation-guide.
"""

from __future__ import annotations

from nodedoctor.model import Fix, Step
from nodedoctor.patterns import regex
from nodedoctor.record import replace
from nodedoctor.steps import ALL_JOBS, last_resort, look, reboot, repair, resets

ONE_GPU = "processes on this GPU"
KERNEL_LOG = look("sudo dmesg | grep -iE 'xid|nvrm|fallen off'")
HOLDERS = look("sudo fuser -v /dev/nvidia*")
START_FABRIC = repair(
    "sudo systemctl enable --now nvidia-fabricmanager",
    when="no job runs on the board's GPUs",
    disturbs="every job on the board's GPUs",
)
"""It sets up the NVSwitches again (fabric manager user guide): a job that still runs may lose its links."""
_MONITORS_TO_FILE = (
    "systemctl list-units --state=running --plain --no-legend 'nvidia-persistenced*' '*dcgm*' '*exporter*' "
    "| awk '{print $1}' > nodedoctor-stopped.txt"
)
_SERVICES_TO_FILE = (
    "systemctl list-units --state=running --plain --no-legend 'nvidia*' '*dcgm*' '*exporter*' "
    "| awk '{print $1}' > nodedoctor-stopped.txt"
)
_MONITORS = "monitoring of this node's GPUs"
_MODULES = "nodedoctor-modules.txt"
_UNTRIED = "not tried on this model"
_MADE_HERE = regex(
    r"nodedoctor-(?:stopped|modules)\.txt|nvidia-smi -i \S+ -pm [01]$|modprobe -(?:r|a) |/dev/nvidia\*$"
)
_WORDS_OF = {"apt": "Ubuntu", "dnf": "Red Hat", "zypper": "SUSE"}
"""How a step's condition names the distributions of a tool: `this is Debian or Ubuntu`."""
_DISTRIBUTIONS = {
    **dict.fromkeys(("ubuntu", "debian"), "apt"),
    **dict.fromkeys(("rhel", "rocky", "almalinux", "centos", "ol", "fedora", "amzn"), "dnf"),
    **dict.fromkeys(("sles", "sled", "opensuse-leap"), "zypper"),
}
_ELSEWHERE = {
    "container": (
        "Not possible from inside a container: ask the administrator of the host.",
        "you own the host and are logged in to it",
    ),
    "rented": (
        "This machine is virtual or rented: reboot it from the provider's console, or request a replacement.",
        "the provider's support asks for it",
    ),
}


def gpu_reset(
    index: int | str | None, disturbs: str = ONE_GPU, *, may_reboot: bool = True
) -> tuple[Step, ...]:
    """Reset one GPU (its index, its bus address, or several with commas); the reboot, if any, comes last.

    Without an index only what shows which GPU it is, and the reboot: a wrong number resets another one.

    From Ampere on each GPU is reset alone, also on boards with NVSwitch, where on Ampere the fabric manager
    has to run (nvidia-smi(1), --gpu-reset). Otherwise all GPUs joined by NVLink are reset in one command:
    given one of them, nvidia-smi fails and names those to add.
    """
    last = (reboot("the reset fails and the node is drained"),) if may_reboot else ()
    if index is None:
        return (look("nvidia-smi -L"), HOLDERS, *last)
    return (
        HOLDERS,
        repair(_MONITORS_TO_FILE, disturbs="nothing"),
        repair("xargs -r sudo systemctl stop < nodedoctor-stopped.txt", disturbs=_MONITORS),
        repair("sudo nvidia-smi -i {} -pm 0", index, when="persistence mode is on", disturbs="nothing"),
        repair(
            "sudo nvidia-smi --gpu-reset -i {}",
            index,
            when=f"no process uses the GPU ({_UNTRIED})",
            disturbs=disturbs,
        ),
        repair("sudo nvidia-smi -i {} -pm 1", index, when="persistence mode was on", disturbs="nothing"),
        repair("xargs -r sudo systemctl start < nodedoctor-stopped.txt", disturbs="nothing"),
        *last,
    )


def driver_reload() -> tuple[Step, ...]:
    """Load the driver's kernel modules again without a reboot; the reboot comes last."""
    idle = f"no job runs on this node and no process uses a GPU ({_UNTRIED})"
    ready = "the step before succeeded"
    return (
        HOLDERS,
        repair(_SERVICES_TO_FILE, disturbs="nothing"),
        repair(
            "lsmod | awk '/^(nvidia|nv_peer_mem|efa_nv_peermem|gdrdrv)/ {print $1}' > nodedoctor-modules.txt",
            disturbs="nothing",
        ),
        last_resort("xargs -r sudo systemctl stop < nodedoctor-stopped.txt", when=idle, disturbs=ALL_JOBS),
        last_resort("xargs -r sudo modprobe -r < nodedoctor-modules.txt", when=ready, disturbs=ALL_JOBS),
        last_resort("tac nodedoctor-modules.txt | xargs -r sudo modprobe -a", when=ready, disturbs="nothing"),
        last_resort("xargs -r sudo systemctl start < nodedoctor-stopped.txt", when=ready, disturbs="nothing"),
        reboot("the node is drained, instead of the reload"),
    )


def package_tool(distro_id: str | None) -> str:
    """What installs packages on a distribution, by its ID in /etc/os-release: apt, dnf, zypper or nothing."""
    return _DISTRIBUTIONS.get(distro_id or "", "")


def where_it_stands(fix: Fix, *, inside: bool, rented: bool) -> Fix:
    """The fix for this place: no GPU reset or driver reload first where others own the machine.

    That is in a container and on a virtual or rented machine. Of such a recipe only the reset itself and the
    reboot are left, both as last resorts.
    """
    if not (inside or rented) or not touches_driver(fix):
        return fix
    words, when = _ELSEWHERE["container" if inside else "rented"]
    steps = [
        replace(step, role="last-resort", when=when, disturbs=step.disturbs or fix.disturbs)
        if resets(step.command) or "reboot" in step.command
        else step
        for step in fix.steps
        if not _MADE_HERE.search(step.command)
    ]
    action = "reboot" if rented and fix.action == "reset-gpu" else fix.action
    return replace(fix, text=f"{fix.text} {words}", steps=tuple(steps), action=action)


def for_distribution(fix: Fix, distro_id: str) -> Fix:
    """The fix without the steps of other distributions; unchanged where this one is not known."""
    here = _DISTRIBUTIONS.get(distro_id)
    if here is None:
        return fix
    return replace(fix, steps=tuple(step for step in fix.steps if _is_applicable(step, here)))


def names_distribution(fix: Fix) -> bool:
    """Whether some step is for one distribution only."""
    return any(step.when.startswith("this is ") for step in fix.steps)


def _is_applicable(step: Step, here: str) -> bool:
    names_place = step.when.startswith("this is ") and any(word in step.when for word in _WORDS_OF.values())
    return not names_place or _WORDS_OF[here] in step.when


def touches_driver(fix: Fix) -> bool:
    """Whether a fix resets a GPU or reloads the driver."""
    return any(resets(step.command) or _MODULES in step.command for step in fix.steps)
