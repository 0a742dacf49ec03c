"""Every question that was put to the node: the command, how it went, and all it printed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import ClassVar

from textual.app import ComposeResult
from textual.screen import Screen

from nodedoctor.model import Outcome
from nodedoctor.report.document import Probe
from nodedoctor.report.inert import inert, inert_lines
from nodedoctor.tui.lines.detail import LONGEST, probe_line
from nodedoctor.tui.look import LABEL, QUIET, RUN, Glyphs, Para, Row
from nodedoctor.tui.state import Engine, State
from nodedoctor.tui.widgets.hints import Hints
from nodedoctor.tui.widgets.lines import Lines
from nodedoctor.tui.widgets.panes import Panes

MOST_LINES = 3000
"""Lines of output shown; the snapshot has them all."""

STYLE = {
    Outcome.OK: "green",
    Outcome.MISSING: "",
    Outcome.SKIPPED: QUIET,
    Outcome.DENIED: "bold magenta",
    Outcome.TIMEOUT: "bold red",
    Outcome.STUCK: "bold red",
    Outcome.CRASH: "bold red",
}
_ORDER = (Outcome.STUCK, Outcome.TIMEOUT, Outcome.CRASH, Outcome.DENIED, Outcome.OK)


class ProbesScreen(Screen[None]):
    """A list of probes, and what the selected one said."""

    HINTS: ClassVar[tuple[tuple[str, str], ...]] = (("enter", "Read"), ("z", "Zoom"), ("1", "Checks"))

    def __init__(self, engine: Engine, glyphs: Glyphs) -> None:
        super().__init__()
        self._engine = engine
        self._state: State | None = None
        self.panes = Panes(glyphs)

    def compose(self) -> ComposeResult:
        """Title, list, output, keys."""
        yield Lines(classes="title")
        yield self.panes
        yield Hints(self.HINTS)

    def on_mount(self) -> None:
        """Follow the app's state."""
        self.watch(self.app, "state", self.show)

    def show(self, state: State | None) -> None:
        """Show a new state."""
        self._state = state
        if state is not None:
            self.query_one(Lines).show([tuple(_title(state))])
            self.panes.listing.show(list(_rows(state)))
            self.on_listing_moved()

    def select(self, probe: str, line: str) -> None:
        """Read what a probe printed, at the line that has this text; words of ours are not in it."""
        self.panes.listing.select(probe)
        self.on_listing_moved()
        self.panes.zoom("page")
        self.call_after_refresh(self._find, inert(line))

    def _find(self, line: str) -> None:
        for text in (line, line.partition(": ")[2], line[:40]):
            if text and self.panes.page.find(text):
                return

    def on_listing_moved(self) -> None:
        """Show what the selected probe said."""
        name, state = self.panes.listing.key, self._state
        if name is None or state is None:
            self.panes.page.show("", [Para("nothing to show; esc lists everything")])
        elif name in state.asking:
            self.panes.page.show(name, [Para(f"{name} has been running for {state.asking[name]:.0f} s")])
        else:
            seen = next(seen for seen in state.report["probes"] if seen["name"] == name)
            about = self._engine.about.probes.get(name, "")
            self.panes.page.show(name, list(_told(seen, about, _printed(state, name))))


def _title(state: State) -> Iterator[tuple[str, str]]:
    seen = state.report["probes"]
    yield "probes", LABEL
    yield f"   {len(seen)} answered or given up", ""
    for outcome in _ORDER[:-1]:
        count = sum(one["outcome"] == outcome.value for one in seen)
        if count:
            yield f"  {count} {outcome.value}", STYLE[outcome]
    if state.asking:
        yield f"  {len(state.asking)} running", RUN


def _rows(state: State) -> Iterator[Row]:
    for name, seconds in sorted(state.asking.items()):
        yield Row(name, "running", RUN, name, "", f"{seconds:.0f} s")
    for seen in sorted(state.report["probes"], key=_urgency):
        name, outcome, note = seen["name"], Outcome(seen["outcome"]), seen["note"] or ""
        if name not in state.asking:
            text = inert(shlex.join(seen["argv"]) if outcome is Outcome.OK else note.partition("\n")[0])
            text = text or _kind(_printed(state, name))
            rc = f"rc {seen['rc']}  " if seen["rc"] else ""
            yield Row(name, outcome.value, STYLE[outcome], name, rc + text, _end(seen))


def _urgency(seen: Probe) -> tuple[int, str]:
    outcome = Outcome(seen["outcome"])
    place = _ORDER.index(outcome) if outcome in _ORDER else len(_ORDER)
    return place, seen["name"]


def _printed(state: State, name: str) -> str:
    """All that a probe printed, where it is known: a saved report does not hold it."""
    return state.answers[name].text if name in state.answers else ""


def _kind(printed: str) -> str:
    return f"{printed.count(chr(10))} lines" if printed else ""


def _end(seen: Probe) -> str:
    return f"{seen['seconds']:.1f} s" if seen["seconds"] else ""


def _told(seen: Probe, about: str, printed: str) -> Iterator[Para]:
    yield Para(probe_line(seen), f"{seen['name']}  ", STYLE[Outcome(seen["outcome"])])
    if about:
        yield Para(about)
    if seen["argv"]:
        yield Para(inert(shlex.join(seen["argv"])), "$ ", "bold cyan", "cyan", verbatim=True)
    for line in inert_lines(seen["note"] or ""):
        yield Para(line, "note  ")
    yield Para()
    lines = printed.split("\n") if printed else []
    if seen["truncated"]:
        yield Para("the beginning was not kept", style=QUIET)
    for line in lines[:MOST_LINES]:
        yield Para(inert(line.rstrip("\r"))[:LONGEST], verbatim=True)
    if len(lines) > MOST_LINES:
        yield Para(f"... {len(lines) - MOST_LINES} more lines; a snapshot (key s) has them all", style=QUIET)
