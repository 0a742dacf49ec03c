"""Is one GPU, or the copy between two of them, slower than all others in a matrix of NVIDIA's tests?"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median

from nodedoctor.declare.registry import check
from nodedoctor.facts.measured.matrices import RateMatrices, RateMatrix
from nodedoctor.knowledge.fixes.bandwidth import HOST, SLOW
from nodedoctor.model import Evidence, Finding
from nodedoctor.wording import comma_list, count_with_noun

from .culprits import culprits

LOW = 0.7
"""Of the usual rate, below which a cell is slow; ours: the cells of a healthy board are within a tenth."""
HIGH = 1.3
"""Of the usual rate, above which cells are of another kind of link: such a matrix is not judged. Ours."""
SWITCHED = 100.0
"""GB/s that only NVLink carries: there all pairs of a board are alike, whatever the sockets."""
FEW = 0.25
"""Of the cells, at most so many may be slow where sockets and switches make a difference, too. Ours."""
LEAST = 4
"""GPUs from which the others are a majority."""


@check("deep.matrices", "Matrices of copies", tags={"gpu", "deep"}, stage="preview")
def matrices(tests: RateMatrices) -> Iterator[Finding]:
    """Each cell of a matrix of copies between GPUs, or with the host, against the others.

    Why: a collective is as fast as its slowest link.
    Fix disturbs: every job on the GPU while it is reset.
    Judges: WARN for a GPU or a pair of GPUs below 0.7 of what is usual in a matrix that is alike otherwise.
    Fix: Compare the links, clocks and PCIe widths of the GPUs that are named.
    Threshold: 0.7 of the usual rate, and 1.3 for another kind of link; chosen by us.
    False positives: Matrices in which several kinds of link mix are not judged.
    """
    slow: dict[str, list[Finding]] = {}
    for probe, matrix in tests.matrices:
        for finding in _slow_cells(probe, matrix):
            slow.setdefault(finding.subject, []).append(finding)
    for findings in slow.values():
        yield findings[0]
    if not slow:
        count = count_with_noun(len(tests.matrices), "matrix", "matrices")
        yield Finding.info(f"{count} of copies, no GPU or pair apart from the others")


def _slow_cells(probe: str, matrix: RateMatrix) -> Iterator[Finding]:
    usual = _usual_rate(matrix)
    rates = matrix.rates
    low = {pair for pair, rate in rates.items() if rate < LOW * usual}
    members = {gpu for pair in rates for gpu in pair if gpu >= 0}
    mixed = any(rate > HIGH * usual for rate in rates.values())
    many = len(low) > FEW * len(rates) and (usual < SWITCHED or matrix.with_host)
    if not low or mixed or many or len(members) < LEAST:
        return
    if matrix.with_host:
        for pair in sorted(low):
            summary = f"{matrix.title}: {rates[pair]:.1f} GB/s, others {usual:.1f}"
            evidence = [Evidence(probe, line) for line in matrix.lines.values()]
            yield Finding.warn(summary, subject=f"gpu:{pair[1]}", evidence=evidence, fix=HOST)
        return
    common = culprits(low, rates)
    for gpu in common.gpus:
        worst = min(rate for pair, rate in rates.items() if gpu in pair)
        summary = f"{matrix.title}: copies with its peers {worst:.1f} GB/s, others {usual:.1f}"
        evidence = [Evidence(probe, matrix.lines[gpu])] if gpu in matrix.lines else []
        yield Finding.warn(summary, subject=f"gpu:{gpu}", evidence=evidence, fix=SLOW)
    for a, b in common.pairs:
        slow_pairs = [pair for pair in ((a, b), (b, a)) if pair in low]
        words = comma_list(
            f"GPU {source} -> GPU {target} {rates[source, target]:.1f}" for source, target in slow_pairs
        )
        evidence = [Evidence(probe, matrix.lines[source]) for source, _ in slow_pairs]
        summary = f"{matrix.title}: {words} GB/s, others {usual:.1f}"
        yield Finding.warn(summary, subject=f"pair:{a}-{b}", evidence=evidence, fix=SLOW)


def _usual_rate(matrix: RateMatrix) -> float:
    """The median of what each GPU reaches: one that is slow everywhere does not lower it."""
    members = {gpu for pair in matrix.rates for gpu in pair if gpu >= 0}
    return median(
        median(rate for pair, rate in matrix.rates.items() if gpu in pair) for gpu in sorted(members)
    )
