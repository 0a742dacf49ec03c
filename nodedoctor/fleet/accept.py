"""`nodedoctor fleet ... --accept`: every node measured by itself, then beside the others, in one table."""

from __future__ import annotations

import argparse
import asyncio
import json
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from statistics import median
from typing import Any

from nodedoctor.cli.console import columns, complain
from nodedoctor.errors import NodeDoctorError
from nodedoctor.fleet.asking import gather_nodes
from nodedoctor.fleet.ending import Lists, conclude
from nodedoctor.fleet.model import Fleet, FleetRequest, Node
from nodedoctor.json_shapes import number, objects, words
from nodedoctor.knowledge.floors import BELOW_PEERS
from nodedoctor.report.accept_page import ACCEPTED, LAGS, REFUSED, UNMEASURED, code_of
from nodedoctor.report.rates_page import RatesPage, rates_page

SCHEMA = "nodedoctor.rates/1"
FEWEST = 3
"""Nodes with a rate in like circumstances that make a usual one; ours: of two either may be the odd one."""
DEADLINE_S = 135.0
"""Seconds that a node has: those of `accept` (cli/accept.py), and the way to it."""
_STATUS = {ACCEPTED: "pass", REFUSED: "fail", UNMEASURED: "unknown", LAGS: "warn"}
_STRICTEST = (REFUSED, UNMEASURED, LAGS, ACCEPTED)
_OTHER_QUESTIONS = (
    "reports", "checks", "tag", "expect", "gate", "passive", "deep", "preview", "peers", "since", "need",
    "junit", "fail_on",
)  # fmt: skip


def run(arguments: argparse.Namespace) -> int:
    """Measure the nodes of these arguments; exits as `accept` does, by the worst of them."""
    from nodedoctor.cli import outputs
    from nodedoctor.fleet import ending

    refused = [name for name in _OTHER_QUESTIONS if getattr(arguments, name)]
    if refused:
        name = "CHECK" if refused[0] == "checks" else f"--{refused[0].replace('_', '-')}"
        return complain(f"{name} has no meaning with --accept")
    if problem := outputs.no_folder(arguments, "passing", "failing", "pyz", "debug_log"):
        return complain(problem)
    try:
        outputs.start_debug_log(arguments)
        gathered = asyncio.run(gather_nodes(arguments, _accept_request(arguments)))
    except NodeDoctorError as error:
        return complain(error)
    rates = make_document(gathered.fleet)
    too_many = ""
    if arguments.failing:
        causes = {"accept": rates["failing"]}
        too_many = ending.tripped(causes, len(rates["nodes"]), arguments.max_failing)
    outranks = conclude(
        arguments,
        rates,
        Lists(rates["passing"], rates["failing"], too_many),
        _render_rates,
        gathered.ended_by,
    )
    if outranks is not None:
        return outranks
    return UNMEASURED if too_many else int(rates["exit"])


def _render_rates(rates: Mapping[str, Any], arguments: argparse.Namespace) -> str:
    return json.dumps(rates) + "\n" if arguments.json else render(rates, min(columns(100), 140))


def _accept_request(arguments: argparse.Namespace) -> FleetRequest:
    """What every node is asked; it has its own journal, if its environment names one."""
    words = ["accept", "--json"]
    words += [f"--{name}={value}" for name in ("python", "exec") if (value := getattr(arguments, name))]
    return FleetRequest(
        tuple(words), arguments.deadline or DEADLINE_S, arguments.width, arguments.pyz or None
    )


def make_document(fleet: Fleet) -> dict[str, Any]:
    """The rates of all nodes, which of them are odd, and which nodes are accepted."""
    rates = list(_compare_rates(fleet.nodes))
    slower = {slow["host"] for rate in rates for slow in rate["odd"]}
    nodes = [_node_entry(node, rates, node.host in slower) for node in fleet.nodes]
    code = next((code for code in _STRICTEST if any(node["exit"] == code for node in nodes)), UNMEASURED)
    return {
        "schema": SCHEMA,
        "tool": fleet.tool,
        "source": fleet.source,
        "started": fleet.started,
        "seconds": fleet.seconds,
        "exit": code,
        "status": _STATUS[code],
        "rates": rates,
        "nodes": nodes,
        "passing": [node["host"] for node in nodes if node["exit"] == ACCEPTED],
        "failing": [
            node["host"]
            for node in nodes
            if node["exit"] in (REFUSED, LAGS) or (node["exit"] == UNMEASURED and node["state"] != "answered")
        ],
    }


