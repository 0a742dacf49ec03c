"""Why a job died: the verdict, who, the evidence with the log around it, what it is not, what to do."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from textual import work
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from nodedoctor.tui.lines import diagnosis
from nodedoctor.tui.look import LABEL, QUIET, Glyphs, Para
from nodedoctor.tui.messages import AskTriage
from nodedoctor.tui.process import reading
from nodedoctor.tui.screens.steps import StepsScreen
from nodedoctor.tui.widgets.hints import Hints
from nodedoctor.tui.widgets.lines import Lines
from nodedoctor.tui.widgets.panes import Panes

AROUND = 8
"""Lines of a log shown before and after a line of evidence."""


class TriageScreen(Screen[None]):
    """A list of what is known, and everything about the selected thing."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("o", "another", "Open logs", id="open-logs", tooltip="a log, a dump or a folder of them"),
        Binding("c", "copy", "Copy the command", id="copy-fix"),
    ]
    HINTS: ClassVar[tuple[tuple[str, str], ...]] = (
        ("c", "Steps"),
        ("enter", "Read"),
        ("/", "Filter"),
        ("o", "Open logs"),
        ("1", "Checks"),
    )

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__()
        self._glyphs = glyphs
        self._entries: dict[str, diagnosis.Entry] = {}
        self._around: dict[str, tuple[Para, ...]] = {}
        self.panes = Panes(glyphs, stacked=True)

    def compose(self) -> ComposeResult:
        """Head, list, page, keys."""
        yield Lines(id="head")
        yield self.panes
        yield Hints(self.HINTS)

    def on_mount(self) -> None:
        """Nothing is open yet."""
        if not self._entries:
            hint = "   why a job died: press o and name a log, a dump, or a folder of them"
            self.query_one("#head", Lines).show([(("triage", LABEL), (hint, ""))])

    def open(self, document: Mapping[str, Any]) -> None:
        """Show a `nodedoctor.triage/1` document."""
        self._entries = {entry.row.key: entry for entry in diagnosis.entries(document)}
        self._around = {}
        self.query_one("#head", Lines).show(diagnosis.head(document))
        self.panes.listing.show([entry.row for entry in self._entries.values()])
        self.on_listing_moved()

    def on_listing_moved(self) -> None:
        """Show everything about what the cursor is on."""
        key = self.panes.listing.key or ""
        entry = self._entries.get(key)
        if entry is None:
            return
        self.panes.page.show(key, (*entry.paras, *self._around.get(key, ())))
        if entry.line is not None and key not in self._around:
            self._read_around(key, entry.source, entry.line)

    def action_another(self) -> None:
        """Ask for other logs."""
        self.post_message(AskTriage())

    def action_copy(self) -> None:
        """Show the steps of the selected fix or measurement, to copy one."""
        entry = self._entries.get(self.panes.listing.key or "")
        if entry is None or not entry.steps:
            self.notify("no command to copy here; the first row, fix and next have them", markup=False)
            return
        self.app.push_screen(StepsScreen(entry.row.text or entry.row.name, entry.steps, self._glyphs))

    @work(group="around", exclusive=True)
    async def _read_around(self, key: str, source: str, line: int) -> None:
        """The log around a line, read by a child: logs lie on file systems that hang."""
        self._around[key] = ()
        lines = await reading.lines(source, max(line - AROUND, 1), line + AROUND)
        paras = [Para(), *(_numbered(number, text, number == line) for number, text in lines)]
        self._around[key] = tuple(paras) if lines else ()
        self.on_listing_moved()


def _numbered(number: int, text: str, here: bool) -> Para:
    return Para(text, f"{number:>7} ", "" if here else QUIET, LABEL if here else QUIET, verbatim=True)
