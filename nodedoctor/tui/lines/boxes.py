"""The node as a drawing: NVSwitch above, a box per socket, GPUs with the adapters of their PCIe switch."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from rich.cells import cell_len

from nodedoctor.json_shapes import mapping, objects
from nodedoctor.record import record
from nodedoctor.report.inert import inert
from nodedoctor.report.matrix import LOST, Matrix
from nodedoctor.tui.theme import LABEL, QUIET, UNICODE, Glyphs, Part

NARROW, WIDE = 9, 24
"""Cells of a device, where there is little room and where there is much."""
ODD = "bold red"
_NEAR = ("PIX", "PXB")
"""Paths that do not pass a host bridge: the devices share a PCIe switch."""

Line = tuple[Part, ...]


@record
class Group:
    """GPUs and adapters behind one PCIe switch, as far as the paths tell."""

    gpus: tuple[str, ...]
    nics: tuple[str, ...]

    def width(self, cell: int) -> int:
        """Cells that it takes where a device takes so many."""
        return cell * max(len(self.gpus), len(self.nics), 1)


@record
class _Pen:
    """The characters of boxes: corners, lines, a double line, and a link to it."""

    corners: str
    line: str
    side: str
    double: str
    link: str


_DRAWN = _Pen("┌┐└┘", "─", "│", "═", "║")
_ASCII = _Pen("++++", "-", "|", "=", "|")


def drawing(matrix: Matrix, facts: Mapping[str, Any], chosen: str, width: int, glyphs: Glyphs) -> list[Line]:
    """The lines of the drawing; none where a box is too wide, or no sockets and adapters are known."""
    pen = _DRAWN if glyphs is UNICODE else _ASCII
    boxes = _boxes(matrix)
    cell = max(NARROW, min(WIDE, (width - 3 * len(boxes)) // len(matrix.gpus)))
    known = any(group.nics for _, groups in boxes for group in groups) or matrix.numa
    if not known or any(sum(group.width(cell) for group in groups) + 3 > width for _, groups in boxes):
        return []
    rows: list[list[tuple[str, list[Group]]]] = [[]]
    left = width
    for box in boxes:
        wide = sum(group.width(cell) for group in box[1]) + 3
        if wide > left and rows[-1]:
            rows.append([])
            left = width
        rows[-1].append(box)
        left -= wide
    links = _links(matrix)
    lines: list[Line] = []
    for row in rows:
        if links:
            lines += _switch(row, links, matrix.lost, facts, pen, cell)
        lines += _row(row, matrix, chosen, pen, cell)
    return lines


def _boxes(matrix: Matrix) -> list[tuple[str, list[Group]]]:
    """The groups of every socket, in the order of their GPUs."""
    boxes: dict[str, list[Group]] = {}
    for group in _groups(matrix):
        node = next((matrix.numa[gpu] for gpu in group.gpus if gpu in matrix.numa), "")
        boxes.setdefault(f"NUMA {node}" if node else "NUMA node not reported", []).append(group)
    return sorted(boxes.items(), key=lambda box: matrix.gpus.index(box[1][0].gpus[0]))


def _groups(matrix: Matrix) -> Iterator[Group]:
    """GPUs that share an adapter's switch are one group; adapters of no GPU are left out."""
    left = list(matrix.gpus)
    while left:
        gpus, nics, grown = {left[0]}, set[str](), True
        while grown:
            near = {nic for nic in matrix.nics for gpu in gpus if matrix.paths.get((gpu, nic)) in _NEAR}
            there = {gpu for gpu in left for nic in near if matrix.paths.get((gpu, nic)) in _NEAR}
            grown = not (near <= nics and there <= gpus)
            nics, gpus = nics | near, gpus | there
        yield Group(tuple(g for g in matrix.gpus if g in gpus), tuple(n for n in matrix.nics if n in nics))
        left = [gpu for gpu in left if gpu not in gpus]


def _links(matrix: Matrix) -> dict[str, str]:
    """Links of each GPU to all others, where every pair has some: `18`; empty elsewhere."""
    found: dict[str, str] = {}
    left = [gpu for gpu in matrix.gpus if gpu not in matrix.lost]
    for gpu in left:
        tokens = Counter(matrix.cells.get((gpu, other), "") for other in left if other != gpu).most_common()
        if not tokens or not all(token.startswith("NV") for token, _ in tokens):
            return {}
        found[gpu] = tokens[0][0].removeprefix("NV")
    return {**found, **dict.fromkeys(matrix.lost, LOST)} if found else {}


