"""Nodes measured in pairs: what is wrong between them, the slowest nodes first, and all pairs of one node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from nodedoctor.tui.lines import pairs
from nodedoctor.tui.theme import Glyphs
from nodedoctor.tui.widgets.hints import Hints
from nodedoctor.tui.widgets.lines import Lines
from nodedoctor.tui.widgets.panes import Panes


class PairsScreen(Screen[None]):
    """A list of findings and nodes, and everything about the selected one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("c,y", "copy", "Copy the name", id="copy-fix"),
    ]
    HINTS: ClassVar[tuple[tuple[str, str], ...]] = (("enter", "Read"), ("/", "Filter"), ("c", "Copy name"))

    def __init__(self, glyphs: Glyphs, document: Mapping[str, Any]) -> None:
        super().__init__()
        self._document = document
        self.panes = Panes(glyphs, stacked=True)

    def compose(self) -> ComposeResult:
        """Head, list, page, keys."""
        yield Lines(id="head")
        yield self.panes
        yield Hints(self.HINTS)

    def on_mount(self) -> None:
        """Fill the list; what was measured does not change any more."""
        self.query_one("#head", Lines).show(pairs.head(self._document))
        self.panes.listing.show(pairs.rows(self._document))
        self.on_listing_moved()

    def on_listing_moved(self) -> None:
        """Show what the cursor is on."""
        key = self.panes.listing.key or ""
        self.panes.page.show(key, pairs.page(self._document, key))

    def action_copy(self) -> None:
        """Copy the name of the node, path or group."""
        if name := pairs.name_of(self.panes.listing.key or ""):
            self.app.copy_to_clipboard(name)
