"""What GPUs and host do over time, as lines to show: one per GPU, and the one that the others wait for.

A hung collective has a picture of its own: one GPU idle while its peers are at 100 per cent and draw little
power, because their kernels only poll for the one that does not come.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nodedoctor.facts.gpu.gpu import Gpu, LostGpu
from nodedoctor.facts.gpu.nvml.watch import GpuLoad
from nodedoctor.report.inert import inert
from nodedoctor.tui.lines import hardware
from nodedoctor.tui.theme import LABEL, Glyphs, Para, Part, Row, fit

KEPT = 120
"""Samples kept per GPU for the sparkline."""
BUSY, IDLE = 90, 10
"""Per cent of utilisation from which a GPU counts as waiting or working, and below which as idle."""
POLLING = 0.5
"""Of the power limit: below, a GPU at full utilisation moves no data (H100 at 100 per cent in an NCCL wait
draws 120 to 250 of 700 W; in training 500 and more)."""
HOT = 0.9
IDLE_CLOCKS = "gpu_idle"
"""The reason for low clocks that is none to worry about."""
MIB_TO_GB = 2**20 / 1e9


class History:
    """The last samples of every GPU's utilisation."""

    def __init__(self) -> None:
        self._past: dict[int, deque[int | None]] = {}

    def add(self, loads: Sequence[GpuLoad]) -> None:
        """Take over one sample."""
        for load in loads:
            past = self._past.setdefault(load.gpu.index, deque(maxlen=KEPT))
            past.append(load.gpu.gpu_utilization_percent)

    def __bool__(self) -> bool:
        """Whether there are samples: of a recorded node there are none."""
        return bool(self._past)

    def line(self, index: int, width: int, glyphs: Glyphs) -> str:
        """A sparkline of the last samples, the newest at the right; `-` where nothing was said."""
        past = list(self._past.get(index, ()))[-width:] if width > 0 else []
        return "".join(_level(value, glyphs) for value in past).rjust(max(width, 0))


def stragglers(loads: Sequence[GpuLoad]) -> frozenset[int]:
    """The GPUs that are idle while all their peers that hold memory are at full utilisation."""
    holding = [load for load in loads if _holds(load.gpu)]
    idle = [load for load in holding if (load.gpu.gpu_utilization_percent or 0) <= IDLE]
    busy = [load for load in holding if (load.gpu.gpu_utilization_percent or 0) >= BUSY]
    if not idle or len(idle) + len(busy) != len(holding) or len(busy) < max(1, len(idle)):
        return frozenset()
    return frozenset(load.gpu.index for load in idle)


def waiting_words(loads: Sequence[GpuLoad]) -> str:
    """One sentence about the straggler, nothing when there is none."""
    late = stragglers(loads)
    if not late:
        return ""
    peers = [load.gpu for load in loads if load.gpu.index not in late and _holds(load.gpu)]
    names = ", ".join(f"GPU{index}" for index in sorted(late))
    told = [(gpu.power_draw_w, gpu.power_limit_w) for gpu in peers if gpu.power_draw_w and gpu.power_limit_w]
    picture = ""
    if told:
        low = all(draw < POLLING * limit for draw, limit in told)
        picture = " with low power: looks like a hung collective" if low else " and working: it is late"
    return f"{names} idle, {len(peers)} others at 100%{picture}"


def columns(width: int, history: History) -> tuple[Part, ...]:
    """The heads over the lines of `row`."""
    spark, bar = _columns(width, history)
    text = f"         util {'':<{bar + spark}} {'':<{bar}}{'memory GiB':>11} {'temp':>5} "
    text += f"{'':<{bar}}{'power W':>9} {'NVLink GB/s':>12}"
    text += f" {'PCIe GB/s':>11}  {'clocks':<{_clocks(width)}}" if width >= WIDE else ""
    return ((text, LABEL), ("  rank, pid" if width >= WIDEST else "", LABEL))


EDGED = 6
"""Cells from which a bar has edges."""
WIDE, WIDEST = 110, 130
"""Cells from which there is room for PCIe and clocks, and for who uses the GPU."""
RECORDED = (
    *("index", "name", "gpu_utilization_percent", "memory_used_mib", "memory_total_mib", "temperature_c"),
    *("power_draw_w", "power_limit_w", "slowdown_c", "clock_event_reasons"),
)


