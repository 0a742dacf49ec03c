"""How GPUs and network adapters are connected, from the matrix of `nvidia-smi topo -m`.

Columns came and went with the drivers, an empty cell is between two of them, newer drivers underline the
header even into a pipe, and pasted text has blanks for tabs: so cells are counted from the left.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from nodedoctor.declare.registry import Command, Lane, Options, fact, probe, skipped
from nodedoctor.facts.driver.driver import Driver
from nodedoctor.facts.driver.nvidia_presence import NONE_HERE, nothing_here, reason_not_to_ask
from nodedoctor.facts.gpu.nvml.nvml import NvmlReading
from nodedoctor.facts.pci.pci import Pci
from nodedoctor.model import Observation, Unseen
from nodedoctor.patterns import regex
from nodedoctor.record import field, record

TOPO = "nvidia-smi-topo"
PATHS = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""Ways over PCIe from the shortest: one bridge, several, the host bridge, the NUMA node, the other socket."""

_CSI = re.compile("(?:\x1b\\[|\x9b)[0-9;]*[A-Za-z]")
_TOKEN = re.compile(r"X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC|PSB|N/A")
_PATH_NAME = regex(r"NV\d+|P\w*|N\w*|S\w*")  # how the names of paths begin
_MORE = re.compile(r"\s*(?:X|NV\d+|P\w\w|NODE|S[YO]\w)(?=\s|$)")
_OLD_NAMES = {"SOC": "SYS", "PSB": "PIX"}  # drivers before 384
# Some dumps of the header have lost the blanks between names.
_LOST_BLANK = re.compile(r"(?<=\S)(?=GPU\d|NIC\d|mlx\d|CPU Aff|NUMA Aff)")
_LEGEND = re.compile(r"\s*(NIC\d+):\s*(\S+)\s*$")


@probe(TOPO, timeout=10, lane=Lane.NVIDIA, after=("pci", "driver-files", "nvml"))
def topo(options: Options, pci: Observation, files: Observation, nvml: Observation) -> Command | Observation:
    """`nvidia-smi topo -m`: which link joins each pair of GPUs, and each GPU and network adapter."""
    if why := reason_not_to_ask(pci, files):
        return skipped(TOPO, why)
    reading = NvmlReading.parse(nvml)
    if isinstance(reading, NvmlReading) and not (reading.gpus.gpus or reading.gpus.interrupted):
        return skipped(TOPO, "NVML shows no GPU")
    return Command(("nvidia-smi", "topo", "-m"))


@fact(TOPO, Pci, Driver)
@record
class Topology:
    """How GPUs and network adapters are connected.

    `links` holds for each GPU and adapter the token of every other one: NV18 (18 bonded NVLinks), or a PCIe
    path, PIX PXB PHB NODE SYS from near to far. `affinity` holds `cpus`, `numa` and `gpu_numa` per GPU where
    they are given. `damaged` are the GPUs whose row is not there, or has another number of cells than the
    header: such a row is left out, because it is not known which cell is missing.
    """

    gpus: tuple[str, ...]
    nics: tuple[str, ...] = ()
    links: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    affinity: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    damaged: tuple[str, ...] = ()

    @classmethod
    def parse(
        cls, observation: Observation, pci: Pci | Unseen | None = None, driver: Driver | Unseen | None = None
    ) -> Topology | Unseen:
        """Read the matrix; Unseen when there is none, and nothing to see where nothing is of NVIDIA's."""
        if not observation.answered:
            none = nothing_here(pci, driver)
            return Unseen.skip(NONE_HERE) if none else Unseen.of(observation)
        lines = _CSI.sub("", observation.text).splitlines()
        names = {match[1]: match[2] for line in lines if (match := _LEGEND.match(line))}
        for number, line in enumerate(lines):
            columns, extra = _parse_header(line)
            if columns:
                rows = _parse_rows(lines[number + 1 :], columns, extra)
                if any(len(links) == len(columns) for links, _ in rows.values()) and _are_aligned(rows):
                    return _build_topology(columns, rows, names)
        if (columns := _row_gpus(lines)) and (rows := _parse_rows(lines, columns, [])):
            return _build_topology(columns, rows, names)
        first = next((line.strip() for line in lines if line.strip()), "nothing was printed")
        return Unseen("unparsable", f"{TOPO}: {first[:200]}", probe=TOPO)

    def nearest_nics(self, gpu: str) -> tuple[str, tuple[str, ...]]:
        """The best path from a GPU to any adapter, and the adapters it leads to; empty without adapters."""
        reach = {nic: self.links.get(gpu, {}).get(nic, "") for nic in self.nics}
        for path in PATHS:
            nics = tuple(nic for nic, token in reach.items() if token == path)
            if nics:
                return path, nics
        return "", ()


