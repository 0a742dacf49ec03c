"""What GPUs and host do over time, as lines to show: one per GPU, and the one that the others wait for.

A hung collective has a picture of its own: one GPU idle while its peers are at 100 per cent and draw little
power, because their kernels only poll for the one that does not come.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from nodedoctor.facts.gpu import waiting
from nodedoctor.facts.gpu.gpu import Gpu, LostGpu
from nodedoctor.facts.gpu.nvml.watch import GpuLoad
from nodedoctor.record import record
from nodedoctor.report.inert import inert
from nodedoctor.tui.lines import hardware
from nodedoctor.tui.theme import LABEL, Glyphs, Para, Part, Row, fit_words

KEPT = 120
"""Samples kept per GPU for the sparkline."""
HOT = 0.9
EDGED = 6
"""Cells from which a bar has edges."""
_FIXED, _USERS, _MOST_CLOCKS = 43, 28, 24
"""Cells of a row without bars, of who uses a GPU, and of why its clocks are held down at most."""
_BARS = (4, 14)
"""Cells of a bar, at least and at most."""
RECORDED = (
    *("index", "name", "gpu_utilization_percent", "memory_used_mib", "memory_total_mib", "temperature_c"),
    *("power_draw_w", "power_limit_w", "slowdown_c", "clock_event_reasons"),
)
_HOT, _ALARM = re.compile("thermal|hw"), "bold red"
"""Reasons for low clocks that are a fault; a power cap at full load is none."""
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
        return "".join(_level_mark(value, glyphs) for value in past).rjust(max(width, 0))


def stragglers(loads: Sequence[GpuLoad]) -> frozenset[int]:
    """The GPUs that are idle while all their peers that hold memory are at full utilisation."""
    holding = [load for load in loads if _is_used(load.gpu)]
    idle = [load for load in holding if (load.gpu.gpu_utilization_percent or 0) <= waiting.IDLE]
    busy = [load for load in holding if (load.gpu.gpu_utilization_percent or 0) >= waiting.BUSY]
    if not idle or len(idle) + len(busy) != len(holding) or len(busy) < max(1, len(idle)):
        return frozenset()
    return frozenset(load.gpu.index for load in idle)


def waiting_words(loads: Sequence[GpuLoad]) -> str:
    """One sentence about the straggler, nothing when there is none."""
    late = stragglers(loads)
    if not late:
        return ""
    peers = [load.gpu for load in loads if load.gpu.index not in late and _is_used(load.gpu)]
    names = ", ".join(f"GPU{index}" for index in sorted(late))
    draws = [(gpu.power_draw_w, gpu.power_limit_w) for gpu in peers if gpu.power_draw_w and gpu.power_limit_w]
    picture = ""
    if draws:
        low = all(waiting.draws_little(draw, limit) for draw, limit in draws)
        picture = " with low power: looks like a hung collective" if low else " and working: it is late"
    return f"{names} idle, {len(peers)} others at 100%{picture}"


@record
class Layout:
    """Cells of each bar and of the sparkline, and which columns have anything to show."""

    bar: int
    spark: int = 0
    links: bool = False
    pcie: bool = False
    clocks: int = 0
    users: bool = False


def layout(loads: Sequence[GpuLoad], width: int, history: History) -> Layout:
    """The columns that fit: those without a value on any GPU are left out, the last ones first."""
    slowed = [_slowdown_reasons(load.gpu) for load in loads]
    wanted = Layout(
        bar=0,
        links=any(load.nvlink_rx_mib_s is not None or load.nvlink_tx_mib_s is not None for load in loads),
        pcie=any(load.pcie_rx_mib_s is not None or load.pcie_tx_mib_s is not None for load in loads),
        clocks=min(max(map(len, slowed), default=0), _MOST_CLOCKS),
        users=any(load.gpu.processes for load in loads),
    )
    for drop in ({}, {"users": False}, {"pcie": False}, {"clocks": 0}, {"links": False}):
        wanted = replace(wanted, **drop)
        spare = width - _FIXED - _optional_width(wanted)
        if spare >= (3 + bool(history)) * _BARS[0]:
            break
    bar = max(0, min(_BARS[1], spare // (4 if history else 3)))
    bar = bar if bar >= _BARS[0] else 0
    spark = min(60, spare - 3 * bar - 1) if history else 0
    return replace(wanted, bar=bar, spark=spark if spark >= _BARS[0] else 0)


def heads(shown: Layout) -> tuple[Part, ...]:
    """The heads over the lines of `row`."""
    bar, spark = " " * (shown.bar + 1) * bool(shown.bar), " " * (shown.spark + 1) * bool(shown.spark)
    text = f"{'':7} {'util':>5}{bar}{spark} {'memory GiB':>10}{bar} {'temp':>6} {'power W':>8}{bar}"
    text += f" {'NVLink GB/s':>12}" if shown.links else ""
    text += f" {'PCIe GB/s':>11}" if shown.pcie else ""
    text += f"  {'clocks':<{shown.clocks}}" if shown.clocks else ""
    return ((text + ("  rank, pid" if shown.users else ""), LABEL),)


def row(
    load: GpuLoad,
    late: bool,
    history: History,
    shown: Layout,
    glyphs: Glyphs,
    ranks: Mapping[int, str] | None = None,
) -> Row:
    """The line of one GPU, each bar behind its number; `-` where nothing was reported."""
    gpu = load.gpu
    busy, used, power = gpu.gpu_utilization_percent, gpu.memory_used_mib, gpu.power_draw_w

    def bar(value: float | None, limit: float | None, style: str) -> Part:
        return (f" {_draw_bar(value, limit, shown.bar, glyphs)}" if shown.bar else "", style)

    parts: list[Part] = [
        (f" {_format_unit(busy, '%'):>5}", "bold"),
        bar(busy, 100, "green" if busy and busy >= waiting.BUSY else "cyan"),
        (f" {history.line(gpu.index, shown.spark, glyphs)}" if shown.spark else "", "cyan"),
        (f" {_format_pair(_format_gib(used), _format_gib(gpu.memory_total_mib)):>10}", ""),
        bar(used, gpu.memory_total_mib, "magenta"),
        (f" {_format_unit(gpu.temperature_c, ' C'):>6}", _heat_style(gpu)),
        (f" {_format_pair(_whole_number(power), _whole_number(gpu.power_limit_w)):>8}", ""),
        bar(power, gpu.power_limit_w, "cyan"),
    ]
    if shown.links:
        parts.append((f" {_format_rates(load.nvlink_rx_mib_s, load.nvlink_tx_mib_s):>12}", ""))
    if shown.pcie:
        parts.append((f" {_format_rates(load.pcie_rx_mib_s, load.pcie_tx_mib_s):>11}", ""))
    if shown.clocks:
        reason = _slowdown_reasons(gpu)
        parts += [
            ("  ", ""),
            (fit_words(reason, shown.clocks, glyphs.more), _ALARM if _HOT.search(reason) else ""),
        ]
    if late:
        parts.append((" <", "bold red"))
    if shown.users:
        parts.append((f"  {_user_label(gpu, ranks or {})}", LABEL if late else ""))
    return Row(str(gpu.index), f"GPU{gpu.index}", "bold red" if late else LABEL, "", parts=tuple(parts))


def _slowdown_reasons(gpu: Gpu) -> str:
    """Why the clocks are held down, nothing where the GPU is only idle."""
    reasons = [reason for reason in gpu.clock_event_reasons or () if reason != IDLE_CLOCKS]
    return inert(", ".join(reasons).replace("_", " "))


def _optional_width(shown: Layout) -> int:
    """Cells of the columns that are left out where nothing is known, or where there is no room."""
    clocks = shown.clocks + 2 if shown.clocks else 0
    return 13 * shown.links + 12 * shown.pcie + clocks + _USERS * shown.users


def _user_label(gpu: Gpu, ranks: Mapping[int, str]) -> str:
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


def _is_used(gpu: Gpu) -> bool:
    """Whether somebody uses it: a context takes some 500 MiB, an idle driver less."""
    return bool(gpu.processes) or (gpu.memory_used_mib or 0) > 1024


def _draw_bar(value: float | None, limit: float | None, width: int, glyphs: Glyphs) -> str:
    """A bar between two edges where there is room for them; blank where nothing was reported."""
    if value is None or not limit:
        return " " * width
    left_edge, right_edge = (glyphs.edges[0], glyphs.edges[1]) if width >= EDGED else ("", "")
    room = width - len(left_edge + right_edge)
    full = round(max(0.0, min(value / limit, 1.0)) * room)
    rest = " " if left_edge else glyphs.point
    return left_edge + glyphs.ramp[-1] * full + rest * (room - full) + right_edge


def _level_mark(value: int | None, glyphs: Glyphs) -> str:
    if value is None:
        return "-"
    return glyphs.ramp[round(max(0, min(value, 100)) / 100 * (len(glyphs.ramp) - 1))]


def _heat_style(gpu: Gpu) -> str:
    near = gpu.slowdown_c is not None and gpu.temperature_c is not None
    return "bold red" if near and (gpu.temperature_c or 0) >= HOT * (gpu.slowdown_c or 0) else ""


def _format_unit(value: float | None, unit: str) -> str:
    return "-" if value is None else f"{value:.0f}{unit}"


def _format_gib(mib: int | None) -> str:
    return "-" if mib is None else f"{mib / 1024:.1f}"


def _whole_number(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def _format_pair(first: str, second: str) -> str:
    return "-" if first == second == "-" else f"{first}/{second}"


def _format_rates(received: float | None, sent: float | None) -> str:
    return _format_pair(
        *(_whole_number(None if mib is None else mib * MIB_TO_GB) for mib in (received, sent))
    )
