"""Home: every check as it comes in, problems first, and all there is to say about the selected one."""

from __future__ import annotations

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.screen import Screen

from nodedoctor.report.document import Result, severity_of
from nodedoctor.report.inert import inert
from nodedoctor.tui.filter import Filter
from nodedoctor.tui.lines import detail
from nodedoctor.tui.lines.ticket import markdown, steps
from nodedoctor.tui.look import LABEL, RUN, Glyphs, Para, Row
from nodedoctor.tui.screens.steps import StepsScreen
from nodedoctor.tui.state import Engine, State
from nodedoctor.tui.widgets.hints import Hints
from nodedoctor.tui.widgets.lines import Lines
from nodedoctor.tui.widgets.listing import Listing
from nodedoctor.tui.widgets.panes import Panes
from nodedoctor.tui.widgets.prompt import Prompt, ask

HINTS = (
    ("/", "Filter"),
    ("n", "Next problem"),
    ("r", "Re-run"),
    ("c", "Copy a step"),
    ("2", "Topology"),
    (":", "Commands"),
    ("s", "Save"),
    ("d", "Compare"),
    ("p", "Hide passes"),
)


FILTERS = "words, !word, tag:ib, is:fail"


class ChecksScreen(Screen[None]):
    """A list and a panel; both are made from the state alone."""

    BINDINGS: ClassVar[list[BindingType]] = [
        # With priority the next key waits for the prompt, so that `/fail` can be typed or pasted at once.
        Binding("slash", "filter", "Filter", id="filter", tooltip=FILTERS, priority=True),
        Binding("n", "problem(1)", "Next problem", id="next-problem"),
        Binding("N", "problem(-1)", "Previous problem", id="previous-problem"),
        Binding("p", "passes", "Hide or show passes", id="passes"),
        Binding("r", "rerun", "Re-run this check", id="rerun", tooltip="its probes are asked afresh"),
        Binding("c", "copy_fix", "Copy a step of the fix", id="copy-fix"),
        Binding("C", "copy_finding", "Copy finding as Markdown", id="copy-finding"),
        Binding("escape", "clear", "Clear the filter", id="clear"),
    ]

    def __init__(self, engine: Engine, glyphs: Glyphs) -> None:
        super().__init__()
        self._engine = engine
        self.panes = Panes(glyphs)
        self._filter = Filter()
        self._hide_passes = False
        self._by_hand = False
        self.state: State | None = None

    def compose(self) -> ComposeResult:
        """Head, list, panel, keys."""
        yield Lines(id="head")
        yield self.panes
        yield Hints(HINTS)

    def on_mount(self) -> None:
        """Follow the app's state; until there is one, say what is going on."""
        nothing = self._engine.about.nothing
        status = ((nothing, ""),) if nothing else (("RUN ", RUN), ("  loading checks", ""))
        self.query_one("#head", Lines).show([(("nodedoctor", LABEL),), status])
        self.watch(self.app, "state", self.show)

    def show(self, state: State | None) -> None:
        """Show a new state. A selection nobody made stays on the worst problem there is."""
        self.state = state
        if state is None:
            return
        self.query_one("#head", Lines).show(detail.head(state, self._narrowed()))
        self.query_one(Hints).show(((("7", "Fleet"),) if self._of_fleet() else ()) + HINTS)
        listing = self.panes.listing
        listing.show(self._rows(state))
        problems = self._problems()
        if not self._by_hand and problems and listing.key != problems[0]:
            listing.select(problems[0], by_hand=False)
        self._show_detail()

    def on_listing_moved(self, event: Listing.Moved) -> None:
        """Show what the cursor is on."""
        self._by_hand = self._by_hand or event.by_hand
        self._show_detail()

    def on_panes_zoomed(self) -> None:
        """On the whole screen there is more to read."""
        self._show_detail()

    def select(self, check: str) -> None:
        """Put the cursor on a check, whatever is filtered now."""
        if all(row.key != check for row in self.panes.listing.rows):
            self._hide_passes = False
            self.set_filter("")
        self.panes.listing.select(check)
        self.panes.zoom("")

    def set_filter(self, text: str) -> None:
        """Show only what fits."""
        self._filter = Filter(text)
        self.show(self.state)

    async def action_filter(self) -> None:
        """Type a filter; the list follows every letter, escape takes it back."""
        self.panes.zoom("")
        await ask(self, Prompt("filter", self._filter.text, self._filtered, self.set_filter))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A slash typed into the prompt is a letter."""
        return not (action == "filter" and self.query(Prompt))

    def action_problem(self, step: int) -> None:
        """Go to the next or previous thing that is not well, round and round."""
        problems, listing = self._problems(), self.panes.listing
        if not problems:
            self.notify("nothing here is wrong", markup=False)
            return
        keys = [row.key for row in listing.rows]
        here = keys.index(listing.key) if listing.key in keys else 0
        places = [keys.index(problem) for problem in problems]
        ahead = [at for at in places if (at > here if step > 0 else at < here)]
        nearest = (ahead or places)[0 if step > 0 else -1]
        listing.select(keys[nearest])

    def action_passes(self) -> None:
        """Hide what passed or does not apply, or show it again."""
        self._hide_passes = not self._hide_passes
        self.show(self.state)

    def action_rerun(self) -> None:
        """Ask the selected check again."""
        result = self._selected()
        if self._engine.about.nothing:
            self.notify("this was read from a file: there is nothing to ask again", markup=False)
            return
        if result is None or self.state is None:
            return
        if result["check"] in self.state.running:
            self.notify(f"{result['check']} is still running", markup=False)
            return
        self._by_hand = True
        self._engine.again(result["check"])

    def action_copy_fix(self) -> None:
        """Show the steps of the fix, to copy one."""
        result = self._selected()
        found = steps(result) if result else ()
        if result is None or not found:
            self.notify("no command to copy here; C copies the whole finding", markup=False)
        else:
            self.app.push_screen(StepsScreen(result["check"], found))

    def action_copy_finding(self) -> None:
        """Copy everything about the result for a ticket."""
        result = self._selected()
        if result is not None and self.state is not None:
            self.app.copy_to_clipboard(markdown(result, self.state.report))
            self.notify(f"copied {result['check']} as Markdown", markup=False)

    def action_clear(self) -> None:
        """Show everything again; with nothing to clear, back to the fleet this node is one of."""
        if not (self._narrowed() or self.query(Prompt)) and self._of_fleet():
            self.app.switch_mode("fleet")
            return
        self._hide_passes = False
        self.set_filter("")
        self.panes.listing.focus()

    def _filtered(self, answer: str | None) -> None:
        if answer is None:
            self.set_filter("")
        self.panes.listing.focus()

    def _of_fleet(self) -> bool:
        return getattr(self.app, "round", None) is not None

    def _narrowed(self) -> str:
        words = [f"/{inert(self._filter.text)}"] if self._filter.text else []
        return ", ".join(words + (["passes hidden"] if self._hide_passes else []))

    def _rows(self, state: State) -> list[Row]:
        results = sorted(state.report["results"], key=lambda result: _order(result, state))
        return [
            detail.row(result, state.running.get(result["check"]))
            for result in results
            if self._filter.fits(result, result["check"] in state.running)
            and (not self._hide_passes or result["check"] in state.running or severity_of(result) > 1)
        ]

    def _problems(self) -> list[str]:
        if self.state is None:
            return []
        results, running = self.state.report["results"], self.state.running
        bad = {r["check"] for r in results if severity_of(r) > 1 and r["check"] not in running}
        return [row.key for row in self.panes.listing.rows if row.key in bad]

    def _selected(self) -> Result | None:
        key = self.panes.listing.key
        results = self.state.report["results"] if self.state else ()
        return next((result for result in results if result["check"] == key), None)

    def _show_detail(self) -> None:
        result, page = self._selected(), self.panes.page
        if result is None or self.state is None:
            page.show("", [Para("nothing fits this filter" if self._filter.text else "no checks")])
            return
        check = self._engine.about.checks.get(result["check"])
        full = self.panes.zoomed == "page"
        page.show(result["check"], detail.detail(self.state, result, check, full=full))


def _order(result: Result, state: State) -> tuple[float, str]:
    """Problems, then what still runs, then the rest: a running check may yet become a problem."""
    severity = 1.5 if result["check"] in state.running else float(severity_of(result))
    return (-severity, result["check"])
