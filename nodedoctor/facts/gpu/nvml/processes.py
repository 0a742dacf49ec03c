"""Makes GpuProcesses of NVML's raw answers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nodedoctor.facts.gpu.gpu import GpuProcess
from nodedoctor.facts.gpu.nvml.raw import Raw, mib
from nodedoctor.json_shapes import int_of, mapping

LISTS = {"compute": "compute_processes", "graphics": "graphics_processes", "mps": "mps_processes"}
_NUMBERS = {"pid": "pid", "gpu_instance": "gpuInstanceId", "compute_instance": "computeInstanceId"}
_NONE = 2**32 - 1  # the instance number of a process outside MIG


def processes_of(raw: Raw, programs: Mapping[str, Any]) -> tuple[tuple[GpuProcess, ...] | None, str | None]:
    """Who holds a context; None and a reason when not even compute processes could be listed."""
    lists = {kind: raw.read(key, _entry_list) for kind, key in LISTS.items()}
    if lists["compute"][0] is None:
        return None, lists["compute"][1]
    processes = (
        _read_process(kind, entry, programs)
        for kind, (entries, _) in lists.items()
        for entry in entries or ()
    )
    return tuple(process for process in processes if process), None


def _entry_list(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(value)
    return value


def _read_process(kind: str, entry: Any, programs: Mapping[str, Any]) -> GpuProcess | None:
    numbers = dict(_process_numbers(mapping(entry)))
    if "pid" not in numbers:
        return None
    name = programs.get(str(numbers["pid"]))
    return GpuProcess(kind=kind, name=name if isinstance(name, str) else None, **numbers)


def _process_numbers(entry: Mapping[str, Any]) -> Iterator[tuple[str, int]]:
    raw = Raw(entry, {}, entry)
    for name, key in _NUMBERS.items():
        number, _ = raw.read(key, int_of)
        if number is not None and 0 <= number < _NONE:
            yield name, number
    used, _ = raw.read("usedGpuMemory", mib)
    if used is not None and 0 <= used < 2**43:  # bytes are all ones where the driver keeps no account
        yield "used_mib", used
