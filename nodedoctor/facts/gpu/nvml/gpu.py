"""Makes a Gpu of NVML's raw answers: units, enumerations, bit masks, and why something is missing.

Besides NVML's error names there are NO_VALUE (it answered with nothing), UNPARSABLE (with what cannot be) and
NOT_ASKED (this recording does not have it, or NVML has no such call).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from typing import Any

from nodedoctor.facts.gpu.gpu import HARMLESS, NOT_READ, BankAvailability, Gpu
from nodedoctor.facts.gpu.nvml import enums as words
from nodedoctor.facts.gpu.nvml.links import links_of, peers_of
from nodedoctor.facts.gpu.nvml.processes import LISTS, processes_of
from nodedoctor.facts.gpu.nvml.raw import Raw, mib
from nodedoctor.facts.gpu.smi.errors import normal_bus_id
from nodedoctor.json_shapes import as_list, int_of, text_of
from nodedoctor.record import record

Read = Callable[[Any], Any]
"""Takes a raw answer; raises a ReadError when it cannot be one, None when it says nothing."""
Rows = Iterator[tuple[str, str, Read]]
"""Field, answer, reader; where a field is there twice, the first that can be read counts."""

# Fields whose answer has their name and needs no unit.
_TEXTS = """name uuid serial board_part_number vbios_version gsp_firmware_version inforom_image_version
    inforom_oem_version inforom_ecc_version inforom_power_version"""
_WHOLES = """minor module_id mig_devices ecc_volatile_correctable ecc_volatile_uncorrectable
    ecc_aggregate_correctable ecc_aggregate_uncorrectable ecc_volatile_sram_correctable
    ecc_volatile_sram_uncorrectable ecc_volatile_dram_correctable ecc_volatile_dram_uncorrectable
    ecc_aggregate_sram_correctable ecc_aggregate_sram_uncorrectable ecc_aggregate_dram_correctable
    ecc_aggregate_dram_uncorrectable retired_pages_single_bit retired_pages_double_bit temperature_c
    memory_temperature_c slowdown_c shutdown_c max_operating_c memory_max_operating_c fan_percent pstate
    clock_graphics_mhz clock_sm_mhz clock_memory_mhz clock_max_graphics_mhz clock_max_sm_mhz
    clock_max_memory_mhz clock_app_graphics_mhz clock_app_memory_mhz clock_default_app_graphics_mhz
    clock_default_app_memory_mhz clock_boost_max_graphics_mhz pcie_generation pcie_generation_max
    pcie_generation_device_max pcie_width pcie_width_max pcie_replays pcie_replay_rollovers
    nvlink_switch_links c2c_links"""
_FLAGS = """persistence_mode unrepairable_memory retired_pages_pending reset_required
    drain_and_reset_recommended"""
_SIGNED = """t_limit_margin_c slowdown_t_limit_c shutdown_t_limit_c max_operating_t_limit_c
    memory_max_operating_t_limit_c"""

_CLOCK_EVENTS = (
    "sw_power_cap",
    "sync_boost",
    "sw_thermal_slowdown",
    "hw_thermal_slowdown",
    "hw_power_brake_slowdown",
)
_PCIE_ERRORS = (
    "correctable",
    "naks_received",
    "naks_sent",
    "receiver",
    "bad_tlp",
    "bad_dllp",
    "lcrc",
    "lane",
    "unsupported_request",
    "non_fatal",
    "fatal",
)
_SRAM_UNITS = {
    "l2": "aggregateUncBucketL2",
    "sm": "aggregateUncBucketSm",
    "microcontroller": "aggregateUncBucketMcu",
    "pcie": "aggregateUncBucketPcie",
    "other": "aggregateUncBucketOther",
}


def gpu_of(index: int, raw: Raw, peers: Sequence[Raw] | None, programs: Mapping[str, Any]) -> Gpu:
    """One GPU, from its entry in the document, the pairs it is the first of, and the names of processes."""
    values: dict[str, Any] = {}
    errors: dict[str, str] = {}
    readings = [(name, *raw.read(key, read)) for name, key, read in _ROWS]
    readings += [("nvlinks", *links_of(raw)), ("processes", *processes_of(raw, programs))]
    readings.append(("clock_event_seconds", *_counter_family(raw, "{}_ns", _CLOCK_EVENTS, _from_nanoseconds)))
    readings.append(("pcie_errors", *_counter_family(raw, "pcie_{}", _PCIE_ERRORS, int_of)))
    for name, value, error in readings:
        if value is not None:
            values.setdefault(name, value)
        elif error is not None:
            errors.setdefault(name, error)
    if peers is not None:
        values["peers"] = peers_of(peers)
    gpu_fields = set(Gpu.__match_args__) - NOT_READ
    reasons = {name: errors.get(name, "NOT_ASKED") for name in sorted(gpu_fields - values.keys())}
    return Gpu(index=index, **values, errors={**_of_parts(raw, values), **reasons})


def _of_parts(raw: Raw, values: Mapping[str, Any]) -> dict[str, str]:
    """The errors of fields that were read in part: of one link, one peer, one counter, one list."""
    parts: dict[str, list[Any]] = {
        "nvlinks": [error for link in values.get("nvlinks", ()) for error in link.errors.values()],
        "peers": [error for peer in values.get("peers", ()) for error in peer.errors.values()],
        "processes": [raw.error(key) for key in LISTS.values()],
        "clock_event_seconds": [raw.error(f"{name}_ns") for name in _CLOCK_EVENTS],
        "pcie_errors": [raw.error(f"pcie_{name}") for name in _PCIE_ERRORS],
    }
    first = {
        name: next((error for error in errors if error and error not in HARMLESS), None)
        for name, errors in parts.items()
        if name in values
    }
    return {name: error for name, error in first.items() if error}


def flag(value: Any) -> bool:
    """NVML's 0 and 1."""
    return int_of(value) != 0