def _switch(
    row: Sequence[tuple[str, list[Group]]],
    links: Mapping[str, str],
    lost: Collection[str],
    facts: Mapping[str, Any],
    pen: _Pen,
    cell: int,
) -> list[Line]:
    """The bar above, and under it how many links each GPU has to it."""
    switched = any(gpu.get("nvlink_switch_links") for gpu in objects(mapping(facts.get("gpus")).get("gpus")))
    name = " NVSwitch " if switched else " NVLink "
    usual = Counter(said for said in links.values() if said != LOST).most_common(1)[0][0]
    counts: list[Part] = []
    for _, groups in row:
        counts.append((" ", ""))
        for group in groups:
            for gpu in group.gpus:
                odd = links[gpu] != usual
                line = " " if gpu in lost else f"{pen.link} "
                mark = f"{line}{links[gpu]}{'<' if odd else ' '}"
                counts.append((f"{mark:^{cell}}", ODD if odd else QUIET))
            counts.append((" " * (group.width(cell) - cell * len(group.gpus)), ""))
        counts.append(("  ", ""))
    wide = sum(cell_len(text) for text, _ in counts) - 1
    return [((name.center(wide, pen.double), LABEL),), tuple(counts)]


def _row(
    row: Sequence[tuple[str, list[Group]]], matrix: Matrix, chosen: str, pen: _Pen, cell: int
) -> list[Line]:
    top, gpus, between, nics, bottom = (list[Part]() for _ in range(5))
    odd = {gpu for gpu in matrix.gpus if _is_odd(matrix, gpu)}
    for name, groups in row:
        wide = sum(group.width(cell) for group in groups)
        title = f"{pen.line} {name} "
        top.append((f"{pen.corners[0]}{title}{pen.line * (wide - len(title))}{pen.corners[1]} ", QUIET))
        bottom.append((f"{pen.corners[2]}{pen.line * wide}{pen.corners[3]} ", QUIET))
        for parts in (gpus, between, nics):
            parts.append((pen.side, QUIET))
        for group in groups:
            for gpu in group.gpus:
                style = ODD if gpu in odd else LABEL
                pad = cell - len(gpu)
                gpus += [(" " * (pad // 2), ""), (gpu, style + (" reverse" if gpu == chosen else ""))]
                gpus.append((" " * (pad - pad // 2), ""))
            gpus.append((" " * (group.width(cell) - cell * len(group.gpus)), ""))
            between.append((_between(group, matrix, pen, cell), QUIET))
            short = "".join(f"{_short(nic, cell):^{cell}}" for nic in group.nics)
            nics.append((f"{short:<{group.width(cell)}}", ""))
        for parts in (gpus, between, nics):
            parts.append((f"{pen.side} ", QUIET))
    drawn = (top, gpus, between, nics, bottom) if matrix.nics else (top, gpus, bottom)
    return [tuple(parts) for parts in drawn]


def _between(group: Group, matrix: Matrix, pen: _Pen, cell: int) -> str:
    """What a GPU and its adapters meet in, drawn between them."""
    if not group.nics:
        return " " * group.width(cell)
    path = matrix.paths.get((group.gpus[0], group.nics[0]), "")
    if len(group.gpus) == len(group.nics) == 1:
        return f"{pen.side + ' ' + path:^{group.width(cell)}}"
    inner = f" {path} switch ".center(group.width(cell) - 6, pen.line)
    return f"  {pen.corners[2]}{inner}{pen.corners[3]}  "


def _is_odd(matrix: Matrix, gpu: str) -> bool:
    """Whether most of its pairs are odd: of an odd pair, only one end may be the cause."""
    pairs = [pair for pair in matrix.cells if pair[0] == gpu]
    return bool(pairs) and sum(pair in matrix.odd for pair in pairs) * 2 > len(pairs)


def _short(nic: str, cell: int) -> str:
    name = inert(nic)
    return name if cell_len(name) < cell else name[: cell - 1]
