"""Two reports side by side as text and as one JSON document, `nodedoctor.compare/1`; keys are only added."""

from __future__ import annotations

import textwrap
from typing import Any

from nodedoctor import __version__
from nodedoctor.report.comparison import Comparison, side
from nodedoctor.report.comparison_groups import change_groups, fact_groups
from nodedoctor.report.document import Report
from nodedoctor.report.inert import inert

SCHEMA = "nodedoctor.compare/1"
_COLOUR = {"worse": "1;31", "better": "32", "other": "33", "fact": "2"}
_INDENT = " " * 7


def render(comparison: Comparison, *headings: str, width: int = 100, colour: bool = False) -> str:
    """The comparison of two reports under their headings: worse first, then facts."""
    lines = [inert("  ->  ".join(headings))]
    for group in change_groups(comparison.changes):
        checks = "" if len(group.changes) == 1 else f": {', '.join(change.check for change in group.changes)}"
        summary = f"{group.words}  {group.name}  {group.summary}{checks}"
        lines += _entry(group.way, summary, width, colour)
    for facts in fact_groups(comparison.facts):
        lines += _entry("fact", f"{facts.name}  {facts.words}", width, colour)
    if len(lines) == 1:
        lines.append("nothing differs")
    return "\n".join(lines) + "\n"


def document(comparison: Comparison, before: Report, after: Report) -> dict[str, Any]:
    """The comparison as plain data, folded as the text is, with every value that differs."""
    return {
        "schema": SCHEMA,
        "tool": __version__,
        "before": _report(before),
        "after": _report(after),
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


def _report(report: Report) -> dict[str, Any]:
    return {
        "host": report["node"].get("hostname") or None,
        "started": report["started"],
        "tool": report["tool"],
        "verdict": report["verdict"],
    }


def _entry(kind: str, summary: str, width: int, colour: bool) -> list[str]:
    lines = textwrap.wrap(
        inert(summary),
        max(width, 40),
        initial_indent=_INDENT,
        subsequent_indent=_INDENT,
        break_long_words=False,
        break_on_hyphens=False,
        drop_whitespace=True,
    ) or [_INDENT]
    mark = f"\x1b[{_COLOUR[kind]}m{kind}\x1b[0m" if colour else kind
    return [f"{mark}{' ' * (7 - len(kind))}{lines[0][7:]}", *lines[1:]]
