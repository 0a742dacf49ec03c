"""Every GPU of the node, from the best source that spoke."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from nodedoctor.declare.peers import Attribute, odd_ones
from nodedoctor.declare.registry import fact
from nodedoctor.declare.unread import Unread, unread
from nodedoctor.facts.driver.driver import Driver
from nodedoctor.facts.driver.nvidia_presence import NONE_HERE, nothing_here
from nodedoctor.facts.gpu.gpu import HARMLESS, Gpu, GpuReading
from nodedoctor.facts.gpu.nvml.nvml import NVML, NvmlReading
from nodedoctor.facts.gpu.smi.merge import merge_readings
from nodedoctor.facts.gpu.smi.smi import SmiQ, SmiTable, SmiXml, merged
from nodedoctor.facts.pci.pci import Pci
from nodedoctor.grouping import group_by
from nodedoctor.model import Reason, Unseen
from nodedoctor.record import field_names, record, replace
from nodedoctor.wording import count_with_noun

_TELLING: tuple[Reason, ...] = (
    "stuck",
    "timeout",
    "crash",
    "unparsable",
    "denied",
    "not-visible-here",
    "missing-tool",
)
"""Of several reasons why nothing is known, the first of these is the one to tell."""


@record
class SickGpu(Gpu):
    """A GPU that does not tell something that it should: code that reads that value has not seen it."""

    def __getattribute__(self, name: str) -> Any:
        """The value; noticed by the engine where an error is in its place."""
        get = object.__getattribute__
        if not name.startswith("_") and name != "errors":
            error = get(self, "errors").get(name, "NO_VALUE")
            if error not in HARMLESS or name in get(self, "untold_here"):
                index = get(self, "index")
                unread(Unread(f"{name} of GPU {index}", error, f"driver.answers@gpu:{index}"))
        return get(self, name)


@fact(NvmlReading, SmiXml, SmiQ, SmiTable, Pci, Driver)
@record
class Gpus(GpuReading):
    """Every GPU of the node, from the best source that spoke: `source` says which."""

    @property
    def encrypted(self) -> bool:
        """True with confidential computing: copies pass a bounce buffer one after the other and are slower.

        Source: arxiv.org/abs/2606.23969.
        """
        return bool(self.confidential_compute or any(gpu.confidential_compute for gpu in self.gpus))

    @classmethod
    def parse(
        cls,
        nvml: NvmlReading | Unseen,
        xml: SmiXml | Unseen,
        q: SmiQ | Unseen,
        table: SmiTable | Unseen,
        pci: Pci | Unseen,
        driver: Driver | Unseen,
    ) -> Gpus | Unseen:
        """Take each value from the first source that has it; GPUs lost to any of them stay in the list.

        NVML is asked about everything: what it does not tell no other source is taken for.
        """
        sources = (nvml, xml, q, table)
        readings = [source.gpus for source in sources if not isinstance(source, Unseen)]
        if not readings:
            reasons = [source for source in sources if isinstance(source, Unseen)]
            return _why_no_gpus(reasons, pci, driver)
        best = next((reading for reading in readings if reading.gpus), readings[0])
        lost_gpus = merged(best.lost, *(reading.lost for reading in readings))
        others = (
            []
            if best.source == NVML
            else [reading for reading in readings if reading is not best and reading.gpus]
        )
        gpus = merge_readings([best, *others])
        reading = _with_nameless(_with_versions(best, others, len(gpus) + len(lost_gpus)), gpus)
        return replace(cls.of(reading), gpus=tuple(_mark_sick_gpus(gpus)), lost=lost_gpus)

    def __getattribute__(self, name: str) -> Any:
        """The value; who reads the GPUs of a node on which some do not answer has not seen all of them."""
        if name == "gpus":
            for lost_gpu in object.__getattribute__(self, "lost"):
                place = lost_gpu.bus_id if lost_gpu.index is None else lost_gpu.index
                unread(Unread(f"GPU {place}", lost_gpu.error, f"driver.answers@{lost_gpu.subject}"))
        return object.__getattribute__(self, name)

    def get(self, index: int | None) -> Gpu | None:
        """The GPU of a number; None where no such one was read."""
        return next((gpu for gpu in self.gpus if gpu.index == index), None)

    @property
    def answering(self) -> tuple[Gpu, ...]:
        """The GPUs, for those who look at what is lost as well."""
        gpus: tuple[Gpu, ...] = object.__getattribute__(self, "gpus")
        return gpus

    @property
    def partly(self) -> Unseen | None:
        """Why not every GPU was read to the end; None when all were."""
        if self.interrupted is None:
            return None
        return Unseen(self.interrupted, self.interrupted_note, probe=self.source)

    @classmethod
    def of(cls, reading: GpuReading) -> Gpus:
        """The same values as a reading."""
        return cls(**{name: getattr(reading, name) for name in field_names(GpuReading)})

    def expectations(self) -> dict[str, str]:
        """What `--expect` would say of these GPUs, where they are all alike."""
        links = {(gpu.pcie_generation_max, gpu.pcie_width_max) for gpu in self.gpus}
        generation, width = links.pop() if len(links) == 1 else (None, None)
        models = {gpu.name for gpu in self.gpus}
        texts = {
            "gpus": str(len(self.gpus)) if self.gpus else None,
            "gpu": models.pop() if len(models) == 1 else None,
            "driver": self.driver_version,
            "pcie": f"{generation}x{width}" if generation and width else None,
        }
        return {key: value for key, value in texts.items() if value}

    def devices(self) -> Iterator[tuple[str, ...]]:
        """Each GPU's names: by index and by PCI address; those that were lost too."""
        places = [(gpu.index, gpu.bus_id) for gpu in self.gpus] + [
            (lost_gpu.index, lost_gpu.bus_id) for lost_gpu in self.lost
        ]
        for index, address in places:
            names = (f"gpu:{index}" if index is not None else "", f"pci:{address}" if address else "")
            if device_names := tuple(name for name in names if name):
                yield device_names

    def headline(self) -> dict[str, Any]:
        """How many GPUs of which model, under which driver, for the line that names the node."""
        models = sorted({gpu.name for gpu in self.gpus if gpu.name})
        counts = {"gpus": len(self.gpus), "gpu": " + ".join(models) or None} if self.gpus else {}
        return {**counts, "driver": self.driver_version, "cuda": self.cuda_version}