def signed(value: Any) -> int:
    """A temperature that drivers may hand out as an unsigned number."""
    number = int_of(value)
    return number - 2**32 if number >= 2**31 else number


def thousandths(value: Any) -> float:
    """Milliwatts as watts, millijoules as joules."""
    return int_of(value) / 1000


def named(meaning: Mapping[int, str]) -> Read:
    """A number of an enumeration as its word."""
    return lambda value: words.word(meaning, int_of(value))


@record
class FieldPart:
    """The reader of one member of a structure or list."""

    key: str | int
    read: Read

    def __call__(self, value: Any) -> Any:
        """Read it; a KeyError says that an older driver's structure has no such member."""
        return self.read(value[self.key])


def part(key: str | int, read: Read) -> Read:
    """One member of a structure or list."""
    return FieldPart(key, read)


@cache
def places(field: str) -> tuple[str, ...]:
    """Where the answers that a field is read from are among a GPU's values, as paths below them."""
    return tuple(_field_places(field))


def _field_places(field: str) -> Iterator[str]:
    for name, key, read in _ROWS:
        if name == field and isinstance(read, FieldPart):
            yield f"{key}.{read.key}" if isinstance(read.key, str) else f"{key}[{read.key}]"
        elif name == field:
            yield f"{key}.healthMask" if read is _read_health else key


def ranges(value: Any) -> str | None:
    """Words of 64 bits as the numbers that are set, `0-47,96-143`; None when none is."""
    if len(value) > 64 or min(int_of(word) for word in value) < 0:
        raise ValueError(value)
    bits = "".join(f"{word:064b}"[::-1] for word in value)
    runs = ((run.start(), run.end() - 1) for run in re.finditer("1+", bits))
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs) or None


def _from_nanoseconds(value: Any) -> float:
    return int_of(value) / 1e9


def _not_negative(value: Any) -> int | None:
    return number if (number := int_of(value)) >= 0 else None


def _compute_capability(value: Any) -> str:
    major, minor = value
    return f"{int_of(major)}.{int_of(minor)}"


def _device_id(value: Any) -> str:
    return f"{int_of(value) >> 16 & 0xFFFF:04x}"


def _subsystem_id(value: Any) -> str:
    return f"{int_of(value) >> 16 & 0xFFFF:04x}:{int_of(value) & 0xFFFF:04x}"


def _bank_availability(value: Any) -> BankAvailability:
    return BankAvailability(*(int_of(value[name]) for name in ("max", "high", "partial", "low", "none")))


def _sram_units(value: Any) -> dict[str, int]:
    return {name: int_of(value[key]) for name, key in _SRAM_UNITS.items()}


def _parity_and_secded(counter: str) -> Read:
    return lambda value: int_of(value[f"{counter}UncParity"]) + int_of(value[f"{counter}UncSecDed"])


def _fabric_state(value: Any) -> str:
    # One byte in nvml.h; pynvml reads four, three of which are padding.
    return words.word(words.FABRIC_STATE, int_of(value) & 0xFF)


def _fabric_uuid(value: Any) -> str:
    raw = bytes(int_of(byte) for byte in value).hex()
    return "-".join((raw[:8], raw[8:12], raw[12:16], raw[16:20], raw[20:]))


