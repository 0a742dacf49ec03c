"""What NVIDIA's management library says about the GPUs, asked by a child that may hang or crash alone."""

from __future__ import annotations

from nodedoctor.children.programs import child
from nodedoctor.declare.cache import once
from nodedoctor.declare.registry import Command, Lane, Options, fact, probe, skipped
from nodedoctor.facts.driver.nvidia_presence import reason_not_to_ask
from nodedoctor.facts.gpu.gpu import GpuReading
from nodedoctor.facts.gpu.nvml.reading import document_of, reading_of
from nodedoctor.json_shapes import mapping
from nodedoctor.model import Observation, Outcome, Unseen
from nodedoctor.record import record

NVML = "nvml"

_INTERRUPTED = frozenset({Outcome.TIMEOUT, Outcome.STUCK, Outcome.CRASH})
_NO_PYNVML = "install nvidia-ml-py beside nodedoctor: it has the Python module pynvml"


@probe(NVML, timeout=30, lane=Lane.NVIDIA, after=("pci", "driver-files"))
def nvml(options: Options, pci: Observation, files: Observation) -> Command | Observation:
    """Everything NVML says about every GPU; stays open, which keeps the driver awake for what follows."""
    if why := reason_not_to_ask(pci, files):
        return skipped(NVML, why)
    return Command(child("gpu/nvml", "--hold", packages=True), hold=True)


@fact(NVML, shown=False)
@record
class NvmlReading:
    """What NVML says about every GPU; with `gpus.interrupted`, what it said until it hung or crashed."""

    gpus: GpuReading

    @classmethod
    @once
    def parse(cls, observation: Observation) -> NvmlReading | Unseen:
        """Read the JSON of probes/gpu/nvml.py. That the library does not start is an answer, too."""
        if not (observation.answered or observation.outcome in _INTERRUPTED):
            return Unseen.of(observation)
        document, complete = document_of(observation.text)
        if observation.answered and "init" not in document:
            return Unseen.of(observation)
        started = mapping(document.get("init"))
        if started.get("error") == "PYNVML_NOT_FOUND":
            return Unseen("missing-tool", f"nvml: {started.get('text')}", _NO_PYNVML, NVML)
        return cls(reading_of(document, complete, observation))