def _with_versions(best: GpuReading, others: Sequence[GpuReading], count: int) -> GpuReading:
    """The best reading with what it does not say of all GPUs; it is whole where others show the rest."""
    if not others:
        return best
    names = ("driver_version", "cuda_version", "nvml_version", "counted")
    missing = [name for name in names if getattr(best, name) is None]
    added = {
        name: next((value for source in others if (value := getattr(source, name)) is not None), None)
        for name in missing
    }
    reading = replace(best, **added)
    shows_all = best.interrupted == "not-visible-here" and count >= (reading.counted or count)
    return replace(reading, interrupted=None, interrupted_note="") if shows_all else reading


def _with_nameless(reading: GpuReading, gpus: tuple[Gpu, ...]) -> GpuReading:
    """The reading; not whole where GPUs that nothing names may be some of the others."""
    nameless = sum(gpu.index < 0 for gpu in gpus)
    if not nameless or reading.interrupted == "unparsable":
        return reading
    note = f"{reading.source}: nothing names {count_with_noun(nameless, 'GPU')} of {len(gpus)}"
    return replace(reading, interrupted="unparsable", interrupted_note=note)


def _mark_sick_gpus(gpus: tuple[Gpu, ...]) -> Iterator[Gpu]:
    """The same GPUs; those that do not tell what they should let the engine know when it is read."""
    untold = _untold_fields(gpus)
    for gpu in gpus:
        if gpu.index in untold or not HARMLESS.issuperset(gpu.errors.values()):
            values = {name: getattr(gpu, name) for name in field_names(Gpu)}
            yield SickGpu(**{**values, "untold_here": untold.get(gpu.index, ())})
        else:
            yield gpu


def _untold_fields(gpus: tuple[Gpu, ...]) -> dict[int, tuple[str, ...]]:
    """By index, what a GPU does not tell that most others of its kind and in its mode tell."""
    kinds = group_by(gpus, lambda gpu: (gpu.name, gpu.mig_mode, gpu.virtualization_mode))
    fields: dict[int, tuple[str, ...]] = {}
    for like in kinds.values():
        missing = {gpu.index: _missing_fields(gpu) for gpu in like}
        names = sorted(frozenset().union(*missing.values()) - frozenset.intersection(*missing.values()))
        for outlier in odd_ones(
            like, [Attribute(name, "capability", _field_test(name, missing)) for name in names]
        ):
            if outlier.usual:
                name = outlier.attribute.partition(".")[0]
                fields[outlier.device.index] = (*fields.get(outlier.device.index, ()), name)
    return fields


def _missing_fields(gpu: Gpu) -> frozenset[str]:
    """The fields without a value, and those that none of its links and none of its peers has."""
    names = set(gpu.errors)
    for name, parts in (("nvlinks", gpu.nvlinks), ("peers", gpu.peers)):
        if parts:
            names |= {f"{name}.{field}" for field in set.intersection(*(set(part.errors) for part in parts))}
    return frozenset(names)


def _field_test(name: str, missing: Mapping[int, frozenset[str]]) -> Callable[[Gpu], bool]:
    return lambda gpu: name not in missing[gpu.index]


def _why_no_gpus(reasons: list[Unseen], pci: Pci | Unseen, driver: Driver | Unseen) -> Unseen:
    """Nothing to see where there is no NVIDIA hardware, else the reason that says most."""
    if nothing_here(pci, driver):
        return Unseen.skip(NONE_HERE)
    return min(reasons, key=lambda why: _TELLING.index(why.reason))
