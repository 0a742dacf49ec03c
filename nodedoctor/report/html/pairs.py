"""Tests between nodes on one page: what is wrong, and the rates of all pairs as a matrix by leaf."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from nodedoctor.json_shapes import mapping, number, objects, words
from nodedoctor.nodeset import natural_key
from nodedoctor.report.document import status_of
from nodedoctor.report.html import blocks, markup
from nodedoctor.report.html.markup import Markup, each_piece, element, prose
from nodedoctor.report.saved import finding

WIDEST = 64
"""Nodes of a matrix; of more only those of findings and their partners. A page of 512 x 512 opens nowhere."""


def render(document: Mapping[str, Any]) -> str:
    """The page of a `nodedoctor.pairs/1` document."""
    verdict = status_of(document.get("verdict"))
    plan = mapping(document.get("plan"))
    findings = objects(document.get("findings"))
    sick = [entry for entry in findings if entry.get("status") in ("fail", "warn", "unknown")]
    healthy = [entry for entry in findings if entry not in sick]
    headline = f"{words(plan.get('nodes'))} nodes in pairs"
    return markup.page(
        f"{verdict.word} {headline}",
        blocks.head(verdict, headline, _run_line(document, plan)),
        blocks.section(
            "findings", "The odd ones out", each_piece(map(_finding_block, sick)) if sick else None
        ),
        blocks.section("matrix", "Gb/s of each pair", _rate_matrix(document)),
        blocks.section(
            "well", "Without a problem", each_piece(map(_finding_block, healthy)) if healthy else None
        ),
    )


def _run_line(document: Mapping[str, Any], plan: Mapping[str, Any]) -> str:
    reference = number(document.get("reference_gbps"))
    good = f"; a good pair has {reference:.3g} Gb/s" if reference else ""
    return (
        f"{words(document.get('started'))}, {words(plan.get('rounds_run'))} rounds in "
        f"{number(document.get('seconds')) or 0:.0f} s over {words(document.get('source'))}{good}"
    )


def _finding_block(entry: Mapping[str, Any]) -> Markup:
    status = status_of(entry.get("status"))
    check = words(entry.get("id")).partition("@")[0]
    read = finding(check, dict(entry))
    return element(
        "article",
        element("h3", blocks.word(status), " ", element("code", words(entry.get("id")))),
        element("p", prose(words(entry.get("summary"))), class_="summary"),
        blocks.evidence(read["evidence"]) if read["evidence"] else None,
        blocks.remedy(read["fix"]) if read["fix"] else None,
        class_=f"item problem {status.value}",
    )


def _rate_matrix(document: Mapping[str, Any]) -> Markup | None:
    """The last rate of each pair; leaves one after another, odd cells marked."""
    rates: dict[tuple[str, str], Mapping[str, Any]] = {}
    for measurement in objects(document.get("measurements")):
        a, b = _both_ends(measurement)
        rates[a, b] = rates[b, a] = measurement
    leaf = {words(node.get("host")): words(node.get("leaf")) for node in objects(document.get("nodes"))}
    nodes = sorted(
        {name for ends in rates for name in ends}, key=lambda name: (leaf.get(name, ""), natural_key(name))
    )
    if len(nodes) > WIDEST:
        nodes = _concerned_nodes(document, nodes)
    if not nodes:
        return None
    head = element("tr", element("th", ""), each_piece(element("th", name, scope="col") for name in nodes))
    bounds = (number(document.get("slow_below")) or 0.0) * (number(document.get("reference_gbps")) or 0.0)
    lossy = number(document.get("lossy_above")) or 1.0
    rows = (
        element(
            "tr",
            element("th", f"{name} {leaf.get(name, '')}".strip(), scope="row"),
            each_piece(_rate_cell(rates.get((name, peer)), bounds, lossy) for peer in nodes),
        )
        for name in nodes
    )
    table = element("table", element("thead", head), element("tbody", each_piece(rows)), class_="matrix")
    return blocks.scroll(table, "rates of pairs")


def _rate_cell(measurement: Mapping[str, Any] | None, slow: float, lossy: float) -> Markup:
    if measurement is None:
        return element("td", "")
    if fault := words(measurement.get("fault")):
        return element("td", blocks.mark(fault, "fail"))
    rate, loss = number(measurement.get("gbps")) or 0.0, number(measurement.get("loss")) or 0.0
    shown = f"{rate:.3g}" + (f" ({loss:.1%} lost)" if loss > lossy else "")
    return element("td", blocks.mark(shown, "fail") if rate < slow or loss > lossy else shown)


def _both_ends(measurement: Mapping[str, Any]) -> tuple[str, str]:
    """Both nodes of a measurement, empty names where there are none."""
    ends = measurement.get("pair")
    a, b = ends if isinstance(ends, list) and len(ends) == 2 else ("", "")
    return words(a), words(b)


def _concerned_nodes(document: Mapping[str, Any], nodes: Iterable[str]) -> list[str]:
    """The nodes that findings name, and who was measured with them, as many as fit."""
    sick = [entry for entry in objects(document.get("findings")) if entry.get("status") in ("fail", "warn")]
    subjects = {part for entry in sick for part in words(entry.get("subject")).split(":")}
    ordered = list(nodes)
    near = {
        name
        for entry in objects(document.get("measurements"))
        if subjects.intersection(_both_ends(entry))
        for name in _both_ends(entry)
    }
    return [name for name in ordered if name in subjects] + [
        name for name in ordered if name in near and name not in subjects
    ][: WIDEST - min(WIDEST, len(subjects))]
