"""An acceptance for people: the verdict, one line for each kind of rate, and where its floor is from."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nodedoctor.accept.document import ACCEPTED, LAGS, REFUSED
from nodedoctor.report.inert import inert
from nodedoctor.wording import count_with_noun

_WORDS = {
    ACCEPTED: "PASS as fast as it must be",
    REFUSED: "FAIL not to be accepted",
    LAGS: "WARN slower than its peers, its past or a usual floor",
}
_MARKS = {"pass": "PASS", "warn": "WARN", "fail": "FAIL", "unknown": "    "}
_HEADS = ("", "measured", "floor", "peers", "before", "")


def render(document: Mapping[str, Any], width: int = 100) -> str:
    """The whole document as lines."""
    rows = document["rows"]
    verdict = _WORDS.get(document["exit"], "UNKN not all could be measured, so nothing is accepted")
    lines = [f"{verdict}: {inert(str(document['node'].get('hostname') or 'this node'))}"]
    lines += [
        f"{count_with_noun(len(rows), 'kind of rate', 'kinds of rates')} in {document['seconds']:.0f} s",
        "",
    ]
    lines += _table(rows, width) if rows else []
    for title, key in (("Faults", "faults"), ("Not measured", "not_measured")):
        if document[key]:
            lines += ["", title]
            for finding in document[key]:
                text = f"{finding['id']}: {finding['summary']}"
                lines += textwrap.wrap(inert(text), width, initial_indent="  ", subsequent_indent="    ")
    sources = list(dict.fromkeys(row["floor_source"] for row in rows if row["floor_source"]))
    if sources:
        lines += ["", "Floors are from"]
        for source in sources:
            lines += textwrap.wrap(inert(source), width, initial_indent="  ", subsequent_indent="    ")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _table(rows: Sequence[Mapping[str, Any]], width: int) -> Iterator[str]:
    cells = [
        (
            f"{_MARKS.get(row['status'], '?')} {row['title']}",
            f"{_figure(row['lowest'])} {row['unit']}",
            _figure(row["floor"]),
            _figure(row["peers"]),
            _figure(row["before"]),
            inert(row["why"]) + (f", lowest {row['subject']}" if row["count"] > 1 else ""),
        )
        for row in rows
    ]
    wide = [max(len(line[column]) for line in (_HEADS, *cells)) for column in range(5)]
    yield "  ".join(f"{head:<{w}}" for head, w in zip(_HEADS, wide, strict=False))
    for row, line in zip(rows, cells, strict=True):
        yield "  ".join([*(f"{cell:<{w}}" for cell, w in zip(line, wide, strict=False)), line[5]])
        count = f"{row['count']} of them" if row["count"] > 1 else ""
        how = ", ".join(filter(None, (row["circumstances"], count)))
        if how:
            yield from textwrap.wrap(inert(how), width, initial_indent="     ", subsequent_indent="     ")


def _figure(value: float | None) -> str:
    return "-" if value is None else f"{value:.3g}" if value < 100 else f"{value:.0f}"
