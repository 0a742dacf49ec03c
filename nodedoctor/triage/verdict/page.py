"""The verdict as text a person acts on: what happened, why we think so, what it is not, what to do."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence

from nodedoctor.json_shapes import Json, as_list, part, parts, text, texts, whole_number, words
from nodedoctor.nodeset import fold
from nodedoctor.report.inert import inert
from nodedoctor.report.saved import fix as fix_of
from nodedoctor.report.steps import advice, repair_steps
from nodedoctor.report.triage_view import (
    CALM,
    UNSURE,
    earlier,
    earlier_failures,
    fate_of,
    jobs,
    unheard,
    unread,
)
from nodedoctor.wording import count_with_noun

_EVIDENCE = 7
_STANDINGS = 16
_WORDS = {"failure": "FAIL", "clean": "PASS", "recovered": "PASS", "undetermined": "UNKN"}
_COLOUR = {"failure": "1;31", "clean": "32", "recovered": "32", "undetermined": "35"}


def render_page(document: Json, *, width: int = 80, colour: bool = False, verbose: bool = False) -> str:
    """The page of a `nodedoctor.triage/1` document as lines; `verbose` lists errors that decided nothing."""
    page = _Page(max(width, 40))
    outcome, headline = text(document, "outcome"), text(document, "headline")
    word = _WORDS.get(outcome, _WORDS["undetermined"])
    shown = f"\x1b[{_COLOUR.get(outcome, _COLOUR['undetermined'])}m{word}\x1b[0m" if colour else word
    sure = "" if outcome in UNSURE else f"  (confidence: {inert(text(document, 'confidence'))})"
    page.lines.append(f"{shown} {inert(text(document, 'cause'))}{sure}")
    page.text(headline[:1].upper() + headline[1:] + ("" if headline.endswith(".") else "."))
    page.text(text(document, "weighed"))
    page.decision(document)
    page.evidence("Seen" if outcome in CALM else "Why", parts(document, "evidence"))
    page.standings(document)
    page.pairs("What it is not", document, "not_the_cause", "claim", "why")
    maybe = "Less likely" if outcome == "failure" else "What it may be"
    page.pairs(maybe, document, "alternatives", "cause", "why_less_likely")
    if verbose:
        page.also_seen(document)
    page.fixes("What to do", parts(document, "fixes"))
    page.fixes("What would decide", parts(document, "next"))
    page.runs(document)
    page.coverage(document)
    return "\n".join(page.lines) + "\n"


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

    def evidence(self, title: str, lines: Sequence[Json]) -> None:
        if lines:
            self.head(title)
        for line in lines[:_EVIDENCE]:
            self._quote(line)

    def decision(self, document: Json) -> None:
        if chosen := text(document, "decision"):
            without = f" ({fold(texts(document, 'exclude'))})" if document.get("exclude") else ""
            self.text(f"Decision: {chosen}{without}, as {text(document, 'kind')}", "  ")

    def pairs(self, title: str, document: Json, key: str, name_key: str, value_key: str) -> None:
        if pairs := parts(document, key):
            self.head(title)
            for pair in pairs:
                self.text(f"{text(pair, name_key)}: {text(pair, value_key)}", "    ", "  - ")

    def also_seen(self, document: Json) -> None:
        for number, error in enumerate(parts(document, "also_seen")):
            if not number:
                self.head("Errors that decided nothing")
            self._quote(error)
            self.text(fate_of(error), "    ")

    def _quote(self, line: Json) -> None:
        """A line of a log below its place."""
        self.lines.append("  " + inert(_source_place(line)))
        self.lines.append("    " + _shorten(inert(text(line, "text").strip()), 3 * self._width))

    def fixes(self, title: str, fixes: Sequence[Json]) -> None:
        if fixes:
            self.head(title)
            for number, fix in enumerate(fixes, 1):
                saved_fix = fix_of(fix)
                self.text(advice(saved_fix) if saved_fix else text(fix, "text"), "     ", f"  {number}. ")
                for step in repair_steps(saved_fix):
                    if step.detail:
                        self.text(step.heading, "     ", "     ")
                    self.lines.append(f"     $ {step.command}")

    def standings(self, document: Json) -> None:
        for number, group in enumerate(parts(document, "standings")[:_STANDINGS]):
            if not number:
                self.head("What the ranks do")
            hosts = texts(group, "hosts")
            where = f" on {fold(hosts)}" if hosts else ""
            self.text(f"{text(group, 'who')}{where}: {text(group, 'doing')}", "    ", "  - ")

    def runs(self, document: Json) -> None:
        for number, (cause, headline, where) in enumerate(earlier(document)):
            if not number:
                self.head("Earlier runs in these logs")
            self.text(f"{cause}: {headline}" + (f" ({where})" if where else ""), "    ", "  - ")
        for number, (name, summary, is_judged) in enumerate(jobs(document)):
            if not number:
                self.head("Jobs in these logs (--job ID picks one)")
            self.text(f"{name}: {summary}", "    ", "  * " if is_judged else "  - ")

    def coverage(self, document: Json) -> None:
        coverage = part(document, "coverage")
        expected, count = whole_number(coverage, "ranks_expected"), len(as_list(coverage.get("ranks_seen")))
        ranks = f", {count} of {expected} ranks" if expected else ""
        before = earlier_failures(document)
        again = f"; {count_with_noun(before, 'earlier failure')} before this attempt" if before > 0 else ""
        files, size = whole_number(coverage, "files") or 0, whole_number(coverage, "bytes") or 0
        self.head(f"Read: {count_with_noun(files, 'file')}, {size} bytes{ranks}{again}")
        if absent := unheard(document):
            self.text(absent, "    ", "  - ")
        if unread_count := unread(document):
            self.text(f"{unread_count} lines or files could not be opened", "    ", "  - ")
        if count := sum(whole_number(error, "count") or 1 for error in parts(document, "also_seen")):
            note = f"{count_with_noun(count, 'error')} decided nothing (-v lists them with the reason)"
            self.text(note, "    ", "  - ")
        for note in texts(coverage, "notes")[:10]:
            self.text(note, "    ", "  - ")


def _source_place(line: Json) -> str:
    number, rank = words(line.get("line")), words(line.get("rank"))
    return text(line, "source") + (f":{number}" if number else "") + (f"  rank {rank}" if rank else "")


def _shorten(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"
