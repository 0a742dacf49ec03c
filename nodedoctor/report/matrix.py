"""Matrices from the facts of a report: which GPU reaches which, how, and how fast."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from nodedoctor.facts.gpu.links.topology import Topology
from nodedoctor.json_shapes import mapping, number, part, parts, text, texts, whole_number
from nodedoctor.patterns import regex
from nodedoctor.record import field, record, replace
from nodedoctor.report.inert import inert
from nodedoctor.wording import count_with_noun

LOW = 0.9
"""Of the median of its row: a pair below is marked. Healthy NVLink pairs differ by about one per cent."""

MOST = 256
"""Devices of one kind that are looked at; a matrix grows with their square."""

LOST = "lost"
"""The cell of a pair with a GPU that has fallen off the bus: no source knows a link of it any more."""

TOKENS = (
    ("PIX", "at most one PCIe bridge between them"),
    ("PXB", "several PCIe bridges, not the host bridge"),
    ("PHB", "through the CPU's PCIe host bridge"),
    ("NODE", "between host bridges of one NUMA node"),
    ("SYS", "through the other socket"),
)
"""What the tokens of `nvidia-smi topo -m` mean, from near to far; `NV4` is said by `meanings`."""

_NVLINKS = regex(r"NV(\d{1,4})")

Pair = tuple[str, str]


@record
class Matrix:
    """One value per ordered pair of GPUs, which of them are odd, and where each GPU sits."""

    title: str
    gpus: tuple[str, ...]
    cells: Mapping[Pair, str]
    odd: frozenset[Pair] = frozenset()
    legend: str = ""
    usual: str = ""
    nics: tuple[str, ...] = ()
    paths: Mapping[Pair, str] = field(default_factory=dict)
    nearest: Mapping[str, str] = field(default_factory=dict)
    numa: Mapping[str, str] = field(default_factory=dict)
    cpus: Mapping[str, str] = field(default_factory=dict)
    lost: Mapping[str, str] = field(default_factory=dict)
    """GPUs that have fallen off the bus, each with its PCI address; every pair with one is odd."""

    @property
    def why(self) -> str:
        """What is odd about the odd ones."""
        return f"most pairs have {self.usual}" if self.usual else "below 90% of its row's median"


def matrices(facts: Mapping[str, Any]) -> list[Matrix]:
    """The matrices these facts are enough for: links, PCIe paths, bandwidth, in the order `m` shows them."""
    seat = _gpu_seats(facts)
    lost_gpus = off_bus(facts)
    candidates = (_link_matrix(facts), _path_matrix(facts), _bandwidth_matrix(facts))
    return [_with_lost(replace(matrix, **seat), lost_gpus) for matrix in candidates if matrix is not None]


def meanings(matrices: Sequence[Matrix]) -> list[tuple[str, str]]:
    """What the tokens that occur in these matrices mean, the most NVLinks first, then from near to far."""
    used = {cell for matrix in matrices for cell in matrix.cells.values()}
    used |= {path for matrix in matrices[:1] for path in matrix.paths.values()}
    links = sorted({int(match[1]) for cell in used if (match := _NVLINKS.fullmatch(cell))}, reverse=True)
    nvlinks = [(f"NV{count}", f"{count_with_noun(count, 'NVLink')} together") for count in links]
    return nvlinks + [(token, meaning) for token, meaning in TOKENS if token in used]


def _with_lost(matrix: Matrix, lost_gpus: Mapping[str, str]) -> Matrix:
    """A row and a column for every GPU that has fallen off the bus."""
    if not lost_gpus:
        return matrix
    gpus = tuple(sorted({*matrix.gpus, *lost_gpus}, key=_gpu_number))
    pairs = {(a, b) for a in gpus for b in gpus if a != b and (a in lost_gpus or b in lost_gpus)}
    return replace(
        matrix,
        gpus=gpus,
        cells={**matrix.cells, **dict.fromkeys(pairs, LOST)},
        odd=matrix.odd | pairs,
        legend="   ".join(filter(None, [matrix.legend, f"{LOST} = off the bus"])),
        lost=lost_gpus,
    )


def _link_matrix(facts: Mapping[str, Any]) -> Matrix | None:
    topology = _read_topology(facts)
    if topology is None or len(topology.gpus) < 2:
        return None
    gpus = topology.gpus
    cells = {(a, b): topology.links.get(a, {}).get(b, "?") for a in gpus for b in gpus if a != b}
    usual, count = Counter(cells.values()).most_common(1)[0]
    marked: frozenset[Pair] = frozenset()
    if usual.startswith("NV") and count * 2 > len(cells):
        marked = frozenset(pair for pair, token in cells.items() if token != usual)
    legend = f"< = not {usual}" if marked else ""
    return Matrix("link type", topology.gpus, cells, marked, legend, usual)


def _path_matrix(facts: Mapping[str, Any]) -> Matrix | None:
    """PCIe paths as NVML tells them, NVLink left aside."""
    paths = {
        (f"GPU{gpu['index']}", f"GPU{peer['index']}"): str(peer["path"])
        for gpu in parts(part(facts, "gpus"), "gpus")
        for peer in parts(gpu, "peers")
        if "index" in gpu and "index" in peer and peer.get("path")
    }
    if not paths:
        return None
    gpus = tuple(sorted({name for pair in paths for name in pair}, key=_gpu_number))
    return Matrix("PCIe path", gpus, paths)


def _bandwidth_matrix(facts: Mapping[str, Any]) -> Matrix | None:
    """Measured read bandwidth of every ordered pair: the row's GPU reads from the column's."""
    cells: dict[Pair, str] = {}
    speeds: dict[Pair, float] = {}
    for entry in parts(part(facts, "bandwidth"), "pairs"):
        pair = f"GPU{entry.get('target')}", f"GPU{entry.get('source')}"
        value = number(entry.get("read_gbytes_s"))
        if entry.get("wrong"):
            cells[pair] = "WRONG"
        elif value is not None:
            cells[pair] = f"{value:.0f}"
            speeds[pair] = value
        else:
            cells[pair] = "none" if entry.get("access") is False else "error"
    if not cells:
        return None
    gpus = tuple(sorted({name for pair in cells for name in pair}, key=_gpu_number))
    marked = frozenset(pair for gpu in gpus for pair in _slow_pairs(gpu, speeds)) | (
        cells.keys() - speeds.keys()
    )
    return Matrix("GB/s, row reads from column", gpus, cells, marked, "< = under 90% of the row's median")


def _slow_pairs(gpu: str, speeds: Mapping[Pair, float]) -> list[Pair]:
    row = {pair: speed for pair, speed in speeds.items() if pair[0] == gpu}
    if not row:
        return []
    usual = median(speeds.values())
    return [pair for pair, speed in row.items() if speed < LOW * max(median(row.values()), usual)]


def _gpu_seats(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Where each GPU sits: its NUMA node, CPUs and adapters."""
    topology = _read_topology(facts)
    if topology is None:
        return {}
    gpus, nics = topology.gpus, topology.nics
    nearest: dict[str, str] = {}
    for gpu in gpus:
        path, near = topology.nearest_nics(gpu)
        if near:
            more = f"+{len(near) - 1}" if len(near) > 1 else ""
            nearest[gpu] = inert(f"{near[0]}{more}  {path}")
    return {
        "nics": nics,
        "paths": {(gpu, nic): topology.links.get(gpu, {}).get(nic, "") for gpu in gpus for nic in nics},
        "nearest": nearest,
        "numa": {gpu: inert(seat["numa"]) for gpu, seat in topology.affinity.items() if "numa" in seat},
        "cpus": {gpu: inert(seat["cpus"]) for gpu, seat in topology.affinity.items() if "cpus" in seat},
    }


