"""The matrix of a fleet: a line for nodes that are alike, a column for each check with a problem."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodedoctor.fleet.model import Fleet, Node
from nodedoctor.model import Severity, Status
from nodedoctor.nodeset import fold
from nodedoctor.report.inert import inert
from nodedoctor.tui.lines.nodes import style_of, word_of
from nodedoctor.tui.theme import LABEL, QUIET, STYLE, Glyphs, Para, Part, Row, fit

LETTER = {
    Status.FAIL: "F",
    Status.UNKNOWN: "U",
    Status.WARN: "W",
    Status.PASS: ".",
    Status.SKIP: " ",
}
LETTERS = "F fails   U cannot be judged   W warns   . passes   (blank) does not apply"
TALLEST = 18
"""Lines for the ids of checks above the matrix."""
BELOW = 14
"""Lines that are for nodes and the page about them, before ids of checks get theirs."""
NAMES = 24
"""Cells for the names of nodes, where there is room."""
_BAD = (Status.FAIL, Status.UNKNOWN, Status.WARN)


def columns(fleet: Fleet, width: int) -> tuple[tuple[str, ...], int]:
    """The checks of the matrix, those with a problem somewhere, the worst and most frequent first.

    As many as fit, and how many more there are.
    """
    weight: dict[str, tuple[Severity, int]] = {}
    for node in fleet.nodes:
        for problem in node.problems:
            worst, count = weight.get(problem.check, (Severity.SKIP, 0))
            weight[problem.check] = (max(worst, problem.severity), count + 1)
    checks = sorted(weight, key=lambda check: (-weight[check][0], -weight[check][1], check))
    room = (width - _names(width) - 7) // 2
    return tuple(checks[:room]), max(0, len(checks) - room)


def rows(fleet: Fleet, checks: Sequence[str], width: int, glyphs: Glyphs) -> list[Row]:
    """A line per node, a letter per check; nodes that are alike in all of them share a line."""
    alike: dict[tuple[str, tuple[Status | None, ...]], list[Node]] = {}
    for node in fleet.worst_first():
        cells = tuple(node.statuses.get(check) for check in checks)
        alike.setdefault((node.state, cells), []).append(node)
    return [_matrix_row(nodes, cells, width, glyphs) for (_, cells), nodes in alike.items()]


def heading(checks: Sequence[str], width: int, height: int) -> list[tuple[Part, ...]]:
    """What is above the matrix: every check's id from top to bottom, cut where the screen is not tall."""
    left = " " * 7 + "node".ljust(_names(width))
    tall = max(0, min(TALLEST, height - BELOW))
    names = [inert(check)[:tall] for check in checks]
    tall = max(map(len, names), default=0)
    lines = [" ".join(name.rjust(tall)[at] for name in names) for at in range(tall)] or [""]
    return [((left if line is lines[-1] else " " * len(left), QUIET), (line, LABEL)) for line in lines]


def draw_matrix(fleet: Fleet, width: int, glyphs: Glyphs) -> list[Para]:
    """The whole matrix as text, for a page with room below what it says."""
    checks, _ = columns(fleet, width)
    if not checks:
        return []
    lines = [Para(parts=line) for line in heading(checks, width, TALLEST + BELOW)]
    for row in rows(fleet, checks, width, glyphs):
        lines.append(Para(parts=(("  ", ""), (f"{row.word:<4}", row.style), *row.parts)))
    return [Para(), *lines, Para(), Para(LETTERS, style=QUIET)]


def about(fleet: Fleet, row: str, more: int) -> Iterator[Para]:
    """The nodes of a line, and what is wrong there by the whole ids of the checks."""
    node = next((node for node in fleet.nodes if f"node {node.host}" == row), None)
    if node is None:
        return
    for status in _BAD:
        checks = [check for check, found in node.statuses.items() if found is status]
        if checks:
            yield Para(inert(" ".join(checks)), f"{status.word:<5} ", lead_style=STYLE[status])
    if node.state != "answered":
        yield Para(inert(node.note), f"{node.state}  ")
    if node.report:
        yield Para(f"enter opens the report of {inert(node.host)}", style=QUIET)
    yield Para(LETTERS, style=QUIET)
    if more:
        yield Para(f"{more} more checks have a problem somewhere; a wider terminal shows more", style=QUIET)


def _matrix_row(nodes: Sequence[Node], cells: Sequence[Status | None], width: int, glyphs: Glyphs) -> Row:
    names = inert(fold([node.host for node in nodes]))
    parts: list[Part] = [(f" {fit(names, _names(width) - 1, glyphs.more)} ", "")]
    for status in cells:
        letter = LETTER[status] if status else " "
        loud = status in _BAD
        parts.append((f"{letter} ", STYLE[status] if status and loud else QUIET))
    first = nodes[0]
    return Row(f"node {first.host}", word_of(first), style_of(first), names, parts=tuple(parts))


def _names(width: int) -> int:
    """Cells for the names of nodes in the matrix."""
    return min(NAMES, max(12, width // 3))
