"""Reads the table that plain `nvidia-smi` prints: the form in which people paste GPUs most often.

It rounds, cuts names off and prints ERR! for what it cannot read; the other outputs say more.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from nodedoctor.facts.gpu.gpu import Gpu, GpuProcess, LostGpu
from nodedoctor.facts.gpu.smi.errors import error_name, normal_bus_id
from nodedoctor.facts.gpu.smi.gpu import KINDS
from nodedoctor.facts.gpu.smi.sections import inert
from nodedoctor.facts.gpu.smi.values import flag, leading_integer, number, program, pstate, value_of
from nodedoctor.patterns import regex

# R610 prints KMD Version and CUDA UMD Version where older drivers print Driver Version and CUDA Version.
_DRIVER = regex(r"\b(?:Driver|KMD) Version: *(\d[\d.]*)")
_CUDA = regex(r"\bCUDA(?: UMD)? Version: *(\d[\d.]*)")
_GPU = regex(
    r"\|\s*(?P<index>\d{1,3})\s+(?P<name>\S.{0,60}?)\s+(?P<persistence>On|Off|N/A|ERR!|WDDM|TCC|MCDM|WDM)\s*"
    r"\|\s*(?P<bus>[0-9A-Fa-f:.]{7,16}|ERR!|N/A)\s+(?P<display>On|Off|N/A|ERR!)\s*"
    r"\|\s*(?P<ecc>\S+(?: \S+){0,3})\s*\|"
)
_USE = regex(
    r"\|\s*(?P<fan>\S{1,9})\s+(?P<temperature>\S{1,9})\s+(?P<pstate>\S{1,9})\s+(?P<draw>\S{1,19}?)\s*/\s*(?P<limit>\S{1,19}?)\s*"
    r"\|\s*(?P<used>\S{1,19}?)\s*/\s*(?P<total>\S{1,19}?)\s*\|\s*(?P<load>\S{1,9})\s+(?P<compute>\S.{0,60}?)\s*\|"
)
_MIG = regex(r"\|\s*\|\s*\|\s*(?P<mig>\S+)\s*\|")
_PROCESS = regex(
    r"\|\s*(?P<gpu>\d{1,3})\s+(?:(?P<gi>\d+|N/A)\s+(?P<ci>\d+|N/A)\s+)?(?P<pid>\d+)\s+"
    r"(?P<type>C\+G|M\+C|[CGM])\s+(?P<name>\S.{0,90}?)\s+(?P<used>\d+MiB|N/A)\s*\|"
)
_MIG_DEVICE = regex(r"\|\s*(?P<gpu>\d{1,3})\s+\d+\s+\d+\s+\d+\s+\|\s*\d+MiB\s*/")
_NO_INSTANCE = regex(r"\|\s*No MIG devices found")
_MODELS = ("WDDM", "TCC", "MCDM", "WDM")
"""Driver models of Windows, in the column of the persistence mode."""
_COMPUTE = {
    "Default": "default",
    "E. Process": "exclusive-process",
    "E. Thread": "exclusive-thread",
    "Prohibited": "prohibited",
}
_END = regex(r"\|\s*Processes:")
"""The heading of the box below the GPUs: what is cut off before it may have had more of them."""
_ALL_BROKEN = ("temperature_c", "pstate", "power_draw_w")


def versions(text: str) -> tuple[str | None, str | None]:
    """Driver and CUDA version of the heading."""
    driver, cuda = _DRIVER.search(text), _CUDA.search(text)
    return driver and driver[1], cuda and cuda[1]


def is_whole(text: str) -> bool:
    """Whether no GPU of the table can have been cut off at its end."""
    return _END.search(text) is not None


def gpus(text: str) -> Iterator[Gpu]:
    """The GPUs of the table, in its order, each with its processes."""
    lines = inert(text).splitlines()
    pairs = list(_read_processes(lines))
    mig = [int(match["gpu"]) for match in map(_MIG_DEVICE.match, lines) if match]
    lists_instances = is_whole(text) or _NO_INSTANCE.search(text) is not None
    for place, line in enumerate(lines):
        if head := _GPU.match(line.strip()):
            index = int(head["index"])
            below = [row.strip() for row in lines[place + 1 : place + 3]]
            values, errors = _read_gpu(head, below)
            if values.get("mig_mode") is not None and (index in mig or lists_instances):
                values["mig_devices"] = mig.count(index)
            own = tuple(process for gpu, process in pairs if gpu == index)
            processes = own if own or is_whole(text) else None
            printed = "\n".join(lines[place : place + 3])
            yield Gpu(index=index, processes=processes, **values, errors=errors, printed=printed)


def lost(gpu: Gpu) -> LostGpu | None:
    """The GPU as a lost one when every sensor reads ERR!: then it no longer answers at all."""
    if all(gpu.errors.get(name) == "UNKNOWN" for name in _ALL_BROKEN):
        return LostGpu(gpu.index, gpu.bus_id, "UNKNOWN", f"GPU {gpu.index}: ERR! in every column")
    return None


def _read_gpu(head: re.Match[str], below: list[str]) -> tuple[dict[str, Any], dict[str, str]]:
    """The values of the three lines a GPU has (two before R450), and the errors in their place."""
    name = head["name"]
    readings: dict[str, tuple[Any, str | None]] = {
        "name": (None if name.endswith("...") or error_name(name) else name, None),
        "bus_id": (normal_bus_id(head["bus"]), None),
        "persistence_mode": _persistence_mode(head["persistence"]),
        **_ecc_errors(head["ecc"]),
    }
    if below and (use := _USE.match(below[0])):
        readings |= _use_values(use)
    if len(below) > 1 and (mode := _MIG.match(below[1])):
        readings["mig_mode"] = value_of(mode["mig"], flag)
    values = {name: value for name, (value, _) in readings.items() if value is not None}
    return values, {name: error for name, (_, error) in readings.items() if error}


def _persistence_mode(column: str) -> tuple[Any, str | None]:
    return (None, None) if column in _MODELS else value_of(column, flag)


def _ecc_errors(column: str) -> dict[str, tuple[Any, str | None]]:
    """The count of uncorrectable errors; `Off` when ECC is off, `On` on a GPU in MIG mode."""
    mode = None if column.isdecimal() else flag(column)
    if mode is None:
        count, error = value_of(column, leading_integer)
        counting = True if error is None else None
        return {"ecc_volatile_uncorrectable": (count, error), "ecc_mode": (counting, error)}
    return {"ecc_mode": (mode, None)}


def _use_values(use: re.Match[str]) -> dict[str, tuple[Any, str | None]]:
    return {
        "fan_percent": value_of(use["fan"], leading_integer),
        "temperature_c": value_of(use["temperature"], leading_integer),
        "pstate": value_of(use["pstate"], pstate),
        "power_draw_w": value_of(use["draw"], number),
        "power_limit_w": value_of(use["limit"], number),
        "memory_used_mib": value_of(use["used"], leading_integer),
        "memory_total_mib": value_of(use["total"], leading_integer),
        "gpu_utilization_percent": value_of(use["load"], leading_integer),
        "compute_mode": (_COMPUTE.get(use["compute"]), None),
    }


def _read_processes(lines: list[str]) -> Iterator[tuple[int, GpuProcess]]:
    """The index of the GPU and the process; an older driver has no columns for MIG instances."""
    for match in map(_PROCESS.match, (line.strip() for line in lines)):
        if match:
            instances = (leading_integer(match["gi"] or ""), leading_integer(match["ci"] or ""))
            columns = (KINDS[match["type"]], leading_integer(match["used"]), program(match["name"]))
            yield int(match["gpu"]), GpuProcess(int(match["pid"]), *columns, *instances)
