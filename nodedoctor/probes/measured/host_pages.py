"""Page-aligned host memory on a NUMA node of our choice, for copies from the near and the far socket.

A part of bandwidth.py. Memory the driver allocates lies where it likes, so pages are mapped, bound and
touched here, and pinned afterwards.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import platform

from nodedoctor.probes.host.files_reading import text_below

BIND = 2  # MPOL_BIND, linux/mempolicy.h
MOST_NODES = 1024  # MAX_NUMNODES of distributions' kernels
MBIND = {"x86_64": 237, "aarch64": 235}  # system call numbers


def nodes_with_memory(root: str) -> list[int]:
    """The NUMA nodes that have memory; empty when the kernel does not tell."""
    try:
        return listed_numbers(text_below(root, "/sys/devices/system/node/has_memory") or "")
    except ValueError:
        return []


def node_of(root: str, bus_id: str) -> int | None:
    """The NUMA node next to a PCI device; None when it is not known."""
    try:
        node = int(text_below(root, f"/sys/bus/pci/devices/{bus_id}/numa_node", 32) or "")
    except ValueError:
        return None
    return node if node >= 0 else None


def pages(size: int, node: int | None) -> mmap.mmap:
    """Touched memory, on a node if one is given; OSError when the kernel refuses that node."""
    memory = mmap.mmap(-1, size)
    if node is not None:
        _bind_memory(memory, size, node)
    for place in range(0, size, mmap.PAGESIZE):
        memory[place] = 0
    return memory


def address(memory: mmap.mmap) -> int:
    """Where it lies."""
    return ctypes.addressof(ctypes.c_char.from_buffer(memory))


def _bind_memory(memory: mmap.mmap, size: int, node: int) -> None:
    number = MBIND.get(platform.machine())
    if number is None:
        raise OSError(0, "binding memory is not known for this machine")
    libc = ctypes.CDLL(None, use_errno=True)
    mask = (ctypes.c_ulong * 16)()
    mask[node // 64] = 1 << node % 64
    start = ctypes.c_void_p(address(memory))
    if libc.syscall(number, start, ctypes.c_size_t(size), BIND, mask, ctypes.c_ulong(1024), 0):
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))


def listed_numbers(text: str) -> list[int]:
    """The numbers of a list as the kernel writes it, 0-3,8; ValueError for another text."""
    numbers: list[int] = []
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        numbers += range(int(first), min(int(last or first), int(first) + MOST_NODES) + 1)
    return numbers
