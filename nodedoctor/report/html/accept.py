"""Whether a node is as fast as it must be, as a page: the verdict, and each rate beside its references."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodedoctor.report.accept_page import HEADS, RatePage, accept_page
from nodedoctor.report.html import blocks, markup
from nodedoctor.report.html.markup import Markup, each_piece, element


def render(document: Mapping[str, Any]) -> str:
    """The page of a `nodedoctor.accept/1` document."""
    page = accept_page(document)
    table = blocks.rates_table(("", "rate", *HEADS, ""), map(_rate_row, page.rates))
    return markup.page(
        f"{page.status.word} {page.headline}"[:120],
        blocks.head(page.status, page.headline, page.when),
        blocks.section("rates", "Rates", blocks.scroll(table, "rates") if page.rates else None),
        *(
            blocks.section(title.split()[0].lower(), title, element("ul", each_piece(map(_list_item, lines))))
            for title, lines in page.lists
        ),
    )


def _rate_row(rate: RatePage) -> Markup:
    return element(
        "tr",
        element("td", blocks.word(rate.status) if rate.mark else None),
        element("th", rate.title, scope="row"),
        each_piece(element("td", figure) for figure in rate.figures),
        element("td", rate.why, element("br"), element("span", rate.circumstances, class_="quiet")),
    )


def _list_item(text: str) -> Markup:
    return element("li", text)
