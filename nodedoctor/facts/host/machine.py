"""What kind of machine this is: bare metal, virtual (and its maker), WSL2 or Tegra; its system and size."""

from __future__ import annotations

import re
from typing import Any, Literal

from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command, Options, fact, probe
from nodedoctor.facts.fabric.fabric_nodes import CHANNELS, MANAGEMENT
from nodedoctor.facts.files import Files
from nodedoctor.facts.host.numa import cpu_list
from nodedoctor.facts.shapes import assignments, kib_to_gib
from nodedoctor.knowledge.clouds import PLACES
from nodedoctor.model import Observation, Unseen
from nodedoctor.record import record

Form = Literal["bare-metal", "vm", "wsl2", "tegra"]

DMI = "/sys/class/dmi/id"
_READ = (
    "/proc/sys/kernel/hostname",
    "/proc/sys/kernel/osrelease",
    "/proc/sys/kernel/arch",
    "/proc/sys/kernel/random/boot_id",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/uptime",
    "/proc/device-tree/model",
    "/proc/device-tree/compatible",
    "/etc/os-release",
    "/etc/nv_tegra_release",
    "/sys/devices/system/cpu/online",
    "/sys/devices/system/clocksource/clocksource0/available_clocksource",
    "/sys/hypervisor/type",
    *(
        f"{DMI}/{name}"
        for name in ("sys_vendor", "product_name", "board_vendor", "chassis_asset_tag", "bios_vendor")
    ),
)

# What firmware calls itself in a virtual machine: systemd, src/basic/virt.c, dmi_vendor_table.
_HYPERVISORS = {
    "Amazon EC2": "kvm",
    "Google Compute Engine": "kvm",
    "QEMU": "kvm",
    "KVM": "kvm",
    "OpenStack": "kvm",
    "KubeVirt": "kvm",
    "VMware": "vmware",
    "VMW": "vmware",
    "innotek GmbH": "virtualbox",
    "VirtualBox": "virtualbox",
    "Xen": "xen",
    "Bochs": "bochs",
    "Parallels": "parallels",
    "BHYVE": "bhyve",
    "Hyper-V": "hyperv",
    "Virtual Machine": "hyperv",
    "Apple Virtualization": "apple",
    "Alibaba Cloud ECS": "kvm",
}
# Clocks a guest kernel offers only under that hypervisor: linux, arch/x86/kernel/kvmclock.c and its like.
_CLOCKS = {"kvm-clock": "kvm", "hyperv_clocksource": "hyperv", "xen": "xen"}

# How clouds mark their machines, also bare-metal ones: cloud-init, tools/ds-identify.
_CLOUDS = {
    "Amazon EC2": "aws",
    "Google Compute Engine": "gcp",
    "7783-7084-3265-9085-8269-3286-77": "azure",
    "OracleCloud.com": "oci",
    "Alibaba Cloud ECS": "alibaba",
    "DigitalOcean": "digitalocean",
    "Hetzner": "hetzner",
    "HUAWEICLOUD": "huawei",
    "Tencent Cloud": "tencent",
    "OpenStack": "openstack",
    "Scaleway": "scaleway",
    "Vultr": "vultr",
    "Akamai": "akamai",
    "nebius": "nebius",
}


@probe("machine", timeout=5)
def machine_files(options: Options) -> Command:
    """Firmware's names, kernel, processors and memory, from /proc and /sys."""
    words = [f"read:{path}" for path in _READ]
    # Those of facts/fabric/fabric_nodes.py and host/cloud_plugins.py are here too: they ask no driver.
    words += [f"stat:{MANAGEMENT}", f"list:{CHANNELS}", *(f"stat:{place}" for place in PLACES)]
    return Command(child("host/files", "--root", options.root, *words, "stat:/dev/dxg"))


