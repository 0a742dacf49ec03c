"""Read GPUs by nvidia-smi and by NVML's own functions; one JSON document on stdout.

    python sides.py

`smi` and `nvml`: for each GPU what each column of COLUMNS says, null where it says nothing; `errors`: why a
side has none. agreement.py lays nodedoctor's own reading beside. Only reads. Runs on Python 3.8.
"""

import ctypes
import json
import subprocess

from machine import run_smi

TEXT_BYTES = 96
COLUMNS = (
    # nodedoctor's field, nvidia-smi's, NVML's function with what it is given, divisor of NVML's number
    ("driver_version", "driver_version", None, None),
    ("name", "name", "nvmlDeviceGetName", None),
    ("bus_id", "pci.bus_id", None, None),
    ("memory_total_mib", "memory.total", "nvmlDeviceGetMemoryInfo", 1 << 20),
    ("temperature_c", "temperature.gpu", "nvmlDeviceGetTemperature", 1),
    ("power_draw_w", "power.draw", "nvmlDeviceGetPowerUsage", 1000),
    ("power_limit_w", "power.limit", "nvmlDeviceGetEnforcedPowerLimit", 1000),
    ("clock_sm_mhz", "clocks.sm", ("nvmlDeviceGetClockInfo", 1), 1),
    ("clock_max_sm_mhz", "clocks.max.sm", ("nvmlDeviceGetMaxClockInfo", 1), 1),
    ("clock_max_memory_mhz", "clocks.max.memory", ("nvmlDeviceGetMaxClockInfo", 2), 1),
    ("pcie_generation", "pcie.link.gen.current", "nvmlDeviceGetCurrPcieLinkGeneration", 1),
    ("pcie_generation_max", "pcie.link.gen.max", "nvmlDeviceGetMaxPcieLinkGeneration", 1),
    ("pcie_width", "pcie.link.width.current", "nvmlDeviceGetCurrPcieLinkWidth", 1),
    ("pcie_width_max", "pcie.link.width.max", "nvmlDeviceGetMaxPcieLinkWidth", 1),
    ("ecc_volatile_uncorrectable", "ecc.errors.uncorrected.volatile.total", ("ecc", 1, 0), 1),
    ("ecc_aggregate_uncorrectable", "ecc.errors.uncorrected.aggregate.total", ("ecc", 1, 1), 1),
    ("ecc_aggregate_correctable", "ecc.errors.corrected.aggregate.total", ("ecc", 0, 1), 1),
)


class Memory(ctypes.Structure):
    """nvmlMemory_t."""

    _fields_ = [(name, ctypes.c_ulonglong) for name in ("total", "free", "used")]


def main():
    """Print both sides."""
    errors = {}
    sides = {}
    for name, read in (("smi", smi), ("nvml", nvml)):
        try:
            sides[name] = read()
        except (OSError, AttributeError, subprocess.SubprocessError, RuntimeError) as error:
            sides[name], errors[name] = [], f"{type(error).__name__}: {error}"[:300]
    print(json.dumps(dict(sides, errors=errors), indent=1))


def smi():
    """What nvidia-smi prints for each column; a column that it does not know is left out."""
    known = [row[1] for row in COLUMNS]
    for _ in COLUMNS:
        code, printed = run_smi(["index", *known])
        unknown = [name for name in known if f'"{name}"' in printed]
        if code == 0 or not unknown:
            break
        known.remove(unknown[0])
    if code:
        raise RuntimeError(f"nvidia-smi ended with {code}: {printed[:200]}")
    rows = [[cell.strip() for cell in line.split(",")] for line in printed.splitlines()]
    names = ["index"] + [row[0] for row in COLUMNS if row[1] in known]
    return [{name: plain(row[at]) for at, name in enumerate(names) if at < len(row)} for row in rows]


def plain(cell):
    """A number where it is one; None for [N/A]."""
    if cell.startswith("[") or cell == "N/A":
        return None
    try:
        return float(cell) if "." in cell else int(cell)
    except ValueError:
        return cell


def nvml():
    """What NVML's functions return, without the binding that nodedoctor uses."""
    library = ctypes.CDLL("libnvidia-ml.so.1")
    call(library, "nvmlInitWithFlags", 0)
    count = ctypes.c_uint()
    call(library, "nvmlDeviceGetCount_v2", ctypes.byref(count))
    version = ctypes.create_string_buffer(TEXT_BYTES)
    call(library, "nvmlSystemGetDriverVersion", version, TEXT_BYTES)
    rows = []
    for index in range(count.value):
        row = {"index": index, "driver_version": version.value.decode("utf-8", "replace")}
        device = ctypes.c_void_p()
        try:
            call(library, "nvmlDeviceGetHandleByIndex_v2", index, ctypes.byref(device))
        except RuntimeError as error:
            rows.append(dict(row, error=str(error)))
            continue
        for field, _, function, divisor in COLUMNS:
            if function:
                row[field] = reading(library, device, function, divisor)
        rows.append(row)
    library.nvmlShutdown()
    return rows


def reading(library, device, function, divisor):
    """One value of one GPU; None where this GPU or driver has none."""
    name, *given = (function,) if isinstance(function, str) else function
    try:
        if name == "nvmlDeviceGetName":
            text = ctypes.create_string_buffer(TEXT_BYTES)
            call(library, name, device, text, TEXT_BYTES)
            return text.value.decode("utf-8", "replace")
        if name == "nvmlDeviceGetMemoryInfo":
            memory = Memory()
            call(library, name, device, ctypes.byref(memory))
            return memory.total // divisor
        if name == "ecc":
            counter = ctypes.c_ulonglong()
            call(library, "nvmlDeviceGetTotalEccErrors", device, *given, ctypes.byref(counter))
            return counter.value
        number = ctypes.c_uint()
        given = given or ([0] if name == "nvmlDeviceGetTemperature" else [])
        call(library, name, device, *given, ctypes.byref(number))
        return number.value / divisor if divisor > 1 else number.value
    except (AttributeError, RuntimeError):
        return None


def call(library, name, *given):
    """Call one function; RuntimeError with its code when it fails."""
    code = getattr(library, name)(*given)
    if code:
        raise RuntimeError(f"{name} returned {code}")


if __name__ == "__main__":
    main()
