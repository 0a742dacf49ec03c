"""NVIDIA's driver as files show it: module, libraries, device nodes. Nothing here asks the driver itself."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

from nodedoctor.children.programs import child
from nodedoctor.declare.cache import once
from nodedoctor.declare.registry import Command, Lane, Options, fact, probe
from nodedoctor.facts import shapes
from nodedoctor.facts.files import Files, whole_number
from nodedoctor.facts.pci.pci import bdf
from nodedoctor.facts.shapes import assignments
from nodedoctor.model import Evidence, Observation, Unseen, file_reading, quoted_like, reading
from nodedoctor.record import field, record

PROC = "/proc/driver/nvidia"
LIBRARIES = ("libnvidia-ml.so.1", "libcuda.so.1")
LIBRARY_DIRS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/local/nvidia/lib64",  # where GKE and its container images keep the driver
    "/usr/lib/wsl/lib",
)
PEER_MODULES = ("nvidia_peermem", "nv_peer_mem", "efa_nv_peermem")
"""What lets adapters reach GPU memory; the last one is Amazon's: openucx/ucx pull request 10704."""
MODULES = ("nvidia", "nvidia_uvm", "nvidia_modeset", "nvidia_drm", "nvidia_fs", "gdrdrv", *PEER_MODULES)
RIVALS = ("nouveau", "nova_core")
"""Kernel modules that take a GPU away from NVIDIA's driver."""

_AUTO_UPGRADES = "/etc/apt/apt.conf.d/20auto-upgrades"
UPGRADES_ON = quoted_like("driver-files", r"^.*Unattended-Upgrade\b.*", f'files["{_AUTO_UPGRADES}"]')
_NODES = ("nvidiactl", "nvidia-uvm", "nvidia[0-9]*")
_WSL, _TEGRA = "/dev/dxg", "/etc/nv_tegra_release"
_PEER_MEMORY = "/sys/kernel/mm/memory_peers"
_USUAL = ("ENOENT", "EINVAL")  # not there; not a link
_VERSION = re.compile(r"\b(\d{3,4}\.\d{1,4}(?:\.\d{1,4})?)\b")
_FILE_VERSION = re.compile(r"\.so\.(\d{3,4}\.\d{1,4}(?:\.\d{1,4})?)$")


@probe("driver-files", timeout=5, lane=Lane.FS)
def driver_files(options: Options) -> Command:
    """Version and parameters of the kernel module, device nodes, and the driver libraries on disk."""
    words = [f"read:{PROC}/version", f"read:{PROC}/params", f"read:{PROC}/gpus/*/information"]
    words += ["read:/proc/modules", "read:/sys/module/nvidia/version", f"read:{_AUTO_UPGRADES}"]
    words += [f"stat:/dev/{name}" for name in _NODES] + [f"stat:{_WSL}", f"stat:{_TEGRA}"]
    for folder in LIBRARY_DIRS:
        words += [f"link:{folder}/{name[:-1]}[1]" for name in LIBRARIES]
        words += [f"stat:{folder}/{name[:-1]}[1-9]*" for name in LIBRARIES]
    words += [f"stat:{_PEER_MEMORY}/*/version"]
    words += ["stat:/var/lib/dpkg/status", "stat:/var/lib/rpm"]  # packages.py asks the one there is
    # The driver's files wait for its locks, so each is read by a process of its own.
    return Command(child("host/files", "--root", options.root, "--each", "3", *words))


@record
class DriverLibrary:
    """One copy of a driver library: `name` as programs ask for it, the version its file name carries."""

    name: str
    folder: str
    version: str | None

    @property
    def said(self) -> Evidence:
        """Where the file that programs ask for leads to."""
        path = f"{self.folder}/{self.name}"
        return reading("driver-files", f'links["{path}"]', f'stats["{path}"]')


