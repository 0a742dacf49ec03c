"""The nodes of a fleet that are not well: nodes by checks, and each one's problems.

Nodes with equal problems share a row. What only could not be seen from where a node was asked never makes a
row of its own: a container hides dozens of checks on every node alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from nodedoctor.grouping import group_by, group_pairs
from nodedoctor.json_shapes import objects, words
from nodedoctor.model import Status
from nodedoctor.nodeset import fold
from nodedoctor.report.document import Finding, asides, full_summary, is_blind, severity
from nodedoctor.report.html import blocks
from nodedoctor.report.html.markup import Markup, Piece, each_piece, element, join_pieces, prose
from nodedoctor.report.saved import finding
from nodedoctor.report.steps import common
from nodedoctor.wording import first_few, label_if_unnamed

OPEN = 12
"""Groups of nodes that are open at once; more of them are folded."""
NAMES = 8
"""Checks named in the line of a group; the group itself has all of them."""
CELLS = 40_000
"""Cells of the matrix; rows beyond are only listed below it. Ours: what a phone lays out in a second."""

FILES = 12
"""Reports named for a group."""

FleetDocument = Mapping[str, Any]
Problem = tuple[str, str, str]
"""A check, a subject and what is said of it: what makes problems of two nodes the same."""


class NodeFindings:
    """A node with what is wrong on it, and the checks that could not see."""

    def __init__(self, node: FleetDocument) -> None:
        self.node = node
        self.host = host(node)
        self.problems: list[tuple[Finding, FleetDocument]] = []
        self.unseen: list[str] = []
        for problem in objects(node.get("problems")):
            node_finding = finding(_check_name(problem), problem)
            if is_blind(node_finding):
                self.unseen.append(_check_name(problem))
            else:
                self.problems.append((node_finding, problem))

    @property
    def said(self) -> tuple[Problem, ...]:
        """What is wrong: the same on nodes of one group."""
        return tuple(sorted(_problem_key(node_finding, at) for node_finding, at in self.problems))

    @property
    def checks(self) -> dict[str, Finding]:
        """The worst of each check, the worst check first."""
        worst: dict[str, Finding] = {}
        for node_finding, problem in sorted(self.problems, key=lambda pair: -severity(pair[0])):
            worst.setdefault(_check_name(problem), node_finding)
        return worst


def matrix(nodes: Sequence[NodeFindings], checks: Sequence[str]) -> Markup:
    """Nodes by checks: only checks that found something somewhere, nodes with the same row together."""
    affected = dict.fromkeys(check for node in nodes for check in node.checks)
    columns = list(dict.fromkeys([*(check for check in checks if check in affected), *affected]))
    if not columns:
        return Markup()
    same = group_pairs((tuple(_check_cells(node, columns)), node.host) for node in nodes)
    room = max(1, CELLS // len(columns))
    names = (element("th", element("span", name), scope="col") for name in columns)
    body = each_piece(_node_row(cells, hosts) for cells, hosts in list(same.items())[:room])
    head = element("thead", element("tr", element("th", "node"), *names))
    table = element("table", head, element("tbody", body), class_="checks")
    beyond = len(same) - room
    more = f"{beyond} more rows are only listed below." if beyond > 0 else None
    return join_pieces(
        blocks.scroll(table, "nodes by checks"), element("p", more, class_="quiet") if more else None
    )


def problems(nodes: Sequence[NodeFindings]) -> Markup:
    """What is wrong on each node."""
    groups = group_by(nodes, lambda node: node.said)
    few = len(groups) <= OPEN
    return each_piece((_node_group(group, few) for group in groups.values()), between="\n")


def blind(nodes: Sequence[NodeFindings]) -> Markup:
    """Nodes on which nothing is known to be wrong, by what could not be seen."""
    groups = group_pairs((tuple(dict.fromkeys(node.unseen)), node.host) for node in nodes)
    return blocks.rows(
        blocks.row(blocks.mark("UNKN", "unknown"), hosts_of(hosts), _not_seen(checks))
        for checks, hosts in groups.items()
    )


def host(node: FleetDocument) -> str:
    """The name of a node."""
    return words(node.get("host")) or "(no name)"


def hosts_of(names: Iterable[str]) -> Markup:
    """Names as a node set."""
    return breaking(fold(names))


def breaking(nodes: str) -> Markup:
    """A node set whose lines end where one of its numbers does."""
    return each_piece(nodes.split(","), between=",<wbr>")


def _check_name(problem: FleetDocument) -> str:
    return words(problem.get("check")) or "(no name)"


def _check_cells(node: NodeFindings, columns: Sequence[str]) -> Iterable[Piece]:
    """A word per check; that one could not see is shown in grey."""
    findings, unseen = node.checks, set(node.unseen)
    for name in columns:
        if name in findings:
            status = Status(findings[name]["status"])
            yield element("td", status.word, class_=status.value)
        else:
            yield Markup('<td class="quiet">unkn</td>' if name in unseen else "<td></td>")


def _node_row(cells: tuple[Piece, ...], hosts: list[str]) -> Markup:
    many = element("span", f" {len(hosts)}", class_="count") if len(hosts) > 1 else None
    name = element("span", hosts_of(hosts), many)
    return element("tr", element("th", name, scope="row"), *cells, class_="item")


def _node_group(group: list[NodeFindings], open_: bool) -> Markup:
    first, *others = group
    found = list(first.checks.items())
    count = element("span", f" {len(group)} nodes", class_="count") if others else None
    names = first_few([name for name, _ in found], NAMES, " ")
    hosts = element("strong", hosts_of(node.host for node in group))
    head = element(
        "summary",
        blocks.word(Status(found[0][1]["status"])),
        " ",
        hosts,
        count,
        " ",
        element("span", names, class_="quiet"),
    )
    fixes = _shared_fixes(group)
    unseen = dict.fromkeys(check for node in group for check in node.unseen)
    return element(
        "details",
        head,
        blocks.rows(_problem_block(found, problem, fixes) for found, problem in first.problems),
        element("p", _not_seen(list(unseen)), class_="quiet") if unseen else None,
        _report_files(group),
        class_="item node",
        open=open_,
    )


def _shared_fixes(group: Sequence[NodeFindings]) -> dict[Problem, str]:
    """What to do about each problem of a group; where that differs, what is the same on all its nodes."""
    fixes: dict[Problem, dict[str, None]] = {}
    for node in group:
        for node_finding, problem in node.problems:
            fixes.setdefault(_problem_key(node_finding, problem), {})[words(problem.get("fix"))] = None
    return {problem: common(texts) for problem, texts in fixes.items()}


def _problem_key(node_finding: Finding, problem: FleetDocument) -> Problem:
    return _check_name(problem), node_finding["subject"] or "", full_summary(node_finding)


def _problem_block(node_finding: Finding, problem: FleetDocument, fixes: Mapping[Problem, str]) -> Markup:
    action, reason = words(problem.get("action")), node_finding["reason"]
    subject = label_if_unnamed(node_finding["subject"] or "", full_summary(node_finding))
    body = element(
        "div",
        element("strong", subject) if subject else None,
        " " if subject else None,
        prose(f"{full_summary(node_finding)}{asides(node_finding)}"),
        f" ({reason})" if reason else None,
        element("span", f" {action}", class_="action") if action and action != "none" else None,
        blocks.labelled("fix", prose(fixes[_problem_key(node_finding, problem)])),
    )
    return element(
        "li", blocks.word(Status(node_finding["status"])), element("code", _check_name(problem)), body
    )


def _not_seen(checks: Sequence[str]) -> str:
    return f"{len(checks)} check{'s' if len(checks) > 1 else ''} could not see: {' '.join(checks)}"


def _report_files(group: Sequence[NodeFindings]) -> Markup | None:
    files = [words(node.node.get("report")) for node in group if node.node.get("report")]
    return blocks.labelled("report", first_few(files, FILES, " "))
