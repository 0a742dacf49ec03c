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
from nodedoctor.facts.gpu.smi.sections import UNREAD, Section, inert, read_xml
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
    def parse(cls, observation: Observation) -> SmiXml | Unseen:
        """Read the document; one that was cut off gives its complete GPUs."""
        reading = _read_sections(observation, read_xml(observation.text))
        return reading if isinstance(reading, Unseen) else cls(reading)


@fact(Q, shown=False)
@record
class SmiQ:
    """What `nvidia-smi -q` says about every GPU."""

    gpus: GpuReading

    @classmethod
    def parse(cls, observation: Observation) -> SmiQ | Unseen:
        """Read the text of any driver."""
        reading = _read_sections(observation, read_q(observation.text))
        return reading if isinstance(reading, Unseen) else cls(reading)


@fact(TABLE, shown=False)
@record
class SmiTable:
    """What the table of `nvidia-smi` says, or the error in its place."""

    gpus: GpuReading

    @classmethod
    def parse(cls, observation: Observation) -> SmiTable | Unseen:
        """Read the table; it may follow a prompt, and errors may come before it."""
        driver, cuda = table.versions(observation.text)
        corrupt = corrupt_inforoms(_printed_text(observation))
        gpus = tuple(
            replace(gpu, errors={**gpu.errors, "inforom_image_version": "CORRUPTED_INFOROM"})
            if gpu.bus_id in corrupt
            else gpu
            for gpu in table.gpus(observation.text)
        )
        broken = [lost_gpu for gpu in gpus if (lost_gpu := table.lost(gpu))]
        gpu_count = len(gpus) if table.is_whole(observation.text) else None
        reading = GpuReading(TABLE, driver, cuda, counted=gpu_count, gpus=gpus, lost=tuple(broken))
        finished = _finish_reading(reading, observation)
        return finished if isinstance(finished, Unseen) else cls(finished)


def _read_sections(observation: Observation, root: Section | None) -> GpuReading | Unseen:
    """The reading of either long output; only an error when there is no output."""
    if root is None:
        return _finish_reading(GpuReading(observation.probe), observation)
    sections = list(root.all("gpu"))
    numbers = _gpu_indexes(sections, list(lost_gpus(_printed_text(observation))))
    attached = leading_integer(root.value("attached_gpus") or "")
    unread = root.value(UNREAD)
    whole_text = attached == len(sections) or observation.probe == XML
    gpus = tuple(
        replace(
            gpu_of(index, section),
            numbered=index >= 0 and (whole_text or section.value("index") is not None),
        )
        for index, section in zip(numbers, sections, strict=True)
    )
    reading = GpuReading(
        source=observation.probe,
        driver_version=_version_word(root, "driver_version", "kmd_version"),
        cuda_version=_version_word(root, "cuda_version", "cuda_umd_version"),
        counted=attached,
        gpus=gpus,
        lost=tuple(lost_gpu for gpu in gpus if (lost_gpu := _nameless_gpu(gpu))),
        interrupted="unparsable" if unread else None,
        interrupted_note=f"{observation.probe}: nothing shows what {unread!r} is of" if unread else "",
    )
    has_header = sorted(part.name for part in root.parts) == ["attached_gpus", "driver_version"]
    return _finish_reading(reading, observation, has_header=has_header)


def _gpu_indexes(sections: list[Section], failed: list[LostGpu]) -> list[int]:
    """NVML's indexes of the GPUs shown: it numbers them by bus address, those that are lost included.

    Those that nothing names are behind others, of which they may be some: they are counted from the end.
    """
    with_name = [
        section for section in sections if section.text or section.value("index", "uuid", "gpu_uuid")
    ]
    if 0 < len(with_name) < len(sections):
        return [*_gpu_indexes(with_name, failed), *range(len(with_name) - len(sections), 0)]
    indexes = [leading_integer(section.value("index") or "") for section in sections]
    distinct = {index for index in indexes if index is not None}
    if len(distinct) == len(sections):  # `--query-gpu` says them
        return [index or 0 for index in indexes]
    shown = [normal_bus_id(section.text) for section in sections]
    lost_indexes = {gpu.index for gpu in failed if gpu.bus_id is None}
    free = (index for index in count() if index not in lost_indexes and index not in distinct)
    if distinct:
        return [next(free) if index is None else index for index in indexes]
    bus_ids = [address for address in shown if address]
    if len(bus_ids) < len(shown) or bus_ids != sorted(set(bus_ids)):
        return list(islice(free, len(shown)))
    number = dict(zip(sorted({*bus_ids, *(gpu.bus_id for gpu in failed if gpu.bus_id)}), free, strict=False))
    return [number[address] for address in bus_ids]