def _read_health(value: Any) -> dict[str, str] | None:
    return words.fabric_health(int_of(value["healthMask"]), int_of(value.get("healthSummary", 0))) or None


def _counter_family(raw: Raw, key: str, names: tuple[str, ...], read: Read) -> tuple[Any, str | None]:
    """What of a family of counters was answered, by name; the error of the first when nothing was."""
    readings = {name: raw.read(key.format(name), read) for name in names}
    counts = {name: count for name, (count, _) in readings.items() if count is not None}
    return counts or None, None if counts else readings[names[0]][1]


def _plain_rows() -> Rows:
    for names, read in ((_TEXTS, text_of), (_WHOLES, int_of), (_FLAGS, flag), (_SIGNED, signed)):
        yield from ((name, name, read) for name in names.split())


def _identity_rows() -> Rows:
    yield "brand", "brand", named(words.BRAND)
    yield "architecture", "architecture", named(words.ARCHITECTURE)
    yield "compute_capability", "compute_capability", _compute_capability
    yield "bus_id", "pci", part("busId", lambda value: normal_bus_id(text_of(value) or ""))
    yield "pci_device_id", "pci", part("pciDeviceId", _device_id)
    yield "pci_subsystem_id", "pci", part("pciSubSystemId", _subsystem_id)
    yield "compute_mode", "compute_mode", named(words.COMPUTE_MODE)
    yield "virtualization_mode", "virtualization_mode", named(words.VIRTUALIZATION_MODE)
    yield "addressing_mode", "addressing_mode", named(words.ADDRESSING_MODE)
    yield "recovery_action", "recovery_action", named(words.RECOVERY_ACTION)
    for mode in ("mig_mode", "ecc_mode"):
        yield mode, mode, part(0, flag)
        yield f"{mode}_pending", mode, part(1, flag)


def _memory_rows() -> Rows:
    for name in ("total", "reserved", "used", "free"):
        yield f"memory_{name}_mib", "memory_bytes", part(name, mib)
    yield "bar1_total_mib", "bar1_bytes", part("bar1Total", mib)
    yield "bar1_used_mib", "bar1_bytes", part("bar1Used", mib)
    for counter in ("volatile", "aggregate"):
        yield f"ecc_{counter}_sram_correctable", "sram_errors", part(f"{counter}Cor", int_of)
        yield f"ecc_{counter}_sram_uncorrectable", "sram_errors", _parity_and_secded(counter)
    yield "sram_threshold_exceeded", "sram_errors", part("bThresholdExceeded", flag)
    yield "sram_uncorrectable_by_unit", "sram_errors", _sram_units
    for place, name in enumerate(("channel_repair_pending", "tpc_repair_pending")):
        yield name, "repairs_pending", part(place, flag)
    for place, name in enumerate(("remapped_correctable", "remapped_uncorrectable")):
        yield name, "remapped_rows", part(place, int_of)
    yield "remap_pending", "remapped_rows", part(2, flag)
    yield "remap_failure", "remapped_rows", part(3, flag)
    yield "remap_banks", "remap_banks", _bank_availability


def _running_rows() -> Rows:
    for name in ("power_draw", "power_limit", "power_limit_requested", "power_limit_default"):
        yield f"{name}_w", f"{name}_mw", thousandths
    yield "power_limit_min_w", "power_limits_mw", part(0, thousandths)
    yield "power_limit_max_w", "power_limits_mw", part(1, thousandths)
    yield "energy_j", "energy_mj", thousandths
    yield (
        "clock_event_reasons",
        "clock_event_reasons",
        lambda value: words.clock_event_reasons(int_of(value)),
    )
    yield "gpu_utilization_percent", "utilization", part("gpu", int_of)
    yield "memory_utilization_percent", "utilization", part("memory", int_of)
    yield "cpu_affinity", "cpu_affinity", ranges
    yield "numa_nodes", "numa_nodes", ranges
    yield "gpu_numa_node", "gpu_numa_node", _not_negative
    yield "c2c_active", "c2c_status", lambda value: sum(int_of(status) == 1 for status in as_list(value))
    yield "fabric_state", "fabric", part("state", _fabric_state)
    yield "fabric_status", "fabric", part("status", named(words.RETURN))
    yield "fabric_clique_id", "fabric", part("cliqueId", int_of)
    yield "fabric_cluster_uuid", "fabric", part("clusterUuid", _fabric_uuid)
    yield "fabric_health", "fabric", _read_health


_ROWS = (*_plain_rows(), *_identity_rows(), *_memory_rows(), *_running_rows())
