"""Panels below each other, one per subject, with a cursor that a person may put on one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from nodedoctor.tui.lines.subjects import Panel
from nodedoctor.tui.theme import Glyphs, Part
from nodedoctor.tui.widgets.lines import scrolled

TALLEST = 4
"""Lines of a panel where there is room; two where there is little."""


class Subjects(ScrollView, can_focus=True):
    """`show` replaces the panels; only lines that differ are drawn."""

    ALLOW_SELECT = False

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", "Down", id="down", show=False),
        Binding("k,up", "move(-1)", "Up", id="up", show=False),
        Binding("escape", "leave", "Back", id="subjects-back", show=False),
        Binding("enter,space", "choose", "Open", id="open", show=False),
    ]

    class Selected(Message):
        """The cursor is on a subject; empty: on none."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    class Chosen(Message):
        """Enter was pressed."""

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._glyphs = glyphs
        self._panels: tuple[Panel, ...] = ()
        self._lines: list[list[Part]] = []
        self.selected = ""

    def show(self, panels: Sequence[Panel]) -> None:
        """Replace the panels."""
        self._panels = tuple(panels)
        self._draw()

    def action_move(self, by: int) -> None:
        """Select the next or previous subject."""
        names = [panel.name for panel in self._panels]
        if names:
            at = names.index(self.selected) + by if self.selected in names else (0 if by > 0 else -1)
            self._select(names[max(0, min(at, len(names) - 1))])

    def action_leave(self) -> None:
        """Select none."""
        self._select("")
        self.post_message(self.Chosen())

    def action_choose(self) -> None:
        """Go to the list of the selected subject."""
        self.post_message(self.Chosen())

    def clear(self) -> None:
        """Select none, without a word."""
        self.selected = ""
        self._draw()

    def on_focus(self) -> None:
        """Whoever comes here wants a subject: the first with a problem, else the first."""
        if not self.selected and self._panels:
            bad = [panel.name for panel in self._panels if panel.worst]
            self._select((bad or [self._panels[0].name])[0])
        self._draw()

    def on_blur(self) -> None:
        """The cursor looks different without focus."""
        self._draw()

    def on_resize(self) -> None:
        """Panels are as tall as there is room."""
        self._draw()

    def on_click(self, event: events.Click) -> None:
        """Select the panel under the pointer."""
        at = (event.y + self.scroll_offset.y) // max(self._tall(), 1)
        if at < len(self._panels):
            self._select(self._panels[at].name)

    def render_line(self, y: int) -> Strip:
        """One line of a panel."""
        index = y + self.scroll_offset.y
        parts = self._lines[index] if index < len(self._lines) else []
        return scrolled(parts, self, y, self._glyphs)

    def _tall(self) -> int:
        return max(2, min(TALLEST, self.size.height // max(len(self._panels), 1)))

    def _select(self, name: str) -> None:
        if name != self.selected:
            self.selected = name
            self._draw()
            self.post_message(self.Selected(name))
        names = [panel.name for panel in self._panels]
        if name in names:
            top, tall = names.index(name) * self._tall(), self._tall()
            if top < self.scroll_offset.y or top + tall > self.scroll_offset.y + self.size.height:
                self.scroll_to(y=top, animate=False, immediate=True)

    def _draw(self) -> None:
        width = self.size.width - 1
        if width < 1:
            return
        before, self._lines = self._lines, []
        for panel in self._panels:
            here = panel.name == self.selected
            self._lines += panel.lines(width, self._tall(), self._glyphs, here=here, focus=self.has_focus)
        self.virtual_size = Size(1, len(self._lines))
        for index in range(max(len(before), len(self._lines))):
            if before[index : index + 1] != self._lines[index : index + 1]:
                self.refresh_line(index)
