"""What was read as a page: the headline, what was recognised and what not, the verdicts."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, cast

from nodedoctor.report.document import Report
from nodedoctor.report.inert import inert
from nodedoctor.wording import count_with_noun

FEW = 6
"""Groups of lines that were not recognised; a bug report has a hundred. Ours."""
ENTRIES = 16
"""Things that are named one by one; the JSON document has all of them. Ours."""


def render(result: Mapping[str, Any], *, width: int = 80, colour: bool = False, verbose: bool = False) -> str:
    """The page of a `nodedoctor.read/1` document."""
    lines = textwrap.wrap(inert(result["headline"]), width, break_long_words=False, break_on_hyphens=False)
    lines += ["", "recognised:" if result["recognised"] else "nothing was recognised"]
    most = None if verbose else ENTRIES
    lines += _entry_lines([_recognised_line(item) for item in result["recognised"]], width, most)
    if result["unrecognised"]:
        lines += ["not recognised:"]
        lines += _entry_lines(
            [_unrecognised_line(item) for item in result["unrecognised"]], width, most and FEW
        )
    if result["notes"]:
        lines += ["notes:", *_entry_lines(result["notes"], width, most)]
    if result["shows"]:
        lines += ["what it shows:", *_entry_lines(result["shows"], width, most)]
    if result["next"]:
        lines += ["what would decide the rest:", *(f"  $ {inert(command)}" for command in result["next"])]
    return "\n".join(lines) + "\n" + "".join(_verdict_lines(result, width, colour, verbose))


def _verdict_lines(result: Mapping[str, Any], width: int, colour: bool, verbose: bool) -> Iterator[str]:
    if result["report"] and (result["report"]["causes"] or verbose):
        from nodedoctor.report import brief, text

        render_report = text.render if verbose else brief.render
        shown = render_report(_undated_report(result), width=width, colour=colour, quiet=True)
        first, _, rest = shown.partition("\n")
        yield "\n" + (rest if first == result["headline"] else shown)
    if result["fleet"]:
        from nodedoctor.fleet import text as fleet_text

        yield "\n" + fleet_text.render(
            result["fleet"], width=width, colour=colour, quiet=not verbose, again=None
        )
    if result["triage"]:
        from nodedoctor.report import job_text

        yield "\n" + job_text.render(result["triage"], width=width, colour=colour, verbose=verbose)


def _undated_report(result: Mapping[str, Any]) -> Report:
    """The report; of a paste without the time at which it was read: that is not when the node was so.

    What only a check in preview warns of is no PASS of a node of which a part was seen.
    """
    is_pasted = any(item["line"] is not None for item in result["recognised"])
    report = cast("Report", dict(result["report"]))
    if is_pasted:
        report["started"] = ""
        if report["verdict"] == "pass" and report["causes"]:
            report["verdict"] = "warn"
    return report


def _entry_lines(entries: Sequence[str], width: int, most: int | None) -> list[str]:
    shown = entries if most is None or len(entries) <= most else entries[: most - 1]
    texts = [f"  {inert(entry)}" for entry in shown]
    lines = [line if len(line) <= width else f"{line[: width - 3]}..." for line in texts]
    more = len(entries) - len(shown)
    return [*lines, f"  and {more} more (-v or --json has them)"] if more else lines


def _recognised_line(item: Mapping[str, Any]) -> str:
    node = f" of {item['node']}" if item["node"] else ""
    lines = f" ({count_with_noun(item['lines'], 'line')})" if item["lines"] else ""
    return f"{item['what']}{node}{lines}: {_place_text(item)}"


def _unrecognised_line(item: Mapping[str, Any]) -> str:
    verb = "that begins" if item["lines"] == 1 else "that begin"
    return f"{count_with_noun(item['lines'], 'line')} {verb} with {item['first']!r}: {_place_text(item)}"


def _place_text(item: Mapping[str, Any]) -> str:
    if item["line"] is None:
        return str(item["name"])
    return f"{item['name']}, line {item['line']}"
