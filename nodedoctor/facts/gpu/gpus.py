"""Every GPU of the node, from the best source that spoke."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, fields, replace
from typing import Any

from nodedoctor.engine.registry import fact
from nodedoctor.facts.driver.driver import Driver
from nodedoctor.facts.driver.nvidia_presence import NONE_HERE, nothing_here
from nodedoctor.facts.gpu.gpu import Gpu, GpuReading, InitError, LostGpu, SlowCall
from nodedoctor.facts.gpu.nvml.nvml import NvmlReading
from nodedoctor.facts.gpu.smi.smi import SmiQ, SmiTable, SmiXml, merged
from nodedoctor.facts.pci.pci import Pci
from nodedoctor.model import Reason, Unseen
from nodedoctor.record import record

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


@fact(NvmlReading, SmiXml, SmiQ, SmiTable, Pci, Driver)
@record
class Gpus:
    """Every GPU of the node, from the best source that spoke.

    The fields are those of a `GpuReading`; `source` says whose.
    """

    source: str
    driver_version: str | None = None
    cuda_version: str | None = None
    nvml_version: str | None = None
    driver_branch: str | None = None
    library: str | None = None
    counted: int | None = None
    gpus: tuple[Gpu, ...] = ()
    lost: tuple[LostGpu, ...] = ()
    excluded: tuple[str, ...] = ()
    init_error: InitError | None = None
    interrupted: Reason | None = None
    interrupted_note: str = ""
    confidential_compute: bool | None = None
    seconds: float | None = None
    init_seconds: float | None = None
    slow_calls: tuple[SlowCall, ...] = ()
    errors: Mapping[str, str] = field(default_factory=dict)

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
        """Take the first source that shows GPUs, in this order; GPUs lost to any of them stay in the list."""
        sources = (nvml, xml, q, table)
        readings = [source.gpus for source in sources if not isinstance(source, Unseen)]
        if not readings:
            reasons = [source for source in sources if isinstance(source, Unseen)]
            return _unseen(reasons, pci, driver)
        best = next((reading for reading in readings if reading.gpus), readings[0])
        return replace(cls.of(best), lost=merged(best.lost, *(reading.lost for reading in readings)))

    @property
    def partly(self) -> Unseen | None:
        """Why not every GPU was read to the end; None when all were."""
        if self.interrupted is None:
            return None
        return Unseen(self.interrupted, self.interrupted_note, probe=self.source)

    @classmethod
    def of(cls, reading: GpuReading) -> Gpus:
        """The same values as a reading."""
        return cls(**{item.name: getattr(reading, item.name) for item in fields(reading)})

    def expectations(self) -> dict[str, str]:
        """What `--expect` would say of these GPUs, where they are all alike."""
        links = {(gpu.pcie_generation_max, gpu.pcie_width_max) for gpu in self.gpus}
        generation, width = links.pop() if len(links) == 1 else (None, None)
        models = {gpu.name for gpu in self.gpus}
        told = {
            "gpus": str(len(self.gpus)) if self.gpus else None,
            "gpu": models.pop() if len(models) == 1 else None,
            "driver": self.driver_version,
            "pcie": f"{generation}x{width}" if generation and width else None,
        }
        return {key: value for key, value in told.items() if value}

    def headline(self) -> dict[str, Any]:
        """How many GPUs of which model, under which driver, for the line that names the node."""
        models = sorted({gpu.name for gpu in self.gpus if gpu.name})
        seen = {"gpus": len(self.gpus), "gpu": " + ".join(models) or None} if self.gpus else {}
        return {**seen, "driver": self.driver_version, "cuda": self.cuda_version}


def _unseen(reasons: list[Unseen], pci: Pci | Unseen, driver: Driver | Unseen) -> Unseen:
    """Nothing to see where there is no NVIDIA hardware, else the reason that says most."""
    if nothing_here(pci, driver):
        return Unseen.skip(NONE_HERE)
    return min(reasons, key=lambda why: _TELLING.index(why.reason))
