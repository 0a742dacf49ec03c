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


_UNICODE_PEN = _Pen("┌┐└┘", "─", "│", "═", "║")
_ASCII = _Pen("++++", "-", "|", "=", "|")


def drawing(matrix: Matrix, facts: Mapping[str, Any], chosen: str, width: int, glyphs: Glyphs) -> list[Line]:
    """The lines of the drawing; none where a box is too wide, or no sockets and adapters are known."""
    pen = _UNICODE_PEN if glyphs is UNICODE else _ASCII
    boxes = _socket_boxes(matrix)
    cell = max(NARROW, min(WIDE, (width - 3 * len(boxes)) // len(matrix.gpus)))
    has_layout = any(group.nics for _, groups in boxes for group in groups) or matrix.numa
    if not has_layout or any(sum(group.width(cell) for group in groups) + 3 > width for _, groups in boxes):
        return []
    rows: list[list[tuple[str, list[Group]]]] = [[]]
    room = width
    for box in boxes:
        wide = sum(group.width(cell) for group in box[1]) + 3
        if wide > room and rows[-1]:
            rows.append([])
            room = width
        rows[-1].append(box)
        room -= wide
    links = _link_counts(matrix)
    lines: list[Line] = []
    for row in rows:
        if links:
            lines += _switch_lines(row, links, matrix.lost, facts, pen, cell)
        lines += _row_lines(row, matrix, chosen, pen, cell)
    return lines


def _socket_boxes(matrix: Matrix) -> list[tuple[str, list[Group]]]:
    """The groups of every socket, in the order of their GPUs."""
    boxes: dict[str, list[Group]] = {}
    for group in _switch_groups(matrix):
        node = next((matrix.numa[gpu] for gpu in group.gpus if gpu in matrix.numa), "")
        boxes.setdefault(f"NUMA {node}" if node else "NUMA node not reported", []).append(group)
    return sorted(boxes.items(), key=lambda box: matrix.gpus.index(box[1][0].gpus[0]))


def _switch_groups(matrix: Matrix) -> Iterator[Group]:
    """GPUs that share an adapter's switch are one group; adapters of no GPU are left out."""
    remaining = list(matrix.gpus)
    while remaining:
        gpus, nics, is_growing = {remaining[0]}, set[str](), True
        while is_growing:
            near = {nic for nic in matrix.nics for gpu in gpus if matrix.paths.get((gpu, nic)) in _NEAR}
            there = {gpu for gpu in remaining for nic in near if matrix.paths.get((gpu, nic)) in _NEAR}
            is_growing = not (near <= nics and there <= gpus)
            nics, gpus = nics | near, gpus | there
        yield Group(tuple(g for g in matrix.gpus if g in gpus), tuple(n for n in matrix.nics if n in nics))
        remaining = [gpu for gpu in remaining if gpu not in gpus]


def _link_counts(matrix: Matrix) -> dict[str, str]:
    """Links of each GPU to all others, where every pair has some: `18`; empty elsewhere."""
    links: dict[str, str] = {}
    gpus = [gpu for gpu in matrix.gpus if gpu not in matrix.lost]
    for gpu in gpus:
        tokens = Counter(matrix.cells.get((gpu, peer), "") for peer in gpus if peer != gpu).most_common()
        if not tokens or not all(token.startswith("NV") for token, _ in tokens):
            return {}
        links[gpu] = tokens[0][0].removeprefix("NV")
    return {**links, **dict.fromkeys(matrix.lost, LOST)} if links else {}


def _switch_lines(
    row: Sequence[tuple[str, list[Group]]],
    links: Mapping[str, str],
    lost_gpus: Collection[str],
    facts: Mapping[str, Any],
    pen: _Pen,
    cell: int,
) -> list[Line]:
    """The bar above, and under it how many links each GPU has to it."""
    switched = any(gpu.get("nvlink_switch_links") for gpu in objects(mapping(facts.get("gpus")).get("gpus")))
    name = " NVSwitch " if switched else " NVLink "
    usual = Counter(count for count in links.values() if count != LOST).most_common(1)[0][0]
    counts: list[Part] = []
    for _, groups in row:
        counts.append((" ", ""))
        for group in groups:
            for gpu in group.gpus:
                is_odd = links[gpu] != usual
                line = " " if gpu in lost_gpus else f"{pen.link} "
                mark = f"{line}{links[gpu]}{'<' if is_odd else ' '}"
                counts.append((f"{mark:^{cell}}", ODD if is_odd else QUIET))
            counts.append((" " * (group.width(cell) - cell * len(group.gpus)), ""))
        counts.append(("  ", ""))
    wide = sum(cell_len(text) for text, _ in counts) - 1
    return [((name.center(wide, pen.double), LABEL),), tuple(counts)]


def _row_lines(
    row: Sequence[tuple[str, list[Group]]], matrix: Matrix, chosen: str, pen: _Pen, cell: int
) -> list[Line]:
    top, gpus, between, nics, bottom = (list[Part]() for _ in range(5))
    odd_gpus = {gpu for gpu in matrix.gpus if _is_odd(matrix, gpu)}
    for name, groups in row:
        wide = sum(group.width(cell) for group in groups)
        title = f"{pen.line} {name} "
        top.append((f"{pen.corners[0]}{title}{pen.line * (wide - len(title))}{pen.corners[1]} ", QUIET))
        bottom.append((f"{pen.corners[2]}{pen.line * wide}{pen.corners[3]} ", QUIET))
        for parts in (gpus, between, nics):
            parts.append((pen.side, QUIET))
        for group in groups:
            for gpu in group.gpus:
                style = ODD if gpu in odd_gpus else LABEL
                pad = cell - len(gpu)
                gpus += [(" " * (pad // 2), ""), (gpu, style + (" reverse" if gpu == chosen else ""))]
                gpus.append((" " * (pad - pad // 2), ""))
            gpus.append((" " * (group.width(cell) - cell * len(group.gpus)), ""))
            between.append((_path_label(group, matrix, pen, cell), QUIET))
            short = "".join(f"{_short_name(nic, cell):^{cell}}" for nic in group.nics)
            nics.append((f"{short:<{group.width(cell)}}", ""))
        for parts in (gpus, between, nics):
            parts.append((f"{pen.side} ", QUIET))
    lines = (top, gpus, between, nics, bottom) if matrix.nics else (top, gpus, bottom)
    return [tuple(parts) for parts in lines]


def _path_label(group: Group, matrix: Matrix, pen: _Pen, cell: int) -> str:
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


def _short_name(nic: str, cell: int) -> str:
    name = inert(nic)
    return name if cell_len(name) < cell else name[: cell - 1]
