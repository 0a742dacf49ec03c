"""Which pairs of GPUs may reach each other's memory: from NVML, else from `nvidia-smi topo -p2p`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nodedoctor.declare.registry import Command, Lane, Options, fact, probe, skipped
from nodedoctor.facts.driver.nvidia_presence import reason_not_to_ask
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.gpu.nvml.nvml import NvmlReading
from nodedoctor.model import Observation, Unseen
from nodedoctor.patterns import regex
from nodedoctor.record import field, record

P2P = "nvidia-smi-topo-p2p"
WAY_OUT = "Run `nvidia-smi topo -p2p r` on the host."

_CSI = regex("(?:\x1b\\[|\x9b)[0-9;]*[A-Za-z]")
_LABEL = regex(r"GPU(\d{1,3})")
_COMMAND = regex(r"-p2p\s+([a-z])\b")
_KINDS = {"r": "read", "w": "write", "n": "nvlink", "a": "atomics", "p": "pcie"}
_MOST_GPUS = 64

STATUS = {
    "OK": "ok",
    "CNS": "chipset-not-supported",
    "GNS": "gpu-not-supported",
    "TNS": "topology-not-supported",
    "NS": "not-supported",
    "DR": "disabled-by-regkey",
    "U": "unknown",
}
"""The codes of the matrix, in the words of NVML (nvmlGpuP2PStatus_t)."""


@probe(P2P, timeout=10, lane=Lane.NVIDIA, after=("pci", "driver-files", "nvml"))
def topo_p2p(
    options: Options, pci: Observation, files: Observation, nvml: Observation
) -> Command | Observation:
    """`nvidia-smi topo -p2p r`, asked only where NVML did not tell who may read whose memory."""
    if why := reason_not_to_ask(pci, files):
        return skipped(P2P, why)
    reading = NvmlReading.parse(nvml)
    if isinstance(reading, NvmlReading):
        if not reading.gpus.gpus and not reading.gpus.interrupted:
            return skipped(P2P, "NVML shows no GPU")
        if reading.gpus.gpus and all(gpu.peers is not None for gpu in reading.gpus.gpus):
            return skipped(P2P, "NVML answered")
    return Command(("nvidia-smi", "topo", "-p2p", "r"))


@fact(Gpus, P2P)
@record
class PeerAccess:
    """What each ordered pair of GPUs may do with the other's memory.

    `statuses` holds per kind (read write nvlink atomics pcie) and pair (`0-3`) a word of `Peer`; pairs
    without a status are absent.
    """

    source: str
    gpus: tuple[int, ...]
    statuses: Mapping[str, Mapping[str, str]] = field(default_factory=dict)

    @classmethod
    def parse(cls, gpus: Gpus | Unseen, observation: Observation) -> PeerAccess | Unseen:
        """Prefer NVML's pairs; unseen when neither has any."""
        if isinstance(gpus, Gpus) and any(gpu.peers for gpu in gpus.gpus):
            return _of_nvml(gpus)
        if isinstance(gpus, Gpus) and len(gpus.gpus) == 1 and gpus.counted in (None, 1):
            return Unseen.skip("a single GPU has no peers")
        if not observation.answered:
            return gpus if isinstance(gpus, Unseen) and not gpus.applies else Unseen.of(observation, WAY_OUT)
        tables = list(matrices(observation.text))
        if not tables:
            first = next(
                (line.strip() for line in observation.text.splitlines() if line.strip()), "nothing printed"
            )
            return Unseen("unparsable", f"{P2P}: {first[:200]}", WAY_OUT, P2P)
        statuses: dict[str, dict[str, str]] = {}
        for kind, _, cells in tables:
            statuses.setdefault(kind, {}).update(cells)
        gpu_indexes = sorted({index for _, indexes, _ in tables for index in indexes})
        return cls(P2P, tuple(gpu_indexes), statuses)

    def told(self, kind: str) -> dict[tuple[int, int], str]:
        """The statuses of one kind, by ordered pair of indexes."""
        pairs = self.statuses.get(kind, {})
        return {_index_pair(key): status for key, status in pairs.items()}


def _index_pair(key: str) -> tuple[int, int]:
    index, _, peer = key.partition("-")
    return int(index), int(peer)


def _of_nvml(gpus: Gpus) -> PeerAccess:
    statuses: dict[str, dict[str, str]] = {}
    for gpu in gpus.gpus:
        for peer in gpu.peers or ():
            for kind in _KINDS.values():
                status = getattr(peer, kind)
                if status is not None:
                    statuses.setdefault(kind, {})[f"{gpu.index}-{peer.index}"] = status
    return PeerAccess(gpus.source, tuple(gpu.index for gpu in gpus.gpus), statuses)


Matrix = tuple[str, tuple[int, ...], dict[str, str]]


def matrices(text: str) -> Iterator[Matrix]:
    """Kind, GPUs and cells of every matrix in a text; the kind is `read` unless a command line says else.

    Rows have one leading blank, cells are divided by tabs or blanks, the header may be underlined.
    """
    kind, columns, cells = "read", (), {}  # type: str, tuple[int, ...], dict[str, str]
    for line in _CSI.sub("", text).splitlines():
        if command := _COMMAND.search(line):
            if columns:
                yield kind, columns, cells
            kind, columns, cells = _KINDS.get(command[1], "read"), (), {}
        header = _header_columns(line)
        if header:
            if columns:
                yield kind, columns, cells
            columns, cells = header, {}
        elif columns:
            cells.update(_row_cells(line, columns))
    if columns and (cells or len(columns) == 1):
        yield kind, columns, cells


def _header_columns(line: str) -> tuple[int, ...]:
    labels = [_LABEL.fullmatch(word) for word in line.split()]
    if not labels or len(labels) > _MOST_GPUS or not all(labels):
        return ()
    return tuple(int(label[1]) for label in labels if label)


def _row_cells(line: str, columns: tuple[int, ...]) -> Iterator[tuple[str, str]]:
    words = line.split()
    label = _LABEL.fullmatch(words[0]) if words else None
    if label is None:
        return
    row = int(label[1])
    for column, word in zip(columns, words[1:], strict=False):
        if column != row and word.upper() in STATUS:
            yield f"{row}-{column}", STATUS[word.upper()]
