"""A list of one-line rows with a cursor that stays on its row, whatever arrives above or below it.

Its own lines instead of a DataTable: eight rows changing at 4 Hz cost 6 KB/s this way and 40 KB/s that way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

from rich.cells import cell_len
from textual import events
from textual.actions import SkipAction
from textual.binding import Binding, BindingType
from textual.geometry import Region, Size
from textual.message import Message
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from nodedoctor.tui.theme import LABEL, Glyphs, Part, Row, fit, fit_words
from nodedoctor.tui.widgets.lines import scrolled
from nodedoctor.tui.widgets.prompt import Prompt, ask


class Listing(ScrollView, can_focus=True):
    """Rows and a cursor. `show` replaces the rows; the row under the cursor stays the same one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("j,down", "move(1)", "Down", id="down", show=False),
        Binding("k,up", "move(-1)", "Up", id="up", show=False),
        Binding("g,home", "move_to(0)", "First", id="first", show=False),
        Binding("G,end", "move_to(-1)", "Last", id="last", show=False),
        Binding("ctrl+d,pagedown", "page(1)", "Page down", id="page-down", show=False),
        Binding("ctrl+u,pageup", "page(-1)", "Page up", id="page-up", show=False),
        Binding("slash", "find", "Filter the list", id="filter", priority=True),
        Binding("escape", "unfind", "Clear the filter", id="clear", show=False),
        Binding("enter", "choose", "Open", id="open", show=False),
    ]

    class Moved(Message):
        """The cursor is on another row; `by_hand` when a person put it there."""

        def __init__(self, listing: Listing, by_hand: bool) -> None:
            super().__init__()
            self.listing = listing
            self.by_hand = by_hand

    class Chosen(Message):
        """Enter was pressed on a row."""

        def __init__(self, listing: Listing) -> None:
            super().__init__()
            self.listing = listing

    def __init__(self, glyphs: Glyphs, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._glyphs = glyphs
        self._rows: tuple[Row, ...] = ()
        self._all: tuple[Row, ...] = ()
        self._needle = ""
        self._index = 0
        self._column_widths = (4, 8, 0)
        self._owner = 0

    @property
    def rows(self) -> tuple[Row, ...]:
        """The rows shown."""
        return self._rows

    @property
    def room(self) -> int:
        """Cells for a row, the scroll bar left out."""
        return max(self.size.width - 1, 0)

    @property
    def key(self) -> str | None:
        """The key of the row under the cursor."""
        return self._rows[self._index].key if self._rows else None

    def is_whole(self, row: Row) -> bool:
        """Whether all text of a row without a name is shown."""
        return not row.name and cell_len(row.text) <= self._room_of(row)

    def show(self, rows: Sequence[Row]) -> None:
        """Replace the rows; draws only lines that differ."""
        before, at, key = self._rows, self._index, self.key
        self._all = tuple(rows)
        self._rows = tuple(row for row in rows if self._has_needle(row)) if self._needle else self._all
        self._index = self._place_of(key, before[:at])
        widths, owner = _column_widths(self._rows), max((len(row.owner) for row in self._rows), default=0)
        self.virtual_size = Size(1, len(self._rows))
        if (widths, owner) != (self._column_widths, self._owner) or len(before) != len(self._rows):
            self._column_widths, self._owner = widths, owner
            self.refresh()
        else:
            self._refresh_changed(before, at)
        if self.scroll_offset.y and self._index != at and self.key == key:
            # The row keeps its place on the screen; rows came in above it.
            self.scroll_to(y=self.scroll_offset.y + self._index - at, animate=False, immediate=True)
        if self.key != key:
            self.post_message(self.Moved(self, by_hand=False))

    def select(self, key: str, *, by_hand: bool = True) -> None:
        """Put the cursor on a row, if it is there."""
        for index, row in enumerate(self._rows):
            if row.key == key:
                self._move_to(index, by_hand)
                return

    def action_move(self, by: int) -> None:
        """Move the cursor by some rows."""
        self._move_to(self._index + by)

    def action_move_to(self, index: int) -> None:
        """Move the cursor to the first (0) or last (-1) row."""
        self._move_to(index if index >= 0 else len(self._rows) + index)

    def action_page(self, by: int) -> None:
        """Move the cursor by whole pages."""
        self._move_to(self._index + by * max(self.size.height - 1, 1))

    def action_choose(self) -> None:
        """Tell the screen that the row was chosen."""
        if self._rows:
            self.post_message(self.Chosen(self))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """In a prompt the key of the filter is a letter."""
        return not (action == "find" and self.screen.query(Prompt))

    async def action_find(self) -> None:
        """Type words; only rows that have all of them are listed. A screen may have a filter of its own."""
        await ask(self.screen, Prompt("filter", self._needle, self._on_answer, self._narrow_rows))

    def action_unfind(self) -> None:
        """List every row again; without a filter, escape is for others."""
        if not self._needle:
            raise SkipAction
        self._narrow_rows("")

    def _on_answer(self, answer: str | None) -> None:
        if answer is None:
            self._narrow_rows("")
        self.focus()

    def _narrow_rows(self, text: str) -> None:
        key = self.key
        self._needle = text.lower()
        self.show(self._all)
        if all(row.key != key for row in self._rows):  # what it was on does not fit: to the best that does
            self._move_to(0, by_hand=False)

    def _has_needle(self, row: Row) -> bool:
        parts = "".join(text for text, _ in row.parts)
        content = f"{row.word} {row.name} {row.text} {parts}".lower()
        return all(word in content for word in self._needle.split())

    def get_selection(self, selection: Selection) -> tuple[str, str]:
        """The rows, or the part of one, that were selected with the mouse."""
        lines = ("".join(text for text, _ in self._row_parts(index)) for index in range(len(self._rows)))
        return selection.extract("\n".join(line.rstrip() for line in lines)), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        """Show what is selected."""
        self.refresh()

    def on_click(self, event: events.Click) -> None:
        """Put the cursor on the row under the pointer."""
        self._move_to(event.y + self.scroll_offset.y)

    def on_resize(self) -> None:
        """The cursor may have fallen out of view."""
        self._keep_in_view()

    def watch_has_focus(self, _has_focus: bool) -> None:
        """The cursor looks different without focus."""
        super().watch_has_focus(_has_focus)
        self.refresh_line(self._index)

    def render_line(self, y: int) -> Strip:
        """One row, or an empty line below the last."""
        index = y + self.scroll_offset.y
        return scrolled(self._row_parts(index) if index < len(self._rows) else (), self, y, self._glyphs)

    def _row_parts(self, index: int) -> tuple[Part, ...]:
        row, (word, name, end) = self._rows[index], self._column_widths
        name = min(name, max(self.room * 2 // 5, 10))
        here = index == self._index
        body = f"{row.body} bold" if here else row.body
        back = " reverse" if here and self.has_focus else ""
        if row.parts:
            # Not reversed as a whole: a sparkline would say the opposite.
            return (("> " if here else "  ", "bold"), (fit(row.word, word, ""), row.style + back), *row.parts)
        owner = f"  {row.owner:<{self._owner}}" if self._owner else ""
        if not row.name:
            return (
                ("> " if here else "  ", "bold"),
                (fit(row.word, word, self._glyphs.more), row.style + back),
                (owner, LABEL + back),
                ("  ", back),
                (fit_words(row.text, self._room_of(row), self._glyphs.more), body + back),
                (f" {row.end}" if row.end else "", f"dim {back}"),
            )
        room = self.room - word - len(owner) - bool(owner) - name - end - (6 if end else 5)
        return (
            ("> " if here else "  ", "bold"),
            (fit(row.word, word, self._glyphs.more), row.style + back),
            (owner, LABEL + back),
            ("  " if owner else " ", back if owner else ""),
            (fit(row.name, name, self._glyphs.more), body + back),
            ("  ", back),
            (fit_words(row.text, room, self._glyphs.more), body + back),
            (f" {row.end:>{end}}" if end else "", f"dim {back}"),
        )

    def _room_of(self, row: Row) -> int:
        """Cells for the text of a row that has no name."""
        owner = self._owner + 2 if self._owner else 0
        return self.room - self._column_widths[0] - owner - 4 - (len(row.end) + 1 if row.end else 0)

    def _move_to(self, index: int, by_hand: bool = True) -> None:
        if not self._rows:
            return
        before, self._index = self._index, max(0, min(index, len(self._rows) - 1))
        if before != self._index:
            self.refresh_line(before)
            self.refresh_line(self._index)
            self.post_message(self.Moved(self, by_hand))
        self._keep_in_view()

    def _keep_in_view(self) -> None:
        top, height = self.scroll_offset.y, self.size.height
        if self._index < top:
            self.scroll_to(y=self._index, animate=False, immediate=True)
        elif height and self._index >= top + height:
            self.scroll_to(y=self._index - height + 1, animate=False, immediate=True)

    def _place_of(self, key: str | None, above: Sequence[Row]) -> int:
        """Where a row is now; when it is gone, the place below the row that was above it."""
        places = {row.key: index for index, row in enumerate(self._rows)}
        if key in places:
            return places[key]
        last = next((places[row.key] for row in reversed(above) if row.key in places), -1)
        return max(0, min(last + 1, len(self._rows) - 1))

    def _refresh_changed(self, before: tuple[Row, ...], at: int) -> None:
        for index, (old, new) in enumerate(zip(before, self._rows, strict=True)):
            if at != self._index and index in (at, self._index):
                self.refresh_line(index)
            elif old != new:
                self._refresh_row(index, old, new)

    def _refresh_row(self, index: int, old: Row, new: Row) -> None:
        """Draw a row; of one whose figure alone has changed, that."""
        if replace(old, end=new.end) != new:
            self.refresh_line(index)
            return
        x = self.room - self._column_widths[2]
        self.refresh(Region(x, index - self.scroll_offset.y, self._column_widths[2], 1))


def _column_widths(rows: Sequence[Row]) -> tuple[int, int, int]:
    """Cells that the words, the names and the figures at the end would like to have."""
    word = max((cell_len(row.word) for row in rows), default=4)
    name = max((cell_len(row.name) for row in rows), default=8)
    end = max((cell_len(row.end) for row in rows), default=0)
    return min(word, 16), name, min(end, 12)
