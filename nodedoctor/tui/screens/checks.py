"""Home: what is wrong and what to type, as it comes in; everything else folded until somebody asks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.geometry import Size
from textual.screen import Screen

from nodedoctor.report.document import Cause, Result, severity_of, worst
from nodedoctor.report.inert import inert
from nodedoctor.report.page import root
from nodedoctor.tui.filter import Filter
from nodedoctor.tui.lines import all_clear, card, detail, home
from nodedoctor.tui.lines.subjects import panels, subject_of
from nodedoctor.tui.lines.ticket import markdown, steps
from nodedoctor.tui.lines.tiles import strip
from nodedoctor.tui.messages import ShowProbe
from nodedoctor.tui.screens.steps import StepsScreen
from nodedoctor.tui.state import Engine, State
from nodedoctor.tui.theme import LABEL, RUN, Glyphs, Para, Row, height
from nodedoctor.tui.widgets.hints import Hints
from nodedoctor.tui.widgets.lines import Lines
from nodedoctor.tui.widgets.listing import Listing
from nodedoctor.tui.widgets.panes import Panes
from nodedoctor.tui.widgets.prompt import Prompt, ask
from nodedoctor.tui.widgets.subjects import Subjects
from nodedoctor.tui.widgets.tabs import Tabs

WIDE, BROAD, TALL = 100, 160, 30
"""Cells from which subjects are boxes and from which these are beside the list, in so many lines."""
LARGE_PAGE = 30
"""Lines of a page from which it has room for more than one cause."""
SHARE = (0.36, 0.46)
"""Of the lines below the head: how many the boxes above the list may take, and on a node without a cause."""
HINTS = (
    ("c", "Steps"),
    ("enter", "Open"),
    ("e", "Evidence"),
    ("n", "Next cause"),
    ("/", "Filter"),
    ("2", "Topology"),
    ("3", "Live"),
    ("6", "Probes"),
    ("C", "Ticket"),
    (":", "Commands"),
    ("r", "Re-run"),
    ("s", "Save"),
    ("d", "Compare"),
)
HINTS_WELL = (
    ("3", "Live"),
    ("2", "Topology"),
    ("enter", "Open"),
    ("/", "Filter"),
    ("s", "Save"),
    ("d", "Compare"),
    ("6", "Probes"),
    ("r", "Re-run"),
    (":", "Commands"),
)
"""Where nothing is wrong: no steps, no evidence and no next cause."""


class ChecksScreen(Screen[None]):
    """A list and a panel; both are made from the state alone."""

    BINDINGS: ClassVar[list[BindingType]] = [
        # With priority the next key waits for the prompt, so that `/fail` can be typed or pasted at once.
        Binding("slash", "filter", "Filter: !word tag:ib is:fail", id="filter", priority=True),
        Binding("n", "problem(1)", "Go to the next cause", id="next-problem"),
        Binding("N", "problem(-1)", "Go to the previous cause", id="previous-problem"),
        Binding("p", "passes", "Show or hide what passed", id="passes"),
        Binding("r", "rerun", "Run this check again", id="rerun"),
        Binding("c,y", "copy_fix", "Copy a step", id="copy-fix"),
        Binding("e", "evidence", "Read the evidence", id="evidence"),
        Binding("C", "copy_finding", "Copy a ticket", id="copy-finding"),
        Binding(
            "h,left", "focus_subjects", "Go to the panels", id="subjects", tooltip="checks of one subject"
        ),
        Binding("l,right", "focus_list", "List", id="list", show=False),
        Binding("space", "choose_row", "Open or fold", id="toggle", show=False),
        Binding("escape", "clear", "Clear the filter", id="clear"),
    ]

    def __init__(self, engine: Engine, glyphs: Glyphs) -> None:
        super().__init__()
        self._engine = engine
        self._glyphs = glyphs
        self.panes = Panes(glyphs, reads=False, stacked=True)
        self._filter = Filter()
        self._open: frozenset[str] = frozenset()
        self._by_hand = False
        self.state: State | None = None
        self._panels_at = Size(0, 0)

    def compose(self) -> ComposeResult:
        """Head, subjects where there is room, list, page, keys."""
        yield Tabs("checks")
        yield Lines(id="head")
        with Container(id="home"):
            yield Subjects(self._glyphs, id="subjects")
            yield self.panes
        yield Hints(HINTS)

    def on_mount(self) -> None:
        """Follow the app's state; until there is one, say what is going on."""
        nothing = self._engine.about.nothing
        status = ((nothing, ""),) if nothing else (("RUN ", RUN), ("  loading checks", ""))
        self.query_one("#head", Lines).show([(("nodedoctor", LABEL),), status])
        self.set_focus(self.panes.listing)
        self.watch(self.app, "state", self.show)

    def show(self, state: State | None) -> None:
        """Show a new state. Until a person moves the cursor it is on the first row, the worst."""
        if state is None:
            return
        before, self.state = self.state, state
        tiles = strip(state, self.size.width, self._glyphs)
        head = self.query_one("#head", Lines)
        head.show([*detail.head(state, self._filter_words(), self.size.width), *((tiles,) if tiles else ())])
        head.set_class(not tiles, "-without-tiles")
        hints = HINTS if state.report["causes"] or state.running else HINTS_WELL
        self.query_one(Hints).show(((("7", "Fleet"),) if self._of_fleet() else ()) + hints)
        if before is None or _states_differ(before, state) or self._panels_at != self.size:
            self._show_panels(state, bool(tiles))
        listing = self.panes.listing
        listing.show(self._rows(state))
        if not self._by_hand and listing.rows:
            listing.select(listing.rows[0].key, by_hand=False)
        self._show_detail()

    def _show_panels(self, state: State, tiled: bool) -> None:
        """Boxes beside the list or above it, where there is room; else the counts of every subject."""
        self._panels_at = self.size
        width, lines = self.size.width, self.size.height - 4 - tiled
        beside = width >= BROAD and lines >= TALL
        share = SHARE[not state.report["causes"]]
        room = Size(width * 2 // 5, lines) if beside else Size(width, int(lines * share))
        subjects = self.query_one(Subjects)
        subjects.show(panels(state), room, boxes=width >= WIDE, ample=beside)
        self.query_one("#home").set_class(beside, "-beside")
        subjects.styles.width = room.width if beside else "100%"
        subjects.styles.height = "100%" if beside else subjects.needed

    def on_listing_moved(self, event: Listing.Moved) -> None:
        """Show what the cursor is on."""
        self._by_hand = self._by_hand or event.by_hand
        self._show_detail()

    def on_panes_zoomed(self) -> None:
        """On the whole screen there is more to read."""
        self._show_detail()

    def on_page_resized(self) -> None:
        """What is in view of a card ends with a whole step."""
        self._show_detail()

    def on_listing_chosen(self) -> None:
        """Open or shut a fold; anything else is read on the whole screen."""
        key = self.panes.listing.key or ""
        if key.startswith(home.FOLD):
            self._by_hand = True
            self._open ^= {key}
            self.show(self.state)
        else:
            self.panes.zoom("page")

    def on_subjects_selected(self) -> None:
        """List the checks of one subject, or everything again."""
        self._by_hand = False
        self.show(self.state)

    def on_subjects_chosen(self) -> None:
        """Into the list."""
        self.panes.listing.focus()

    def select(self, check: str) -> None:
        """Put the cursor on a check, whatever is filtered or folded now."""
        if self.state is None:
            return
        key = check
        if all(row.key != check for row in self.panes.listing.rows):
            self.query_one(Subjects).clear()
            key, fold = home.key_of(self.state, check)
            self._open |= {fold}
            self.set_filter("")
        self._by_hand = True
        self.panes.listing.select(key)
        self.panes.zoom("")

    def set_filter(self, text: str) -> None:
        """Show only what fits."""
        if text != self._filter.text:
            self._by_hand = False
        self._filter = Filter(text)
        self.show(self.state)

    async def action_filter(self) -> None:
        """Type a filter; the list follows every letter, escape takes it back; in a text it searches."""
        if self.panes.zoomed == "page":
            await self.panes.page.action_find()
            return
        await ask(self, Prompt("filter", self._filter.text, self._end_filter, self.set_filter))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """A slash typed into the prompt is a letter."""
        return not (action == "filter" and self.query(Prompt))

    def action_problem(self, step: int) -> None:
        """Go to the next or previous thing that is not well, round and round."""
        problems, listing = self._problem_keys(), self.panes.listing
        if not problems:
            self.notify("nothing here is wrong", markup=False)
            return
        keys = [row.key for row in listing.rows]
        here = keys.index(listing.key) if listing.key in keys else 0
        places = [keys.index(problem) for problem in problems]
        further = [at for at in places if (at > here if step > 0 else at < here)]
        nearest = (further or places)[0 if step > 0 else -1]
        if places == [here]:
            self.notify("this is the only one", markup=False)
        listing.select(keys[nearest])

    def action_passes(self) -> None:
        """List what passed, or fold it again."""
        self._open ^= {home.FOLD + "pass"}
        self.show(self.state)

    def action_choose_row(self) -> None:
        """What enter does in the list."""
        self.on_listing_chosen()

    def action_focus_subjects(self) -> None:
        """To the panels of the subjects, where the terminal has room for them."""
        self.query_one(Subjects).focus()

    def action_focus_list(self) -> None:
        """Back to the list."""
        self.panes.listing.focus()

    def on_resize(self) -> None:
        """What a row says depends on the width."""
        self.call_after_refresh(self.show, self.state)

    def action_rerun(self) -> None:
        """Ask the selected check again."""
        result = self._selected_result()
        if self._engine.about.nothing:
            self.notify("this was read from a file: there is nothing to ask again", markup=False)
            return
        if result is None or self.state is None:
            return
        if result["check"] in self.state.running:
            self.notify(f"{result['check']} is still running", markup=False)
            return
        self._by_hand = True
        self.notify(f"{result['check']} is run again", markup=False)
        self._engine.again(result["check"])

    def action_copy_fix(self) -> None:
        """Show the steps of the fix, to copy one."""
        state, result, cause = self.state, self._selected_result(), self._selected_cause()
        if state is None or result is None:
            return
        fix_steps = card.steps(state.report, cause) if cause else steps(result)
        if not fix_steps:
            self.notify("no command to copy here; C copies the whole finding", markup=False)
            return
        about = self._engine.about.checks.get(result["check"])
        behind = (
            card.explained(state.report, cause)
            if cause
            else detail.detail(state, result, about, full=True, steps=False)
        )
        title = cause["headline"] if cause else result["check"]
        self.app.push_screen(StepsScreen(title, fix_steps, self._glyphs, behind))

    def action_evidence(self) -> None:
        """Open the evidence in all that its probe printed, at its line."""
        result, cause = self._selected_result(), self._selected_cause()
        origin = root(self.state.report, cause) if self.state and cause else None
        finding = origin[1] if origin else worst(result) if result else None
        if finding is None or not finding["evidence"]:
            self.notify("no evidence here", markup=False)
            return
        self.post_message(ShowProbe(finding["evidence"]))

    def action_copy_finding(self) -> None:
        """Copy everything about the result for a ticket."""
        result = self._selected_result()
        if result is not None and self.state is not None:
            self.app.copy_to_clipboard(markdown(result, self.state.report))

    def action_clear(self) -> None:
        """Show everything again; with nothing to clear, back to the fleet this node is one of."""
        if not (self._filter_words() or self._open or self.query(Prompt)) and self._of_fleet():
            self.app.switch_mode("fleet")
            return
        self._open = frozenset()
        self.query_one(Subjects).clear()
        self.set_filter("")
        self.panes.listing.focus()

    def _end_filter(self, answer: str | None) -> None:
        if answer is None:
            self.set_filter("")
        self.panes.listing.focus()

    def _of_fleet(self) -> bool:
        return getattr(self.app, "round", None) is not None

    def _filter_words(self) -> str:
        words = [f"/{inert(self._filter.text)}"] if self._filter.text else []
        subject = self.query_one(Subjects).selected
        return ", ".join(words + ([subject] if subject else []))

    def _rows(self, state: State) -> list[Row]:
        subject = self.query_one(Subjects).selected
        if not (subject or self._filter.text):
            return home.rows(state, self._open, self._glyphs, self.panes.listing.room)
        return home.flat(
            state,
            lambda result: (
                self._filter.fits(result, result["check"] in state.running)
                and subject in ("", subject_of(result["check"]))
            ),
        )

    def _problem_keys(self) -> list[str]:
        """The causes; where a filter or a subject lists checks, those that are not well."""
        rows = self.panes.listing.rows
        causes = [row.key for row in rows if row.key.startswith(home.CAUSE)]
        if causes or self.state is None:
            return causes
        results, running = self.state.report["results"], self.state.running
        bad = {r["check"] for r in results if severity_of(r).is_problem and r["check"] not in running}
        return [row.key for row in rows if row.key in bad]

    def _is_whole(self, key: str) -> bool:
        """Whether a row is whole in the list."""
        listing = self.panes.listing
        return any(row.key == key and listing.is_whole(row) for row in listing.rows)

    def _selected_cause(self) -> Cause | None:
        return home.cause_of(self.state, self.panes.listing.key or "") if self.state else None

    def _selected_result(self) -> Result | None:
        return home.result_of(self.state, self.panes.listing.key or "") if self.state else None

    def _show_detail(self) -> None:
        page, key = self.panes.page, self.panes.listing.key or ""
        if self.state is not None:
            page.show(key, self._paras(self.state, key))

    def _next_cards(self, state: State, cause: Cause, shown: Sequence[Para]) -> list[Para]:
        """The cards of the causes that follow, as many as are whole below the first on a large screen."""
        room, cards = self.panes.page.room, list[Para]()
        if room is None or room.height < LARGE_PAGE:
            return []
        causes = home.causes(state)
        for following in causes[causes.index(cause) + 1 :] if cause in causes else ():
            more = [Para(), *card.card(state.report, following)]
            if height([*shown, *cards, *more], room.width) > room.height:
                break
            cards += more
        return cards

    def _paras(self, state: State, key: str) -> list[Para]:
        if key == home.WELL:
            return all_clear.all_clear(state, self._of_fleet(), self.panes.page.room)
        if key.startswith(home.FOLD):
            name = key.removeprefix(home.FOLD)
            return card.fold(state, name, home.folds(state).get(name, ()))
        result, cause = self._selected_result(), self._selected_cause()
        full = self.panes.zoomed == "page"
        own: list[Para] = []
        if cause is not None and full:
            own = card.card(state.report, cause)
        elif cause is not None:
            own = card.card(state.report, cause, titled=not self._is_whole(key), room=self.panes.page.room)
            own += self._next_cards(state, cause, own)
        if result is None:
            return own or [Para("nothing fits this filter" if self._filter.text else "no checks")]
        if own and not full:
            return own
        check = self._engine.about.checks.get(result["check"])
        everything = detail.detail(state, result, check, full=full)
        return [*own, Para(), *everything] if own else everything


def _states_differ(old: State, new: State) -> bool:
    """Whether more than time has gone by between them."""
    return old.report["results"] is not new.report["results"] or old.running.keys() != new.running.keys()