def row(
    load: GpuLoad,
    late: bool,
    history: History,
    width: int,
    glyphs: Glyphs,
    ranks: Mapping[int, str] | None = None,
) -> Row:
    """The line of one GPU; `-` where nothing was reported."""
    gpu = load.gpu
    spark, bar = _columns(width, history)
    busy, used, drawn = gpu.gpu_utilization_percent, gpu.memory_used_mib, gpu.power_draw_w
    parts: list[Part] = [
        (f" {_percent(busy):>5} ", "bold"),
        (_draw_bar(busy, 100, bar, glyphs), "green" if busy and busy >= BUSY else "cyan"),
        (f" {history.line(gpu.index, spark - 1, glyphs)}"[:spark], "cyan"),
        (f" {_draw_bar(used, gpu.memory_total_mib, bar, glyphs)}", "magenta"),
        (f"{_pair(_gib(used), _gib(gpu.memory_total_mib)):>11}", ""),
        (f" {_unit(gpu.temperature_c, ' C'):>5} ", _heat(gpu)),
        (_draw_bar(drawn, gpu.power_limit_w, bar, glyphs), "yellow"),
        (f"{_pair(_whole_number(drawn), _whole_number(gpu.power_limit_w)):>9}", ""),
        (f" {_rates(load.nvlink_rx_mib_s, load.nvlink_tx_mib_s):>12}", ""),
    ]
    if width >= WIDE:
        parts.append((f" {_rates(load.pcie_rx_mib_s, load.pcie_tx_mib_s):>11}", ""))
        held = [reason for reason in gpu.clock_event_reasons or () if reason != IDLE_CLOCKS]
        said = inert(", ".join(held).replace("_", " "))
        said = fit(said, _clocks(width), glyphs.more) if width >= WIDEST else f"{said:<{_clocks(width)}}"
        parts.append((f"  {said}", "bold yellow"))
    if late:
        parts.append((" <", "bold red"))
    if width >= WIDEST:
        parts.append((f"  {_user(gpu, ranks or {})}", LABEL if late else ""))
    return Row(str(gpu.index), f"GPU{gpu.index}", "bold red" if late else LABEL, "", parts=tuple(parts))


def _user(gpu: Gpu, ranks: Mapping[int, str]) -> str:
    """Who uses it: the rank, or else the process, and how many more."""
    users = gpu.processes or ()
    if not users:
        return ""
    name = (ranks.get(users[0].pid) or users[0].name or "").partition(" /")[0]
    more = f" +{len(users) - 1}" if len(users) > 1 else ""
    return inert(f"{name} pid {users[0].pid}{more}".strip())


def about(load: GpuLoad, ranks: Mapping[int, str]) -> Iterator[Para]:
    """What else is known about one GPU: why it is slow, who uses it, what could not be read."""
    gpu = load.gpu
    yield Para(inert(gpu.name or ""), f"GPU{gpu.index}  ")
    if gpu.clock_event_reasons:
        yield Para(hardware.reasons(gpu.clock_event_reasons), f"{'clocks':<9} ")
    for process in gpu.processes or ():
        used = f"  {process.used_mib / 1024:.1f} GiB" if process.used_mib is not None else ""
        name = ranks.get(process.pid) or process.name or ""
        yield Para(inert(f"pid {process.pid}  {name}{used}"), f"{'process':<9} ")
    for reason in sorted({*gpu.errors.values()} - {"NOT_SUPPORTED", "NOT_ASKED"}):
        names = ", ".join(sorted(key for key, error in gpu.errors.items() if error == reason))
        yield Para(f"{names}: {reason}", f"{'unread':<9} ")


def host_lines(said: Mapping[str, Any], ports: Sequence[Mapping[str, Any]]) -> Iterator[Para]:
    """The host in a few lines; what was not said is left out."""
    cpu = [
        _reported_value(said, "cpu_percent", "{:.0f}% busy"),
        _reported_value(said, "iowait_percent", "{:.0f}% waiting for disks"),
    ]
    cpu += [
        _reported_value(said, "load_1m", "load {:.1f}"),
        _reported_value(said, "blocked", "{} processes blocked"),
    ]
    total, free = said.get("memory_total_gib"), said.get("memory_available_gib")
    memory = [f"{total - free:.0f} of {total:.0f} GiB used" if total and free is not None else ""]
    memory.append(
        _reported_value(said, "swap_used_gib", "{:.1f} GiB swapped") if said.get("swap_used_gib") else ""
    )
    kinds = ("cpu", "memory", "io")
    pressure = [_reported_value(said, f"pressure_{kind}_percent", kind + " {:.0f}%") for kind in kinds]
    moves = [
        _reported_value(said, "disk_read_mib_s", "read {:.1f}"),
        _reported_value(said, "disk_write_mib_s", "write {:.1f} MiB/s"),
    ]
    net = [
        _reported_value(said, "net_rx_mib_s", "in {:.1f}"),
        _reported_value(said, "net_tx_mib_s", "out {:.1f} MiB/s"),
    ]
    for label, parts in (
        ("cpu", cpu),
        ("memory", memory),
        ("pressure", pressure),
        ("disk", moves),
        ("net", net),
    ):
        if any(parts):
            yield Para("  ".join(filter(None, parts)), f"{label:<9} ")
    if ports:
        moving = (
            f"{p.get('port')} {_number(p.get('rx_gbytes_s'))}/{_number(p.get('tx_gbytes_s'))}" for p in ports
        )
        yield Para(inert("  ".join(moving)) + "  (in/out GB/s)", f"{'ib':<9} ")


