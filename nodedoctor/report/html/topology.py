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
    """All that is known of who reaches whom; nothing when nothing is."""
    found = matrices(facts)
    shown = [_matrix(matrix) for matrix in found]
    if found:
        shown.append(_gpu_places(found[0], _links_up(facts)))
    shown.append(_host_copies(facts))
    body = each_piece(filter(None, shown))
    if not body:
        return body
    return join_pieces(element("div", body, class_="maps"), _meanings(found))


def _matrix(matrix: Matrix) -> Markup:
    gpus = matrix.gpus[:MOST]
    head = element("tr", element("th", ""), *(element("th", gpu, scope="col") for gpu in gpus))
    body = (
        element("tr", element("th", gpu, scope="row"), *(_cell(matrix, gpu, other) for other in gpus))
        for gpu in gpus
    )
    return _map(matrix.title, matrix.legend, head, each_piece(body))


def _cell(matrix: Matrix, gpu: str, other: str) -> Markup:
    if gpu == other:
        return element("td", "-", class_="self")
    said = matrix.cells.get((gpu, other), "?")
    if (gpu, other) in matrix.odd:
        return element("td", f"{said}<", class_="odd")
    return element("td", said, class_=f"near{_depth(matrix, said)}")


def _depth(matrix: Matrix, said: str) -> int:
    """0 to 5: how near a link is, or how fast it is against the fastest of its matrix."""
    if not said.isdecimal():
        return _near(said)
    fastest = max((int(cell) for cell in matrix.cells.values() if cell.isdecimal()), default=0)
    return round(5 * int(said) / fastest) if fastest else 0


def _near(token: str) -> int:
    return _NEAR.get("NV" if token.startswith("NV") else token, 0)


def _gpu_places(matrix: Matrix, up: Mapping[str, str]) -> Markup:
    """Where each GPU sits: its links, NUMA node, processors, and the way to every adapter."""
    gpus = matrix.gpus[:MOST]
    columns = [("NUMA", matrix.numa), ("CPUs", matrix.cpus), ("nearest", matrix.nearest), ("NVLinks", up)]
    told = [(name, values) for name, values in columns if values]
    if not told and not matrix.nics:
        return Markup()
    head = (element("th", name, scope="col") for name in (*(name for name, _ in told), *matrix.nics))
    body = (
        element(
            "tr",
            element("th", gpu, scope="row"),
            *(_seat(values.get(gpu, "")) for _, values in told),
            *(_path(matrix.paths.get((gpu, nic), "")) for nic in matrix.nics),
        )
        for gpu in gpus
    )
    legend = "< = not all links up" if any(value.endswith("<") for value in up.values()) else ""
    return _map(
        "GPU by adapter",
        legend,
        element("tr", element("th", ""), *head),
        each_piece(body),
    )


def _seat(said: str) -> Markup:
    return element("td", said, class_="odd" if said.endswith("<") else "left")


def _path(token: str) -> Markup:
    return element("td", token or "?", class_=f"near{_near(token)}")


def _links_up(facts: Mapping[str, Any]) -> dict[str, str]:
    """How many NVLinks of each GPU are up, of how many that are listed."""
    counts: dict[str, str] = {}
    for fact, key in (("gpus", "nvlinks"), ("nv-links", "links")):
        for gpu in parts(part(facts, fact), "gpus"):
            links = parts(gpu, key)
            up = sum(link.get("active") is True for link in links)
            if links:
                odd = "<" if up < len(links) else ""
                counts.setdefault(f"GPU{gpu.get('index')}", f"{up}/{len(links)}{odd}")
    return counts


def _host_copies(facts: Mapping[str, Any]) -> Markup:
    """What copies between each GPU and the host's memory reached."""
    copies = parts(part(facts, "bandwidth"), "host")[: 4 * MOST]
    body = each_piece(
        element(
            "tr",
            element("th", f"GPU{copy.get('index')}", scope="row"),
            element("td", _memory(copy), class_="left"),
            *(_speed(copy, key) for key in ("h2d_gbytes_s", "d2h_gbytes_s")),
        )
        for copy in copies
    )
    names = ("", "memory", "to the GPU", "from the GPU")
    head = element("tr", *(element("th", name, scope="col") for name in names))
    return _map("GB/s with the host", "", head, body) if body else body


def _memory(copy: Mapping[str, Any]) -> str:
    node = copy.get("node")
    return f"{copy.get('kind', '')}, node {node}" if node is not None else str(copy.get("kind", ""))


def _speed(copy: Mapping[str, Any], key: str) -> Markup:
    if copy.get("wrong"):
        return element("td", "WRONG<", class_="odd")
    value = number(copy.get(key))
    return element("td", str(copy.get("error") or "?") if value is None else f"{value:.1f}")


def _map(title: str, legend: str, head: Markup, body: Markup) -> Markup:
    caption = element("caption", element("strong", title), f"  {legend}" if legend else None)
    table = element("table", caption, element("thead", head), element("tbody", body), class_="map")
    return element("figure", scroll(table, title))


def _meanings(found: list[Matrix]) -> Markup:
    """What the link types that occur here mean."""
    told = (element("span", element("code", token), f" {meaning}") for token, meaning in meanings(found))
    said = each_piece(told, between=" ")
    return element("p", said, class_="legend quiet") if said else Markup()
