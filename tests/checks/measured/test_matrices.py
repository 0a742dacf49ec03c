"""Matrices of copies: a GPU or pair slower than the others is named; boards of mixed links are not judged."""

from __future__ import annotations

from collections.abc import Callable
from itertools import permutations
from pathlib import Path

import pytest
from recorded import alarms, replay

from nodedoctor.intake.document import document
from nodedoctor.intake.judge import read
from nodedoctor.intake.split import split

Rate = Callable[[int, int], float]


def rows(gpus: int, rate: Rate, diagonal: str) -> str:
    """The rows of a matrix, each behind its number."""
    lines = (
        (f"{rate(row, column):.2f}" if row != column else diagonal for column in range(gpus))
        for row in range(gpus)
    )
    return "".join(
        f"{row:6} {' '.join(f'{cell:>7}' for cell in cells)} \n" for row, cells in enumerate(lines)
    )


def p2p_test(gpus: int, rate: Rate) -> str:
    """Two of the matrices of p2pBandwidthLatencyTest, and its list of who sees whom."""
    head = f"   D\\D  {'      '.join(map(str, range(gpus)))} \n"
    seen = "".join(f"     {row}\t   {'     '.join('1' * gpus)}\n" for row in range(gpus))
    return (
        "[P2P (Peer-to-Peer) GPU Bandwidth Latency Test]\nDevice: 0, NVIDIA H100 80GB HBM3, pciBusID: 1b, "
        f"pciDeviceID: 0, pciDomainID:0\n\nP2P Connectivity Matrix\n{head}{seen}"
        f"Unidirectional P2P=Disabled Bandwidth Matrix (GB/s)\n{head}{rows(gpus, lambda *_: 38.2, '2550.10')}"
        "Unidirectional P2P=Enabled Bandwidth (P2P Writes) Matrix (GB/s)\n"
        f"{head}{rows(gpus, rate, '2551.77')}"
        f"P2P=Enabled Latency (P2P Writes) Matrix (us)\n   GPU  {'      '.join(map(str, range(gpus)))} \n"
        f"{rows(gpus, lambda *_: 2.4, '2.01')}"
    )


def copies(gpus: int, rate: Rate) -> str:
    """A test of nvbandwidth between GPUs."""
    return (
        "nvbandwidth Version: v0.7\nBuilt from Git version: v0.7\n\nCUDA Runtime Version: 12040\n"
        "CUDA Driver Version: 12040\nDriver Version: 550.90.07\n\nRunning device_to_device_memcpy_read_ce.\n"
        "memcpy CE GPU(row) -> GPU(column) bandwidth (GB/s)\n"
        f"       {'         '.join(map(str, range(gpus)))}\n{rows(gpus, rate, 'N/A')}\n"
        "SUM device_to_device_memcpy_read_ce 20000.10\n"
    )


def of_host(*rates: float) -> str:
    """A test of nvbandwidth between the host and each GPU."""
    cells = "".join(f"{rate:10.2f}" for rate in rates)
    return (
        "Running host_to_device_memcpy_ce.\nmemcpy CE CPU(row) -> GPU(column) bandwidth (GB/s)\n"
        f"       {'         '.join(map(str, range(len(rates))))}\n 0 {cells}\n\n"
        "SUM host_to_device_memcpy_ce 400.10\n"
    )


def subjects(tmp_path: Path, text: str) -> list[str]:
    """What the alarms over a paste name."""
    observed = {piece.shape.probe: piece.text for piece in split(text).pieces}
    shown = alarms(replay(tmp_path, observed, deep=True))
    return [alarm.partition("@")[2].partition(": ")[0] for alarm in shown if "deep.matrices" in alarm]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("test", [p2p_test, copies])
@pytest.mark.parametrize("usual", [380.0, 48.0])
@pytest.mark.parametrize("pair", [(0, 1), (2, 5), (7, 3)])
@pytest.mark.parametrize("ways", [1, 2])
def test_a_slow_pair_is_named(
    tmp_path: Path, test: Callable[[int, Rate], str], usual: float, pair: tuple[int, int], ways: int
):
    slow = set(list(permutations(pair))[:ways])
    text = test(8, lambda row, column: usual * (0.2 if (row, column) in slow else 1 + (row - column) / 200))
    assert subjects(tmp_path, text) == [f"pair:{min(pair)}-{max(pair)}"]


@pytest.mark.parametrize("test", [p2p_test, copies])
@pytest.mark.parametrize(
    ("gpus", "usual", "sick"), [(8, 380.0, 3), (8, 26.0, 0), (4, 290.0, 3), (4, 26.0, None)]
)
def test_a_gpu_that_is_slow_with_all_others_is_named(
    tmp_path: Path, test: Callable[[int, Rate], str], gpus: int, usual: float, sick: int | None
):
    """Of four without NVLink, one may be on a socket of its own."""
    odd = 3 if sick is None else sick
    text = test(gpus, lambda row, column: usual * (0.5 if odd in (row, column) else 1))
    assert subjects(tmp_path, text) == ([] if sick is None else [f"gpu:{sick}"])


def two_sockets(row: int, column: int) -> float:
    return 24.0 if row // 4 == column // 4 else 11.0


def bridges(row: int, column: int) -> float:
    return 266.0 if row // 2 == column // 2 else 19.0


def mesh(row: int, column: int) -> float:
    """Eight V100: one or two links to those of the own half, and one to a twin in the other."""
    if row // 4 == column // 4:
        return 48.3 if (row + column) % 3 == 0 else 24.2
    return 48.3 if row % 4 == column % 4 else 9.9


@pytest.mark.sampled(6)
@pytest.mark.parametrize("test", [p2p_test, copies])
@pytest.mark.parametrize(
    "rate", [two_sockets, bridges, mesh, lambda row, column: 380 - 5 * abs(row - column)]
)
@pytest.mark.parametrize("gpus", [2, 4, 8])
def test_boards_of_several_kinds_of_link_are_not_judged(
    tmp_path: Path, test: Callable[[int, Rate], str], rate: Rate, gpus: int
):
    assert subjects(tmp_path, test(gpus, rate)) == []


@pytest.mark.parametrize(
    ("rates", "named"),
    [
        ([55.3] * 5 + [13.1] + [55.3] * 2, ["gpu:5"]),
        ([55.3, 55.1, 54.9, 26.0], ["gpu:3"]),
        ([55.3] * 8, []),
        ([55.3] * 4 + [25.0] * 4, []),
        ([55.3, 13.1], []),
    ],
)
def test_one_slow_copy_with_the_host_is_named(tmp_path: Path, rates: list[float], named: list[str]):
    assert subjects(tmp_path, of_host(*rates)) == named


@pytest.mark.parametrize("test", [p2p_test, copies])
def test_a_matrix_is_no_jobs_log(test: Callable[[int, Rate], str]):
    result = document(read(["-"], stdin=test(8, lambda *_: 380.0).encode()))
    assert result["triage"] is None and len(result["recognised"]) == 1
