"""Why a job died, as a page: what happened, who, what to type, the proof, what it is not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nodedoctor.report.html import blocks, markup
from nodedoctor.report.html.markup import Markup, each_piece, element, lines, prose
from nodedoctor.report.job_page import Advice, Entry, JobPage, Quote, Section, job_page
from nodedoctor.report.ranks import CULPRIT, DIED, MISSING, PARTY, UNKNOWN, Seat


def render(document: Mapping[str, Any]) -> str:
    """The page of a `nodedoctor.triage/1` document."""
    page = job_page(document)
    return markup.page(
        f"{page.status.word} {page.headline}"[:120],
        _page_head(page),
        *(_section_block(section, page) for section in page.sections),
    )


def _page_head(page: JobPage) -> Markup:
    return element(
        "header",
        element("h1", blocks.word(page.status), " ", page.headline),
        element("p", page.confidence, class_="when") if page.confidence else None,
        *(
            blocks.labelled(part.label, blocks.command(page.first.command) if page.first else None, "div")
            if part.label == "first"
            else blocks.labelled(part.label, prose(part.text))
            for part in page.opening
        ),
        class_=f"head {page.status.value}",
    )


def _section_block(section: Section, page: JobPage) -> Markup:
    grid = rank_grids(page.seats) if section.name == "ranks" else None
    numbered = section.name in ("fix", "next")
    shown = each_piece(map(_entry_block, section.entries))
    if not all(isinstance(entry, Quote) for entry in section.entries):
        shown = element("ol" if numbered else "ul", shown, class_="steps" if numbered else "reasons")
    return blocks.section(section.name, section.title, shown, grid)


def _entry_block(entry: Entry) -> Markup:
    if isinstance(entry, Quote):
        return _quote_block(entry)
    if isinstance(entry, Advice):
        return element("li", blocks.remedy(entry.fix, "") if entry.fix else entry.text, class_="item")
    name = element("strong", entry.name) if entry.name else None
    return element("li", name, ": " if name else None, entry.text, class_="item")


def _quote_block(quote: Quote) -> Markup:
    """One line of a log under its place."""
    folder, slash, name = quote.place.rpartition("/")
    return element(
        "div",
        element(
            "p",
            element("span", folder + slash, class_="quiet"),
            element("strong", name),
            f"  rank {quote.rank}" if quote.rank else None,
            element("span", f"  {quote.time}", class_="quiet"),
            class_="probe",
        ),
        element("pre", lines(quote.text)),
        element("p", quote.note) if quote.note else None,
        class_="item line",
    )


MOST = 4096
"""Ranks drawn one by one; of a larger job they are listed as ranges only."""
_TONES = {CULPRIT: "fail", DIED: "fail", PARTY: "warn", MISSING: "missing", UNKNOWN: "seen"}


def rank_grids(seats: Sequence[Seat]) -> Markup:
    """A grid per world, a row per host; nothing for one rank, or where all look alike."""
    if not 1 < len(seats) <= MOST or all(seat.mark in (MISSING, UNKNOWN) for seat in seats):
        return Markup()
    several = len({seat.world for seat in seats}) > 1
    groups: dict[tuple[str, str], list[Seat]] = {}
    for seat in sorted(seats, key=lambda seat: (seat.world, seat.host, seat.rank)):
        groups.setdefault((seat.world if several else "", seat.host), []).append(seat)
    return each_piece(
        element(
            "div",
            element("p", " ".join(filter(None, title)), class_="probe") if any(title) else None,
            *map(_rank_cell, members),
            class_="ranks",
        )
        for title, members in groups.items()
    )


def _rank_cell(seat: Seat) -> Markup:
    mark = "" if seat.mark == UNKNOWN else seat.mark
    return element("span", f"{seat.rank}{mark}", class_=f"rank {_TONES.get(seat.mark, 'waited')}")
