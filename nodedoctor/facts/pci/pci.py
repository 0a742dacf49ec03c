"""The PCI bus as sysfs shows it: what hardware is there, known without any driver.

Sysfs is not namespaced: a container or job sees every device of the host, also those it may not use.
"""

from __future__ import annotations

import re
from typing import Any

from nodedoctor.children.programs import child
from nodedoctor.declare.cache import once
from nodedoctor.declare.registry import Command, Lane, Options, fact, probe
from nodedoctor.declare.unread import Unread, unread
from nodedoctor.facts.files import Files, whole_number
from nodedoctor.knowledge.gpus import is_nvswitch
from nodedoctor.model import Evidence, Observation, Unseen, file_reading, quoted_like, reading
from nodedoctor.record import as_dict, field, record

DEVICES = "/sys/bus/pci/devices"
NVIDIA, MELLANOX = "10de", "15b3"
GIVEN_AWAY = frozenset({"vfio-pci", "pciback", "pci-stub"})
"""Kernel drivers of devices that are passed through to virtual machines."""
_ADDRESS = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_IDENTITY = ("vendor", "device", "class", "subsystem_vendor", "subsystem_device", "numa_node")
_LINK = ("current_link_speed", "current_link_width", "max_link_speed", "max_link_width")


@probe("pci", timeout=10, lane=Lane.FS)
def pci_devices(options: Options) -> Command:
    """All PCI devices from sysfs: identity, link, driver, place in the tree, configuration space."""
    words = [f"read:{DEVICES}/*/{name}" for name in _IDENTITY]
    words += [
        f"link:{DEVICES}/*",
        *(f"link:{DEVICES}/*/{name}" for name in ("driver", "physfn", "iommu_group")),
    ]
    words += [f"read:{DEVICES}/*/{name}" for name in _LINK]
    # 64 bytes tell whether a device is alive. Only bridges are read further, for their ACS capability:
    # there are devices that do not survive being read everywhere (see the warning in lspci(8), -xxx).
    words += [f"hex64:{DEVICES}/*/config", f"hex:{DEVICES}/*/pci_bus/../config"]
    return Command(child("host/files", "--root", options.root, *words))


def device_evidence(device: PciDevice, *names: str) -> list[Evidence]:
    """What the files of a device hold, its links and the beginning of its configuration space included.

    A link that is not there is shown as absent: every device has been asked for all of them.
    """
    return slot_said(device.address, *names)


def slot_said(address: str, *names: str) -> list[Evidence]:
    """The same, of the device at an address."""
    return [_file_evidence(f"{DEVICES}/{address}/{name}", name) for name in names]


def _file_evidence(path: str, name: str) -> Evidence:
    if name == "config":
        return quoted_like("pci", "^[0-9a-f]{1,128}", f'hex["{path}"]')
    if name in ("driver", "physfn", "iommu_group"):
        return reading("pci", f'links["{path}"]?')
    return file_reading("pci", path)


@record
class PciLink:
    """A PCIe link: speed in GT/s per lane and width in lanes, as trained now and as the device can do."""

    speed_gts: float | None = None
    width: int | None = None
    max_speed_gts: float | None = None
    max_width: int | None = None


