"""The matrix of a fleet: a line for nodes that are alike, a column for each subject with its worst count."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nodedoctor.fleet.model import Fleet, Node
from nodedoctor.model import Severity, Status
from nodedoctor.nodeset import fold
from nodedoctor.report.inert import inert
from nodedoctor.tui.lines.nodes import standing
from nodedoctor.tui.lines.subjects import OTHER, SHORT, subject_of
from nodedoctor.tui.theme import LABEL, QUIET, STYLE, Glyphs, Para, Part, Row, fit

LETTERS = "2F: 2 checks fail   W warn   U could not be judged   . pass   - not visible from there"
_MARK = {Severity.FAIL: "F", Severity.BROKEN: "U", Severity.WARN: "W"}
_NARROW, _WIDE = 4, 11
"""Cells of a column: of a short name, of a whole one."""
NAMES = 40
"""Cells for the names of nodes at most; ours."""

Cell = tuple[Severity, int]
"""The worst of a subject on a node, and how many checks are as bad."""


def columns(fleet: Fleet) -> tuple[str, ...]:
    """The subjects; that of plug-ins only where it has a problem."""
    checks = {
        problem.check
        for node in fleet.nodes
        for problem in node.problems
        if problem.severity > Severity.BLIND
    }
    others = any(subject_of(check) == OTHER for check in checks)
    return tuple(name for name in SHORT if others or name != OTHER)


def rows(fleet: Fleet, width: int, glyphs: Glyphs) -> list[Row]:
    """A line per node, a cell per subject; nodes that are alike in all of them share a line."""
    subjects, groups = columns(fleet), dict[tuple[str, tuple[Cell, ...]], list[Node]]()
    for node in fleet.worst_first():
        worst_of = _subject_cells(node)
        cells = tuple(worst_of.get(subject, (Severity.SKIP, 0)) for subject in subjects)
        groups.setdefault((node.state, cells), []).append(node)
    cell, names = _column_widths(fleet, width)
    table_rows = []
    for (_, cells), nodes in groups.items():
        shown, status = inert(fold([node.host for node in nodes])), standing(nodes[0])
        parts: list[Part] = [(f" {fit(shown, names - 2, glyphs.more)} ", "")]
        parts += [_cell_part(value, cell) for value in cells]
        table_rows.append(Row(f"node {nodes[0].host}", status.word, STYLE[status], shown, parts=tuple(parts)))
    return table_rows


def heading(fleet: Fleet, width: int) -> tuple[Part, ...]:
    """The names of the columns."""
    cell, names = _column_widths(fleet, width)
    shown = (name if cell > _NARROW else SHORT[name] for name in columns(fleet))
    lead = " " * 6 + " " + "node".ljust(names - 1)
    return ((lead, QUIET), ("".join(name.ljust(cell) for name in shown), LABEL))


def draw_matrix(fleet: Fleet, width: int, glyphs: Glyphs) -> list[Para]:
    """The whole matrix as text, for a page with room below what it says."""
    if not any(node.problems for node in fleet.nodes):
        return []
    lines = [Para(parts=heading(fleet, width))]
    for row in rows(fleet, width, glyphs):
        lines.append(Para(parts=(("  ", ""), (f"{row.word:<4}", row.style), *row.parts)))
    return [Para(), *lines, Para(), Para(LETTERS, style=QUIET)]


def find(fleet: Fleet, key: str) -> Node | None:
    """The first of the nodes that share a line."""
    return next((node for node in fleet.nodes if f"node {node.host}" == key), None)


def about(fleet: Fleet, key: str) -> Iterator[Para]:
    """What is wrong on the nodes of a line, by the names of the checks."""
    node = find(fleet, key)
    if node is None:
        return
    for severity in (Severity.FAIL, Severity.BROKEN, Severity.WARN, Severity.BLIND):
        checks = dict.fromkeys(problem.check for problem in node.problems if problem.severity is severity)
        if checks:
            lead = "not seen" if severity is Severity.BLIND else severity.status.word
            yield Para(inert(" ".join(checks)), f"{lead:<5} ", lead_style=STYLE[severity.status])
    if node.state != "answered":
        yield Para(inert(node.note), f"{node.state}  ")
    if node.report:
        yield Para(f"enter opens the report of {inert(node.host)}", style=QUIET)
    yield Para(LETTERS, style=QUIET)


def _subject_cells(node: Node) -> Mapping[str, Cell]:
    """The worst of each subject, and how many checks are as bad."""
    worst: dict[str, Severity] = {}
    for check, status in node.statuses.items():
        if status is Status.PASS:
            worst[check] = Severity.PASS
    for problem in node.problems:
        worst[problem.check] = max(worst.get(problem.check, Severity.SKIP), problem.severity)
    cells: dict[str, Cell] = {}
    for check, severity in worst.items():
        subject = subject_of(check)
        most, count = cells.get(subject, (Severity.SKIP, 0))
        cells[subject] = (severity, 1) if severity > most else (most, count + (severity is most))
    return {key: (most, count if most in _MARK else 0) for key, (most, count) in cells.items()}


def _cell_part(cell: Cell, width: int) -> Part:
    severity, count = cell
    if severity in _MARK:
        return f"{count}{_MARK[severity]}".ljust(width), STYLE[severity.status]
    mark = {Severity.PASS: ".", Severity.BLIND: "-"}.get(severity, "")
    return mark.ljust(width), QUIET


def _column_widths(fleet: Fleet, width: int) -> tuple[int, int]:
    """Cells for a column, and for the names of nodes."""
    count, room = len(columns(fleet)), width - 6
    cell = _WIDE if room - count * _WIDE >= NAMES else _NARROW
    return cell, max(8, min(room - count * cell, NAMES))
