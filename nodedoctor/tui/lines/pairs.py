"""What the screen of pairs says: a line per finding and node, the odd ones first, and a page about each.

A list and no matrix: 512 x 512 cells fit on no screen, and the odd one is found in a list at any size.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from statistics import median
from typing import Any

from nodedoctor.json_shapes import mapping, number, objects, words
from nodedoctor.model import WORST_FIRST
from nodedoctor.nodeset import natural_key
from nodedoctor.report.document import status_of
from nodedoctor.report.inert import inert
from nodedoctor.tui.theme import LABEL, QUIET, STYLE, Para, Part, Row


def head(document: Mapping[str, Any]) -> list[tuple[Part, ...]]:
    """Two lines: what was measured, and the verdict with what a good pair has."""
    plan, verdict = mapping(document.get("plan")), status_of(document.get("verdict"))
    measured = f"pairs   {words(plan.get('nodes'))} nodes, {words(plan.get('what'))}"
    rounds = f"   {words(plan.get('rounds_run'))} rounds over {words(document.get('source'))}"
    reference = number(document.get("reference_gbps"))
    good = f"   a good pair has {reference:.3g} Gb/s" if reference else "   no pair has a rate"
    return [((inert(measured), LABEL), (inert(rounds), QUIET)), ((verdict.word, STYLE[verdict]), (good, ""))]


def rows(document: Mapping[str, Any]) -> list[Row]:
    """The findings, the worst first; then the nodes, the slowest first."""
    findings = sorted(
        objects(document.get("findings")), key=lambda entry: WORST_FIRST.index(status_of(entry.get("status")))
    )
    return [*map(_finding_row, findings), *_node_rows(document)]


def page(document: Mapping[str, Any], key: str) -> list[Para]:
    """Everything about a row: a finding with evidence and steps, or all pairs of a node."""
    kind, _, name = key.partition(" ")
    if kind == "node":
        return list(_node_paras(document, name))
    for entry in objects(document.get("findings")):
        if kind == "finding" and words(entry.get("id")) == name:
            return list(_finding_paras(entry))
    return [Para("nothing was measured")]


def name_of(key: str) -> str:
    """The node, path or group that a row is about; empty for a finding about none."""
    kind, _, name = key.partition(" ")
    return name if kind == "node" else name.partition("@")[2]


def _finding_row(entry: Mapping[str, Any]) -> Row:
    status, name = status_of(entry.get("status")), words(entry.get("id"))
    return Row(f"finding {name}", status.word, STYLE[status], inert(name), inert(words(entry.get("summary"))))


def _finding_paras(entry: Mapping[str, Any]) -> Iterator[Para]:
    status = status_of(entry.get("status"))
    yield Para(inert(words(entry.get("summary"))), f"{status.word}  ", lead_style=STYLE[status])
    for evidence in objects(entry.get("evidence")):
        yield Para(inert(words(evidence.get("text"))), "    ", verbatim=True)
    fix = mapping(entry.get("fix"))
    if fix:
        yield Para()
        yield Para(inert(words(fix.get("text"))), "fix  ")
    for step in objects(fix.get("steps")):
        when = f"   ({words(step.get('when'))})" if step.get("when") else ""
        yield Para(inert(words(step.get("command")) + when), "  $ ", "cyan", verbatim=True)


def _by_node(document: Mapping[str, Any]) -> dict[str, list[tuple[str, Mapping[str, Any]]]]:
    """The measurements of each node, with the partner of each."""
    pairs: dict[str, list[tuple[str, Mapping[str, Any]]]] = defaultdict(list)
    for sample in objects(document.get("measurements")):
        ends = sample.get("pair")
        if isinstance(ends, list) and len(ends) == 2:
            a, b = map(words, ends)
            pairs[a].append((b, sample))
            pairs[b].append((a, sample))
    return pairs


def _pair_rate(sample: Mapping[str, Any]) -> float:
    return number(sample.get("gbps")) or 0.0


def _node_rows(document: Mapping[str, Any]) -> list[Row]:
    by_node = _by_node(document)
    rates = {name: median([_pair_rate(sample) for _, sample in pairs]) for name, pairs in by_node.items()}
    nodes = {words(node.get("host")): node for node in objects(document.get("nodes"))}
    return [
        _node_row(name, mapping(nodes.get(name)), rates.get(name), len(by_node.get(name, ())))
        for name in sorted({*nodes, *rates}, key=lambda name: (rates.get(name, -1.0), natural_key(name)))
    ]


def _node_row(name: str, node: Mapping[str, Any], rate: float | None, pairs: int) -> Row:
    rate_text = f"{rate:.3g} Gb/s, the median of {pairs} measurements" if rate is not None else ""
    leaf, note = words(node.get("leaf") or ""), words(node.get("note") or "")
    state = words(node.get("state"))
    parts = [rate_text, f"leaf {leaf}" if leaf else "", f"{state}: {note}" if state != "measured" else ""]
    return Row(f"node {name}", "node", QUIET, inert(name), inert(", ".join(filter(None, parts))))


def _node_paras(document: Mapping[str, Any], name: str) -> Iterator[Para]:
    yield Para(inert(name), style=LABEL, verbatim=True)
    for partner, sample in sorted(_by_node(document).get(name, ()), key=lambda pair: _pair_rate(pair[1])):
        fault, loss, trip = (
            words(sample.get("fault") or ""),
            number(sample.get("loss")),
            number(sample.get("rtt_us")),
        )
        parts = [
            fault or f"{_pair_rate(sample):.3g} Gb/s",
            f"{loss:.2%} sent again" if loss else "",
            f"{trip:.0f} us" if trip else "",
            words(sample.get("note") or ""),
        ]
        lead = f"round {words(sample.get('round'))}  {inert(partner)}  "
        yield Para(inert(", ".join(filter(None, parts))), lead, lead_style="", verbatim=True)
