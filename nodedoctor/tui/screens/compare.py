"""This report against a saved one: what got worse, what got better, which facts differ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from textual.binding import Binding, BindingType

from nodedoctor.model import Status
from nodedoctor.report.comparison import Comparison, compare, heading
from nodedoctor.report.comparison_groups import ChangeGroup, FactGroup, change_groups, fact_groups
from nodedoctor.report.document import Report, Result, severity
from nodedoctor.report.inert import inert
from nodedoctor.report.page import sentence
from nodedoctor.tui.lines import empty_state
from nodedoctor.tui.messages import Mark, ShowCheck
from nodedoctor.tui.state import State
from nodedoctor.tui.theme import LABEL, QUIET, STYLE, Glyphs, Para, Row
from nodedoctor.tui.widgets.hints import Hints
from nodedoctor.tui.widgets.lines import Lines
from nodedoctor.tui.widgets.panes import Panes, PanesScreen

Item = ChangeGroup | FactGroup
"""What changed alike."""
WAY = {"worse": "bold red", "better": "green", "other": "yellow"}


class CompareScreen(PanesScreen):
    """A list of differences, and both sides of the selected one."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("o", "jump", "Open the check", id="jump", tooltip="on the Checks screen"),
    ]
    EMPTY: ClassVar[tuple[tuple[str, str], ...]] = (("d", "Compare with"), ("s", "Save"), ("1", "Checks"))
    HINTS: ClassVar[tuple[tuple[str, str], ...]] = (
        ("d", "Compare with"),
        ("o", "Open the check"),
        ("enter", "Read"),
        ("1", "Checks"),
    )

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__("compare", Panes(glyphs, stacked=True), self.EMPTY, title=True)
        self._saved: Report | None = None
        self._state: State | None = None
        self._comparison = Comparison((), ())
        self._compared_items: dict[str, Item] = {}

    def on_mount(self) -> None:
        """Follow the app's state."""
        self.watch(self.app, "state", self.show)

    def against(self, document: Report) -> None:
        """Compare with this report from now on."""
        self._saved = document
        self.show(self._state)

    def show(self, state: State | None) -> None:
        """Show a new state. What still runs is left out: it has not changed, it is not known."""
        self._state = state
        if self._saved is None or state is None:
            self.query_one(Lines).show([(("compare", LABEL), ("   with nothing yet", QUIET))])
            self.panes.page.show("", empty_state.page("compare"))
            return
        answered = [result for result in state.report["results"] if result["check"] not in state.running]
        self._comparison = compare(self._saved, {**state.report, "results": answered})
        self._compared_items = dict(_compared_items(self._comparison))
        worse = sum(change.way == "worse" for change in self._comparison.changes)
        self.post_message(Mark("compare", Status.FAIL.word if worse else "", f"({worse})"))
        title = inert(f"   {heading(self._saved)} -> {_counterpart(state.report, self._saved)}")
        self.query_one(Lines).show([(("compare", LABEL), *_tally_parts(self._comparison), (title, ""))])
        self.query_one(Hints).show(self.HINTS)
        self.panes.listing.show([_item_row(key, item) for key, item in self._compared_items.items()])
        self.on_listing_moved()

    def on_listing_moved(self) -> None:
        """Show both sides of what the cursor is on."""
        if self._saved is None:
            return
        item = self._compared_items.get(self.panes.listing.key or "")
        self.panes.page.show(self.panes.listing.key or "", list(_paras(item)))

    def action_jump(self) -> None:
        """Go to the check on the Checks screen."""
        match self._compared_items.get(self.panes.listing.key or ""):
            case ChangeGroup(changes=(change,)) if change.after is not None:
                self.post_message(ShowCheck(change.check))
            case ChangeGroup(changes=(_, _, *_)) as group:
                self.notify(
                    f"the row is of {group.name}; / finds one of them on the first screen", markup=False
                )
            case _:
                self.notify("no check is selected that this run knows", markup=False)


def _compared_items(comparison: Comparison) -> Iterator[tuple[str, Item]]:
    """A row for what changed alike, by its key."""
    yield from ((f"check {group.changes[0].check}", group) for group in change_groups(comparison.changes))
    yield from ((f"fact {group.facts[0].name}", group) for group in fact_groups(comparison.facts))


def _tally_parts(comparison: Comparison) -> Iterator[tuple[str, str]]:
    for way, style in WAY.items():
        count = sum(change.way == way for change in comparison.changes)
        if count:
            yield f"  {count} {way}", style
    if comparison.facts:
        count = len(comparison.facts)
        yield f"  {count} fact{'s' if count > 1 else ''}", ""


def _item_row(key: str, item: Item) -> Row:
    if isinstance(item, FactGroup):
        return Row(key, "fact", QUIET, inert(item.name), inert(item.words))
    return Row(key, item.words, WAY[item.way], item.name, inert(item.summary))


def _paras(item: Item | None) -> Iterator[Para]:
    if item is None:
        yield Para("nothing differs")
    elif isinstance(item, FactGroup):
        yield from _fact_paras(item)
    else:
        first = item.changes[0]
        yield Para(item.way, f"{item.name}  ", WAY[item.way])
        if len(item.changes) > 1:
            yield Para(inert(item.summary))
            yield Para(inert(", ".join(change.check for change in item.changes)), f"{'all of':<9} ")
            return
        yield from _side_paras("before", first.before)
        yield from _side_paras("now", first.after)


def _fact_paras(group: FactGroup) -> Iterator[Para]:
    """Both values of what changed alike and the names of it all, or each value by its name."""
    yield Para(inert(group.name), style=LABEL, verbatim=True)
    if not group.same_values:
        yield from (Para(inert(fact.words), f"{inert(fact.name)}  ") for fact in group.facts)
        return
    first = group.facts[0]
    yield Para(inert(first.before or "(none)"), f"{'before':<9} ", verbatim=True)
    yield Para(inert(first.after or "(none)"), f"{'now':<9} ", verbatim=True)
    if len(group.facts) > 1:
        yield Para()
        yield Para(inert(", ".join(fact.name for fact in group.facts)), f"{'all of':<9} ")


def _side_paras(name: str, result: Result | None) -> Iterator[Para]:
    yield Para()
    yield Para("" if result else "this check was not run", f"{name:<9} ")
    for finding in sorted(result["findings"], key=lambda f: -severity(f)) if result else ():
        status = Status(finding["status"])
        yield Para(sentence(finding), f"{status.word}  ", lead_style=STYLE[status])


def _counterpart(report: Report, saved: Report) -> str:
    """What a saved report is compared with: this machine now, or when another report was made."""
    if report["source"] == "live":
        return "now"
    title, host = heading(report), report["node"].get("hostname")
    return title.removeprefix(f"{host} ") if host == saved["node"].get("hostname") else title
