"""Two reports side by side as text and as one JSON document, `nodedoctor.compare/1`; keys are only added."""

from __future__ import annotations

from typing import Any

from nodedoctor import __version__
from nodedoctor.report.comparison import Comparison, side
from nodedoctor.report.comparison_groups import change_groups, fact_groups
from nodedoctor.report.document import Report
from nodedoctor.report.inert import inert
from nodedoctor.report.writer import Writer

SCHEMA = "nodedoctor.compare/1"
_COLOUR = {"worse": "1;31", "better": "32", "other": "33", "fact": "2"}
_INDENT = 7


def render(comparison: Comparison, *headings: str, width: int = 100, colour: bool = False) -> str:
    """The comparison of two reports under their headings: worse first, then facts."""
    to = Writer(width)
    to.line(inert("  ->  ".join(headings)))

    def entry(kind: str, summary: str) -> None:
        mark = f"\x1b[{_COLOUR[kind]}m{kind}\x1b[0m" if colour else kind
        to.wrapped(mark + " " * (_INDENT - len(kind)), summary, indent=_INDENT)

    for group in change_groups(comparison.changes):
        checks = "" if len(group.changes) == 1 else f": {', '.join(change.check for change in group.changes)}"
        entry(group.way, f"{group.words}  {group.name}  {group.summary}{checks}")
    for facts in fact_groups(comparison.facts):
        entry("fact", f"{facts.name}  {facts.words}")
    if len(to.lines) == 1:
        to.line("nothing differs")
    return to.page()


def document(comparison: Comparison, before: Report, after: Report) -> dict[str, Any]:
    """The comparison as plain data, folded as the text is, with every value that differs."""
    return {
        "schema": SCHEMA,
        "tool": __version__,
        "before": _report_entry(before),
        "after": _report_entry(after),
        "worse": comparison.worse,
        "changes": [
            {
                "way": group.way,
                "before": side(group.changes[0].before),
                "after": side(group.changes[0].after),
                "said": group.summary,
                "checks": [change.check for change in group.changes],
            }
            for group in change_groups(comparison.changes)
        ],
        "facts": [
            {
                "name": group.name,
                "said": group.words,
                "values": [
                    {"fact": fact.name, "before": fact.before, "after": fact.after} for fact in group.facts
                ],
            }
            for group in fact_groups(comparison.facts)
        ],
    }


def _report_entry(report: Report) -> dict[str, Any]:
    return {
        "host": report["node"].get("hostname") or None,
        "started": report["started"],
        "tool": report["tool"],
        "verdict": report["verdict"],
    }
