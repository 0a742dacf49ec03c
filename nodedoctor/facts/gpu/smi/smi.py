"""What nvidia-smi says about the GPUs: as XML where NVML gave nothing, and in the forms people paste."""

from __future__ import annotations

from itertools import count, islice

from nodedoctor.declare.registry import Command, Lane, Options, fact, pasted, probe, skipped
from nodedoctor.facts import shapes
from nodedoctor.facts.driver.nvidia_presence import reason_not_to_ask
from nodedoctor.facts.gpu.gpu import Gpu, GpuReading, LostGpu
from nodedoctor.facts.gpu.nvml.nvml import NvmlReading
from nodedoctor.facts.gpu.smi import table
from nodedoctor.facts.gpu.smi.errors import (
    corrupt_inforoms,
    init_error,
    library_version,
    lost_gpus,
    normal_bus_id,
)
from nodedoctor.facts.gpu.smi.gpu import gpu_of
from nodedoctor.facts.gpu.smi.q import read_q
from nodedoctor.facts.gpu.smi.sections import Section, inert, read_xml
from nodedoctor.facts.gpu.smi.values import leading_integer
from nodedoctor.model import Observation, Unseen
from nodedoctor.record import record, replace
from nodedoctor.wording import count_with_noun

XML, Q, TABLE = "nvidia-smi-xml", "nvidia-smi-q", "nvidia-smi"

_WHOLE = frozenset({None, 0, 14, 15})
"""Exit codes behind a whole answer: none recorded, none, a corrupt InfoROM, a lost GPU (nvidia-smi(1), RETURN
VALUE)."""

_HARMLESS = frozenset({"NOT_SUPPORTED", "NO_PERMISSION", "UNPARSABLE", "DEPRECATED"})

SMI_Q = pasted(Q, "`nvidia-smi -q`, as text")
SMI_TABLE = pasted(TABLE, "`nvidia-smi`: the table, or the error it prints instead")


@probe(XML, timeout=10, lane=Lane.NVIDIA, after=("pci", "driver-files", "nvml"))
def smi_xml(
    options: Options, pci: Observation, files: Observation, nvml: Observation
) -> Command | Observation:
    """`nvidia-smi -q -x`, asked only where NVML gave no GPU: a second opinion on the same driver."""
    if why := reason_not_to_ask(pci, files):
        return skipped(XML, why)
    reading = NvmlReading.parse(nvml)
    if isinstance(reading, NvmlReading) and reading.gpus.gpus:
        return skipped(XML, "NVML answered")
    return Command(("nvidia-smi", "-q", "-x"))


@fact(XML, shown=False)
@record
class SmiXml:
    """What `nvidia-smi -q -x` says about every GPU."""

    gpus: GpuReading

    @classmethod
    def parse(cls, seen: Observation) -> SmiXml | Unseen:
        """Read the document; one that was cut off gives its complete GPUs."""
        reading = _sections(seen, read_xml(seen.text))
        return reading if isinstance(reading, Unseen) else cls(reading)


@fact(Q, shown=False)
@record
class SmiQ:
    """What `nvidia-smi -q` says about every GPU."""

    gpus: GpuReading

    @classmethod
    def parse(cls, seen: Observation) -> SmiQ | Unseen:
        """Read the text of any driver."""
        reading = _sections(seen, read_q(seen.text))
        return reading if isinstance(reading, Unseen) else cls(reading)


@fact(TABLE, shown=False)
@record
class SmiTable:
    """What the table of `nvidia-smi` says, or the error that stands in its place."""

    gpus: GpuReading

    @classmethod
    def parse(cls, seen: Observation) -> SmiTable | Unseen:
        """Read the table; it may follow a prompt, and errors may stand before it."""
        driver, cuda = table.versions(seen.text)
        corrupt = corrupt_inforoms(_printed_text(seen))
        listed = tuple(
            replace(gpu, errors={**gpu.errors, "inforom_image_version": "CORRUPTED_INFOROM"})
            if gpu.bus_id in corrupt
            else gpu
            for gpu in table.gpus(seen.text)
        )
        broken = [gone for gpu in listed if (gone := table.lost(gpu))]
        counted = len(listed) if table.is_whole(seen.text) else None
        reading = GpuReading(TABLE, driver, cuda, counted=counted, gpus=listed, lost=tuple(broken))
        finished = _finished(reading, seen)
        return finished if isinstance(finished, Unseen) else cls(finished)


def _sections(seen: Observation, root: Section | None) -> GpuReading | Unseen:
    """The reading of either long output; only an error when there is no output."""
    if root is None:
        return _finished(GpuReading(seen.probe), seen)
    sections = list(root.all("gpu"))
    numbers = _numbers(sections, list(lost_gpus(_printed_text(seen))))
    attached = leading_integer(root.value("attached_gpus") or "")
    whole_text = attached == len(sections) or seen.probe == XML
    gpus = tuple(
        replace(gpu_of(index, section), numbered=whole_text or section.value("index") is not None)
        for index, section in zip(numbers, sections, strict=True)
    )
    reading = GpuReading(
        source=seen.probe,
        driver_version=_version(root, "driver_version", "kmd_version"),
        cuda_version=_version(root, "cuda_version", "cuda_umd_version"),
        counted=attached,
        gpus=gpus,
        lost=tuple(gone for gpu in gpus if (gone := _nameless(gpu))),
    )
    return _finished(reading, seen)


