"""Whose PCI address is it: the GPU of which number, which adapter, or a bridge above one of them."""

from __future__ import annotations

from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.kernel.kernel_log import KernelLog
from nodedoctor.facts.pci.pci import MELLANOX, NVIDIA, Pci, bdf

NO_ADDRESS = "pci:unknown"


def gpu_index(device: str, gpus: Gpus | None, pci: Pci | None) -> int | None:
    """NVML's number of the GPU at an address; by the order on the bus only where the driver was not asked."""
    if gpus is not None:
        named = [(gpu.index, gpu.bus_id) for gpu in gpus.gpus] + [(g.index, g.bus_id) for g in gpus.lost]
        return next((index for index, address in named if address and bdf(address) == device), None)
    addresses = [gpu.address for gpu in pci.gpus] if pci else []
    return addresses.index(device) if device in addresses else None


def subject_of(device: str | None, gpus: Gpus | None, pci: Pci | None) -> str:
    """How findings call what sits at an address: `gpu:3`, else `pci:0000:4b:00.0`."""
    if device is None:
        return NO_ADDRESS
    index = gpu_index(device, gpus, pci)
    return f"pci:{device}" if index is None else f"gpu:{index}"


def role(device: str | None, vendor: str | None, log: KernelLog, pci: Pci | None) -> str | None:
    """What a device is to training: GPU, NVSwitch, network adapter, bridge above one; None for the rest."""
    if device is None:
        return None
    named = _by_maker(vendor, log.drivers.get(device, ""))
    found = pci.at(device) if pci else None
    if found is None or named:
        return named
    if found.is_gpu or found.is_nvswitch:
        return "GPU" if found.is_gpu else "NVSwitch"
    if found.is_nic and found.vendor == MELLANOX:
        return "NIC"
    below = [other for other in pci.devices if device in other.upstream] if pci else []
    if any(other.is_gpu or other.is_nvswitch for other in below):
        return "bridge above a GPU"
    adapter = any(other.is_nic and other.vendor == MELLANOX for other in below)
    return "bridge above a NIC" if adapter else None


def _by_maker(vendor: str | None, driver: str) -> str | None:
    if vendor == NVIDIA or driver == "nvidia":
        return "GPU"
    return "NIC" if vendor == MELLANOX or driver.startswith(("mlx4_", "mlx5_", "bnxt_")) else None
