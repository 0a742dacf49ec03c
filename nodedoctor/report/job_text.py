"""A job's verdict as text: what happened, who, what to type, the proof, what it is not."""

from __future__ import annotations

from itertools import islice

from nodedoctor.json_shapes import Json
from nodedoctor.report.job_page import Advice, Entry, Quote, Section, job_page
from nodedoctor.report.writer import INDENT, Writer
from nodedoctor.wording import count_with_noun

_MOST = {"proof": 7, "ranks": 16, "read": 14}
"""Entries of a section on a page of one screen; `-v` has all of them."""
_MARGIN = "  "
_QUOTE_LINES = 3


def render(document: Json, *, width: int = 80, colour: bool = False, verbose: bool = False) -> str:
    """The page of a `nodedoctor.triage/1` document as lines; `verbose` has every section whole."""
    to = Writer(width, colour)
    page = job_page(document)
    sure = f"  ({page.confidence})" if page.confidence else ""
    to.status(page.status, page.headline + sure)
    for part in page.opening:
        to.labelled(part.label, part.text)
    for section in page.sections:
        if section.short or verbose:
            _write_section(to, section, 0 if verbose else _MOST.get(section.name, 0))
    return to.page()


def _write_section(to: Writer, section: Section, most: int) -> None:
    to.line("", section.title)
    for number, entry in enumerate(islice(section.entries, most or None), 1):
        _write_entry(to, entry, number)
    if most and (remaining := len(section.entries) - most) > 0:
        to.line(f"{_MARGIN}... {count_with_noun(remaining, 'more', 'more')} with -v")


def _write_entry(to: Writer, entry: Entry, number: int) -> None:
    if isinstance(entry, Quote):
        whose = f"  rank {entry.rank}" if entry.rank else ""
        room = _QUOTE_LINES * to.width
        shown = entry.text if len(entry.text) <= room else f"{entry.text[: room - 3]}..."
        to.line(f"{_MARGIN}{entry.place}{whose}", f"{_MARGIN * 2}{shown}")
        if entry.note:
            to.wrapped(_MARGIN * 2, entry.note)
    elif isinstance(entry, Advice):
        to.wrapped(f"{_MARGIN}{number}. ", entry.text)
        for step in entry.steps:
            if step.detail:
                to.indented(step.heading)
            to.line(f"{INDENT}$ {step.command}")
        for part in entry.closing:
            to.labelled(part.label, part.text)
    else:
        to.wrapped(f"{_MARGIN}- ", f"{entry.name}: {entry.text}" if entry.name else entry.text)
