"""Heat maps of a node: GPU by GPU and GPU by adapter, the link types and what was measured."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodedoctor.json_shapes import number, part, parts
from nodedoctor.report.html.blocks import scroll
from nodedoctor.report.html.markup import Markup, each_piece, element, join_pieces
from nodedoctor.report.matrix import Matrix, matrices, meanings

MOST = 72
"""GPUs of one matrix; an NVL72 rack shown as one node has so many."""
_NEAR = {"NV": 5, "PIX": 4, "PXB": 3, "PHB": 2, "NODE": 1}
"""How deep the colour of a link is, from near to far; SYS has none."""


def tables(facts: Mapping[str, Any]) -> Markup:
    """All that is known of how devices reach each other; nothing when nothing is."""
    maps = matrices(facts)
    shown = [_matrix_table(matrix) for matrix in maps]
    if maps:
        shown.append(_gpu_places(maps[0], _links_up(facts)))
    shown.append(_host_copies(facts))
    body = each_piece(filter(None, shown))
    if not body:
        return body
    return join_pieces(element("div", body, class_="maps"), _link_meanings(maps))


def _matrix_table(matrix: Matrix) -> Markup:
    gpus = matrix.gpus[:MOST]
    head = element("tr", element("th", ""), *(element("th", gpu, scope="col") for gpu in gpus))
    body = (
        element("tr", element("th", gpu, scope="row"), *(_link_cell(matrix, gpu, peer) for peer in gpus))
        for gpu in gpus
    )
    return _map_table(matrix.title, matrix.legend, head, each_piece(body))


def _link_cell(matrix: Matrix, gpu: str, peer: str) -> Markup:
    if gpu == peer:
        return element("td", "-", class_="self")
    text = matrix.cells.get((gpu, peer), "?")
    if (gpu, peer) in matrix.odd:
        return element("td", f"{text}<", class_="odd")
    return element("td", text, class_=f"near{_link_depth(matrix, text)}")


def _link_depth(matrix: Matrix, text: str) -> int:
    """0 to 5: how near a link is, or how fast it is against the fastest of its matrix."""
    if not text.isdecimal():
        return _link_nearness(text)
    fastest = max((int(cell) for cell in matrix.cells.values() if cell.isdecimal()), default=0)
    return round(5 * int(text) / fastest) if fastest else 0


def _link_nearness(token: str) -> int:
    return _NEAR.get("NV" if token.startswith("NV") else token, 0)


def _gpu_places(matrix: Matrix, up: Mapping[str, str]) -> Markup:
    """Where each GPU sits: its links, NUMA node, processors, and the way to every adapter."""
    gpus = matrix.gpus[:MOST]
    columns = [("NUMA", matrix.numa), ("CPUs", matrix.cpus), ("nearest", matrix.nearest), ("NVLinks", up)]
    shown = [(name, values) for name, values in columns if values]
    if not shown and not matrix.nics:
        return Markup()
    head = (element("th", name, scope="col") for name in (*(name for name, _ in shown), *matrix.nics))
    body = (
        element(
            "tr",
            element("th", gpu, scope="row"),
            *(_seat_cell(values.get(gpu, "")) for _, values in shown),
            *(_path_cell(matrix.paths.get((gpu, nic), "")) for nic in matrix.nics),
        )
        for gpu in gpus
    )
    legend = "< = not all links up" if any(value.endswith("<") for value in up.values()) else ""
    return _map_table(
        "GPU by adapter",
        legend,
        element("tr", element("th", ""), *head),
        each_piece(body),
    )


def _seat_cell(text: str) -> Markup:
    return element("td", text, class_="odd" if text.endswith("<") else "left")


def _path_cell(token: str) -> Markup:
    return element("td", token or "?", class_=f"near{_link_nearness(token)}")


def _links_up(facts: Mapping[str, Any]) -> dict[str, str]:
    """How many NVLinks of each GPU are up, of how many that are listed."""
    counts: dict[str, str] = {}
    for fact, key in (("gpus", "nvlinks"), ("nv-links", "links")):
        for gpu in parts(part(facts, fact), "gpus"):
            links = parts(gpu, key)
            up = sum(link.get("active") is True for link in links)
            if links:
                mark = "<" if up < len(links) else ""
                counts.setdefault(f"GPU{gpu.get('index')}", f"{up}/{len(links)}{mark}")
    return counts


def _host_copies(facts: Mapping[str, Any]) -> Markup:
    """What copies between each GPU and the host's memory reached."""
    copies = parts(part(facts, "bandwidth"), "host")[: 4 * MOST]
    body = each_piece(
        element(
            "tr",
            element("th", f"GPU{copy.get('index')}", scope="row"),
            element("td", _memory_name(copy), class_="left"),
            *(_speed_cell(copy, key) for key in ("h2d_gbytes_s", "d2h_gbytes_s")),
        )
        for copy in copies
    )
    names = ("", "memory", "to the GPU", "from the GPU")
    head = element("tr", *(element("th", name, scope="col") for name in names))
    return _map_table("GB/s with the host", "", head, body) if body else body


def _memory_name(copy: Mapping[str, Any]) -> str:
    node = copy.get("node")
    return f"{copy.get('kind', '')}, node {node}" if node is not None else str(copy.get("kind", ""))


def _speed_cell(copy: Mapping[str, Any], key: str) -> Markup:
    if copy.get("wrong"):
        return element("td", "WRONG<", class_="odd")
    value = number(copy.get(key))
    return element("td", str(copy.get("error") or "?") if value is None else f"{value:.1f}")


def _map_table(title: str, legend: str, head: Markup, body: Markup) -> Markup:
    caption = element("caption", element("strong", title), f"  {legend}" if legend else None)
    table = element("table", caption, element("thead", head), element("tbody", body), class_="map")
    return element("figure", scroll(table, title))


def _link_meanings(maps: list[Matrix]) -> Markup:
    """What the link types that occur here mean."""
    entries = (element("span", element("code", token), f" {meaning}") for token, meaning in meanings(maps))
    legend = each_piece(entries, between=" ")
    return element("p", legend, class_="legend quiet") if legend else Markup()