def newly_lost(loads: Sequence[GpuLoad]) -> Iterator[LostGpu]:
    """Those that were read before, and of which the driver now says that they are lost."""
    for load in loads:
        if hardware.IS_LOST in load.gpu.errors.values() and load.gpu.gpu_utilization_percent is None:
            yield LostGpu(load.gpu.index, load.gpu.bus_id, hardware.IS_LOST)


def recorded(facts: Mapping[str, Any]) -> list[GpuLoad]:
    """The one reading that a report holds, for nodes that are not this machine."""
    gpus = facts.get("gpus")
    entries = gpus.get("gpus") if isinstance(gpus, dict) else None
    return [
        GpuLoad(Gpu(**{key: entry[key] for key in RECORDED if key in entry}))
        for entry in entries or ()
        if isinstance(entry, dict) and isinstance(entry.get("index"), int)
    ]


def _holds(gpu: Gpu) -> bool:
    """Whether somebody uses it: a context takes some 500 MiB, an idle driver less."""
    return bool(gpu.processes) or (gpu.memory_used_mib or 0) > 1024


def _columns(width: int, history: History) -> tuple[int, int]:
    """Cells of the sparkline and of each bar, which have its cells where there is nothing to draw."""
    spark, bar = _spark(width), _bar(width)
    return (spark, bar) if history else (0, bar + spark // 3)


def _bar(width: int) -> int:
    """Cells of a bar: as many as there is room for three of them."""
    return 4 if width < 100 else max(6, min(14, (width - 90) // 5))


def _clocks(width: int) -> int:
    """Cells for why the clocks are held down."""
    return 20 if width >= WIDEST else 6


def _spark(width: int) -> int:
    """Cells of the sparkline: what the bars and figures leave, and room for the words about clocks."""
    left = width - 62 - 3 * _bar(width) - (32 if width >= WIDE else 12) - (34 if width >= WIDEST else 0)
    return max(0, min(60, left)) if left >= 6 else 0


def _draw_bar(value: float | None, of: float | None, width: int, glyphs: Glyphs) -> str:
    """A bar between two edges where there is room for them; blank where nothing was reported."""
    if value is None or not of:
        return " " * width
    before, after = (glyphs.edges[0], glyphs.edges[1]) if width >= EDGED else ("", "")
    room = width - len(before + after)
    full = round(max(0.0, min(value / of, 1.0)) * room)
    rest = " " if before else glyphs.point
    return before + glyphs.ramp[-1] * full + rest * (room - full) + after


def _level(value: int | None, glyphs: Glyphs) -> str:
    if value is None:
        return "-"
    return glyphs.ramp[round(max(0, min(value, 100)) / 100 * (len(glyphs.ramp) - 1))]


def _heat(gpu: Gpu) -> str:
    near = gpu.slowdown_c is not None and gpu.temperature_c is not None
    return "bold red" if near and (gpu.temperature_c or 0) >= HOT * (gpu.slowdown_c or 0) else ""


def _percent(value: int | None) -> str:
    return _unit(value, "%")


def _unit(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{value:.0f}{unit}"


def _gib(mib: int | None) -> str:
    return "-" if mib is None else f"{mib / 1024:.1f}"


def _whole_number(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def _pair(one: str, other: str) -> str:
    return "-" if one == other == "-" else f"{one}/{other}"


def _rates(received: float | None, sent: float | None) -> str:
    return _pair(*(_whole_number(None if mib is None else mib * MIB_TO_GB) for mib in (received, sent)))


def _reported_value(said: Mapping[str, Any], key: str, form: str) -> str:
    value = said.get(key)
    return form.format(value) if isinstance(value, int | float) else ""


def _number(value: Any) -> str:
    return f"{value:.1f}" if isinstance(value, int | float) else "-"
