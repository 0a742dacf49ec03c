"""What a report knows of every GPU and port beside its load: links, memory errors, versions, one line each.

Where one device differs from most others of its node its value is marked with `<`, as in the matrices.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rich.cells import cell_len

from nodedoctor.facts.gpu.gpu import LostGpu
from nodedoctor.json_shapes import Json, number, part, parts, text, texts, whole_number, words
from nodedoctor.report.inert import inert
from nodedoctor.report.matrix import LOST
from nodedoctor.tui.theme import LABEL, QUIET, Para, Part, Row, fit
from nodedoctor.wording import count_with_noun

MOST = 64
"""Devices of one kind that are listed."""
IS_LOST = "GPU_IS_LOST"
"""NVML's word for a GPU that has fallen off the bus."""
_ALARM = "bold red"
_SAME = frozenset({"PCIe", "NVLinks", "VBIOS", "state", "rate"})
"""Columns that are alike on a healthy node."""
_STATE = "PCIe"
"""The column that says of a GPU which is not read that it is lost: the first that would have a value."""
_Line = Mapping[str, str]


def page(facts: Json, width: int) -> Iterator[Para]:
    """The host in a line, then a line per GPU and one per port, as far as they are known and fit."""
    if host := ", ".join(_host_words(facts)):
        yield Para()
        yield Para(inert(host), f"{'host':<9} ")
    gpus = [_gpu_line(entry) for entry in parts(part(facts, "gpus"), "gpus")[:MOST]]
    missing = [_lost_line(entry) for entry in lost_gpus(facts)]
    everything = sorted((*gpus, *missing), key=lambda line: int(line["GPU"].removeprefix("GPU") or -1))
    yield from _table_paras(everything, gpus, width)
    rails = texts(part(facts, "rails"), "ports")
    ports = [_port_line(entry) for entry in parts(part(facts, "ib"), "ports")[:MOST]]
    ports.sort(key=lambda port: port["port"] not in rails)
    yield from _table_paras(ports, [port for port in ports if port["port"] in rails], width)


def lost_gpus(facts: Json) -> tuple[LostGpu, ...]:
    """The GPUs of a report that are counted and could not be read, and have a number."""
    entries = ((whole_number(entry, "index"), entry) for entry in parts(part(facts, "gpus"), "lost")[:MOST])
    return tuple(
        LostGpu(index, text(entry, "bus_id") or None, text(entry, "error"), text(entry, "text"))
        for index, entry in entries
        if index is not None
    )


def lost_row(gpu: LostGpu) -> Row:
    """The row of a GPU that shows no load."""
    word = LOST if gpu.error == IS_LOST else "-"
    parts = ((f" {word:>5} ", _ALARM), (f" {lost_reason(gpu)}", ""))
    return Row(str(gpu.index), f"GPU{gpu.index}", _ALARM, "", parts=parts)


def lost_reason(gpu: LostGpu) -> str:
    """Why nothing is read of it, in words where there are any."""
    reason = "has fallen off the bus" if gpu.error == IS_LOST else f"not readable: {gpu.error} {gpu.text}"
    return inert(f"{reason} ({gpu.bus_id})" if gpu.bus_id else reason.strip())


def _host_words(facts: Json) -> Iterator[str]:
    machine, memory = part(facts, "machine"), part(part(facts, "limits"), "memory")
    yield from filter(None, (text(machine, "product"), text(machine, "cpu_model")))
    if cpus := whole_number(machine, "cpus"):
        yield count_with_noun(cpus, "CPU")
    free, total = number(memory.get("available_gib")), number(memory.get("total_gib"))
    if free is not None and total is not None:
        yield f"{free:.0f} of {total:.0f} GiB available"
    if up := number(machine.get("uptime_seconds")):
        yield f"up {count_with_noun(round(up / 86400), 'day')}" if up > 2 * 86400 else f"up {up / 3600:.1f} h"
    yield from filter(None, (text(machine, "distro"), text(machine, "kernel")))


