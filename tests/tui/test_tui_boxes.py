"""The drawing of a node: every GPU once, in the box of its socket, with the adapters of its switch."""

from __future__ import annotations

import re

from in_turn import in_turn
from rich.cells import cell_len

from nodedoctor.report.matrix import Matrix, matrices, meanings
from nodedoctor.tui.lines.boxes import drawing
from nodedoctor.tui.theme import ASCII, UNICODE, Glyphs


def node(
    gpus: int, per_switch: int, *, odd: int | None = None, sockets: int = 2, link: str = "NV18"
) -> Matrix:
    """A made-up node: so many GPUs and an adapter each, so many of them behind one PCIe switch."""
    names = tuple(f"GPU{n}" for n in range(gpus))
    nics = tuple(f"mlx5_{n}" for n in range(gpus))
    cells = {
        (a, b): "NV16" if odd is not None and names[odd] in (a, b) else link
        for a in names
        for b in names
        if a != b
    }
    paths = {
        (gpu, nic): "PXB" if i // per_switch == j // per_switch else "NODE"
        for i, gpu in enumerate(names)
        for j, nic in enumerate(nics)
    }
    numa = {gpu: str(i * sockets // gpus) for i, gpu in enumerate(names)} if sockets else {}
    bad = frozenset(pair for pair, token in cells.items() if token != link)
    return Matrix("link type", names, cells, bad, usual=link, nics=nics, paths=paths, numa=numa)


def lines(matrix: Matrix, width: int = 100, glyphs: Glyphs = UNICODE, chosen: str = "") -> list[str]:
    drawn = drawing(matrix, {"gpus": {"gpus": [{"nvlink_switch_links": 18}]}}, chosen, width, glyphs)
    return ["".join(text for text, _ in line) for line in drawn]


@in_turn("width", [60, 80, 140, 200])
@in_turn("per_switch", [1, 2, 4])
@in_turn("gpus", [2, 4, 8, 16])
def test_every_device_is_drawn_once_and_nothing_is_wider_than_the_page(
    gpus: int, per_switch: int, width: int
):
    drawn = lines(node(gpus, min(per_switch, gpus)), width)
    text = "\n".join(drawn)
    if drawn:
        assert sorted(re.findall(r"GPU\d+", text)) == sorted(f"GPU{n}" for n in range(gpus))
        assert sorted(re.findall(r"mlx5_\d+", text)) == sorted(f"mlx5_{n}" for n in range(gpus))
        assert all(cell_len(line) <= width for line in drawn)
    assert drawn or gpus * 9 // 2 + 3 > width


def test_the_odd_gpu_is_marked_and_its_peers_are_not():
    drawn = lines(node(8, 1, odd=3))
    assert drawn[0].count("NVSwitch") == 1
    assert drawn[1].split().count("16<") == 1 and drawn[1].count("18") == 7
    assert [line.count("NUMA") for line in drawn].count(2) == 1


def test_the_legend_explains_the_words_of_the_matrix_and_no_others():
    def pair(cell: str, path: str) -> Matrix:
        gpus = ("GPU0", "GPU1")
        return Matrix("links", gpus, {gpus: cell, gpus[::-1]: cell}, paths={("GPU0", "mlx5_0"): path})

    assert [token for token, _ in meanings([pair("NV4", "SYS"), pair("NODE", "PHB")])] == [
        "NV4",
        "NODE",
        "SYS",
    ]
    assert meanings([pair("NV1", "")]) == [("NV1", "1 NVLink together")]
    assert meanings([pair("391", "weird")]) == [] == meanings([])


def test_a_gpu_that_fell_off_the_bus_has_a_row_and_a_place_in_the_drawing():
    whole = node(8, 1)
    left = [gpu for gpu in whole.gpus if gpu != "GPU5"]
    facts = {
        "topology": {
            "gpus": left,
            "nics": list(whole.nics),
            "links": {
                gpu: {other: whole.cells[gpu, other] for other in left if other != gpu}
                | {nic: whole.paths[gpu, nic] for nic in whole.nics}
                for gpu in left
            },
        },
        "inventory": {
            "slots": [
                {"address": "0000:9a:00.0", "index": 4, "lost": None, "lost_index": None, "off_bus": False},
                {"address": "0000:ab:00.0", "index": None, "lost": "GPU_IS_LOST", "lost_index": 5},
                {"address": "0000:ba:00.0", "index": None, "lost": "NO_ANSWER", "lost_index": 6},
                {"address": "0000:db:00.0", "index": None, "lost": None, "off_bus": True},
            ]
        },
    }
    (matrix,) = matrices(facts)
    assert matrix.lost == {"GPU5": "0000:ab:00.0"} and matrix.gpus == whole.gpus
    assert {pair for pair in matrix.odd} == {pair for pair in matrix.cells if "GPU5" in pair}
    drawn = lines(matrix, 160)
    assert drawn[0].count("NVSwitch") == 1
    assert drawn[1].count("18") == 7 and drawn[1].split().count("lost<") == 1
    assert sum(line.count("GPU5") for line in drawn) == 1


def test_without_numa_nodes_links_or_unicode():
    plain = lines(node(4, 2, sockets=0, link="SYS"), glyphs=ASCII)
    assert "NUMA node not reported" in plain[0] and all(line.isascii() for line in plain)
    assert "PXB switch" in "\n".join(plain)