_Row = tuple[dict[str, str], dict[str, str]]


def _parse_header(line: str) -> tuple[list[str], list[str]]:
    """The devices a header names, and the keys of the columns after them; nothing for any other line."""
    words = _LOST_BLANK.sub(" ", line).split()
    if (
        not words
        or not re.fullmatch(r"GPU\d+", words[0])
        or any(_TOKEN.fullmatch(word) for word in words[1:2])
    ):
        return [], []
    devices = words[: words.index("CPU")] if "CPU" in words else words
    positions = [(line.find(text), key) for text, key in _EXTRA if text in line]
    return devices, [key for _, key in sorted(positions)]


def _row_gpus(lines: list[str]) -> list[str]:
    """The GPUs of rows that were pasted without their header: in each row its own cell is the X."""
    counts: dict[str, int] = {}
    for line in lines:
        if _parse_header(line)[0]:
            return []
        label, *cells = line.split() or [""]
        cells = cells[: next((at for at, cell in enumerate(cells) if not _TOKEN.fullmatch(cell)), len(cells))]
        if re.fullmatch(r"GPU\d{1,3}", label) and "X" in cells and label == f"GPU{cells.index('X')}":
            counts[label] = len(cells)
    wide = set(counts.values())
    return [f"GPU{number}" for number in range(wide.pop())] if len(wide) == 1 else []


_EXTRA = (("CPU Affinity", "cpus"), ("NUMA Affinity", "numa"), ("GPU NUMA ID", "gpu_numa"))


def _parse_rows(lines: list[str], columns: list[str], extra: list[str]) -> dict[str, _Row]:
    rows: dict[str, _Row] = {}
    for line in lines:
        label, _, rest = line.strip().partition("\t") if "\t" in line else line.strip().partition(" ")
        label = label.strip()
        if label in columns and label not in rows:
            rows[label] = _parse_cells(rest, columns, extra)
            if line is lines[-1] and extra and _PATH_NAME.fullmatch(line.split()[-1]):
                rows[label] = {}, {}  # cut off within its cells: NV1 may be the beginning of NV18
    return rows


def _are_aligned(rows: dict[str, _Row]) -> bool:
    """Every device is itself in its own column; where that is not so, the header has lost its beginning."""
    own = [links[label] for label, (links, _) in rows.items() if label in links]
    return own.count("X") * 2 > len(own)


def _parse_cells(rest: str, columns: list[str], extra: list[str]) -> _Row:
    """The tokens of a row by device, and the cells after them by column."""
    links: dict[str, str] = {}
    for column in columns:
        match = re.match(rf"\s*({_TOKEN.pattern})(?=\s|$)", rest)
        if match is None:
            break
        links[column] = _OLD_NAMES.get(match[1], match[1])
        rest = rest[match.end() :]
    if len(links) == len(columns) and _MORE.match(rest):
        return {}, {}  # more cells than the header has columns: one of the two was wrapped or damaged
    # Between NUMA Affinity and GPU NUMA ID is a cell that no column of the header belongs to.
    extra_cells = rest.lstrip(" ").removeprefix("\t").split("\t") if "\t" in rest else rest.split()
    words = [word.strip() for word in extra_cells]
    if len(words) > len(extra):
        words = [*words[:2], *(word for word in words[2:] if word)]
    return links, {key: word for key, word in zip(extra, words, strict=False) if word and word != "N/A"}


def _build_topology(columns: list[str], rows: dict[str, _Row], names: dict[str, str]) -> Topology:
    def name(label: str) -> str:
        return names.get(label, label)

    gpus = tuple(column for column in columns if re.fullmatch(r"GPU\d+", column))
    whole_rows = {row: row_cells for row, row_cells in rows.items() if len(row_cells[0]) == len(columns)}
    links = {
        name(row): {name(column): token for column, token in cells.items() if column != row}
        for row, (cells, _) in whole_rows.items()
    }
    affinity = {row: extra for row, (_, extra) in whole_rows.items() if row in gpus and extra}
    nics = tuple(name(column) for column in columns if column not in gpus)
    return Topology(gpus, nics, links, affinity, tuple(gpu for gpu in gpus if gpu not in whole_rows))