def _nameless_gpu(gpu: Gpu) -> LostGpu | None:
    """A GPU that cannot say its UUID, or that is said to be lost in place of a value, no longer answers."""
    errors = {*gpu.errors.values()} if gpu.uuid is None else {}
    error = "GPU_IS_LOST" if "GPU_IS_LOST" in errors else gpu.errors.get("uuid", "NOT_SUPPORTED")
    return None if error in _HARMLESS else LostGpu(gpu.index, gpu.bus_id, error, f"GPU UUID: {error}")


def _finish_reading(
    reading: GpuReading, observation: Observation, *, has_header: bool = False
) -> GpuReading | Unseen:
    """Add what the text says besides GPUs: errors, devices that could not be opened, where it was cut off.

    `has_header`: their number and the driver's version are all that was asked for.
    """
    printed = _printed_text(observation)
    all_lost = merged(reading.lost, tuple(lost_gpus(printed)))
    failed = None if reading.gpus else init_error(printed)
    if not (reading.gpus or all_lost or failed or has_header):
        return _why_no_output(observation)
    lost_keys = {gpu.index for gpu in all_lost} | {gpu.bus_id for gpu in all_lost if gpu.bus_id}
    gpus = tuple(gpu for gpu in reading.gpus if gpu.index not in lost_keys and gpu.bus_id not in lost_keys)
    hidden = (reading.counted or 0) - len(gpus) - len(all_lost)
    complete = observation.rc in _WHOLE or not gpus  # without GPUs the text says itself what failed
    asked_for_some = observation.answered and complete and observation.probe == Q  # `-q -i 4` shows one only
    reason = "not-visible-here" if asked_for_some else Unseen.of(observation).reason
    interrupted = None if observation.answered and hidden <= 0 and complete else reason
    note = _interruption_note(observation, reading.counted, len(gpus)) if interrupted else ""
    return replace(
        reading,
        gpus=gpus,
        lost=all_lost,
        init_error=failed,
        nvml_version=library_version(printed),
        interrupted=reading.interrupted or interrupted,
        interrupted_note=reading.interrupted_note or note,
        seconds=observation.seconds or None,
    )


def merged(*lists: tuple[LostGpu, ...]) -> tuple[LostGpu, ...]:
    """Lost GPUs of several sources, each once: by bus address, else by index."""
    by_key: dict[str, LostGpu] = {}
    for lost_gpu in (lost_gpu for source_list in lists for lost_gpu in source_list):
        same = next((key for key, earlier in by_key.items() if _is_same_gpu(earlier, lost_gpu)), None)
        by_key[same or str(len(by_key))] = _join_sources(by_key[same], lost_gpu) if same else lost_gpu
    return tuple(by_key.values())


def _is_same_gpu(first: LostGpu, second: LostGpu) -> bool:
    if first.bus_id and second.bus_id:
        return first.bus_id == second.bus_id
    return first.index is not None and first.index == second.index


def _join_sources(first: LostGpu, second: LostGpu) -> LostGpu:
    """The first one, with what it does not know from the other."""
    return replace(
        first,
        index=second.index if first.index is None else first.index,
        bus_id=first.bus_id or second.bus_id,
        error=second.error if first.error == "UNKNOWN" else first.error,
    )


def _interruption_note(observation: Observation, wanted: int | None, gpus: int) -> str:
    if not observation.answered:
        return f"{observation.probe}: {observation.note or observation.outcome.value}"
    if observation.rc not in _WHOLE:
        return (
            f"{observation.probe}: ended with exit code {observation.rc} after {count_with_noun(gpus, 'GPU')}"
        )
    return f"{observation.probe}: counts {wanted} GPUs and shows {gpus}: cut off, or asked about some of them"


def _why_no_output(observation: Observation) -> Unseen:
    if observation.answered and "not found" in _printed_text(observation):
        printed = inert(_printed_text(observation).strip()[:200])
        return Unseen("missing-tool", f"{observation.probe}: {printed}", probe=observation.probe)
    return Unseen.of(observation)


def _version_word(root: Section, *names: str) -> str | None:
    """The first word, when it is a version: R610 adds `[Deprecated; ...]`, containers may say N/A."""
    words = ((root.value(name) or "").partition(" ")[0] for name in names)
    return next((word for word in words if shapes.version(word)), None)


def _printed_text(observation: Observation) -> str:
    """Everything nvidia-smi printed; errors come on either stream."""
    return f"{observation.text}\n{observation.note}"