@record
class DeviceNode:
    """A device node below /dev. `access` is what we may do with it (rw, r, w or nothing), None when not said.

    `refused_by` tells the device cgroup from the mode of the file; None when access is complete or unclear.
    """

    path: str
    mode: str
    access: str | None
    refused_by: Literal["cgroup", "mode"] | None

    @property
    def said(self) -> Evidence:
        """Mode, owner and our access, as they were looked up."""
        return file_reading("driver-files", self.path, "stats")

    @property
    def minor(self) -> int | None:
        """The GPU's minor number; None for nvidiactl and nvidia-uvm."""
        return whole_number(self.path.removeprefix("/dev/nvidia"))

    @property
    def usable(self) -> bool:
        """False only when we know that it may not be opened for reading and writing."""
        return self.access in (None, "rw")


@record
class DriverGpu:
    """A GPU the kernel module drives. `minor` names its node, `excluded` is an administrator's choice."""

    bus_id: str
    minor: int | None = None
    uuid: str | None = None
    model: str | None = None
    excluded: bool = False


@fact("driver-files")
@record
class Driver:
    """The kernel module and the files around it.

    `loaded` is None when not known. `modules` maps a loaded module of NVIDIA or a rival to its state
    (Live, Loading, Unloading), None when the list could not be read. `platform` marks drivers of another
    kind. `peer_memory` are the names under which modules serve adapters that reach GPU memory (nv_mem).
    `errors` says why a file could not be read (TIMEOUT: the driver holds a lock).
    """

    loaded: bool | None = None
    version: str | None = None
    kind: Literal["open", "proprietary"] | None = None
    version_text: str = ""
    modules: Mapping[str, str] | None = None
    gpus: tuple[DriverGpu, ...] = ()
    nodes: tuple[DeviceNode, ...] = ()
    libraries: tuple[DriverLibrary, ...] = ()
    params: Mapping[str, str] = field(default_factory=dict)
    platform: Literal["wsl2", "tegra"] | None = None
    peer_memory: tuple[str, ...] = ()
    unattended_upgrades: bool | None = None
    errors: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    @once
    def parse(cls, observation: Observation) -> Driver | Unseen:
        """Read the child's document; what is not there stays None or empty."""
        files = Files.parse_json(observation)
        if isinstance(files, Unseen):
            return files
        line = (files.text(f"{PROC}/version") or "").partition("\n")[0]
        match = _VERSION.search(line)
        modules = _module_states(files.text("/proc/modules"))
        return cls(
            loaded=_is_loaded(files, modules),
            version=match[1] if match else shapes.version(files.text("/sys/module/nvidia/version")) or None,
            kind=_module_kind(line),
            version_text=line,
            modules=modules,
            gpus=_driver_gpus(files),
            nodes=_device_nodes(files),
            libraries=_driver_libraries(files),
            params=_module_params(files.text(f"{PROC}/params") or ""),
            platform="wsl2" if _WSL in files.stats else "tegra" if _TEGRA in files.stats else None,
            peer_memory=tuple(
                sorted(path.split("/")[-2] for path in files.stats if path.startswith(f"{_PEER_MEMORY}/"))
            ),
            unattended_upgrades=_upgrades_unattended(files),
            errors={path: error for path, error in files.errors.items() if error not in _USUAL},
        )

    @property
    def gpu_nodes(self) -> tuple[DeviceNode, ...]:
        """The nodes of GPUs, without nvidiactl and nvidia-uvm."""
        return tuple(node for node in self.nodes if node.minor is not None)

    def node(self, minor: int | None) -> DeviceNode | None:
        """The node of a GPU by its minor number."""
        return next((node for node in self.gpu_nodes if node.minor == minor), None)

    def versions(self, library: str) -> tuple[str, ...]:
        """The different versions of a library on disk, those without a version in their name left out."""
        versions = {lib.version: None for lib in self.libraries if lib.name == library and lib.version}
        return tuple(version for version in versions if version)


def module_version() -> Evidence:
    """The line in which the loaded kernel module names its version."""
    return quoted_like("driver-files", r"^.*\b\d{3,4}\.\d.*", f'files["{PROC}/version"]')


