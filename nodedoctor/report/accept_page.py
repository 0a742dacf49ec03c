"""What every view says of an acceptance, in the same words and order; text, HTML and screen only draw it."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nodedoctor.json_shapes import mapping, number, objects, whole_number, words
from nodedoctor.model import Status
from nodedoctor.record import record
from nodedoctor.report.document import status_of
from nodedoctor.report.inert import inert
from nodedoctor.wording import count_with_noun, subject_label

ACCEPTED, REFUSED, UNMEASURED, LAGS = 0, 2, 3, 4
"""Exit codes, those of a gate: 4 is slower than peers or past, or than a floor that only warns."""
HEADS = ("measured", "floor", "peers", "before")
_WORDS = {
    ACCEPTED: "as fast as it must be",
    REFUSED: "not to be accepted",
    UNMEASURED: "not all could be measured, so nothing is accepted",
    LAGS: "slower than its peers, its past or a usual floor",
}


@record
class RatePage:
    """One kind of rate: its figures under HEADS, what follows from them, and its circumstances."""

    key: str
    status: Status
    title: str
    figures: tuple[str, ...]
    why: str
    circumstances: str
    floor_source: str = ""

    @property
    def mark(self) -> str:
        """The word of its status; none where there was nothing to hold it against."""
        return "" if self.status is Status.UNKNOWN else self.status.word


@record
class AcceptPage:
    """An acceptance: verdict, rates, and lists with a title: faults, what was not measured, sources."""

    status: Status
    headline: str
    when: str
    rates: tuple[RatePage, ...]
    lists: tuple[tuple[str, tuple[str, ...]], ...]


def accept_page(document: Mapping[str, Any]) -> AcceptPage:
    """The page of a `nodedoctor.accept/1` document; all of it inert."""
    rows = objects(document.get("rows"))
    verdict = _WORDS[code_of(document)]
    node = words(mapping(document.get("node")).get("hostname")) or "this node"
    kinds = count_with_noun(len(rows), "kind of rate", "kinds of rates")
    sources = dict.fromkeys(words(row.get("floor_source")) for row in rows)
    lists = (
        ("Faults", map(_finding_line, objects(document.get("faults")))),
        ("Not measured", map(_finding_line, objects(document.get("not_measured")))),
        ("Floors are from", map(inert, filter(None, sources))),
    )
    return AcceptPage(
        status_of(document.get("status")),
        inert(f"{verdict}: {node}"),
        inert(f"{kinds} in {number(document.get('seconds')) or 0:.0f} s, {words(document.get('started'))}"),
        tuple(map(_rate_page, rows)),
        tuple((title, lines) for title, every in lists if (lines := tuple(every))),
    )


def code_of(document: Mapping[str, Any]) -> int:
    """The exit code of an acceptance; of one that has none, that of one that was not measured."""
    code = whole_number(document, "exit")
    return UNMEASURED if code not in (ACCEPTED, REFUSED, LAGS) or code is None else code


def figure(value: object) -> str:
    """A rate in three digits; a dash for none."""
    rate = number(value)
    return "-" if rate is None else f"{rate:.3g}" if rate < 100 else f"{rate:.0f}"


def _rate_page(row: Mapping[str, Any]) -> RatePage:
    count, unit = whole_number(row, "count") or 0, words(row.get("unit"))
    others = (figure(row.get(key)) for key in ("floor", "peers", "before"))
    status, subject = status_of(row.get("status")), words(row.get("subject"))
    where = f", lowest {subject_label(subject) or subject}" if count > 1 and status is not Status.PASS else ""
    how = (words(row.get("circumstances")), f"{count} of them" if count > 1 else "")
    return RatePage(
        words(row.get("key")),
        status,
        inert(words(row.get("title"))),
        (inert(f"{figure(row.get('lowest'))} {unit}"), *others),
        inert(words(row.get("why")) + where),
        inert(", ".join(filter(None, how))),
        inert(words(row.get("floor_source"))),
    )


def _finding_line(finding: Mapping[str, Any]) -> str:
    return inert(f"{words(finding.get('id'))}: {words(finding.get('summary'))}")


def accept_text(document: Mapping[str, Any], width: int = 100) -> str:
    """The whole document as lines."""
    page = accept_page(document)
    lines = [f"{page.status.word} {page.headline}", page.when, ""]
    lines += _rate_table(page.rates, width) if page.rates else []
    for title, entries in page.lists:
        lines += ["", title]
        for entry in entries:
            lines += textwrap.wrap(entry, width, initial_indent="  ", subsequent_indent="    ")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _rate_table(rates: Sequence[RatePage], width: int) -> Iterator[str]:
    cells = [(f"{rate.mark:4} {rate.title}", *rate.figures) for rate in rates]
    wide = [max(map(len, column)) for column in zip(("", *HEADS), *cells, strict=True)]
    yield "  ".join(f"{head:<{w}}" for head, w in zip(("", *HEADS), wide, strict=True))
    for rate, line in zip(rates, cells, strict=True):
        yield "  ".join([*(f"{cell:<{w}}" for cell, w in zip(line, wide, strict=True)), rate.why])
        if rate.circumstances:
            yield from textwrap.wrap(
                rate.circumstances, width, initial_indent="     ", subsequent_indent="     "
            )
