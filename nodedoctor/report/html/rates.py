"""The rates of many nodes as a page: what most reach, who is slower, and a row a node."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodedoctor.report.html import blocks, markup
from nodedoctor.report.html.markup import Markup, each_piece, element
from nodedoctor.report.rates_page import SLOW_MARK, NodeRow, RateColumn, rates_page


def render(document: Mapping[str, Any]) -> str:
    """The page of a `nodedoctor.rates/1` document."""
    page = rates_page(document)
    rates = blocks.rates_table(
        ("rate", "usual", "slower than the others", "how"), map(_rate_row, page.columns)
    )
    names = ("", "node", *(column.title for column in page.columns), "")
    nodes = blocks.rates_table(names, map(_node_row, page.nodes))
    return markup.page(
        f"{page.status.word} {page.headline}",
        blocks.head(page.status, page.headline, page.when),
        blocks.section("rates", "Rates", blocks.scroll(rates, "rates") if page.columns else None),
        blocks.section("nodes", "Nodes", blocks.scroll(nodes, "nodes") if page.nodes else None),
    )


def _rate_row(column: RateColumn) -> Markup:
    slow_nodes = each_piece((blocks.mark(slow_node, "warn") for slow_node in column.slow_nodes), between=" ")
    cells = (column.usual, slow_nodes or "-", column.circumstances)
    return element(
        "tr", element("th", column.title, scope="row"), each_piece(element("td", c) for c in cells)
    )


def _node_row(row: NodeRow) -> Markup:
    return element(
        "tr",
        element("td", blocks.word(row.status)),
        element("th", row.host, scope="row"),
        each_piece(
            element("td", blocks.mark(cell, "warn") if cell.endswith(SLOW_MARK) else cell)
            for cell in row.figures
        ),
        element("td", row.why),
    )
