"""Every GPU of the node, from the best source that spoke."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from nodedoctor.facts.gpu import Gpu, GpuReading, InitError, LostGpu, SlowCall
from nodedoctor.facts.nvml import NvmlReading
from nodedoctor.model import Reason, Unseen
from nodedoctor.registry import fact


@fact(NvmlReading)
@dataclass(frozen=True, slots=True)
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
    def parse(cls, nvml: NvmlReading | Unseen) -> Gpus | Unseen:
        """Take what NVML said."""
        return nvml if isinstance(nvml, Unseen) else cls.of(nvml.gpus)

    @classmethod
    def of(cls, reading: GpuReading) -> Gpus:
        """The same values as a reading."""
        return cls(**{item.name: getattr(reading, item.name) for item in fields(reading)})
