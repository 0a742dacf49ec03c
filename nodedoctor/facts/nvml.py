"""What NVIDIA's management library says about the GPUs, asked by a child that may hang or crash alone."""

from __future__ import annotations

from dataclasses import dataclass

from nodedoctor.facts.gpu import GpuReading
from nodedoctor.model import Observation, Unseen
from nodedoctor.registry import fact


@fact("nvml")
@dataclass(frozen=True, slots=True)
class NvmlReading:
    """What NVML says about every GPU."""

    gpus: GpuReading

    @classmethod
    def parse(cls, nvml: Observation) -> NvmlReading | Unseen:
        """Read the JSON of probes/nvml.py; an init error is an answer, no answer is Unseen."""
        return Unseen.of(nvml)
