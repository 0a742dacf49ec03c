"""What was measured, of a node or between nodes: a list, the odd ones first, and a page about each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from nodedoctor.tui.lines import accept, pairs
from nodedoctor.tui.theme import Glyphs
from nodedoctor.tui.widgets.hints import Hints
from nodedoctor.tui.widgets.lines import Lines
from nodedoctor.tui.widgets.panes import Panes


class MeasuredScreen(Screen[None]):
    """A list of findings, nodes or rates, and everything about the selected one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c,y", "copy", "Copy the name", id="copy-fix"),
    ]
    HINTS: ClassVar[tuple[tuple[str, str], ...]] = (("enter", "Read"), ("/", "Filter"), ("c", "Copy name"))

    def __init__(self, glyphs: Glyphs, document: Mapping[str, Any]) -> None:
        super().__init__()
        self._document = document
        is_of_node = str(document.get("schema")).startswith("nodedoctor.accept/")
        self._lines = accept if is_of_node else pairs
        self.panes = Panes(glyphs, stacked=True)

    def compose(self) -> ComposeResult:
        """Head, list, page, keys."""
        yield Lines(id="head")
        yield self.panes
        yield Hints(self.HINTS)

    def on_mount(self) -> None:
        """Fill the list; what was measured does not change any more."""
        self.query_one("#head", Lines).show(self._lines.head(self._document))
        self.panes.listing.show(self._lines.rows(self._document))
        self.on_listing_moved()

    def on_listing_moved(self) -> None:
        """Show what the cursor is on."""
        key = self.panes.listing.key or ""
        self.panes.page.show(key, self._lines.page(self._document, key))

    def action_copy(self) -> None:
        """Copy the name of the node, path, group or rate."""
        if name := self._lines.name_of(self.panes.listing.key or ""):
            self.app.copy_to_clipboard(name)
