"""The pieces that pages share: status words, sections, rows, evidence, and what to do."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby

from nodedoctor.model import Status
from nodedoctor.report.document import Evidence, Fix, is_reading
from nodedoctor.report.html.markup import Markup, Piece, each_piece, element, join_pieces, lines, link, prose
from nodedoctor.report.page import DOCS, FIX, Labelled, after_steps
from nodedoctor.report.steps import advice, repair_steps

EVIDENCE_LINES = 12
"""Lines of evidence that are shown unfolded; more of them are folded."""


def word(status: Status) -> Markup:
    """The status as its word; its colour comes second."""
    return mark(status.word, status.value)


def head(status: Status, headline: str, when: str) -> Markup:
    """The top of a page about what was measured: the verdict, and when."""
    return element(
        "header",
        element("h1", word(status), f" {headline}"),
        element("p", when, class_="when"),
        class_=f"head {status.value}",
    )


def rates_table(names: Iterable[str], entries: Iterable[Markup]) -> Markup:
    """A table of rates below the names of its columns."""
    heads = element("tr", each_piece(element("th", name, scope="col") for name in names))
    return element("table", element("thead", heads), element("tbody", each_piece(entries)), class_="rates")


def mark(text: str, kind: str) -> Markup:
    """A word in the colour of a status."""
    return element("b", text, class_=f"word {kind}")


def section(name: str, title: str, *pieces: Piece, count: int | None = None) -> Markup:
    """A part of the page that is always open; nothing when there is nothing in it."""
    body = join_pieces(*pieces)
    if not body:
        return body
    return element("section", element("h2", *_section_title(title, count)), body, id=name)


def folded(name: str, title: str, *pieces: Piece, count: int | None = None) -> Markup:
    """A part of the page that opens when asked."""
    body = join_pieces(*pieces)
    if not body:
        return body
    head = element("summary", element("h2", *_section_title(title, count)))
    return element("section", element("details", head, body), id=name)


def rows(entries: Iterable[Markup]) -> Markup:
    """A list of one-line entries."""
    shown = each_piece(entries, between="\n")
    return element("ul", shown, class_="rows") if shown else shown


def row(first: Markup, name: Piece, *rest: Piece, id_: str | None = None) -> Markup:
    """A word, a name, and what there is to say."""
    return element("li", first, element("code", name), element("div", *rest), class_="item", id=id_)


def pairs(entries: Iterable[tuple[str, Piece]]) -> Markup:
    """Names and what belongs to them; what has nothing is left out."""
    shown = (join_pieces(element("dt", name), element("dd", piece)) for name, piece in entries if piece)
    body = each_piece(shown)
    return element("dl", body, class_="pairs") if body else body


def evidence(items: Iterable[Evidence]) -> Markup:
    """What a finding rests on, by the probe that printed it."""
    grouped = groupby(items, key=lambda item: (item["probe"], is_reading(item)))
    return each_piece(
        _evidence_block(
            f"{probe}, values read" if read else probe, "\n".join(part["text"].strip("\n") for part in group)
        )
        for (probe, read), group in grouped
    )


def remedy(fix: Fix, label: str = FIX, closing: Iterable[Labelled] | None = None) -> Markup:
    """What to do: prose with what it interrupts, commands, and what comes behind these."""
    parts = after_steps(fix) if closing is None else closing
    return element(
        "div",
        labelled(label, prose(advice(fix))),
        steps(fix),
        *(
            labelled(part.label, link(part.text))
            if part.label == DOCS
            else labelled(part.label, command(part.text), "div")
            for part in parts
        ),
        class_="do",
    )


def labelled(label: str, piece: Piece, name: str = "p") -> Markup | None:
    """A paragraph that says first what it is; nothing when there is nothing to say."""
    if not piece:
        return None
    lead = element("span", label, class_="label") if label else None
    return element(name, lead, element("span" if name == "p" else "div", piece), class_="labelled")


def steps(fix: Fix) -> Markup:
    """Every command under what it is for; last resorts in a frame of their own."""
    return each_piece(
        element(
            "div",
            element("p", step.heading, class_="role"),
            command(step.command),
            class_="last" if step.last else "step",
        )
        for step in repair_steps(fix)
    )


def commands(texts: Iterable[str]) -> Markup:
    """Commands, each on its own."""
    return each_piece(map(command, texts))


def command(text: str) -> Markup:
    """One command; the script puts a button beside it that copies it."""
    return element("div", element("code", text), class_="command")


def scroll(inner: Markup, label: str) -> Markup:
    """A box in which something wide scrolls by itself."""
    return element("div", inner, class_="scroll", role="region", aria_label=label, tabindex="0")


def _section_title(title: str, count: int | None) -> tuple[Piece, Piece]:
    return title, element("span", f" {count}", class_="count") if count is not None else None


def _evidence_block(probe: str, printed: str) -> Markup:
    every = printed.split("\n")
    shown, rest = every[:EVIDENCE_LINES], every[EVIDENCE_LINES:]
    more = None
    if rest:
        head = element("summary", f"{len(rest)} more lines")
        more = element("details", head, element("pre", lines("\n".join(rest))))
    return join_pieces(element("p", probe, class_="probe"), element("pre", lines("\n".join(shown))), more)
