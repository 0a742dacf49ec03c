"""Makes a Gpu of its section in `nvidia-smi -q -x` or `-q`: simple fields by a table, the others here.

Where the output has an error in place of a value, the name of the error is under `errors`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nodedoctor.facts.gpu.gpu import BankAvailability, Gpu, GpuProcess
from nodedoctor.facts.gpu.smi import fields
from nodedoctor.facts.gpu.smi.errors import normal_bus_id
from nodedoctor.facts.gpu.smi.sections import Section
from nodedoctor.facts.gpu.smi.values import leading_integer, program, value_of

Told = Iterator[tuple[str, Any, str | None]]
"""Field, value, error: the value is None where there is an error, or where nothing was said."""

KINDS = {"C": "compute", "G": "graphics", "C+G": "compute", "M": "mps", "M+C": "mps"}

# Names of clock event reasons are the XML's; these are the text's and the counters' words for the same.
REASONS = {
    "idle": "gpu_idle",
    "display_clock_setting": "display_clocks_setting",
    "sw_power_capping": "sw_power_cap",
    "sw_therm_slowdown": "sw_thermal_slowdown",
    "hw_therm_slowdown": "hw_thermal_slowdown",
    "hw_power_brake": "hw_power_brake_slowdown",
    "hw_power_braking": "hw_power_brake_slowdown",
}
_BANKS = ("max", "high", "partial", "low", "none")
# Uncorrectable SRAM errors came apart in parity and SEC-DED with R535.
_UNCORRECTABLE = ("sram_uncorrectable", "sram_uncorrectable_parity", "sram_uncorrectable_secded")


def gpu_of(index: int, section: Section) -> Gpu:
    """One GPU; `section.text` is its bus address."""
    values: dict[str, Any] = {"bus_id": normal_bus_id(section.text)}
    errors: dict[str, str] = {}
    for name, value, error in (*_simple_fields(section), *_compound_fields(section)):
        if value is not None:
            values.setdefault(name, value)
        elif error is not None:
            errors.setdefault(name, error)
    return Gpu(index=index, **values, errors={name: e for name, e in errors.items() if name not in values})


def _simple_fields(section: Section) -> Told:
    """The fields that are one value under one of several names."""
    for row in fields.rows():
        for path in row.paths:
            yield row.field, *value_of(section.value(path), row.read)


def _compound_fields(section: Section) -> Told:
    """The fields that are made of several values."""
    for kind in ("volatile", "aggregate"):
        errors = section.find(f"ecc_errors/{kind}")
        yield from _ecc_counts(f"ecc_{kind}", errors) if errors else ()
    yield "sram_uncorrectable_by_unit", _sram_units(section), None
    yield "remap_banks", _bank_availability(section), None
    yield "clock_event_reasons", _active_reasons(section), None
    yield "clock_event_seconds", _reason_seconds(section), None
    yield "fabric_health", _fabric_health(section), None
    yield "mig_devices", _mig_devices(section), None
    yield "processes", *_gpu_processes(section)


def _ecc_counts(prefix: str, errors: Section) -> Told:
    """Counts by memory and kind from Turing on; before that only sums of single and double bit errors."""
    for bits, kind in (("single_bit", "correctable"), ("double_bit", "uncorrectable")):
        yield f"{prefix}_{kind}", *value_of(errors.value(f"{bits}/total"), leading_integer)
        counts = []
        for memory in ("sram", "dram"):
            names = _UNCORRECTABLE if (memory, kind) == ("sram", "uncorrectable") else (f"{memory}_{kind}",)
            count, error = _sum_counts(errors, names)
            counts.append(count)
            yield f"{prefix}_{memory}_{kind}", count, error
        known_counts = [count for count in counts if count is not None]
        yield f"{prefix}_{kind}", sum(known_counts) if len(known_counts) == len(counts) else None, None


def _sum_counts(errors: Section, names: tuple[str, ...]) -> tuple[int | None, str | None]:
    """The sum of those of the names that are there; an error when one of them cannot be read."""
    texts = [(part.text, part) for part in errors.parts if part.name.replace("sec_ded", "secded") in names]
    read = [value_of(text, leading_integer) for text, _ in texts]
    error = next((error for _, error in read if error), None)
    counts = [count for count, _ in read if count is not None]  # a text that was cut off may end before one
    return (sum(counts), None) if counts and error is None else (None, error)


def _sram_units(section: Section) -> dict[str, int] | None:
    units = section.find("ecc_errors/aggregate_uncorrectable_sram_sources")
    return _section_counts(units, "sram_") if units else None


def _bank_availability(section: Section) -> BankAvailability | None:
    for name in ("row_remapper_histogram", "bank_remap_availability_histogram"):
        histogram = section.find(f"remapped_rows/{name}")
        counts = _section_counts(histogram, "row_remapper_histogram_") if histogram else {}
        if all(bank in counts for bank in _BANKS):
            return BankAvailability(*(counts[bank] for bank in _BANKS))
    return None


def _section_counts(section: Section, prefix: str) -> dict[str, int]:
    """Names without their prefix, and their whole numbers."""
    read = ((part.name.removeprefix(prefix), leading_integer(part.text)) for part in section.parts)
    return {name: count for name, count in read if count is not None}


def _active_reasons(section: Section) -> tuple[str, ...] | None:
    """The reasons that are active; None when the output has no such section or no state in it."""
    for name in ("clocks_event_reasons", "clocks_throttle_reasons"):
        reasons = section.find(name)
        if reasons and reasons.parts:
            nested = [part for top in reasons.parts for part in (top, *top.parts)]
            return tuple(_reason_name(part.name) for part in nested if part.text == "Active")
    return None


def _reason_seconds(section: Section) -> dict[str, float] | None:
    """Microseconds in the output, since the driver was loaded."""
    counters = section.find("clocks_event_reasons_counters")
    if counters is None or not counters.parts:
        return None
    counts = _section_counts(counters, "clocks_event_reasons_counters_")
    return {_reason_name(name): microseconds / 1e6 for name, microseconds in counts.items()} or None


def _reason_name(name: str) -> str:
    for prefix in ("clocks_event_reason_", "clocks_throttle_reason_"):
        name = name.removeprefix(prefix)
    return REASONS.get(name, name)


def _fabric_health(section: Section) -> dict[str, str] | None:
    health = section.find("fabric/health")
    states = {part.name: part.text.lower() for part in health.parts} if health else {}
    return {name: text for name, text in states.items() if text not in ("n/a", "")} or None


def _mig_devices(section: Section) -> int | None:
    """How many MIG devices are listed; None where the output has no place for them."""
    devices = section.find("mig_devices")
    if devices is not None:
        return len(list(devices.all("mig_device")))
    device_count = len(list(section.all("mig_device")))
    return device_count or (0 if section.find("mig_mode") else None)


def _gpu_processes(section: Section) -> tuple[tuple[GpuProcess, ...] | None, str | None]:
    process_section = section.find("processes")
    if process_section is None:
        return None, None
    if not process_section.parts and process_section.text not in ("", "None"):
        return None, value_of(process_section.text, lambda _: None)[1]
    return tuple(_process_list(process_section)), None


def _process_list(process_section: Section) -> Iterator[GpuProcess]:
    """The XML has an element each; the text puts instances before each `Process ID` and the rest below it."""
    instances: dict[str, int | None] = {}
    for part in process_section.parts:
        if part.name == "process_info":
            yield from _read_process(part, part.value("pid"), _instance_ids(part))
        elif part.name in ("gpu_instance_id", "compute_instance_id"):
            instances[part.name] = leading_integer(part.text)
        elif part.name == "process_id":
            yield from _read_process(part, part.text, instances)


def _instance_ids(info: Section) -> dict[str, int | None]:
    names = ("gpu_instance_id", "compute_instance_id")
    return {name: leading_integer(info.value(name) or "") for name in names}


def _read_process(info: Section, pid: str | None, instances: dict[str, int | None]) -> Iterator[GpuProcess]:
    number = leading_integer(pid or "")
    if number is None:
        return
    kind = KINDS.get(info.value("type") or "")
    used = leading_integer(info.value("used_memory", "used_gpu_memory") or "")
    name = program(info.value("process_name", "name") or "")
    if kind:
        yield GpuProcess(
            number, kind, used, name, instances.get("gpu_instance_id"), instances.get("compute_instance_id")
        )
