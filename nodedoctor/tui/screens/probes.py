"""Every question that was put to the node: the command, how it went, and all it printed."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from typing import ClassVar

from textual.binding import Binding, BindingType

from nodedoctor.model import Observation, Outcome
from nodedoctor.report.document import Evidence, Probe
from nodedoctor.report.inert import inert, inert_lines
from nodedoctor.tui.lines.detail import LONGEST, probe_line
from nodedoctor.tui.lines.output import Output, output
from nodedoctor.tui.state import Engine, State
from nodedoctor.tui.theme import LABEL, MARKED, QUIET, RUN, Glyphs, Para, Row
from nodedoctor.tui.widgets.hints import Hints
from nodedoctor.tui.widgets.lines import Lines
from nodedoctor.tui.widgets.panes import Panes, PanesScreen

MOST_LINES = 6000
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


class ProbesScreen(PanesScreen):
    """A list of probes, and what the selected one said."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("n", "evidence(1)", "Go to the next evidence", id="next-problem"),
        Binding("N", "evidence(-1)", "Go to the previous evidence", id="previous-problem"),
    ]
    HINTS: ClassVar[tuple[tuple[str, str], ...]] = (("enter", "Read"), ("/", "Find"), ("z", "Zoom"))
    READING: ClassVar[tuple[tuple[str, str], ...]] = (
        ("esc", "Back to the cause"),
        ("n", "Go to the next evidence"),
        ("/", "Find"),
    )

    def __init__(self, engine: Engine, glyphs: Glyphs) -> None:
        super().__init__("probes", Panes(glyphs, stacked=True), self.HINTS, title=True)
        self._engine = engine
        self._state: State | None = None
        self._evidence: tuple[Evidence, ...] = ()
        self._read: tuple[Observation, Output] | None = None

    def on_mount(self) -> None:
        """Follow the app's state."""
        self.watch(self.app, "state", self.show)

    def show(self, state: State | None) -> None:
        """Show a new state."""
        self._state = state
        if state is not None:
            self._show_title(state)
            self.panes.listing.show(list(_rows(state)))
            self.on_listing_moved()

    def _show_title(self, state: State) -> None:
        """How many answered; where one is read on the whole screen, which."""
        read = inert(self.panes.listing.key or "") if self.panes.zoomed == "page" else ""
        self.query_one(Lines).show(
            [(("probes", LABEL), *((f"   {read}", LABEL),) * bool(read), *_title_parts(state))]
        )

    def select(self, evidence: Sequence[Evidence]) -> None:
        """Read what the probe of some evidence printed, at the line of the evidence; escape goes back."""
        probe = evidence[0]["probe"]
        self._evidence = tuple(entry for entry in evidence if entry["probe"] == probe)
        self.panes.listing.select(probe)
        self.on_listing_moved()
        self.panes.zoom("page")
        self.query_one(Hints).show(self.READING)
        self.call_after_refresh(self.panes.page.reveal)

    def action_evidence(self, step: int) -> None:
        """Go to the next or previous line of the evidence that is read."""
        if not self._evidence:
            self.notify("e on a cause opens its evidence here", markup=False)
        self.panes.page.reveal(step)

    def on_panes_zoomed(self, event: Panes.Zoomed) -> None:
        """Say what is read; back to the cause whose evidence was read."""
        if self._state is not None:
            self._show_title(self._state)
        if not event.pane and self._evidence:
            self._evidence = ()
            self.query_one(Hints).show(self.HINTS)
            self.on_listing_moved()
            self.app.switch_mode("checks")

    def _probe_output(self, observation: Observation) -> Output:
        """What a probe printed, as lines; kept while it is on the screen."""
        if self._read is None or self._read[0] is not observation:
            self._read = observation, output(observation)
        return self._read[1]

    def on_listing_moved(self) -> None:
        """Show what the selected probe said."""
        name, state = self.panes.listing.key, self._state
        if name is None or state is None:
            self.panes.page.show("", [Para("nothing to show; esc lists everything")])
        elif name in state.asking:
            self.panes.page.show(name, [Para(f"{name} has been running for {state.asking[name]:.0f} s")])
        else:
            probe = next(probe for probe in state.report["probes"] if probe["name"] == name)
            about = self._engine.about.probes.get(name, "")
            answer = self._probe_output(state.answers[name]) if name in state.answers else Output((), {})
            marked = answer.lines_of([entry for entry in self._evidence if entry["probe"] == name])
            self.panes.page.show(name, list(_told(probe, about, answer, marked)))


def _title_parts(state: State) -> Iterator[tuple[str, str]]:
    probes = state.report["probes"]
    yield f"   {len(probes)} run", ""
    for outcome in _ORDER[:-1]:
        count = sum(probe["outcome"] == outcome.value for probe in probes)
        if count:
            yield f"  {count} {outcome.value}", STYLE[outcome]
    if state.asking:
        yield f"  {len(state.asking)} running", RUN


def _rows(state: State) -> Iterator[Row]:
    for name, seconds in sorted(state.asking.items()):
        yield Row(name, "running", RUN, name, "", f"{seconds:.0f} s")
    for probe in sorted(state.report["probes"], key=_sort_key):
        name, outcome, note = probe["name"], Outcome(probe["outcome"]), probe["note"] or ""
        if name not in state.asking:
            text = inert(shlex.join(probe["argv"]) if outcome is Outcome.OK else note.partition("\n")[0])
            if not text and name in state.answers:  # a saved report does not hold what was printed
                printed = state.answers[name].text
                text = f"{printed.count(chr(10))} lines" if printed else ""
            rc = f"rc {probe['rc']}  " if probe["rc"] else ""
            end = f"{probe['seconds']:.1f} s" if probe["seconds"] else ""
            yield Row(name, outcome.value, STYLE[outcome], name, rc + text, end)


def _sort_key(probe: Probe) -> tuple[int, str]:
    outcome = Outcome(probe["outcome"])
    place = _ORDER.index(outcome) if outcome in _ORDER else len(_ORDER)
    return place, probe["name"]


def _told(probe: Probe, about: str, answer: Output, marked: Sequence[int]) -> Iterator[Para]:
    yield Para(probe_line(probe), f"{probe['name']}  ", STYLE[Outcome(probe["outcome"])])
    if about:
        yield Para(about)
    if probe["argv"]:
        yield Para(inert(shlex.join(probe["argv"])), "$ ", "bold cyan", "cyan", verbatim=True)
    for line in inert_lines(probe["note"] or ""):
        yield Para(line, "note  ")
    yield Para()
    lines = answer.lines
    if answer.document is not None:
        yield Para(f"{len(lines)} values of its JSON output, one a line", style=QUIET)
    if probe["truncated"]:
        yield Para("the beginning was not kept", style=QUIET)
    first = max(0, (marked[0] if marked else 0) - MOST_LINES // 2) if len(lines) > MOST_LINES else 0
    if first:
        yield Para(f"... {first} lines before", style=QUIET)
    for number, line in enumerate(lines[first : first + MOST_LINES], first):
        here = number in marked
        lead = "> " if here else "  " if marked else ""
        text = inert(line.rstrip("\r"))[:LONGEST]
        yield Para(
            text,
            lead,
            MARKED if here else "",
            MARKED,
            verbatim=True,
            here=marked.index(number) + 1 if here else 0,
        )
    if len(lines) > first + MOST_LINES:
        more = len(lines) - first - MOST_LINES
        yield Para(f"... {more} more lines; a snapshot (key s) has them all", style=QUIET)
