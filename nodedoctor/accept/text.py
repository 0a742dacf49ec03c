"""An acceptance for people: the verdict, one line for each kind of rate, and where its floor is from."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nodedoctor.report.accept_page import HEADS, RatePage, accept_page


def render(document: Mapping[str, Any], width: int = 100) -> str:
    """The whole document as lines."""
    page = accept_page(document)
    lines = [f"{page.status.word} {page.headline}", page.when, ""]
    lines += _table(page.rates, width) if page.rates else []
    for title, entries in page.lists:
        lines += ["", title]
        for entry in entries:
            lines += textwrap.wrap(entry, width, initial_indent="  ", subsequent_indent="    ")
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _table(rates: Sequence[RatePage], width: int) -> Iterator[str]:
    cells = [(f"{rate.mark:4} {rate.title}", *rate.figures) for rate in rates]
    wide = [max(map(len, column)) for column in zip(("", *HEADS), *cells, strict=True)]
    yield "  ".join(f"{head:<{w}}" for head, w in zip(("", *HEADS), wide, strict=True))
    for rate, line in zip(rates, cells, strict=True):
        yield "  ".join([*(f"{cell:<{w}}" for cell, w in zip(line, wide, strict=True)), rate.why])
        if rate.circumstances:
            yield from textwrap.wrap(
                rate.circumstances, width, initial_indent="     ", subsequent_indent="     "
            )
