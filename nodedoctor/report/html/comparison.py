"""Two reports side by side as a page: worse first, then facts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodedoctor.report.comparison import Comparison, FactChange, word
from nodedoctor.report.comparison_groups import ChangeGroup, FactGroup, change_groups, fact_groups
from nodedoctor.report.document import Result
from nodedoctor.report.html import blocks, markup
from nodedoctor.report.html.markup import Markup, each_piece, element

OPEN = 40
"""Facts that are open; more of them are folded. Ours."""
_TONE = {"worse": "fail", "other": "warn", "better": "pass"}


def render(comparison: Comparison, before: str, after: str) -> str:
    """The page of a comparison."""
    nothing = element("p", "nothing differs", class_="calm")
    groups = fact_groups(comparison.facts)
    facts = blocks.section if len(groups) <= OPEN else blocks.folded
    way = blocks.mark("worse", "fail") if comparison.worse else blocks.mark("nothing worse", "pass")
    return markup.page(
        f"{after} against {before}",
        element(
            "header",
            element("h1", way, " ", after),
            element("p", "against ", before, class_="what"),
            element("p", each_piece(_tally_marks(comparison), between=" "), class_="counts"),
            class_=f"head {'fail' if comparison.worse else 'pass'}",
        ),
        blocks.section("changes", "Checks", blocks.rows(map(_change_row, change_groups(comparison.changes)))),
        facts("facts", "Facts", _facts_table(groups), count=len(comparison.facts)),
        *(() if comparison.changes or comparison.facts else (nothing,)),
    )


def _tally_marks(comparison: Comparison) -> Iterator[Markup]:
    for way, tone in _TONE.items():
        count = sum(change.way == way for change in comparison.changes)
        if count:
            yield element("a", blocks.mark(str(count), tone), f" {way}", href="#changes")
    if comparison.facts:
        count = len(comparison.facts)
        yield element("a", blocks.mark(str(count), "skip"), f" fact{'s' if count > 1 else ''}", href="#facts")


def _change_row(group: ChangeGroup) -> Markup:
    first, *others = group.changes
    checks = f": {', '.join(change.check for change in group.changes)}" if others else ""
    return blocks.row(
        blocks.mark(group.way, _TONE[group.way]),
        group.name,
        _side_mark(first.before, word(first.before)),
        " -> ",
        _side_mark(first.after, word(first.after)),
        "  ",
        group.summary + checks,
    )


def _side_mark(result: Result | None, word: str) -> Markup:
    return blocks.mark(word, result["status"] if result else "skip")


def _facts_table(groups: Sequence[FactGroup]) -> Markup:
    if not groups:
        return Markup()
    facts = (fact for group in groups for fact in _fact_rows(group))
    head = element("tr", *(element("th", name, scope="col") for name in ("fact", "before", "after")))
    body = (
        element(
            "tr",
            element("th", fact.name, scope="row"),
            element("td", fact.before or "(none)"),
            element("td", fact.after or "(none)"),
            class_="item",
        )
        for fact in facts
    )
    return element("table", element("thead", head), element("tbody", each_piece(body)), class_="values sides")


def _fact_rows(group: FactGroup) -> Iterator[FactChange]:
    """One row for values that changed alike, else a row each."""
    if not group.same_values or len(group.facts) == 1:
        yield from group.facts
        return
    first = group.facts[0]
    yield FactChange(f"{group.name} ({len(group.facts)} values)", first.before, first.after)
