"""What every view says of the rates of many nodes: each rate with its usual value, and a row a node.

Made from a `nodedoctor.rates/1` document alone; the nodes that are odd or not accepted come first.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from nodedoctor.json_shapes import mapping, number, objects, words
from nodedoctor.model import WORST_FIRST, Status
from nodedoctor.nodeset import natural_key
from nodedoctor.record import record
from nodedoctor.report.accept_page import figure
from nodedoctor.report.document import status_of
from nodedoctor.report.inert import inert
from nodedoctor.wording import count_with_noun

SLOW_MARK = "!"
"""The mark behind a rate that is lower than that of the other nodes."""


@record
class RateColumn:
    """One kind of rate: what most nodes reach, and the nodes that do not, each beside their peers."""

    title: str
    circumstances: str
    usual: str
    slow_nodes: tuple[str, ...]


@record
class NodeRow:
    """One node: its rates in the order of the columns, and why it is not accepted."""

    host: str
    status: Status
    figures: tuple[str, ...]
    why: str


@record
class RatesPage:
    """The rates of many nodes."""

    status: Status
    headline: str
    when: str
    columns: tuple[RateColumn, ...]
    nodes: tuple[NodeRow, ...]


def rates_page(document: Mapping[str, Any]) -> RatesPage:
    """The page of a `nodedoctor.rates/1` document; all of it inert."""
    rates, nodes = objects(document.get("rates")), objects(document.get("nodes"))
    node_rows = [_node_row(node, rates) for node in nodes]
    accepted = sum(row.status is Status.PASS for row in node_rows)
    return RatesPage(
        status_of(document.get("status")),
        f"{accepted} of {count_with_noun(len(node_rows), 'node')} as fast as they must be and as the others",
        inert(
            f"{words(document.get('started'))}, {number(document.get('seconds')) or 0:.0f} s "
            f"over {words(document.get('source'))}"
        ),
        tuple(map(_rate_column, rates)),
        tuple(sorted(node_rows, key=lambda row: (WORST_FIRST.index(row.status), natural_key(row.host)))),
    )


def _rate_column(rate: Mapping[str, Any]) -> RateColumn:
    unit, usual = words(rate.get("unit")), figure(rate.get("usual"))
    slow_nodes = (
        f"{words(slow.get('host'))}: {figure(slow.get('rate'))} {unit}, the others {usual}"
        for slow in objects(rate.get("odd"))
    )
    how = f"{words(rate.get('circumstances'))}, on {words(rate.get('nodes'))}".removeprefix(", ")
    title = inert(words(rate.get("title")))
    return RateColumn(title, inert(how), inert(f"{usual} {unit}"), tuple(map(inert, slow_nodes)))


def _node_row(node: Mapping[str, Any], rates: tuple[Mapping[str, Any], ...]) -> NodeRow:
    host, measured = words(node.get("host")), mapping(node.get("rates"))
    figures = []
    for rate in rates:
        is_odd = any(words(slow.get("host")) == host for slow in objects(rate.get("odd")))
        figures.append(figure(measured.get(words(rate.get("key")))) + (SLOW_MARK if is_odd else ""))
    why = "; ".join(words(line) for line in node.get("why") or () if words(line))
    return NodeRow(inert(host), status_of(node.get("status")), tuple(figures), inert(why))
