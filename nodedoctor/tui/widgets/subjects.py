"""The panels of the subjects, drawn as one widget: a widget for each would be slow to open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.strip import Strip

from nodedoctor.tui.lines.panel_grid import Place, arrange, draw
from nodedoctor.tui.lines.subjects import Panel
from nodedoctor.tui.theme import Glyphs, Part
from nodedoctor.tui.widgets.lines import strip


class Subjects(ScrollView, can_focus=True):
    """`show` replaces the panels; only lines that differ are drawn."""

    ALLOW_SELECT = False

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(0, 1)", "Down", id="down", show=False),
        Binding("k,up", "move(0, -1)", "Up", id="up", show=False),
        Binding("h,left", "move(-1, 0)", "Left", id="left", show=False),
        Binding("l,right", "move(1, 0)", "Right", id="right", show=False),
        Binding("escape", "leave", "Back", id="subjects-back", show=False),
        Binding("enter,space", "choose", "Open", id="open", show=False),
    ]

    class Selected(Message):
        """The cursor is on a subject; empty: on none."""

        def __init__(self, name: str) -> None:
            super().__init__()
            self.name = name

    class Chosen(Message):
        """Enter was pressed, or the cursor left the panels."""

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._glyphs = glyphs
        self._panels: tuple[Panel, ...] = ()
        self._room = Size(0, 0)
        self._boxes = self._ample = False
        self._places: list[Place] = []
        self._lines: list[tuple[Part, ...]] = []
        self.selected = ""

    def show(self, panels: Sequence[Panel], room: Size, *, boxes: bool, ample: bool) -> None:
        """Replace the panels, for so many cells and lines; without `boxes` as a line of counts."""
        self._panels, self._room, self._boxes, self._ample = tuple(panels), room, boxes, ample
        self._draw_panels()

    @property
    def needed(self) -> int:
        """Lines that it would like to have."""
        return len(self._lines)

    def action_move(self, right: int, down: int) -> None:
        """Select the next panel in a direction; beyond the last one, go to the list."""
        here = self._selected_place()
        if here is None:
            return
        if down:
            rows = sorted(
                {place.y for place in self._places if (place.y - here.y) * down > 0}, reverse=down < 0
            )
            near = [place for place in self._places if rows and place.y == rows[0]]
            target = min(near, key=lambda place: _place_distance(place, here), default=None)
        else:
            at = self._places.index(here) + right
            target = self._places[at] if 0 <= at < len(self._places) else None
        if target is not None:
            self._select_subject(target.panel.name)
        elif right > 0 or down > 0:
            self.post_message(self.Chosen())

    def action_leave(self) -> None:
        """Select none."""
        self._select_subject("")
        self.post_message(self.Chosen())

    def action_choose(self) -> None:
        """Go to the list of the selected subject."""
        self.post_message(self.Chosen())

    def clear(self) -> None:
        """Select none, without a word."""
        self.selected = ""
        self._draw_panels()

    def on_focus(self) -> None:
        """Select a subject on focus: the first, which is one with a problem if there is any."""
        if not self.selected and self._places:
            self._select_subject(self._places[0].panel.name)

    def watch_has_focus(self, has_focus: bool) -> None:
        """The cursor looks different without focus."""
        super().watch_has_focus(has_focus)
        self._draw_panels()

    def on_click(self, event: events.Click) -> None:
        """Select the panel under the pointer."""
        y = event.y + self.scroll_offset.y
        for place in self._places:
            if place.y <= y < place.y + place.height and place.x <= event.x < place.x + place.width:
                self._select_subject(place.panel.name)

    def render_line(self, y: int) -> Strip:
        """One line of the panels."""
        index = y + self.scroll_offset.y
        parts = self._lines[index] if index < len(self._lines) else ()
        return strip(parts, self.size.width, self.rich_style)

    def _selected_place(self) -> Place | None:
        places = [place for place in self._places if place.panel.name == self.selected]
        return next(iter(places or self._places), None)

    def _select_subject(self, name: str) -> None:
        if name != self.selected:
            self.selected = name
            self._draw_panels()
            self.post_message(self.Selected(name))
        here = self._selected_place()
        if here is not None:
            top = int(self.scroll_offset.y)
            if here.y < top or here.y + here.height > top + self.size.height:
                self.scroll_to(y=here.y, animate=False, immediate=True)

    def _draw_panels(self) -> None:
        width, height = self._room
        if width < 1:
            return
        before = self._lines
        self._places = arrange(self._panels, width, height, boxes=self._boxes, ample=self._ample)
        self._lines = draw(self._places, self._glyphs, here=self.selected, focus=self.has_focus)
        self.virtual_size = Size(1, len(self._lines))
        for index in range(max(len(before), len(self._lines))):
            if before[index : index + 1] != self._lines[index : index + 1]:
                self.refresh_line(index)


def _place_distance(place: Place, here: Place) -> int:
    """Half cells between the middles of two places."""
    return abs(2 * place.x + place.width - 2 * here.x - here.width)
