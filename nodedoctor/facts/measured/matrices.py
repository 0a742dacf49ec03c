"""Matrices of bandwidth between GPUs, and between each GPU and its host, as NVIDIA's tests print them.

Formats: NVIDIA/cuda-samples, p2pBandwidthLatencyTest.cu (`D\\D`, rows behind a number); NVIDIA/nvbandwidth
0.4 to 0.9 (`GPU(row) -> GPU(column)`, one row of GPUs for copies with the host).
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nodedoctor.declare.registry import fact, pasted
from nodedoctor.facts.measured.deep_tools import NVBANDWIDTH
from nodedoctor.model import Observation, Unseen
from nodedoctor.patterns import regex
from nodedoctor.record import record

P2P_TEST = "p2p-bandwidth"
p2p_test = pasted(P2P_TEST, "The output of p2pBandwidthLatencyTest.")

_TITLE = regex(
    r"^[ \t]{0,8}(?:(?P<p2p>(?:Uni|Bi)directional P2P=\w{6,10} Bandwidth[^\n]{0,40}?) Matrix \(GB/s\)"
    r"|memcpy (?P<ends>[^\n]{3,80}\(row\)[^\n]{3,20})\(column\) bandwidth \(GB/s\))[ \t]*$",
    re.MULTILINE,
)
_RUNNING = regex(r"^[ \t]{0,8}Running (\w{3,80})\.", re.MULTILINE)
_CELL = regex(r"\d{1,6}\.\d{1,3}|N/A")


@record
class RateMatrix:
    """Source, target and GB/s of each cell, the host being -1; `rows` are the lines as printed."""

    title: str
    cells: tuple[tuple[int, int, float], ...]
    rows: tuple[tuple[int, str], ...]

    @property
    def rates(self) -> dict[tuple[int, int], float]:
        """GB/s by source and target."""
        return {(source, target): rate for source, target, rate in self.cells}

    @property
    def lines(self) -> dict[int, str]:
        """The line of each row."""
        return dict(self.rows)

    @property
    def with_host(self) -> bool:
        """Whether one end of each copy is the host."""
        return any(source < 0 for source, *_ in self.cells)


@fact(NVBANDWIDTH, P2P_TEST)
@record
class RateMatrices:
    """Every matrix of GB/s, with the probe that it is of."""

    matrices: tuple[tuple[str, RateMatrix], ...]

    @classmethod
    def parse(cls, *observations: Observation) -> RateMatrices | Unseen:
        """Read the matrices of both tests; latencies are left out."""
        answered = [item for item in observations if item.answered and item.text.strip()]
        matrices = tuple((item.probe, matrix) for item in answered for matrix in _parse_matrices(item.text))
        if matrices:
            return cls(matrices)
        return Unseen.of(answered[0]) if answered else Unseen.skip("no test of copies was run")


def _parse_matrices(text: str) -> Iterator[RateMatrix]:
    for title in _TITLE.finditer(text):
        tests = [match[1] for match in _RUNNING.finditer(text, 0, title.start())]
        name = title["p2p"] or (tests[-1] if tests else title[0].strip())
        head, *lines = text[title.end() :].lstrip("\n").split("\n")
        columns = [int(word) for word in head.split() if word.isdecimal() and len(word) < 4]
        rows: dict[int, tuple[str, list[str]]] = {}
        for line in lines:
            number, *cells = line.split() or [""]
            if not (number.isdecimal() and len(cells) == len(columns) and all(map(_CELL.fullmatch, cells))):
                break
            rows[int(number)] = (line.strip(), cells)
        # One row of several columns is the host's: its number is no GPU.
        host = len(rows) == 1 and "CPU" in (title["ends"] or "")
        measured = tuple(
            (-1 if host else source, target, float(cell))
            for source, (_, cells) in rows.items()
            for target, cell in zip(columns, cells, strict=True)
            if cell != "N/A" and float(cell) and (host or source != target)
        )
        if measured:
            yield RateMatrix(name, measured, tuple((number, line) for number, (line, _) in rows.items()))
