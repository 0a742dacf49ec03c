"""What was read as a page: the headline, what was recognised and what not, the verdicts."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nodedoctor.report.inert import inert
from nodedoctor.wording import count_with_noun

FEW = 6
"""Groups of lines that were not recognised; a bug report has a hundred. Ours."""
LISTED = 16
"""Things that are named one by one; the JSON document has all of them. Ours."""


def render(told: Mapping[str, Any], *, width: int = 80, colour: bool = False, verbose: bool = False) -> str:
    """The page of a `nodedoctor.read/1` document."""
    lines = textwrap.wrap(inert(told["headline"]), width, break_long_words=False, break_on_hyphens=False)
    lines += ["", "recognised:" if told["recognised"] else "nothing was recognised"]
    most = None if verbose else LISTED
    lines += _listed([_recognised(one) for one in told["recognised"]], width, most)
    if told["unrecognised"]:
        lines += ["not recognised:"]
        lines += _listed([_unrecognised(one) for one in told["unrecognised"]], width, most and FEW)
    if told["notes"]:
        lines += ["left out:", *_listed(told["notes"], width, most)]
    if told["shows"]:
        lines += ["what it shows to be well:", *_listed(told["shows"], width, most)]
    if told["next"]:
        lines += ["what would decide the rest:", *(f"  $ {inert(command)}" for command in told["next"])]
    return "\n".join(lines) + "\n" + "".join(_verdicts(told, width, colour, verbose))


def _verdicts(told: Mapping[str, Any], width: int, colour: bool, verbose: bool) -> Iterator[str]:
    if told["report"] and (told["report"]["causes"] or verbose):
        from nodedoctor.report import brief, text

        render_report = text.render if verbose else brief.render
        shown = render_report(told["report"], width=width, colour=colour, quiet=True)
        first, _, rest = shown.partition("\n")
        yield "\n" + (rest if first == told["headline"] else shown)
    if told["fleet"]:
        from nodedoctor.fleet import text as fleet_text

        yield "\n" + fleet_text.render(told["fleet"], width=width, colour=colour, quiet=False, again=None)
    if told["triage"]:
        from nodedoctor.triage import page

        yield "\n" + page.render_page(told["triage"], width=width, colour=colour, verbose=verbose)


def _listed(entries: Sequence[str], width: int, most: int | None) -> list[str]:
    shown = entries if most is None or len(entries) <= most else entries[: most - 1]
    lines = [_cut(f"  {inert(entry)}", width) for entry in shown]
    more = len(entries) - len(shown)
    return [*lines, f"  and {more} more (-v or --json has them)"] if more else lines


def _cut(line: str, width: int) -> str:
    return line if len(line) <= width else f"{line[: width - 3]}..."


def _recognised(one: Mapping[str, Any]) -> str:
    node = f" of {one['node']}" if one["node"] else ""
    lines = f" ({count_with_noun(one['lines'], 'line')})" if one["lines"] else ""
    return f"{one['what']}{node}{lines}: {_place(one)}"


def _unrecognised(one: Mapping[str, Any]) -> str:
    said = "that begins" if one["lines"] == 1 else "that begin"
    return f"{count_with_noun(one['lines'], 'line')} {said} with {one['first']!r}: {_place(one)}"


def _place(one: Mapping[str, Any]) -> str:
    if one["line"] is None:
        return str(one["name"])
    return f"{one['name']}, line {one['line']}"
