"""Why a job died: the verdict, who, the evidence with the log around it, what it is not, what to do."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, ClassVar

from textual import work
from textual.binding import Binding, BindingType

from nodedoctor.cli.compare import CompareError
from nodedoctor.report.inert import inert
from nodedoctor.report.job_page import job_page
from nodedoctor.tui.lines import diagnosis, empty_state
from nodedoctor.tui.messages import Mark
from nodedoctor.tui.process import reading
from nodedoctor.tui.screens.steps import StepsScreen
from nodedoctor.tui.theme import LABEL, QUIET, Glyphs, Para
from nodedoctor.tui.widgets.hints import Hints
from nodedoctor.tui.widgets.lines import Lines
from nodedoctor.tui.widgets.panes import Panes, PanesScreen

DECIDED = ("failure", "recovered")
"""Outcomes that more lines do not change; otherwise the job may still run."""
EVERY_S = 15
"""Seconds between two readings of logs that are still written."""
AROUND = 8
"""Lines of a log shown before and after a line of evidence."""


class TriageScreen(PanesScreen):
    """A list of what is known, and everything about the selected thing."""

    BINDINGS: ClassVar[list[BindingType]] = [
        # With priority the next key waits for the prompt: a path is typed at once.
        Binding(
            "o",
            "app.open_logs",
            "Open logs",
            id="open-logs",
            tooltip="a log, a dump or a folder of them",
            priority=True,
        ),
        Binding("r", "reread", "Read the logs again", id="rerun", tooltip="a running job goes on writing"),
        Binding("c,y", "copy", "Copy the command", id="copy-fix"),
    ]
    EMPTY: ClassVar[tuple[tuple[str, str], ...]] = (("o", "Open logs"), ("1", "Checks"), (":", "Commands"))
    HINTS: ClassVar[tuple[tuple[str, str], ...]] = (
        ("c", "Steps"),
        ("enter", "Read"),
        ("/", "Filter"),
        ("o", "Open logs"),
        ("r", "Read again"),
    )

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__("triage", Panes(glyphs, stacked=True), self.EMPTY)
        self._glyphs = glyphs
        self._items: dict[str, diagnosis.Item] = {}
        self._around: dict[str, tuple[Para, ...]] = {}
        self._document: Mapping[str, Any] | None = None
        self._again: tuple[str, ...] = ()
        self._read_at = ""

    def on_mount(self) -> None:
        """Nothing is open yet."""
        if not self._items:
            self.query_one("#head", Lines).show([(("triage", LABEL), ("   nothing is open", QUIET))])
            self.panes.page.show("", empty_state.page("triage"))

    def open(self, document: Mapping[str, Any], again: Sequence[str] = ()) -> None:
        """Show a `nodedoctor.triage/1` document; `again` are the words that made it, to read once more."""
        self._document, self._again = document, tuple(again)
        self._around, self._read_at = {}, ""
        self._draw_items()
        self.panes.listing.action_move_to(0)
        if self._again and document.get("outcome") not in DECIDED:
            self._read_at = f"   read again every {EVERY_S} s"
            self._draw_items()
            self._follow_job()

    def on_resize(self) -> None:
        """The timeline is as wide as the page."""
        self.call_after_refresh(self._draw_items)

    def _draw_items(self) -> None:
        if self._document is None:
            return
        page = job_page(self._document)
        items = diagnosis.items(self._document, page, self.size.width - 1, self._glyphs)
        self._items = {item.row.key: item for item in items}
        first, second = diagnosis.head(self._document, page)
        self.query_one("#head", Lines).show([(*first, (self._read_at, QUIET)), second])
        self.post_message(Mark("triage", page.status.word))
        self.query_one(Hints).show(self._key_hints())
        self.panes.listing.show([item.row for item in items])
        self.on_listing_moved()

    def _key_hints(self) -> list[tuple[str, str]]:
        """The keys that do something here."""
        steps = any(item.steps for item in self._items.values())
        useless = {*(() if steps else ("c",)), *(() if self._again else ("r",))}
        return [(key, word) for key, word in self.HINTS if key not in useless]

    def action_reread(self) -> None:
        """Read the same logs once more."""
        if self._again:
            self._reread_job()
        else:
            self.notify("o opens logs; only what was read from files can be read again", markup=False)

    @work(group="reread", exclusive=True)
    async def _reread_job(self) -> None:
        await self._read_again()

    @work(group="reread", exclusive=True)
    async def _follow_job(self) -> None:
        """While nothing has failed the job may still run: read again and again what it writes."""
        while self._document is not None and self._document.get("outcome") not in DECIDED:
            await asyncio.sleep(EVERY_S)
            await self._read_again()

    async def _read_again(self) -> None:
        try:
            self._document = await reading.triage_again(self._again)
        except CompareError as error:
            self._read_at = f"   not read again: {inert(str(error))}"
        else:
            often = "" if self._document.get("outcome") in DECIDED else f", again every {EVERY_S} s"
            self._read_at = f"   read {datetime.now():%H:%M:%S}{often}"
        self._around = {}
        self._draw_items()

    def on_listing_moved(self) -> None:
        """Show everything about what the cursor is on."""
        key = self.panes.listing.key or ""
        item = self._items.get(key)
        if item is None:
            return
        self.panes.page.show(key, (*item.paras, *self._around.get(key, ())))
        if item.line is not None and key not in self._around:
            self._read_around(key, item.source, item.line)

    def action_copy(self) -> None:
        """Show the steps of the selected fix or measurement, to copy one."""
        item = self._items.get(self.panes.listing.key or "")
        if item is None or not item.steps:
            which = [word for word in ("fix", "next") if any(self._has_steps(word))]
            where = f"the first row and {' and '.join(which)} have them" if which else "this job has none"
            self.notify(f"no command to copy here; {where}", markup=False)
            return
        behind = diagnosis.behind(job_page(self._document or {}))
        self.app.push_screen(StepsScreen(item.row.text or item.row.name, item.steps, self._glyphs, behind))

    def _has_steps(self, word: str) -> Iterator[bool]:
        return (bool(item.steps) for item in self._items.values() if item.row.word == word)

    @work(group="around", exclusive=True)
    async def _read_around(self, key: str, source: str, line: int) -> None:
        """The log around a line, read by a child: logs lie on file systems that hang."""
        self._around[key] = ()
        lines = await reading.lines(source, max(line - AROUND, 1), line + AROUND)
        paras = [Para(), *(_numbered_para(number, text, number == line) for number, text in lines)]
        self._around[key] = tuple(paras) if lines else ()
        self.on_listing_moved()


def _numbered_para(number: int, text: str, here: bool) -> Para:
    return Para(text, f"{number:>7} ", "" if here else QUIET, LABEL if here else QUIET, verbatim=True)
