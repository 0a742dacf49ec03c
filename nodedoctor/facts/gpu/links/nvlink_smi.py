"""What `nvidia-smi nvlink -s` and `-e` say: state, speed and error counters of every link, as text."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from nodedoctor.declare.registry import Command, Lane, Options, probe, skipped
from nodedoctor.facts.driver.nvidia_presence import reason_not_to_ask
from nodedoctor.facts.gpu.gpu import NvLink
from nodedoctor.facts.gpu.nvml.nvml import NvmlReading
from nodedoctor.facts.gpu.smi.sections import inert
from nodedoctor.model import Observation
from nodedoctor.patterns import regex
from nodedoctor.record import record, replace

STATUS, ERRORS = "nvidia-smi-nvlink", "nvidia-smi-nvlink-errors"

LinkListing = Literal["listed", "none", "all-inactive", "mig", "unreadable"]
"""The links are listed; the GPU has none; all are down; MIG hides them; an error is in their place."""

_GPU = regex(r"GPU (\d{1,3}): (.+?)(?: \(UUID: ([^)]*)\)?)?$")
_LINK = regex(r"Link (\d{1,2}): (.+)$")
_SPEED = regex(r"(\d{1,4}(?:\.\d{1,6})?) GB/s")
_COUNT = regex(r"(.+?): (\d{1,20})\s*$")
_RATE = regex(r"(.+?): (\d{1,3}e-\d{1,4})\s*$")
_ELIDED = regex(r"\s*(?:\[?\.\.\.\]?|…)\s*$")

# Part of the text in small letters, and what it says of the GPU above it.
_STATES: tuple[tuple[str, LinkListing], ...] = (
    ("does not have or support nvlink", "none"),
    ("all links are inactive", "all-inactive"),
    ("not supported for devices in mig mode", "mig"),
    ("unable to", "unreadable"),
    ("failed to", "unreadable"),
    ("unknown error", "unreadable"),
    ("gpu is lost", "unreadable"),
    ("requires reset", "unreadable"),
)

# Labels of `-e` as drivers 450 to 610 print them, and the names NVML's counters have here.
COUNTERS = {
    "replay errors": "replay",
    "recovery errors": "recovery",
    "crc errors": "crc_flit",
    "crc flit errors": "crc_flit",
    "crc data errors": "crc_data",
    "ecc errors": "ecc",
    "malformed packet errors": "malformed_packets",
    "buffer overrun errors": "buffer_overruns",
    "rx errors": "receive_errors",
    "rx remote errors": "receive_remote_errors",
    "rx general errors": "receive_general_errors",
    "local link integrity errors": "local_link_integrity",
    "tx discards": "transmit_discards",
    "link recovery successful events": "link_recovery_successful",
    "link recovery failed events": "link_recovery_failed",
    "total link recovery events": "link_recovery",
    "effective errors": "effective_errors",
    "symbol errors": "symbol_errors",
}
_RATES = {"effective ber": "effective", "symbol ber": "symbol"}


@probe(STATUS, timeout=10, lane=Lane.NVIDIA, after=("pci", "driver-files", "nvml"))
def nvlink_status(
    options: Options, pci: Observation, files: Observation, nvml: Observation
) -> Command | Observation:
    """`nvidia-smi nvlink -s`, asked only where NVML did not tell the state of the links."""
    return _unless_told(STATUS, "-s", pci, files, nvml)


@probe(ERRORS, timeout=10, lane=Lane.NVIDIA, after=("pci", "driver-files", "nvml"))
def nvlink_errors(
    options: Options, pci: Observation, files: Observation, nvml: Observation
) -> Command | Observation:
    """`nvidia-smi nvlink -e`, asked only where NVML did not tell the error counters of the links."""
    return _unless_told(ERRORS, "-e", pci, files, nvml)


def _unless_told(
    name: str, option: str, pci: Observation, files: Observation, nvml: Observation
) -> Command | Observation:
    if why := reason_not_to_ask(pci, files):
        return skipped(name, why)
    reading = NvmlReading.parse(nvml)
    if isinstance(reading, NvmlReading):
        if not reading.gpus.gpus and not reading.gpus.interrupted:
            return skipped(name, "NVML shows no GPU")
        if any(gpu.nvlinks is not None for gpu in reading.gpus.gpus):
            return skipped(name, "NVML answered")
    return Command(("nvidia-smi", "nvlink", option))


@record
class GpuLinks:
    """The NVLinks of one GPU. `complete` is false when the listing was shortened or cut off.

    `said` is the line in place of links, or the name of NVML's error.
    """

    index: int
    name: str | None = None
    state: LinkListing = "listed"
    links: tuple[NvLink, ...] = ()
    complete: bool = True
    said: str = ""
    uuid: str | None = None

    @property
    def subject(self) -> str:
        """How findings call this GPU."""
        return f"gpu:{self.index}"


def read_links(text: str) -> tuple[GpuLinks, ...]:
    """The GPUs of either output, each with what was printed below it; a GPU printed twice counts once."""
    gpus: dict[int, GpuLinks] = {}
    for index, name, uuid, lines in _gpu_blocks(text):
        gpus.setdefault(index, _read_gpu(GpuLinks(index, name, uuid=uuid), lines))
    if gpus:  # the last listing may have been cut off
        last = max(gpus)
        gpus[last] = replace(gpus[last], complete=False)
    return tuple(gpus.values())


def _gpu_blocks(text: str) -> Iterator[tuple[int, str, str | None, list[str]]]:
    block: tuple[int, str, str | None, list[str]] | None = None
    for line in inert(text).splitlines():
        if head := _GPU.match(line.strip()):
            if block:
                yield block
            block = (int(head[1]), head[2].strip(), head[3] or None, [])
        elif block and line.strip():
            block[3].append(line)
    if block:
        yield block


def _read_gpu(gpu: GpuLinks, lines: list[str]) -> GpuLinks:
    links: dict[int, NvLink] = {}
    for line in lines:
        if match := _LINK.match(line.strip()):
            number = int(match[1])
            links[number] = _read_link(links.get(number) or NvLink(number), match[2])
        elif _ELIDED.match(line):
            gpu = replace(gpu, complete=False)
        elif state := next((state for words, state in _STATES if words in line.lower()), None):
            gpu = replace(gpu, state=state, said=line.strip()[:200])
    if links:
        gpu = replace(gpu, state="listed", links=tuple(links[number] for number in sorted(links)))
    elif gpu.state == "listed":
        gpu = replace(gpu, complete=False)
    return replace(gpu, complete=gpu.complete and max(links, default=-1) == len(links) - 1)


def _read_link(link: NvLink, text: str) -> NvLink:
    """A line about one link: its speed, that it is down, or one of its counters."""
    if speed := _SPEED.fullmatch(text):
        return replace(link, active=True, speed_gbytes_s=float(speed[1]) or None)
    if "inactive" in text.lower():
        return replace(link, active=False)
    if text == "<active>":  # by a tool that tells no speed
        return replace(link, active=True)
    if count := _COUNT.fullmatch(text):
        name = COUNTERS.get(count[1].strip().lower())
        return replace(link, counters={**link.counters, name: int(count[2])}) if name else link
    if rate := _RATE.fullmatch(text):
        name = _RATES.get(rate[1].strip().lower())
        return replace(link, ber={**link.ber, name: float(rate[2])}) if name else link
    return link