def _read_topology(facts: Mapping[str, Any]) -> Topology | None:
    """The fact as the report has it, which may come from another machine: what is misshapen is left out."""
    fact = facts.get("topology")
    if not isinstance(fact, dict):
        return None
    return Topology(
        texts(fact, "gpus")[:MOST],
        texts(fact, "nics")[:MOST],
        _texts_of(fact.get("links")),
        _texts_of(fact.get("affinity")),
    )


def _texts_of(value: Any) -> dict[str, dict[str, str]]:
    return {
        str(name): {str(key): text for key, text in row.items() if isinstance(text, str)}
        for name, row in mapping(value).items()
        if isinstance(row, dict)
    }


def _gpu_number(name: str) -> int:
    digits = name.removeprefix("GPU")
    return int(digits) if digits.isdecimal() and len(digits) < 9 else 0


def off_bus(facts: Mapping[str, Any]) -> dict[str, str]:
    """PCI addresses of the GPUs that have fallen off the bus, by the names the other sources would use.

    One whose number the driver does not report is left out, as its row is not known.
    """
    addresses: dict[str, str] = {}
    for slot in parts(part(facts, "inventory"), "slots")[:MOST]:
        index = next(
            (whole_number(slot, key) for key in ("index", "lost_index") if slot.get(key) is not None), None
        )
        if index is not None and (slot.get("off_bus") is True or slot.get("lost") == "GPU_IS_LOST"):
            addresses[f"GPU{index}"] = inert(text(slot, "address"))
    return addresses
