"""Where the values of GPUs are in what the probes printed, so that a finding can show what it rests on.

The tables that read NVML's answers and nvidia-smi's sections into `Gpu` are the same that lead back.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache

from nodedoctor.facts.gpu.gpu import Gpu, GpuProcess, InitError, LostGpu, SlowCall
from nodedoctor.facts.gpu.links.error_growth import GROWTH
from nodedoctor.facts.gpu.links.nvlink_smi import COUNTERS, ERRORS, STATUS
from nodedoctor.facts.gpu.nvml.gpu import places
from nodedoctor.facts.gpu.nvml.nvml import NVML
from nodedoctor.facts.gpu.smi import fields
from nodedoctor.facts.gpu.smi.gpu import REASONS as TEXT_REASONS
from nodedoctor.facts.gpu.smi.smi import TABLE
from nodedoctor.model import Evidence, quoted_like, reading

_ECC = "ecc_errors.{}.{}"
_STATED = frozenset({"active", "speed_mbytes_s"})
"""What `nvidia-smi nvlink -s` says of a link; `-e` says the rest."""
_SUMS = ("sram_uncorrectable", "sram_uncorrectable_parity", "sram_uncorrectable_secded")


def values(source: str, gpu: Gpu, *names: str) -> list[Evidence]:
    """The values of these fields of a GPU as the source gave them, or the error in a value's place."""
    if source == TABLE:
        return [Evidence(source, gpu.printed)]
    known_names = [name for name in names if getattr(gpu, name) is not None or name in gpu.errors]
    in_table = any(gpu.sources.get(name) == TABLE for name in known_names)
    quotes = [Evidence(TABLE, gpu.printed)] if in_table else []
    return quotes + [
        evidence
        for name in known_names
        if gpu.sources.get(name) != TABLE
        for evidence in _field_evidence(gpu.sources.get(name, source), gpu, name)
    ]


def identity_evidence(source: str, gpu: Gpu) -> list[Evidence]:
    """The card's identity as evidence, so that it travels with a pasted finding."""
    if source == TABLE:
        return []
    return values(source, gpu, *(name for name in ("bus_id", "serial", "uuid") if getattr(gpu, name)))


def clock_seconds(source: str, gpu: Gpu, reason: str) -> list[Evidence]:
    """How long a reason has held the clocks down since the driver was loaded, as the source counts it."""
    if source == NVML:
        return [reading(source, f"gpus[index={gpu.index}].values.{reason}_ns")]
    here = f"{_section_path(gpu)}.clocks_event_reasons_counters"
    first, *others = (f"{here}.{name}" for name in (f"clocks_event_reasons_counters_{reason}", reason))
    return [reading(source, first, *others)]


def link_evidence(source: str, index: int, link: int, *names: str) -> list[Evidence]:
    """What was said of one NVLink: NVML's values by name, or the line of `nvidia-smi nvlink`."""
    if source in (STATUS, ERRORS):
        return [_link_line(STATUS if {*names} <= _STATED else ERRORS, index, link, names)]
    here = f"gpus[index={index}].links[link={link}]"
    return [reading(source, f"{here}.values.{name}", f"{here}.errors.{name}") for name in names]


def links_of(source: str, index: int) -> list[Evidence]:
    """What was said of a GPU's links as a whole: how many there are, or the line in their place."""
    if source in (STATUS, ERRORS):
        return [quoted_like(source, rf"^[ \t]*GPU {index}:.*(?:\n.*)?")]
    here = f"gpus[index={index}]"
    return [
        reading(
            source,
            f"{here}.values.nvlink_count",
            f"{here}.errors.nvlink_count",
            f"{here}.links[0].values.active",
        )
    ]


def init_evidence(source: str, error: InitError) -> Evidence:
    """Why the driver's library did not start."""
    return reading(source, "init.text", "init.error") if source == NVML else Evidence(source, error.text)


def lost_evidence(source: str, lost_gpu: LostGpu) -> list[Evidence]:
    """What is in the place of a GPU that cannot be read."""
    if source == NVML and lost_gpu.index is not None:
        entry = f"gpus[index={lost_gpu.index}]"
        call = lost_gpu.text.partition(": ")[0]
        return [reading(source, f"{entry}.error", f"{entry}.errors.{call}", "system.values.count")]
    return [Evidence(source, lost_gpu.text)] if lost_gpu.text else []


def values_failed(source: str, gpu: Gpu, error: str) -> list[Evidence]:
    """The first few values of a GPU that have this error in their place."""
    return values(source, gpu, *[name for name, reason in gpu.errors.items() if reason == error][:6])


