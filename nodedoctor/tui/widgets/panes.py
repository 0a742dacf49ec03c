"""A list and the text about its selected row: beside each other, below each other, or one of them alone."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.actions import SkipAction
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.message import Message
from textual.screen import Screen

from nodedoctor.tui.theme import Glyphs
from nodedoctor.tui.widgets.hints import Hints
from nodedoctor.tui.widgets.lines import Lines
from nodedoctor.tui.widgets.listing import Listing
from nodedoctor.tui.widgets.page import Page
from nodedoctor.tui.widgets.tabs import Tabs


class Panes(Container):
    """Enter reads the row on the whole screen, escape comes back, z gives the focused pane the screen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("z", "zoom", "Enlarge this pane", id="zoom"),
        Binding("escape", "back", "Back", id="back", show=False),
    ]

    class Zoomed(Message):
        """Another pane has the screen: `pane` is list, page or neither."""

        def __init__(self, pane: str) -> None:
            super().__init__()
            self.pane = pane

    def __init__(self, glyphs: Glyphs, *, reads: bool = True, stacked: bool = False) -> None:
        super().__init__(classes="-stacked" if stacked else None)
        self._reads = reads  # whether enter reads the row; else it is for the screen
        self.listing = Listing(glyphs, id="list")
        self.page = Page(glyphs, id="page")
        self.zoomed = ""

    def compose(self) -> ComposeResult:
        """The two panes."""
        yield self.listing
        yield self.page

    def on_listing_chosen(self) -> None:
        """Read it on the whole screen."""
        if self._reads:
            self.zoom("page")

    def action_zoom(self) -> None:
        """Give the focused pane the whole screen, or take it back."""
        self.zoom("" if self.zoomed else ("page" if self.page.has_focus else "list"))

    def action_back(self) -> None:
        """Out of the zoom; without one, escape is for the screen."""
        if not self.zoomed:
            raise SkipAction
        self.zoom("")

    def zoom(self, pane: str) -> None:
        """Show one pane alone, or both."""
        self.zoomed = pane
        self.set_class(pane == "list", "-zoom-list")
        self.set_class(pane == "page", "-zoom-page")
        # At once: a deferred focus would take the cursor out of a prompt that opens next.
        self.screen.set_focus(self.page if pane == "page" else self.listing)
        self.post_message(self.Zoomed(pane))


class PanesScreen(Screen[None]):
    """Tabs, a head, a list with the text about its row, and keys; with `title` the head is one line."""

    def __init__(
        self, mode: str, panes: Panes, hints: Sequence[tuple[str, str]], *, title: bool = False
    ) -> None:
        super().__init__()
        self.panes = panes
        self._mode, self._first_hints, self._titled = mode, hints, title

    def compose(self) -> ComposeResult:
        """Tabs, head, list and page, keys."""
        yield Tabs(self._mode)
        yield Lines(classes="title") if self._titled else Lines(id="head")
        yield self.panes
        yield Hints(self._first_hints)
