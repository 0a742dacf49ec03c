"""Paragraphs to read: wrapped to the width, scrolled by line, never sideways."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from nodedoctor.tui.theme import Glyphs, Para, Part
from nodedoctor.tui.widgets.lines import scrolled
from nodedoctor.tui.widgets.prompt import Prompt, ask


class Page(ScrollView, can_focus=True):
    """A text. `show` replaces it, and keeps the place unless another thing is shown."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "scroll_down", "Down", id="down", show=False),
        Binding("k,up", "scroll_up", "Up", id="up", show=False),
        Binding("g,home", "scroll_home", "Top", id="first", show=False),
        Binding("G,end", "scroll_end", "End", id="last", show=False),
        Binding("ctrl+d,pagedown", "page_down", "Page down", id="page-down", show=False),
        Binding("ctrl+u,pageup", "page_up", "Page up", id="page-up", show=False),
        Binding("slash", "find", "Find in the text", id="filter", priority=True),
    ]

    class Resized(Message):
        """The page is of another size."""

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._glyphs = glyphs
        self._about = ""
        self._paras: tuple[Para, ...] = ()
        self._wrapped: list[tuple[Part, ...]] = []
        self._width = 0
        self._places: dict[int, int] = {}
        self._at = 0

    @property
    def room(self) -> Size | None:
        """Cells for lines and lines in view; None before there is a layout, or while it is hidden."""
        return Size(self.size.width - 1, self.size.height) if self.size else None

    def show(self, about: str, paras: Sequence[Para]) -> None:
        """Show a text about something; another text about the same thing does not move the reader."""
        if about != self._about:
            self._about = about
            self.scroll_to(y=0, animate=False, immediate=True)
        if tuple(paras) != self._paras:
            self._paras = tuple(paras)
            self._wrap_paras()

    def reveal(self, by: int = 0) -> None:
        """Scroll to the first place that the reader came for, or to another one, in a circle."""
        if self._places:
            self._at = (self._at + by) % len(self._places) if by else 0
            top = max(0, self._places[sorted(self._places)[self._at]] - self.size.height // 3)
            self.scroll_to(y=top, animate=False, immediate=True, force=True)

    def find(self, text: str) -> bool:
        """Scroll to the next line with a text, from the top again after the last; False when none has it."""
        lines = ["".join(part for part, _ in parts).lower() for parts in self._wrapped]
        at = [index for index, line in enumerate(lines) if text.lower() in line]
        if not at:
            return False
        below = [index for index in at if index > self.scroll_offset.y]
        self.scroll_to(y=(below or at)[0], animate=False, immediate=True)
        return True

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """In a prompt the key of the search is a letter."""
        return not (action == "find" and self.screen.query(Prompt))

    async def action_find(self) -> None:
        """Type a text; enter goes to its next place."""
        await ask(self.screen, Prompt("find", "", self._on_answer))

    def _on_answer(self, answer: str | None) -> None:
        self.focus()
        if answer and not self.find(answer):
            self.notify(f"not in this text: {answer}", markup=False)

    def get_selection(self, selection: Selection) -> tuple[str, str]:
        """The text that was selected with the mouse."""
        lines = ("".join(text for text, _ in parts) for parts in self._wrapped)
        return selection.extract("\n".join(lines)), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        """Show what is selected."""
        self.refresh()

    def on_resize(self) -> None:
        """Lines depend on the width, and what is in view on the height."""
        self.post_message(self.Resized())
        if self.size.width - 1 != self._width:
            self._wrap_paras()
            self.refresh()

    def render_line(self, y: int) -> Strip:
        """One line of the text."""
        index = y + self.scroll_offset.y
        parts = self._wrapped[index] if index < len(self._wrapped) else ()
        return scrolled(parts, self, y, self._glyphs)

    def _wrap_paras(self) -> None:
        self._width = self.size.width - 1
        if self._width > 0:
            before, self._wrapped, self._places = self._wrapped, [], {}
            for para in self._paras:
                if para.here:
                    self._places[para.here] = len(self._wrapped)
                self._wrapped += para.lines(self._width)
            self.virtual_size = Size(1, len(self._wrapped))
            if len(before) != len(self._wrapped):
                self.refresh()
            else:
                self._refresh_changed(before)

    def _refresh_changed(self, before: list[tuple[Part, ...]]) -> None:
        """Draw the lines in view that differ: over a slow line a whole page is worth avoiding."""
        top = self.scroll_offset.y
        for index in range(top, top + self.size.height):
            if before[index : index + 1] != self._wrapped[index : index + 1]:
                self.refresh_line(index)
