"""What nvidia-smi prints instead of an answer, as the names NVML has for it.

The texts are those of nvmlErrorString() and of nvidia-smi itself; nvml.h has the codes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nodedoctor.facts.gpu.gpu import InitError, LostGpu
from nodedoctor.facts.gpu.smi.sections import inert
from nodedoctor.facts.pci.pci import bdf
from nodedoctor.knowledge.error_codes import CODES
from nodedoctor.patterns import regex

_TEXTS: tuple[tuple[str, str], ...] = (
    # part of the text in small letters, NVML's name; the first that matches counts
    ("gpu is lost", "GPU_IS_LOST"),
    ("requires reset", "RESET_REQUIRED"),
    ("driver/library version mismatch", "LIB_RM_VERSION_MISMATCH"),
    ("communicate with the nvidia driver", "DRIVER_NOT_LOADED"),
    ("driver not loaded", "DRIVER_NOT_LOADED"),
    ("find libnvidia-ml.so", "LIBRARY_NOT_FOUND"),
    ("shared library not found", "LIBRARY_NOT_FOUND"),
    ("function not found", "FUNCTION_NOT_FOUND"),
    ("blocked by the operating system", "OPERATING_SYSTEM"),
    ("operating system has blocked", "OPERATING_SYSTEM"),
    ("insufficient permission", "NO_PERMISSION"),
    ("insufficient external power", "INSUFFICIENT_POWER"),
    ("insufficient resources", "INSUFFICIENT_RESOURCES"),
    ("insufficient memory", "MEMORY"),
    ("interrupt request issue", "IRQ_ISSUE"),
    ("corrupted inforom", "CORRUPTED_INFOROM"),
    ("in use by another client", "IN_USE"),
    ("has been deprecated", "DEPRECATED"),
    ("not supported", "NOT_SUPPORTED"),
    ("not available", "NOT_SUPPORTED"),
    ("n/a", "NOT_SUPPORTED"),
    ("no data", "NO_DATA"),
    ("not ready", "NOT_READY"),
    ("timed out", "TIMEOUT"),
    ("timeout", "TIMEOUT"),
    ("not found", "NOT_FOUND"),
    ("no devices were found", "NOT_FOUND"),
    ("invalid argument", "INVALID_ARGUMENT"),
    ("uninitialized", "UNINITIALIZED"),
    ("unknown error", "UNKNOWN"),
    ("err!", "UNKNOWN"),
)

_WHOLE = re.compile(
    r"Failed to initialize NVML: .+|NVIDIA-SMI has failed because .+|NVIDIA-SMI couldn't find .+"
    r"|No devices were found\s*$",
    re.MULTILINE,
)
_LIBRARY = regex(r"NVML library version: (\d[\d.]*)")
_HANDLE = re.compile(
    r"Unable to determine the device handle for (?:gpu )?(?:GPU ?)?(?P<index>\d{1,2}(?!\d|:\d))?:? ?"
    r"(?P<bus>[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])?: ?(?P<error>.+)"
)
_CORRUPT = re.compile(
    r"WARNING: infoROM is corrupted at gpu "
    r"(?P<bus>(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7])"
)
_BUS = re.compile(r"(?:[0-9A-Fa-f]{4,8}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]")


def error_name(text: str) -> str | None:
    """NVML's name for an error text or a placeholder like `N/A` or `[Unknown Error]`; None for a value."""
    low = text.lower()
    return next((name for part, name in _TEXTS if part in low), None)


def init_error(text: str) -> InitError | None:
    """The failure that kept nvidia-smi from answering at all, the first one in the text."""
    match = _WHOLE.search(inert(text))
    if match is None:
        return None
    line = match[0].strip()
    name = error_name(line) or "UNKNOWN"
    return InitError(name, CODES.get(name), line)


def library_version(text: str) -> str | None:
    """The version of libnvidia-ml that a mismatch is printed with (drivers from 535 on)."""
    match = _LIBRARY.search(text)
    return match[1] if match else None


def lost_gpus(text: str) -> Iterator[LostGpu]:
    """The GPUs that could not be opened, with what the text says of them: index, bus address, error."""
    for match in _HANDLE.finditer(inert(text)):
        index = int(match["index"]) if match["index"] else None
        bus_id = match["bus"] and normal_bus_id(match["bus"])
        yield LostGpu(index, bus_id, error_name(match["error"]) or "UNKNOWN", match[0].strip())


def corrupt_inforoms(text: str) -> frozenset[str]:
    """The addresses of the GPUs of whose InfoROM nvidia-smi warns, behind its table (exit code 14)."""
    addresses = (normal_bus_id(match["bus"]) for match in _CORRUPT.finditer(inert(text)))
    return frozenset(address for address in addresses if address)


def normal_bus_id(text: str) -> str | None:
    """A PCI address as the kernel writes it: `00000000:4B:00.0` is `0000:4b:00.0`; None for anything else."""
    return bdf(text) if _BUS.fullmatch(text.strip()) else None