def process_said(source: str, gpu: Gpu, process: GpuProcess) -> list[Evidence]:
    """What was said of a process that uses a GPU."""
    source = gpu.sources.get("processes", source)
    if source == NVML:
        here = f"gpus[index={gpu.index}].values"
        kinds = (f"{process.kind}_processes", "compute_processes", "graphics_processes", "mps_processes")
        return [reading(source, *(f"{here}.{kind}[pid={process.pid}]" for kind in dict.fromkeys(kinds)))]
    return [quoted_like(source, rf"^.*\b{process.pid}\b.*$")]


def slow_call(source: str, call: SlowCall) -> Evidence:
    """How long one call took, as the child measured it."""
    return reading(source, f"slow[call={call.call}].seconds")


def peer_evidence(source: str, pair: tuple[int, int], kind: str) -> list[Evidence]:
    """What was said of one GPU's access to another: NVML's number, or the row of the matrix."""
    index, peer = pair
    if source == NVML:
        return [reading(source, f"peers[index={index}&peer={peer}].values.{kind}")]
    return [quoted_like(source, rf"^[ \t]*(GPU{index}[ \t]+(?!GPU).*\S)")]


def _link_line(source: str, index: int, link: int, names: tuple[str, ...]) -> Evidence:
    """The line of `nvidia-smi nvlink` about a link, below its GPU; of a counter, the one of its label."""
    label = "|".join(text for text, name in COUNTERS.items() if name in names)
    prefix = f"(?i:{label}): " if label else ""
    return quoted_like(
        source, rf"^[ \t]*GPU {index}:.*\n(?:(?![ \t]*GPU \d).*\n)*?([ \t]*Link {link}: {prefix}.*)"
    )


def growth_evidence(index: int, name: str, link: int | None = None) -> list[Evidence]:
    """A counter in the first and in the last of the samples that were taken."""
    where = f"gpus[index={index}]" + (f".links[link={link}]" if link is not None else "")
    return [reading(GROWTH, f"[{sample}].{where}.values.{name}") for sample in ("0", "-1")]


def _field_evidence(source: str, gpu: Gpu, name: str) -> Iterator[Evidence]:
    if name == "clock_event_reasons" and source != NVML:
        yield from (_reason_evidence(source, gpu, reason) for reason in gpu.clock_event_reasons or ())
        return
    if source == NVML:
        here = f"gpus[index={gpu.index}]"
        keys = places(name)
        paths = [f"{here}.values.{key}" for key in keys]
        paths += [f"{here}.errors.{key.partition('.')[0].partition('[')[0]}" for key in keys]
    else:
        paths = [f"{_section_path(gpu)}.{path}" for path in _printed_paths(name)]
        paths += [_section_path(gpu)] if name == "bus_id" else []
    if paths:
        yield reading(source, paths[0], *dict.fromkeys(paths[1:]))


def _reason_evidence(source: str, gpu: Gpu, reason: str) -> Evidence:
    """The line that says a reason is active, under its names in XML and text, before and after R535."""
    text = next((word for word, name in TEXT_REASONS.items() if name == reason), reason)
    heads = [(kind, f"{_section_path(gpu)}.clocks_{kind}_reasons") for kind in ("event", "throttle")]
    paths = [
        f"{head}.{name}"
        for kind, head in heads
        for name in (
            f"clocks_{kind}_reason_{reason}",
            reason,
            text,
            f"hw_slowdown.{reason}",
            f"hw_slowdown.{text}",
        )
    ]
    return reading(source, paths[0], *paths[1:])


def _section_path(gpu: Gpu) -> str:
    return f"gpu[id={gpu.bus_id}]" if gpu.bus_id else f"gpu[{gpu.index}]"


@cache
def _printed_paths(name: str) -> tuple[str, ...]:
    """Where a field is below a GPU's section of nvidia-smi, by any driver."""
    paths = [path.replace("/", ".") for row in fields.rows() if row.field == name for path in row.paths]
    return (*paths, *_compound_paths(name))


def _compound_paths(name: str) -> Iterator[str]:
    if name == "bus_id":
        yield "pci.pci_bus_id"
        yield "pci.bus_id"
    for kind in ("volatile", "aggregate"):
        if name.startswith(f"ecc_{kind}_"):
            rest = name.removeprefix(f"ecc_{kind}_")
            names = _SUMS if rest == "sram_uncorrectable" else (rest,)
            yield from (_ECC.format(kind, counter) for counter in names)
            old = {"correctable": "single_bit.total", "uncorrectable": "double_bit.total"}
            if rest in old:
                yield _ECC.format(kind, f"dram_{rest}")
                yield _ECC.format(kind, old[rest])
    if name == "fabric_health":
        yield "fabric.health.summary"
