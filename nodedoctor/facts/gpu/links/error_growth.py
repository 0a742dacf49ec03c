"""How much error counters grew within a second: totals say little, a counter that moves says it is now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command, Lane, Options, fact, probe, skipped
from nodedoctor.facts.driver.nvidia_presence import reason_not_to_ask
from nodedoctor.facts.gpu.gpu import Gpu
from nodedoctor.facts.gpu.nvml.enums import clock_event_reasons
from nodedoctor.facts.gpu.nvml.nvml import NvmlReading
from nodedoctor.facts.gpu.nvml.raw import Raw, index_of
from nodedoctor.json_shapes import answer, as_list, int_of, mapping, number
from nodedoctor.model import Observation, Unseen
from nodedoctor.record import field, record

GROWTH = "nvml-growth"
_REASONS, _USERS = "clock_event_reasons", "users"
_NO_COUNTERS = "these GPUs show no error counters"
INTERVAL = 1.0  # seconds between the two reads


@probe(GROWTH, timeout=15, lane=Lane.NVIDIA, after=("pci", "driver-files", "nvml"))
def nvml_growth(
    options: Options, pci: Observation, files: Observation, nvml: Observation
) -> Command | Observation:
    """Error counters of GPUs and NVLinks, read twice one second apart, where NVML showed such counters."""
    if why := reason_not_to_ask(pci, files):
        return skipped(GROWTH, why)
    reading = NvmlReading.parse(nvml)
    if isinstance(reading, Unseen) or reading.gpus.interrupted or not reading.gpus.gpus:
        return skipped(GROWTH, "NVML gave no complete answer before")
    if not any(_asks_twice(gpu) for gpu in reading.gpus.gpus):
        return skipped(GROWTH, _NO_COUNTERS)
    return Command(child("gpu/nvml_growth", str(INTERVAL), packages=True))


def _asks_twice(gpu: Gpu) -> bool:
    """Whether this GPU has anything that is worth a second look."""
    return bool(gpu.nvlinks) or gpu.pcie_replays is not None or gpu.clock_event_reasons is not None


@record
class LinkGrowth:
    """What the counters of one NVLink gained, by name."""

    link: int
    gained: Mapping[str, int]


@record
class GpuGrowth:
    """What the counters of one GPU gained: pcie_replays, ecc_volatile_correctable, and those of its links.

    `lasting_reasons` are the reasons for its clocks that both reads have, None where either has none.
    `busy_without_users`: in both reads it was at full load and no process used it; None where not known.
    """

    index: int
    gained: Mapping[str, int] = field(default_factory=dict)
    links: tuple[LinkGrowth, ...] = ()
    lasting_reasons: tuple[str, ...] | None = None
    busy_without_users: bool | None = None


@fact(GROWTH)
@record
class ErrorGrowth:
    """How much the error counters of every GPU and its NVLinks grew between two reads."""

    seconds: float
    gpus: tuple[GpuGrowth, ...]

    @classmethod
    def parse(cls, observation: Observation) -> ErrorGrowth | Unseen:
        """Subtract the first sample from the last one; one sample alone tells nothing."""
        if not observation.answered:
            return Unseen.skip(_NO_COUNTERS) if observation.note == _NO_COUNTERS else Unseen.of(observation)
        samples = [sample for line in observation.text.splitlines() if (sample := _read_sample(line))]
        if len(samples) < 2 or samples[-1][0] <= samples[0][0]:
            return Unseen.of(observation)
        (began, before), (finished, later) = samples[0], samples[-1]
        gpus = (_gpu_growth(index, before[index], later[index]) for index in sorted(before) if index in later)
        return cls(round(finished - began, 3), tuple(gpus))

    def gpu(self, index: int) -> GpuGrowth | None:
        """What the counters of one GPU gained."""
        return next((gpu for gpu in self.gpus if gpu.index == index), None)


_Counts = dict[str, int]
_Sample = tuple[float, dict[int, tuple[_Counts, dict[int, _Counts]]]]


def _read_sample(line: str) -> _Sample | None:
    try:
        document = mapping(answer(line))
    except ValueError:
        return None
    moment = number(document.get("time_seconds"))
    if moment is None:
        return None
    return moment, dict(_gpu_counts(document))


def _gpu_counts(document: Mapping[str, Any]) -> Iterator[tuple[int, tuple[_Counts, dict[int, _Counts]]]]:
    for entry in as_list(document.get("gpus")):
        index = index_of(entry)
        if index is not None and "values" in entry:
            links = {
                number: _entry_counts(link)
                for link in as_list(entry.get("links"))
                if (number := index_of(link, "link")) is not None
            }
            yield index, (_entry_counts(entry), links)


def _entry_counts(entry: Any) -> _Counts:
    raw = Raw.of(entry)
    read = {name: raw.read(name, _gpu_load if name == "utilization" else int_of)[0] for name in raw.values}
    return {name: count for name, count in read.items() if count is not None}


def _gpu_load(rates: Any) -> int:
    return int_of(mapping(rates)["gpu"])


def _gpu_growth(
    index: int, before: tuple[_Counts, dict[int, _Counts]], later: tuple[_Counts, dict[int, _Counts]]
) -> GpuGrowth:
    shared = sorted(before[1].keys() & later[1].keys())
    links = (LinkGrowth(link, _counter_growth(before[1][link], later[1][link])) for link in shared)
    masks = [sample[0].pop(_REASONS, None) for sample in (before, later)]
    lasting = None if None in masks else clock_event_reasons((masks[0] or 0) & (masks[1] or 0))
    users = [sample[0].pop(_USERS, None) for sample in (before, later)]
    loads = [sample[0].pop("utilization", None) for sample in (before, later)]
    alone = None if None in loads else users == [0, 0]
    return GpuGrowth(index, _counter_growth(before[0], later[0]), tuple(links), lasting, alone)


def _counter_growth(before: _Counts, later: _Counts) -> dict[str, int]:
    """Counters are reset now and then: what became less gained nothing we know of."""
    gained = {name: later[name] - count for name, count in before.items() if name in later}
    return {name: count for name, count in gained.items() if count >= 0}
