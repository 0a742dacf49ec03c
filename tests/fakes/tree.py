"""A file tree for `--root`: what sysfs and procfs show of a node with NVIDIA GPUs, without any driver."""

from __future__ import annotations

from pathlib import Path

VERSION = (
    "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {driver}  Release Build  (builder@host)\n"
    "GCC version:  gcc version 12.3.0\n"
)


SLOTS = ("0000:18:00.0", "0000:2a:00.0", "0000:3a:00.0", "0000:5d:00.0")
SLOTS += ("0000:9a:00.0", "0000:ab:00.0", "0000:ba:00.0", "0000:db:00.0")
"""Where the fake NVML says its GPUs are."""


def nvidia_tree(root: Path, gpus: int = 8, driver: str | None = "570.86.10") -> Path:
    """GPUs (H100 SXM) on the PCI bus, and with `driver` a loaded kernel module and device nodes' places."""
    for index in range(gpus):
        address = gpu_address(index)
        device = root / "sys/bus/pci/devices" / address
        device.mkdir(parents=True)
        write(device / "vendor", "0x10de\n")
        write(device / "device", "0x2330\n")
        write(device / "class", "0x030200\n")
        write(device / "numa_node", f"{index // 4}\n")
        (device / "config").write_bytes(bytes.fromhex("de10302306001000") + bytes(56))
    write(root / "proc/modules", "")
    if driver:
        write(root / "proc/driver/nvidia/version", VERSION.format(driver=driver))
        write(root / "sys/module/nvidia/version", f"{driver}\n")
        modules = "nvidia_uvm 4956160 0 - Live 0x0\nnvidia 11481088 1 nvidia_uvm, Live 0x0\n"
        write(root / "proc/modules", modules)
    return root


def gpu_address(index: int) -> str:
    """Where GPU `index` is on the bus: each eight are a domain, as in the fake NVML."""
    return f"{index // 8:04x}{SLOTS[index % 8][4:]}"


def write(path: Path, text: str) -> None:
    """Write a file and the folders above it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