def _compare_rates(nodes: Sequence[Node]) -> Iterator[dict[str, Any]]:
    """Each kind of rate in like circumstances, with the nodes that are slower than the others."""
    rows: dict[str, dict[str, Mapping[str, Any]]] = {}
    for node in nodes:
        for row in objects(node.acceptance.get("rows")):
            if words(row.get("key")) and (number(row.get("lowest")) or 0.0) > 0:
                rows.setdefault(words(row.get("key")), {})[node.host] = row
    for key, by_host in rows.items():
        first = next(iter(by_host.values()))
        rates = {host: number(row.get("lowest")) or 0.0 for host, row in by_host.items()}
        usual = median(rates.values())
        least = (number(first.get("of_peers")) or BELOW_PEERS) * usual if len(rates) >= FEWEST else 0.0
        yield {
            "key": key,
            "operation": words(first.get("operation")),
            "title": words(first.get("title")),
            "unit": words(first.get("unit")),
            "circumstances": words(first.get("circumstances")),
            "nodes": len(rates),
            "usual": round(usual, 3) or usual,
            "odd": [{"host": host, "rate": rate} for host, rate in rates.items() if rate < least],
        }


def _node_entry(node: Node, rates: Sequence[Mapping[str, Any]], slower: bool) -> dict[str, Any]:
    own = {words(row.get("key")): row for row in objects(node.acceptance.get("rows"))}
    code = code_of(node.acceptance)
    code = LAGS if slower and code == ACCEPTED else code
    low = [row for row in own.values() if row.get("status") in ("warn", "fail")]
    why = [f"{words(row.get('title'))} {words(row.get('why'))}" for row in low]
    why += [
        f"{rate['title']} {1 - slow['rate'] / rate['usual']:.0%} below other nodes"
        for rate in rates
        for slow in rate["odd"]
        if slow["host"] == node.host
    ]
    why += [words(finding.get("summary")) for finding in objects(node.acceptance.get("faults"))]
    if not node.acceptance:
        why = [f"{node.state}: {node.note}" if node.state != "answered" else "a report, but no rates"]
    elif code == UNMEASURED and not why:
        why = ["not all was measured"]
    return {
        "host": node.host,
        "state": node.state,
        "exit": code,
        "status": _STATUS[code],
        "rates": {key: number(row.get("lowest")) for key, row in own.items()},
        "why": why,
    }


def render(document: Mapping[str, Any], width: int = 100) -> str:
    """The document for people: each rate with the nodes that are slower, then all nodes by number."""
    page = rates_page(document)
    lines = [
        f"{page.status.word} {page.headline}",
        page.when,
        *_column_lines(page, width),
        *_node_lines(page, width),
    ]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def _column_lines(page: RatesPage, width: int) -> Iterator[str]:
    if page.columns:
        yield ""
    wide = max((len(column.title) for column in page.columns), default=0)
    for place, column in enumerate(page.columns, 1):
        yield from textwrap.wrap(
            f"[{place}] {column.title:<{wide}}  usually {column.usual}  {column.circumstances}",
            width,
            subsequent_indent="      ",
        )
        for slow_node in column.slow_nodes:
            yield from textwrap.wrap(slow_node, width, initial_indent="      ", subsequent_indent="        ")


def _node_lines(page: RatesPage, width: int) -> Iterator[str]:
    cells = [(row.status.word, row.host, *row.figures) for row in page.nodes]
    heads = ("", "node", *(f"[{place}]" for place in range(1, len(page.columns) + 1)))
    wide = [max(map(len, column)) for column in zip(heads, *cells, strict=True)]
    yield ""
    yield "  ".join(f"{head:<{w}}" for head, w in zip(heads, wide, strict=True))
    for row, line in zip(page.nodes, cells, strict=True):
        yield "  ".join(f"{cell:<{w}}" for cell, w in zip(line, wide, strict=True))
        if row.why:
            yield from textwrap.wrap(row.why, width, initial_indent="      ", subsequent_indent="      ")
