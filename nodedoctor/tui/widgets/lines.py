"""A few fixed lines: the head of a screen, the hints at its foot. Only lines that changed are drawn again."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from functools import cache

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widget import Widget

from nodedoctor.tui.theme import LABEL, Glyphs, Part, is_light


def strip(parts: Iterable[Part], width: int, base: Style) -> Strip:
    """A drawn line, exactly as wide as asked for; a coloured ground ends with its word."""
    segments = list[Segment]()
    for text, style in parts:
        if " on " in style and (word := text.strip()) != text:
            start = len(text) - len(text.lstrip())
            segments += [
                Segment(text[:start], base),
                Segment(word, base + _parse_style(style)),
                Segment(text[start + len(word) :], base),
            ]
        elif text:
            segments.append(Segment(text, base + _parse_style(style)))
    return Strip([segment for segment in segments if segment.text]).adjust_cell_length(width, base)


@cache
def _parse_style(style: str) -> Style:
    """A style; on a light background blue is what cyan is on a dark one."""
    return Style.parse(style.replace("cyan", "blue") if is_light(os.environ) else style)


def scrolled(parts: Iterable[Part], view: ScrollView, y: int, glyphs: Glyphs) -> Strip:
    """A drawn line of a view; the last column of its ends says whether there is more above and below.

    A scroll bar takes part in the layout: Textual would draw a text of another length twice.
    """
    width, height = view.size.width, view.size.height
    top, total = int(view.scroll_offset.y), view.virtual_size.height
    mark = (
        glyphs.above if not y and top else glyphs.below if y == height - 1 and top + height < total else " "
    )
    base = view.rich_style  # computed again at each access, from all parents of the view
    line = strip(parts, width - 1, base)
    if view.text_selection is not None and (span := view.text_selection.get_span(y + top)) is not None:
        start, end = span[0], width - 1 if span[1] < 0 else min(span[1], width - 1)
        before, selected, rest = line.divide([start, max(start, end), width - 1])
        line = Strip.join([before, selected.apply_style(Style(reverse=True)), rest])
    line = line.apply_offsets(0, y + top)
    return Strip.join([line, strip([(mark, LABEL)], 1, base)])


class Lines(Widget):
    """As many lines as the stylesheet gives it room for."""

    def __init__(self, *, id: str | None = None, classes: str | None = None) -> None:
        super().__init__(id=id, classes=classes)
        self._lines: list[tuple[Part, ...]] = []

    def show(self, lines: Sequence[tuple[Part, ...]]) -> None:
        """Replace what is shown."""
        before, self._lines = self._lines, list(lines)
        for y in range(max(len(before), len(lines))):
            if before[y : y + 1] != self._lines[y : y + 1]:
                self.refresh(Region(0, y, self.size.width, 1))

    def render_line(self, y: int) -> Strip:
        """One line of it."""
        parts = self._lines[y] if y < len(self._lines) else ()
        width = self.size.width
        if sum(cell_len(text) for text, _ in parts) > width:
            parts = tuple(_fit_width(parts, width))
        return strip(parts, width, self.rich_style)


def _fit_width(parts: Iterable[Part], width: int) -> Iterator[Part]:
    """As much as fits, with a mark at the end of it."""
    room = width - 3
    for text, style in parts:
        if cell_len(text) > room:
            yield set_cell_size(text, room) + "...", style
            return
        yield text, style
        room -= cell_len(text)