def _numbers(sections: list[Section], lost: list[LostGpu]) -> list[int]:
    """NVML's indexes of the GPUs shown: it numbers them by bus address, those that are lost included."""
    indexes = [leading_integer(section.value("index") or "") for section in sections]
    distinct = {index for index in indexes if index is not None}
    if len(distinct) == len(sections):  # `--query-gpu` says them
        return [index or 0 for index in indexes]
    shown = [normal_bus_id(section.text) for section in sections]
    taken = {gone.index for gone in lost if gone.bus_id is None}
    free = (index for index in count() if index not in taken)
    known = [address for address in shown if address]
    if len(known) < len(shown) or known != sorted(set(known)):
        return list(islice(free, len(shown)))
    number = dict(zip(sorted({*known, *(gone.bus_id for gone in lost if gone.bus_id)}), free, strict=False))
    return [number[address] for address in known]


def _nameless(gpu: Gpu) -> LostGpu | None:
    """A GPU that cannot say its UUID, or that is said to be lost in place of a value, no longer answers."""
    errors = {*gpu.errors.values()} if gpu.uuid is None else {}
    error = "GPU_IS_LOST" if "GPU_IS_LOST" in errors else gpu.errors.get("uuid", "NOT_SUPPORTED")
    return None if error in _HARMLESS else LostGpu(gpu.index, gpu.bus_id, error, f"GPU UUID: {error}")


def _finished(reading: GpuReading, seen: Observation) -> GpuReading | Unseen:
    """Add what the text says besides GPUs: errors, devices that could not be opened, where it was cut off."""
    said = _printed_text(seen)
    lost = merged(reading.lost, tuple(lost_gpus(said)))
    failed = None if reading.gpus else init_error(said)
    if not (reading.gpus or lost or failed):
        return _unseen(seen)
    gone = {gpu.index for gpu in lost} | {gpu.bus_id for gpu in lost if gpu.bus_id}
    gpus = tuple(gpu for gpu in reading.gpus if gpu.index not in gone and gpu.bus_id not in gone)
    hidden = (reading.counted or 0) - len(gpus) - len(lost)
    ended_well = seen.rc in _WHOLE or not gpus  # without GPUs the text says itself what failed
    asked_for_some = seen.answered and ended_well and seen.probe == Q  # `-q -i 4` counts all and shows one
    reason = "not-visible-here" if asked_for_some else Unseen.of(seen).reason
    interrupted = None if seen.answered and hidden <= 0 and ended_well else reason
    return replace(
        reading,
        gpus=gpus,
        lost=lost,
        init_error=failed,
        nvml_version=library_version(said),
        interrupted=interrupted,
        interrupted_note=_interruption(seen, reading.counted, len(gpus)) if interrupted else "",
        seconds=seen.seconds or None,
    )


def merged(*lists: tuple[LostGpu, ...]) -> tuple[LostGpu, ...]:
    """Lost GPUs of several sources, each once: by bus address, else by index."""
    found: dict[str, LostGpu] = {}
    for gone in (gone for listed in lists for gone in listed):
        same = next((key for key, known in found.items() if _same(known, gone)), None)
        found[same or str(len(found))] = _join_sources(found[same], gone) if same else gone
    return tuple(found.values())


def _same(one: LostGpu, other: LostGpu) -> bool:
    if one.bus_id and other.bus_id:
        return one.bus_id == other.bus_id
    return one.index is not None and one.index == other.index


def _join_sources(one: LostGpu, other: LostGpu) -> LostGpu:
    """The first one, with what it does not know from the other."""
    return replace(
        one,
        index=other.index if one.index is None else one.index,
        bus_id=one.bus_id or other.bus_id,
        error=other.error if one.error == "UNKNOWN" else one.error,
    )


def _interruption(seen: Observation, wanted: int | None, shown: int) -> str:
    if not seen.answered:
        return f"{seen.probe}: {seen.note or seen.outcome.value}"
    if seen.rc not in _WHOLE:
        return f"{seen.probe}: ended with exit code {seen.rc} after {count_with_noun(shown, 'GPU')}"
    return f"{seen.probe}: counts {wanted} GPUs and shows {shown}: cut off, or asked about some of them"


def _unseen(seen: Observation) -> Unseen:
    if seen.answered and "not found" in _printed_text(seen):
        said = inert(_printed_text(seen).strip()[:200])
        return Unseen("missing-tool", f"{seen.probe}: {said}", probe=seen.probe)
    return Unseen.of(seen)


def _version(root: Section, *names: str) -> str | None:
    """The first word, when it is a version: R610 adds `[Deprecated; ...]`, containers may say N/A."""
    words = ((root.value(name) or "").partition(" ")[0] for name in names)
    return next((word for word in words if shapes.version(word)), None)


def _printed_text(seen: Observation) -> str:
    """Everything nvidia-smi printed; errors come on either stream."""
    return f"{seen.text}\n{seen.note}"
