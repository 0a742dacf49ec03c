"""Many nodes: their causes with the nodes below, nodes by subject as a matrix, and one node's report."""

from __future__ import annotations

from typing import ClassVar

from textual.binding import Binding, BindingType

from nodedoctor.fleet.model import Node
from nodedoctor.tui.lines import empty_state, matrix, node_pages, nodes
from nodedoctor.tui.messages import Mark, OpenNode
from nodedoctor.tui.theme import LABEL, QUIET, Glyphs, Para, height
from nodedoctor.tui.widgets.hints import Hints
from nodedoctor.tui.widgets.lines import Lines
from nodedoctor.tui.widgets.listing import Listing
from nodedoctor.tui.widgets.panes import Panes, PanesScreen
from nodedoctor.tui.widgets.prompt import Prompt, ask


class FleetScreen(PanesScreen):
    """A list or a matrix of nodes, and everything about the selected one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("m", "matrix", "List or matrix", id="fleet-matrix", tooltip="nodes by subject"),
        Binding("slash", "filter", "Filter", id="filter", tooltip="words, !word, is:fail", priority=True),
        Binding("p", "passes", "Fold or list nodes that are well", id="passes"),
        Binding("n", "problem(1)", "Next problem", id="next-problem"),
        Binding("N", "problem(-1)", "Previous problem", id="previous-problem"),
        Binding("c,y", "copy", "Copy the names of these nodes", id="copy-fix"),
        Binding("escape", "clear", "Clear the filter", id="clear"),
    ]
    HINTS: ClassVar[tuple[tuple[str, str], ...]] = (
        ("enter", "Open report"),
        ("m", "Matrix"),
        ("/", "Filter"),
        ("p", "All nodes"),
        ("c", "Copy names"),
        ("n", "Next problem"),
    )
    EMPTY: ClassVar[tuple[tuple[str, str], ...]] = (("1", "Checks"), (":", "Commands"))
    MATRIX_HINTS: ClassVar[tuple[tuple[str, str], ...]] = (
        ("enter", "Open report"),
        ("m", "List"),
        ("c", "Copy names"),
        ("n", "Next problem"),
    )

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__("fleet", Panes(glyphs, reads=False, stacked=True), self.EMPTY)
        self._glyphs = glyphs
        self._round: nodes.Round | None = None
        self._entries: dict[str, nodes.Entry] = {}
        self._folded = True
        self._open: frozenset[str] = frozenset()
        self._matrix = False
        self._needle = ""
        self._by_hand = False

    def on_mount(self) -> None:
        """Follow the nodes as they answer."""
        self.query_one("#head", Lines).show([(("fleet", LABEL), ("   no nodes were asked", QUIET))])
        self.panes.page.show("", empty_state.page("fleet"))
        self.watch(self.app, "round", self.show)

    def on_resize(self) -> None:
        """The matrix depends on the width."""
        self.call_after_refresh(self.show, self._round)

    def show(self, now: nodes.Round | None) -> None:
        """Show the nodes that have answered. Until a person selects a row it is the worst."""
        self._round = now
        if now is None:
            return
        self.query_one(Hints).show(self.MATRIX_HINTS if self._matrix else self.HINTS)
        first, second = nodes.head(now)
        bad = sum(node.severity.is_problem for node in now.fleet.nodes)
        self.post_message(Mark("fleet", now.fleet.verdict.word if bad else "", f"({bad})"))
        listing = self.panes.listing
        if self._matrix:
            listing.show(matrix.rows(now.fleet, listing.room, self._glyphs))
            second = matrix.heading(now.fleet, listing.room)
        else:
            entries = nodes.entries(
                now.fleet,
                folded=self._folded,
                glyphs=self._glyphs,
                opened=self._open,
                needle=self._needle.lower(),
            )
            self._entries = {entry.key: entry for entry in entries}
            listing.show(nodes.rows(entries, listing.room, self._glyphs))
            second = (*second, (f"   [/{self._needle}]", LABEL)) if self._needle else second
        self.query_one("#head", Lines).show([first, second])
        if not self._by_hand and listing.rows:
            listing.select(listing.rows[0].key, by_hand=False)
        self.on_listing_moved()

    def on_listing_moved(self, event: Listing.Moved | None = None) -> None:
        """Show everything about what the cursor is on."""
        self._by_hand = self._by_hand or (event is not None and event.by_hand)
        if self._round is None:
            return
        key, fleet = self.panes.listing.key or "", self._round.fleet
        if self._matrix:
            about = matrix.about(fleet, key)
            self.panes.page.show(key, [Para(self._line_hosts(), style=LABEL, verbatim=True), *about])
        else:
            entry = self._entries.get(key)
            self.panes.page.show(key, self._with_matrix(node_pages.page(fleet, entry)))

    def on_page_resized(self) -> None:
        """The matrix is below the text while there is room for both."""
        self.on_listing_moved()

    def on_listing_chosen(self) -> None:
        """Open the node's report, or the nodes of a cause; anything else is read on the whole screen."""
        key = self.panes.listing.key or ""
        entry = None if self._matrix else self._entries.get(key)
        if entry is not None and entry.unfolds and self._folded and not self._needle:
            self._by_hand = True
            self._open ^= {key}
            self.show(self._round)
            return
        node = self._selected_node()
        if node is not None and node.report:
            self.post_message(OpenNode(node.host, node.report))
        else:
            self.panes.zoom("page")

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A slash typed into the prompt is a letter."""
        return not (action == "filter" and self.query(Prompt))

    def action_matrix(self) -> None:
        """Node by check, or the list again."""
        if self._is_empty():
            return
        self._set_matrix(not self._matrix)
        self.call_after_refresh(self.show, self._round)

    def action_passes(self) -> None:
        """One line for all nodes that are well, or one each."""
        if self._is_empty():
            return
        self._set_matrix(False)
        self._folded = not self._folded
        self.show(self._round)

    def action_problem(self, step: int) -> None:
        """Go to the next or previous line that is not well, round and round."""
        if self._is_empty():
            return
        listing = self.panes.listing
        keys = [row.key for row in listing.rows]
        bad = [at for at, row in enumerate(listing.rows) if row.word[:4] not in ("PASS", "SKIP")]
        if not bad:
            self.notify("every node is well", markup=False)
            return
        here = keys.index(listing.key) if listing.key in keys else 0
        further = [at for at in bad if (at > here if step > 0 else at < here)]
        listing.select(keys[(further or bad)[0 if step > 0 else -1]])

    def action_copy(self) -> None:
        """Copy the names of the nodes of the selected line, as a node set."""
        if not self._is_empty() and self._round is not None and self.panes.listing.key:
            entry = self._entries.get(self.panes.listing.key)
            self.app.copy_to_clipboard(self._line_hosts() if self._matrix else entry.hosts if entry else "")

    async def action_filter(self) -> None:
        """Type words; the list follows every letter, escape takes it back."""
        self._set_matrix(False)
        await ask(self, Prompt("filter", self._needle, self._end_filter, self._narrow_list))

    def action_clear(self) -> None:
        """Show every node again, those with the same cause in one line."""
        entry = self._entries.get(self.panes.listing.key or "")
        self._open = frozenset()
        self._narrow_list("")
        if entry is not None and entry.parent:
            self.panes.listing.select(entry.parent)

    def _selected_node(self) -> Node | None:
        """The node of the selected line; in the matrix the first of those that share it."""
        key = self.panes.listing.key or ""
        if self._round is None:
            return None
        if self._matrix:
            return matrix.find(self._round.fleet, key)
        entry = self._entries.get(key)
        return entry.nodes[0] if entry is not None and len(entry.nodes) == 1 else None

    def _is_empty(self) -> bool:
        """Whether there are no nodes, which is then said."""
        if self._round is None:
            self.notify("no nodes were asked", markup=False)
        return self._round is None

    def _with_matrix(self, paras: list[Para]) -> list[Para]:
        """A page, and below it the matrix of all nodes where all of that is in view."""
        room = self.panes.page.room
        if room is None or self._round is None:
            return paras
        page = [*paras, *matrix.draw_matrix(self._round.fleet, room.width, self._glyphs)]
        return page if height(page, room.width) <= room.height else paras

    def _set_matrix(self, matrix: bool) -> None:
        self._by_hand = self._by_hand and matrix is self._matrix
        self._matrix = matrix

    def _line_hosts(self) -> str:
        """The nodes of the selected line of the matrix."""
        key = self.panes.listing.key
        return next((row.name for row in self.panes.listing.rows if row.key == key), "")

    def _narrow_list(self, text: str) -> None:
        if text != self._needle:
            self._by_hand = False
        self._needle = text
        self.show(self._round)

    def _end_filter(self, answer: str | None) -> None:
        if answer is None:
            self._narrow_list("")
        self.panes.listing.focus()
