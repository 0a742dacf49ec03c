"""Whose PCI address is it: the GPU of which number, which adapter, or a bridge above one of them."""

from __future__ import annotations

from nodedoctor.facts.gpu.gpu import Gpu
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.kernel.kernel_log import KernelLog
from nodedoctor.facts.pci.pci import MELLANOX, NVIDIA, Pci, bdf

NO_ADDRESS = "pci:unknown"


def gpu_at(device: str | None, gpus: Gpus | None) -> Gpu | None:
    """The GPU at an address, where the driver shows one."""
    present = gpus.gpus if gpus and device else ()
    return next((gpu for gpu in present if gpu.bus_id and bdf(gpu.bus_id) == device), None)


def gpu_index(device: str, gpus: Gpus | None, pci: Pci | None) -> int | None:
    """NVML's number of the GPU at an address; by the order on the bus only where the driver was not asked.

    The place in a text that was cut is no number.
    """
    if gpus is not None:
        bus_ids: list[tuple[int | None, str | None]] = [
            (gpu.index, gpu.bus_id) for gpu in gpus.gpus if gpu.numbered
        ]
        bus_ids += [(gpu.index, gpu.bus_id) for gpu in gpus.lost]
        return next((index for index, address in bus_ids if address and bdf(address) == device), None)
    addresses = [gpu.address for gpu in pci.gpus] if pci else []
    return addresses.index(device) if device in addresses else None


def subject_of(device: str | None, gpus: Gpus | None, pci: Pci | None) -> str:
    """How findings call what sits at an address: as all name that GPU, else `pci:0000:4b:00.0`."""
    if device is None:
        return NO_ADDRESS
    if gpu := gpu_at(device, gpus):
        return gpu.subject
    index = gpu_index(device, gpus, pci)
    return f"pci:{device}" if index is None else f"gpu:{index}"


def role(device: str | None, vendor: str | None, log: KernelLog, pci: Pci | None) -> str | None:
    """What a device is to training: GPU, NVSwitch, network adapter, bridge above one; None for the rest."""
    if device is None:
        return None
    maker_role = _by_maker(vendor, log.drivers.get(device, ""))
    pci_device = pci.at(device) if pci else None
    if pci_device is None or maker_role:
        return maker_role
    if pci_device.is_gpu or pci_device.is_nvswitch:
        return "GPU" if pci_device.is_gpu else "NVSwitch"
    if pci_device.is_nic and pci_device.vendor == MELLANOX:
        return "NIC"
    below = [child for child in pci.devices if device in child.upstream] if pci else []
    if any(child.is_gpu or child.is_nvswitch for child in below):
        return "bridge above a GPU"
    adapter = any(child.is_nic and child.vendor == MELLANOX for child in below)
    return "bridge above a NIC" if adapter else None


def _by_maker(vendor: str | None, driver: str) -> str | None:
    if vendor == NVIDIA or driver == "nvidia":
        return "GPU"
    return "NIC" if vendor == MELLANOX or driver.startswith(("mlx4_", "mlx5_", "bnxt_")) else None
