"""The verdict as text a person acts on: what happened, why we think so, what it is not, what to do."""

from __future__ import annotations

import textwrap
from typing import Any

from nodedoctor.model import Fix
from nodedoctor.report.inert import inert
from nodedoctor.triage.document import LineOf
from nodedoctor.triage.model import Event, Verdict

_EVIDENCE = 7
_WORDS = {"failure": "FAIL", "clean": "PASS", "recovered": "PASS", "undetermined": "UNKN"}
_COLOUR = {"failure": "1;31", "clean": "32", "recovered": "32", "undetermined": "35"}


def render(verdict: Verdict, line_of: LineOf, *, width: int = 80, colour: bool = False) -> str:
    """The page as lines."""
    page = _Page(max(width, 40))
    word = _WORDS[verdict.outcome]
    shown = f"\x1b[{_COLOUR[verdict.outcome]}m{word}\x1b[0m" if colour else word
    page.lines.append(f"{shown} {verdict.cause}" + _certainty(verdict))
    page.text(verdict.headline[:1].upper() + verdict.headline[1:] + ".")
    page.evidence(verdict, line_of)
    page.pairs("What it is not", verdict.not_the_cause)
    page.pairs("Less likely" if verdict.outcome == "failure" else "What it may be", verdict.alternatives)
    page.fixes("What to do", verdict.fixes)
    page.fixes("What would decide", verdict.next)
    page.coverage(verdict)
    return "\n".join(page.lines) + "\n"


def _certainty(verdict: Verdict) -> str:
    return "" if verdict.cause == "none" else f"  (confidence: {verdict.confidence})"


class _Page:
    """Lines of the page as they come together."""

    def __init__(self, width: int) -> None:
        self.lines: list[str] = []
        self._width = width

    def text(self, text: str, indent: str = "", first: str | None = None) -> None:
        lead = indent if first is None else first
        self.lines += textwrap.wrap(
            inert(text), self._width, initial_indent=lead, subsequent_indent=indent, break_long_words=False,
            break_on_hyphens=False,
        )  # fmt: skip

    def head(self, title: str) -> None:
        self.lines += ["", title]

    def evidence(self, verdict: Verdict, line_of: LineOf) -> None:
        if not verdict.evidence:
            return
        self.head("Why" if verdict.cause != "none" else "Seen")
        for event in verdict.evidence[:_EVIDENCE]:
            self.lines.append("  " + inert(_place(event, line_of)))
            self.lines.append("    " + _cut(inert(event.text.strip()), 3 * self._width))

    def pairs(self, title: str, pairs: tuple[tuple[str, str], ...]) -> None:
        if pairs:
            self.head(title)
            for left, right in pairs:
                self.text(f"{left}: {right}", "    ", "  - ")

    def fixes(self, title: str, fixes: tuple[Fix, ...]) -> None:
        if fixes:
            self.head(title)
            for number, fix in enumerate(fixes, 1):
                self.text(fix.text, "     ", f"  {number}. ")
                self.lines += [f"     $ {inert(command)}" for command in fix.commands]

    def coverage(self, verdict: Verdict) -> None:
        seen = verdict.coverage
        ranks = f", {len(seen.ranks_seen)} of {seen.ranks_expected} ranks" if seen.ranks_expected else ""
        earlier = max(0, verdict.incidents - (verdict.cause != "none"))
        again = f"; {earlier} earlier failure(s) before this attempt" if earlier else ""
        self.head(f"Read: {seen.files} file(s), {seen.size} bytes{ranks}{again}")
        for note in seen.notes[:10]:
            self.text(note, "    ", "  - ")


def _place(event: Event[Any], line_of: LineOf) -> str:
    line = line_of(event)
    where = event.place.source + (f":{line}" if line is not None else "")
    return where + (f"  rank {event.who.rank}" if event.who.rank is not None else "")


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
