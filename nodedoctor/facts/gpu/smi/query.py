"""Reads `nvidia-smi --query-gpu=... --format=csv` into the sections that `-q` has.

The names of columns are those of `nvidia-smi --help-query-gpu`, drivers 390 to 610.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from functools import cache

from nodedoctor.facts.gpu.smi.errors import error_name
from nodedoctor.facts.gpu.smi.sections import UNREAD, Section, inert, plain
from nodedoctor.patterns import regex

_HEAD = regex(r"[a-z][\w.]{0,100}(?: \[[^\]]{1,12}\])?")
"""The name of a column, and its unit."""
_REASON = regex(r"clocks_(?:event|throttle)_reasons\.(\w{1,60})")
_BUS = ("pci.bus_id", "gpu_bus_id")
_NAMES = ("index", "uuid", "gpu_uuid", *_BUS, "serial", "gpu_serial")
"""The columns that tell one GPU from another."""

# The path of `-q`, and the columns that say the same.
_COLUMNS = """
index                                    index
product_name                             name gpu_name
gpu_uuid                                 uuid gpu_uuid
serial_number                            serial gpu_serial
vbios_version                            vbios_version
persistence_mode                         persistence_mode
compute_mode                             compute_mode
fan_speed                                fan.speed
performance_state                        pstate
gpu_recovery_action                      gpu_recovery_action
pci/bus_id                               pci.bus_id gpu_bus_id
pci/replays_since_reset                  pcie.replay_counter
mig_mode/current                         mig.mode.current
mig_mode/pending                         mig.mode.pending
pci/gpu_link_info/pcie_generation/current pcie.link.gen.current pcie.link.gen.gpucurrent
pci/gpu_link_info/pcie_generation/max    pcie.link.gen.max
pci/gpu_link_info/pcie_generation/device_max pcie.link.gen.gpumax
pci/gpu_link_info/pcie_generation/host_max pcie.link.gen.hostmax
pci/gpu_link_info/link_width/current     pcie.link.width.current
pci/gpu_link_info/link_width/max         pcie.link.width.max
fb_memory_usage/total                    memory.total
fb_memory_usage/reserved                 memory.reserved
fb_memory_usage/used                     memory.used
fb_memory_usage/free                     memory.free
ecc_mode/current                         ecc.mode.current
ecc_mode/pending                         ecc.mode.pending
remapped_rows/correctable_error          remapped_rows.correctable
remapped_rows/uncorrectable_error        remapped_rows.uncorrectable
remapped_rows/pending                    remapped_rows.pending
remapped_rows/remapping_failure_occurred remapped_rows.failure
retired_pages/single_bit_ecc             retired_pages.single_bit_ecc.count retired_pages.sbe
retired_pages/double_bit_ecc             retired_pages.double_bit.count retired_pages.dbe
retired_pages/pending                    retired_pages.pending
temperature/gpu_current_temp             temperature.gpu
temperature/memory_current_temp          temperature.memory
gpu_power_readings/average_power_draw    power.draw power.draw.average
gpu_power_readings/instant_power_draw    power.draw.instant
gpu_power_readings/current_power_limit   enforced.power.limit
gpu_power_readings/requested_power_limit power.limit
gpu_power_readings/default_power_limit   power.default_limit
gpu_power_readings/min_power_limit       power.min_limit
gpu_power_readings/max_power_limit       power.max_limit
clocks/graphics                          clocks.current.graphics clocks.gr
clocks/sm                                clocks.current.sm clocks.sm
clocks/memory                            clocks.current.memory clocks.mem
max_clocks/graphics                      clocks.max.graphics clocks.max.gr
max_clocks/sm                            clocks.max.sm
max_clocks/memory                        clocks.max.memory clocks.max.mem
applications_clocks/graphics             clocks.applications.graphics clocks.applications.gr
applications_clocks/memory               clocks.applications.memory clocks.applications.mem
default_applications_clocks/graphics     clocks.default_applications.graphics clocks.default_applications.gr
default_applications_clocks/memory       clocks.default_applications.memory clocks.default_applications.mem
utilization/gpu                          utilization.gpu
utilization/memory                       utilization.memory
"""


def read_query(text: str) -> Section | None:
    """A root with one `gpu` section for each row, None for another text."""
    rows = [row for row in csv.reader(inert(text).splitlines(), skipinitialspace=True) if row]
    if not rows or len(rows[0]) < 2 or not all(map(_HEAD.fullmatch, rows[0])):
        return None
    heads = [cell.partition(" ")[0] for cell in rows[0]]
    row_values = [values for row in rows[1:] if (values := _row_values(heads, row))]
    latest = _latest_rows(row_values)
    gpus = [_gpu_section(values) for values in latest]
    shared = {"driver_version", "count"}.intersection(heads) if latest else set()
    if not any(gpu.parts for gpu in gpus):
        gpus = []
    if not gpus and len(shared) < len(heads):
        return None
    header = [
        Section("attached_gpus" if name == "count" else name, latest[0][name]) for name in sorted(shared)
    ]
    if unread := next((row for row in rows[1:] if not _row_values(heads, row)), None):
        header.append(Section(UNREAD, ", ".join(unread)))
    return Section("", parts=[*header, *gpus])


def _row_values(heads: Sequence[str], row: Sequence[str]) -> dict[str, str]:
    """The cells by their heads; {} where it is none of theirs: an index is a number, or an error."""
    values = dict(zip(heads, map(str.strip, row), strict=False)) if len(row) == len(heads) else {}
    index = values.get("index", "0")
    return values if index.isdecimal() or error_name(index) else {}


def query_columns(line: str) -> int:
    """How many columns a line names as the heading of a query; 0 for any other line."""
    if "," not in line or not line[:1].islower():
        return 0
    names = [name.strip() for name in line.split(",")]
    return len(names) if all(map(_HEAD.fullmatch, names)) and any(map(_is_column, names)) else 0


def _is_column(name: str) -> bool:
    column = name.partition(" ")[0]
    return column in _column_paths() or "." in column


def _latest_rows(rows: list[dict[str, str]]) -> list[dict[str, str]]:
    """The last row of each GPU, as a loop prints several; where none has a name those of the last time."""
    id_columns = [name for name in _NAMES if all(row.get(name) and not error_name(row[name]) for row in rows)]
    if rows and id_columns:
        return list({row[id_columns[0]]: row for row in rows}.values())
    return [row for row in rows if row.get("timestamp") == rows[-1].get("timestamp")]


def _gpu_section(values: Mapping[str, str]) -> Section:
    gpu = Section("gpu", next((values[name] for name in _BUS if name in values), ""))
    for head, value in values.items():
        reason = _REASON.fullmatch(head)
        path = f"clocks_event_reasons/{reason[1]}" if reason else _column_paths().get(head, "")
        if path and (not reason or value == "Active"):  # some reasons that are absent prove no absence
            _add_value(gpu, path, value)
        elif head.startswith("ecc.errors."):
            gpu.parts.append(Section(plain(head), value))
    return gpu


def _add_value(gpu: Section, path: str, value: str) -> None:
    """Add a value below the headings of its path."""
    *headings, name = path.split("/")
    here = gpu
    for heading in headings:
        inner = here.find(heading)
        if inner is None:
            inner = Section(heading)
            here.parts.append(inner)
        here = inner
    here.parts.append(Section(name, value))


@cache
def _column_paths() -> dict[str, str]:
    rows = (line.split() for line in filter(None, _COLUMNS.splitlines()))
    return {name: path for path, *names in rows for name in names}
