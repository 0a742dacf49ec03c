"""Panels on a screen: boxes in a grid, those with a problem first and larger, or one line of counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len

from nodedoctor.model import Status
from nodedoctor.record import record, replace
from nodedoctor.tui.lines.subjects import Panel
from nodedoctor.tui.theme import BORDER, LABEL, QUIET, Glyphs, Part, fit

LARGE, SMALL, WIDEST = 33, 16, 48
"""Cells of a box with a problem and of one without, at least; of one without, at most."""
_LEAST_LARGE, _LEAST_SMALL = 4, 3
_MOST_LARGE, _MOST_SMALL = 10, 7
"""Lines of a box with its borders."""
_GAP = 2
"""Cells between two subjects of the line of counts."""


@record
class Place:
    """Where a panel is; a `flat` one is part of the line of counts, a `brief` one without its total."""

    panel: Panel
    x: int
    y: int
    width: int
    height: int
    flat: bool = False
    brief: bool = False


@dataclass(slots=True)
class _Row:
    panels: Sequence[Panel]
    columns: int
    height: int
    most: int = 0


def arrange(
    panels: Sequence[Panel], width: int, height: int, *, boxes: bool, ample: bool = False
) -> list[Place]:
    """A place for each panel that applies here, in reading order: as many boxes as fit, else counts.

    Where there is `ample` room a box also names the other problems of its subject.
    """
    here = [panel if ample else replace(panel, also=()) for panel in panels if panel.is_here]
    sick = sorted((panel for panel in here if panel.is_sick), key=lambda panel: panel.status != Status.FAIL)
    small = sorted((panel for panel in here if not panel.is_sick), key=lambda panel: not panel.follows)
    absent = [panel for panel in panels if not panel.is_here]
    for boxed, flat in ((here, []), (sick, small)) if boxes else ():
        line = _flat_places(flat, width)
        rows = _panel_rows(sick, small if boxed is here else [], absent, width, height - _bottom_line(line))
        if rows:
            grid = list(_box_places(rows, width))
            under = _bottom_line(grid)
            return [*grid, *(replace(place, y=place.y + under) for place in line)]
    return _flat_places([*sick, *small], width)


def draw(places: Sequence[Place], glyphs: Glyphs, *, here: str, focus: bool) -> list[tuple[Part, ...]]:
    """The lines of all panels; the one under the cursor has a heavy border."""
    lines: list[list[Part]] = [[] for _ in range(_bottom_line(places))]
    for place in places:
        on = place.panel.name == here
        if place.flat:
            lines[place.y] += _count_parts(place, on=on, focus=focus)
        else:
            for offset, parts in enumerate(_box_lines(place, glyphs, on=on, focus=focus)):
                lines[place.y + offset] += parts
    return [tuple(parts) for parts in lines]


def _panel_rows(
    sick: Sequence[Panel], small: Sequence[Panel], absent: Sequence[Panel], width: int, height: int
) -> list[_Row]:
    """Rows of boxes that fit into a height, with the lines that remain given to the first; none if none fit.

    Subjects that are `absent` here fill the gaps of the last row.
    """
    rows = _split_rows(sick, width // LARGE, _LEAST_LARGE)
    spare = height - sum(row.height for row in rows)
    for columns in range(max(1, -(-width // WIDEST)), width // SMALL + 1):
        count = -(-len(small) // columns)
        if count * _LEAST_SMALL <= spare:
            columns = -(-len(small) // max(count, 1))
            rows += _split_rows([*small, *absent[: count * columns - len(small)]], columns, _LEAST_SMALL)
            break
    else:
        return []
    for row in rows:
        inner = width // row.columns - 4
        limit = _MOST_LARGE if row.panels[0].is_sick else _MOST_SMALL
        row.most = min(limit, 2 + max(len(panel.lines(inner, limit)) for panel in row.panels))
        row.height = min(row.height, max(3, row.most))
    spare = height - sum(row.height for row in rows)
    while spare > 0 and (low := [row for row in rows if row.height < row.most]):
        min(low, key=lambda row: (not row.panels[0].is_sick, row.height)).height += 1
        spare -= 1
    return rows if spare >= 0 else []


def _split_rows(panels: Sequence[Panel], columns: int, height: int) -> list[_Row]:
    """Panels in as few rows as they need, of as few columns as these rows need."""
    count = -(-len(panels) // max(columns, 1))
    columns = -(-len(panels) // max(count, 1))
    return [_Row(panels[at * columns : (at + 1) * columns], columns, height) for at in range(count)]


def _box_places(rows: Sequence[_Row], width: int) -> Sequence[Place]:
    places, y = list[Place](), 0
    for row in rows:
        for at, panel in enumerate(row.panels):
            start = width * at // row.columns
            right = width if panel is row.panels[-1] else width * (at + 1) // row.columns
            places.append(Place(panel, start, y, right - start, row.height))
        y += row.height
    return places


def _flat_places(panels: Sequence[Panel], width: int) -> list[Place]:
    """Codes with counts in a line, without their totals if that makes them fit, else in more lines."""
    for brief in (False, True):
        places, x, y = list[Place](), 0, 0
        for panel in panels:
            wide = len(panel.code) + 1 + sum(len(text) for text, _ in panel.figures(brief))
            if x and x + wide > width:
                x, y = 0, y + 1
            places.append(Place(panel, x, y, max(min(wide + _GAP, width - x), 0), 1, flat=True, brief=brief))
            x += wide + _GAP
        if not y:
            break
    return places


def _bottom_line(places: Sequence[Place]) -> int:
    return max((place.y + place.height for place in places), default=0)


def _count_parts(place: Place, *, on: bool, focus: bool) -> list[Part]:
    style = LABEL + (" reverse" if on and focus else " underline" if on else "")
    parts = [(place.panel.code, style), (" ", ""), *place.panel.figures(place.brief)]
    return [*parts, (" " * max(place.width - sum(len(text) for text, _ in parts), 0), "")]


def _box_lines(place: Place, glyphs: Glyphs, *, on: bool, focus: bool) -> list[list[Part]]:
    panel, inner = place.panel, place.width - 4
    corners = glyphs.heavy if on else glyphs.box
    style = BORDER[panel.status] if panel.status else QUIET
    counts = panel.title(max(place.width - 7 - len(panel.name), 0))
    style += " bold" if on else ""
    used = sum(len(text) for text, _ in counts) + bool(counts)
    name = panel.name if used + len(panel.name) <= place.width - 6 else panel.code
    rule = corners[1] * max(place.width - 5 - len(name) - used, 0)
    lines: list[list[Part]] = [
        [
            (corners[0] + corners[1], style),
            (f" {name} ", LABEL + (" reverse" if on and focus else "")),
            (rule, style),
            *counts,
            (" ", ""),
            (corners[2], style),
        ]
    ]
    content = panel.lines(inner, place.height - 2)
    for offset in range(place.height - 2):
        parts = content[offset] if offset < len(content) else ()
        lines.append([(f"{corners[3]} ", style), *_pad_parts(parts, inner), (f" {corners[3]}", style)])
    bottom = corners[1] * (place.width - 2)
    lines.append([(corners[4] + bottom + corners[5], style)])
    return lines


def _pad_parts(parts: Sequence[Part], width: int) -> list[Part]:
    """A line in exactly so many cells."""
    cells, spare = list[Part](), width
    for text, style in parts:
        if cell_len(text) > spare:
            return [*cells, (fit(text, spare, " "), style)]
        cells.append((text, style))
        spare -= cell_len(text)
    return [*cells, (" " * spare, "")]