@record
class PciDevice:
    """One function on the bus. Ids are hex words without 0x: vendor 10de, class_code 030200.

    `upstream` are the addresses of the bridges above it, the root port first; `physfn` is set on an SR-IOV
    virtual function. `config` is hex: 64 bytes, of bridges all an ordinary user (64) or root (4096) may read.
    """

    address: str
    vendor: str
    device: str
    class_code: str
    subsystem: str = ""
    numa_node: int | None = None
    driver: str | None = None
    link: PciLink | None = None
    physfn: str | None = None
    iommu_group: str | None = None
    upstream: tuple[str, ...] = ()
    config: str = ""
    errors: dict[str, str] = field(default_factory=dict)

    @property
    def pci_id(self) -> str:
        """Vendor and device, as lspci -n writes them: 10de:2330."""
        return f"{self.vendor}:{self.device}"

    @property
    def off_bus(self) -> bool:
        """True when every byte of its configuration space reads ff: the device no longer answers."""
        return bool(self.config) and not self.config.strip("f")

    @property
    def is_gpu(self) -> bool:
        """An NVIDIA GPU: class VGA (0300) or 3D controller (0302), and no virtual function of one."""
        display = self.class_code.startswith(("0300", "0302"))
        return self.vendor == NVIDIA and display and self.physfn is None

    @property
    def is_nvswitch(self) -> bool:
        """An NVSwitch that shows on the host's bus."""
        return self.vendor == NVIDIA and is_nvswitch(self.device)

    @property
    def is_nic(self) -> bool:
        """A network controller of any maker (class 02), virtual functions included."""
        return self.class_code.startswith("02")

    def shares_switch(self, device: PciDevice) -> bool:
        """Whether both are behind one PCIe switch: below their root port a bridge is common to them."""
        return len(self.upstream) > 1 and self.upstream[:2] == device.upstream[:2]


@fact("pci")
@record
class Pci:
    """Which devices are on the PCI bus: GPUs, NVSwitches, network adapters, and the bridges above them."""

    devices: tuple[PciDevice, ...]
    incomplete: tuple[str, ...] = ()
    """Addresses of which something is known, but not what every device has."""

    @classmethod
    def parse(cls, observation: Observation) -> Pci | Unseen:
        """Read the sysfs files; a bus that is not there (Tegra, containers without /sys) is unseen."""
        bus = cls._read_sysfs(observation)
        for address in bus.incomplete if isinstance(bus, Pci) else ():
            unread(Unread(f"PCI device {address}", "not all of its files are there", "driver.gpus-present"))
        return bus

    @classmethod
    @once
    def _read_sysfs(cls, observation: Observation) -> Pci | Unseen:
        files = Files.parse_json(observation)
        if isinstance(files, Unseen):
            return files
        if (error := files.error(DEVICES)) is not None:
            way_out = "Mount the host's /sys, or run on the host."
            return Unseen("not-visible-here", f"{DEVICES}: {error}", way_out, observation.probe)
        addresses = [name for name in files.children(DEVICES) if _ADDRESS.fullmatch(name)]
        devices = {name: _read_device(files, name) for name in addresses}
        linked = any(files.link(f"{DEVICES}/{name}") for name in addresses)
        lacking = (n for n in addresses if not devices[n] or (linked and not files.link(f"{DEVICES}/{n}")))
        readable = tuple(device for device in devices.values() if device is not None)
        return cls(readable, tuple(lacking)) if readable or not addresses else Unseen.of(observation)

    def missing(self, present: int, expected: int) -> int | Unseen:
        """How many devices of a kind are missing; unseen where one that cannot be read may be among them."""
        if present < expected and self.incomplete:
            why = f"PCI device {self.incomplete[0]} cannot be read: it may be the one that is missing"
            return Unseen("unparsable", why)
        return max(expected - present, 0)

    @property
    def gpus(self) -> tuple[PciDevice, ...]:
        """NVIDIA GPUs in order of address."""
        return tuple(device for device in self.devices if device.is_gpu)

    @property
    def nvswitches(self) -> tuple[PciDevice, ...]:
        """NVSwitches on the host's bus."""
        return tuple(device for device in self.devices if device.is_nvswitch)

    @property
    def mellanox_nics(self) -> tuple[PciDevice, ...]:
        """ConnectX and BlueField network functions that are no virtual functions of a port here."""
        nics = (device for device in self.devices if device.is_nic and device.vendor == MELLANOX)
        return tuple(device for device in nics if device.physfn is None)

    @property
    def nvidia(self) -> bool:
        """True when any NVIDIA device is there, be it only a switch or an audio function."""
        return any(device.vendor == NVIDIA for device in self.devices)

    def at(self, address: str) -> PciDevice | None:
        """The device at an address in any spelling (00000000:1B:00.0, 0000:1b:00, 1b:00.0)."""
        wanted = bdf(address)
        return next((device for device in self.devices if device.address == wanted), None)

    def public(self) -> dict[str, Any]:
        """GPUs, switches and network adapters; the rest only counted."""
        shown = [device for device in self.devices if device.is_gpu or device.is_nvswitch or device.is_nic]
        rows = [as_dict(device) | {"off_bus": device.off_bus, "config": ""} for device in shown]
        for row in rows:
            del row["config"]
        return {"devices": rows, "on_bus": len(self.devices)}