def _gpu_line(gpu: Json) -> _Line:
    index, links = whole_number(gpu, "index"), parts(gpu, "nvlinks")
    generation, width = whole_number(gpu, "pcie_generation"), whole_number(gpu, "pcie_width")
    clock, fastest = whole_number(gpu, "clock_sm_mhz"), whole_number(gpu, "clock_max_sm_mhz")
    up = sum(link.get("active") is True for link in links)
    return {
        "GPU": "GPU" if index is None else f"GPU{index}",
        "bus": text(gpu, "bus_id"),
        "PCIe": f"gen{generation} x{width}" if generation and width else "",
        "NVLinks": f"{up} of {len(links)}" if links else "",
        "ECC corrected": words(whole_number(gpu, "ecc_volatile_correctable")),
        "uncorrected": words(whole_number(gpu, "ecc_volatile_uncorrectable")),
        "rows remapped": _sum_counts(gpu, "remapped_correctable", "remapped_uncorrectable"),
        "SM clock": f"{clock}/{fastest} MHz" if clock is not None and fastest is not None else "",
        "VBIOS": text(gpu, "vbios_version"),
        "serial": text(gpu, "serial"),
    }


def _lost_line(gpu: LostGpu) -> _Line:
    """The line of a GPU that nothing is read of, in its place among the others."""
    word = LOST if gpu.error == IS_LOST else "unread"
    line = {"GPU": f"GPU{gpu.index}", "bus": gpu.bus_id or "", _STATE: word}
    return {**dict.fromkeys(_gpu_line({}), ""), **line}


def _port_line(port: Json) -> _Line:
    rate = number(port.get("rate_gbps"))
    return {
        "port": f"{text(port, 'hca')}/{whole_number(port, 'number') or '-'}",
        "bus": text(port, "pci_address"),
        "state": text(port, "state"),
        "rate": f"{rate:g} Gb/s" if rate is not None else "",
        "kind": " ".join(filter(None, (text(port, "link_layer"), text(port, "generation")))),
        "firmware": text(port, "firmware"),
        "interface": " ".join(texts(port, "netdevs")),
    }


def _sum_counts(gpu: Json, *keys: str) -> str:
    counts = [count for key in keys if (count := whole_number(gpu, key)) is not None]
    return str(sum(counts)) if counts else ""


def _table_paras(lines: Sequence[_Line], peers: Sequence[_Line], width: int) -> Iterator[Para]:
    """Columns of which something is known, headed, as wide as their widest value, as many as fit.

    `peers` are the lines of devices that should have the same values.
    """
    heads = [head for head in (lines[0] if lines else ()) if any(line[head] for line in lines)]
    shown = [{head: inert(line[head]) or "-" for head in heads} for line in lines]
    wide = {head: max(len(head), *(cell_len(line[head]) + 1 for line in shown)) + 1 for head in heads}
    while heads and sum(wide[head] for head in heads) > width:
        heads.pop()
    if len(heads) < 2:
        return
    usual = {head: _usual_value([line[head] for line in peers]) for head in heads if head in _SAME}
    yield Para()
    yield Para(parts=tuple((fit(head, wide[head], ""), LABEL) for head in heads))
    for line, cells in zip(lines, shown, strict=True):
        odd_heads = {head for head, value in usual.items() if value and line in peers and line[head] != value}
        odd_heads |= {_STATE} if line.get(_STATE) in (LOST, "unread") else set()
        yield Para(parts=tuple(_table_cell(cells[head], wide[head], head in odd_heads) for head in heads))


def _table_cell(text: str, wide: int, is_odd: bool) -> Part:
    return fit(f"{text}<" if is_odd else text, wide, ""), _ALARM if is_odd else QUIET if text == "-" else ""


def _usual_value(values: Sequence[str]) -> str:
    """The value that most devices have, "" where no value is in the majority."""
    value, count = Counter(values).most_common(1)[0] if values else ("", 0)
    return value if count * 2 > len(values) else ""


def reasons(names: Sequence[Any]) -> str:
    """Why clocks are lowered, as `software power cap` where the driver has `sw_power_cap`."""
    long = {"sw": "software", "hw": "hardware", "gpu": ""}
    phrases = (" ".join(long.get(word, word) for word in str(name).split("_")).strip() for name in names)
    return inert(", ".join(phrases))