def module_line(name: str) -> Evidence:
    """A module's line among those that are loaded."""
    return quoted_like("driver-files", rf"^{re.escape(name)} .*", 'files["/proc/modules"]')


def _is_loaded(files: Files, modules: Mapping[str, str] | None) -> bool | None:
    """Whether nvidia.ko is loaded. /proc/driver and /proc/modules are the host's, also inside a container."""
    if files.text(f"{PROC}/version") or files.text("/sys/module/nvidia/version"):
        return True
    if modules is not None:
        return "nvidia" in modules
    return False if files.error(f"{PROC}/version") == "ENOENT" else None


def _module_kind(line: str) -> Literal["open", "proprietary"] | None:
    if "Kernel Module" not in line:
        return None
    return "open" if "Open Kernel Module" in line else "proprietary"


def _module_states(text: str | None) -> dict[str, str] | None:
    """Name and state of the modules that matter here, from /proc/modules."""
    if text is None:
        return None
    rows = (line.split() for line in text.splitlines())
    return {row[0]: row[4] for row in rows if len(row) > 4 and row[0] in (*MODULES, *RIVALS)}


def _driver_gpus(files: Files) -> tuple[DriverGpu, ...]:
    return tuple(
        _driver_gpu(address, files.text(f"{PROC}/gpus/{address}/information") or "")
        for address in files.children(f"{PROC}/gpus")
        if re.fullmatch(r"[0-9a-fA-F:.]+", address)
    )


def _driver_gpu(address: str, text: str) -> DriverGpu:
    fields = assignments(text)
    return DriverGpu(
        bus_id=bdf(address),
        minor=whole_number(fields.get("Device Minor")),
        uuid=_is_read(fields.get("GPU UUID")),
        model=_is_read(fields.get("Model")),
        excluded="Yes" in (fields.get("GPU Excluded"), fields.get("Blacklisted")),
    )


def _is_read(value: str | None) -> str | None:
    """The driver prints question marks for what it has not read yet: GPU-????????-????."""
    return None if not value or "?" in value or value == "Unknown" else value


def _device_nodes(files: Files) -> tuple[DeviceNode, ...]:
    paths = sorted(path for path in files.stats if path.startswith("/dev/nvidia"))
    return tuple(_device_node(path, files.stats[path]) for path in paths)


def _device_node(path: str, stat: Mapping[str, object]) -> DeviceNode:
    mode = str(stat.get("mode", ""))
    access = stat.get("access")
    if not isinstance(access, str):
        return DeviceNode(path, mode, None, None)
    if access == "rw":
        return DeviceNode(path, mode, access, None)
    return DeviceNode(path, mode, access, "cgroup" if mode[-1:] in ("6", "7") else "mode")


def _driver_libraries(files: Files) -> tuple[DriverLibrary, ...]:
    """Every folder's copy of every library, once; Debian's /usr/lib64 may be another name of a folder."""
    libraries = (_driver_library(files, folder, name) for folder in LIBRARY_DIRS for name in LIBRARIES)
    return tuple(library for library in libraries if library)


def _driver_library(files: Files, folder: str, name: str) -> DriverLibrary | None:
    path = f"{folder}/{name}"
    target = files.link(path)
    if target is None and path not in files.stats:
        return None
    version = _FILE_VERSION.search(target or "")
    return DriverLibrary(name, folder, version[1] if version else None)


def _module_params(text: str) -> dict[str, str]:
    """The module parameters that change what people see: firmware, device files, hidden GPUs."""
    names = ("EnableGpuFirmware", "ModifyDeviceFiles", "DeviceFileMode", "ExcludedGpus")
    return {key: value.strip('"') for key, value in assignments(text).items() if key in names}


def _upgrades_unattended(files: Files) -> bool | None:
    """Whether apt upgrades packages by itself; None where that is not configured, or not Debian."""
    text = files.text(_AUTO_UPGRADES)
    if text is None:
        return None
    return re.search(r'Unattended-Upgrade\s+"[1-9]', text) is not None