@fact("machine")
@record
class Machine:
    """This machine. `form` is None when nothing tells; `hypervisor` and `cloud` are None when unnamed.

    `cpus` are those online, all of the host's also inside a container.
    """

    hostname: str | None = None
    kernel: str | None = None
    distro: str | None = None
    distro_id: str | None = None
    distro_version: str | None = None
    arch: str | None = None
    form: Form | None = None
    hypervisor: str | None = None
    cloud: str | None = None
    vendor: str | None = None
    product: str | None = None
    boot_id: str | None = None
    uptime_seconds: float | None = None
    cpu_model: str | None = None
    cpus: int | None = None
    memory_gib: float | None = None

    @classmethod
    def parse(cls, observation: Observation) -> Machine | Unseen:
        """Read the files; whatever is missing stays None."""
        files = Files.parse_json(observation)
        if isinstance(files, Unseen):
            return files
        release = os_release(files.text("/etc/os-release") or "")
        cpuinfo = files.text("/proc/cpuinfo") or ""
        online = files.text("/sys/devices/system/cpu/online")
        form, hypervisor = _machine_form(files, cpuinfo)
        return cls(
            hostname=files.text("/proc/sys/kernel/hostname"),
            kernel=files.text("/proc/sys/kernel/osrelease"),
            distro=release.get("PRETTY_NAME"),
            distro_id=release.get("ID"),
            distro_version=release.get("VERSION_ID"),
            arch=files.text("/proc/sys/kernel/arch") or _cpu_arch(cpuinfo),
            form=form,
            hypervisor=hypervisor,
            cloud=_row_in_firmware(_CLOUDS, files),
            vendor=files.text(f"{DMI}/sys_vendor"),
            product=files.text(f"{DMI}/product_name") or files.text("/proc/device-tree/model"),
            boot_id=files.text("/proc/sys/kernel/random/boot_id"),
            uptime_seconds=_uptime_seconds(files.text("/proc/uptime")),
            cpu_model=_cpu_line(cpuinfo, "model name"),
            cpus=len(cpu_list(online)) if online else None,
            memory_gib=kib_to_gib(files.meminfo().get("MemTotal")),
        )

    @property
    def virtual(self) -> bool:
        """True inside a virtual machine, WSL2 included."""
        return self.form in ("vm", "wsl2")

    def headline(self) -> dict[str, Any]:
        """What the report's `node` says about the machine."""
        return {"form": self.form, "cloud": self.cloud, "product": self.product, "kernel": self.kernel}


def os_release(text: str) -> dict[str, str]:
    """The assignments of /etc/os-release."""
    return {key: value.strip("\"'") for key, value in assignments(text, "=").items()}


def _machine_form(files: Files, cpuinfo: str) -> tuple[Form | None, str | None]:
    """The form and the hypervisor. On x86 the processor says whether it is virtual, firmware its maker."""
    kernel = (files.text("/proc/sys/kernel/osrelease") or "").lower()
    if "microsoft" in kernel or "/dev/dxg" in files.stats:
        return "wsl2", "hyperv"
    if files.text("/etc/nv_tegra_release") or "nvidia,tegra" in (
        files.text("/proc/device-tree/compatible") or ""
    ):
        return "tegra", None
    hypervisor = (
        files.text("/sys/hypervisor/type")
        or _row_in_firmware(_HYPERVISORS, files)
        or _clock_hypervisor(files)
    )
    flags = _cpu_line(cpuinfo, "flags")
    if flags is not None:
        return ("vm", hypervisor) if "hypervisor" in flags.split() else ("bare-metal", None)
    if hypervisor is not None and "metal" not in (files.text(f"{DMI}/product_name") or ""):
        return "vm", hypervisor
    return ("bare-metal", None) if files.text(f"{DMI}/sys_vendor") else (None, None)


def _row_in_firmware(table: dict[str, str], files: Files) -> str | None:
    """The row whose name firmware carries in one of its fields."""
    fields = [text for name, text in files.under(DMI).items() if name != "board_serial"]
    hit = (row for name, row in table.items() if any(text.startswith(name) for text in fields))
    return next(hit, None)


def _clock_hypervisor(files: Files) -> str | None:
    here = "/sys/devices/system/clocksource/clocksource0/available_clocksource"
    clocks = (files.text(here) or "").split()
    return next((row for name, row in _CLOCKS.items() if any(c.startswith(name) for c in clocks)), None)


def _cpu_line(cpuinfo: str, key: str) -> str | None:
    match = re.search(rf"^{key}[ \t]*:[ \t]*(\S.*)$", cpuinfo, re.MULTILINE)
    return match.group(1).strip() if match else None


def _cpu_arch(cpuinfo: str) -> str | None:
    """For kernels before 6.1, which do not say: x86 lists flags (lm: 64 bits), ARM a version."""
    flags = _cpu_line(cpuinfo, "flags")
    if flags is not None:
        return "x86_64" if "lm" in flags.split() else "i686"
    return "aarch64" if _cpu_line(cpuinfo, "CPU architecture") == "8" else None


def _uptime_seconds(uptime: str | None) -> float | None:
    match = re.match(r"(\d{1,12}(?:\.\d+)?)\s", uptime or "")
    return float(match.group(1)) if match else None