def bdf(address: str) -> str:
    """An address as sysfs writes it, 0000:1b:00.0: NVML says 00000000:1B:00.0, Xid lines 0000:1b:00."""
    text = address.strip().lower()
    function = "" if re.search(r"\.[0-7]$", text) else ".0"
    parts = (text + function).split(":")
    domain = parts[-3] if len(parts) > 2 else "0"
    number = whole_number(f"0x{domain}")
    return f"{number or 0:04x}:{':'.join(parts[-2:])}"


def _read_device(files: Files, address: str) -> PciDevice | None:
    here = f"{DEVICES}/{address}"
    vendor, device, class_code = (_hex_id(files, f"{here}/{name}") for name in ("vendor", "device", "class"))
    if not (vendor and device and class_code):
        return None
    subsystem = [_hex_id(files, f"{here}/subsystem_{name}") for name in ("vendor", "device")]
    node = files.number(f"{here}/numa_node")
    return PciDevice(
        address=address,
        vendor=vendor,
        device=device,
        class_code=class_code,
        subsystem=":".join(subsystem) if all(subsystem) else "",
        numa_node=node if node is not None and node >= 0 else None,
        driver=files.leaf(f"{here}/driver"),
        link=_read_link(files, here),
        physfn=files.leaf(f"{here}/physfn"),
        iommu_group=files.leaf(f"{here}/iommu_group"),
        upstream=_upstream_bridges(files.link(here) or "", address),
        config=files.hex.get(f"{here}/config", ""),
        errors={p[len(here) + 1 :]: e for p, e in files.errors.items() if p.startswith(f"{here}/")},
    )


def _hex_id(files: Files, path: str) -> str:
    """A sysfs id such as 0x10de without its prefix; empty when it is none."""
    text = (files.text(path) or "").lower().removeprefix("0x")
    return text if re.fullmatch(r"[0-9a-f]{4,6}", text) else ""


def _read_link(files: Files, here: str) -> PciLink | None:
    """None where sysfs has no link files: conventional PCI, or an endpoint inside the root complex."""
    if all(files.text(f"{here}/{name}") is None for name in _LINK):
        return None
    return PciLink(
        _transfer_rate(files.text(f"{here}/current_link_speed")),
        _lane_count(files.number(f"{here}/current_link_width")),
        _transfer_rate(files.text(f"{here}/max_link_speed")),
        _lane_count(files.number(f"{here}/max_link_width")),
    )


def _transfer_rate(text: str | None) -> float | None:
    """`32.0 GT/s PCIe` is 32.0; `Unknown` is not known."""
    match = re.match(r"(\d{1,3}(?:\.\d)?) GT/s", text or "")
    return float(match.group(1)) if match else None


def _lane_count(width: int | None) -> int | None:
    """0 means no link, 63 and 255 come from registers of a device that is gone: none of them is a width."""
    return width if width is not None and 1 <= width <= 32 else None


def _upstream_bridges(link: str, address: str) -> tuple[str, ...]:
    """The bridges above a device, from `../../../devices/pci0000:00/0000:00:01.0/0000:1b:00.0`."""
    return tuple(part for part in link.split("/") if part != address and _ADDRESS.fullmatch(part))
