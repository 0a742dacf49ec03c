"""Many nodes on one page: the odd ones out, those that said nothing, and what is wrong where.

Nodes that say the same are one row, so that a thousand of them open at once on a phone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from nodedoctor.fleet.nodeset import fold
from nodedoctor.model import Status
from nodedoctor.report.html import blocks, shell
from nodedoctor.report.html.markup import Markup, Piece, each, element, joined
from nodedoctor.report.reading import entries, number, status, words

OPEN = 12
"""Groups of nodes that stand open at once; more of them are folded."""
CELLS = 40_000
"""Cells of the matrix; rows beyond are only listed below it. Ours: what a phone lays out in a second."""

_STATES = ("answered", "silent", "unreachable", "unable", "unreadable")
_RANK = (Status.SKIP, Status.PASS, Status.WARN, Status.UNKNOWN, Status.FAIL)
_ORDER = (Status.FAIL, Status.UNKNOWN, Status.WARN, Status.PASS, Status.SKIP)

Node = Mapping[str, Any]
"""An object of the document: a node, a check, a problem."""


def render(document: Mapping[str, Any]) -> str:
    """The page of a `nodedoctor.fleet/1` document."""
    nodes = list(entries(document.get("nodes")))
    answered = [node for node in nodes if node.get("state") == "answered"]
    mute = [node for node in nodes if node.get("state") != "answered"]
    sick = [node for node in answered if any(entries(node.get("problems")))]
    well = [node for node in answered if not any(entries(node.get("problems")))]
    checks = list(entries(document.get("checks")))
    groups = _groups(sick)
    return shell.page(
        f"{status(document.get('verdict')).word} {len(nodes)} nodes",
        _head(document, len(nodes)),
        _set("failing", document),
        blocks.section("odd", "The odd ones out", each(map(_oddity, entries(document.get("oddities"))))),
        blocks.section("mute", "Without a report", _mute(mute), count=len(mute)),
        blocks.section("matrix", "Checks with a problem", _matrix(groups, checks)),
        blocks.section("nodes", "Nodes with a problem", _nodes(groups), count=len(sick)),
        blocks.folded(
            "well", "Nodes without a problem", _well(well), _set("passing", document), count=len(well)
        ),
    )


def _head(document: Mapping[str, Any], count: int) -> Markup:
    verdict = status(document.get("verdict"))
    told = document.get("counts")
    counts = told if isinstance(told, dict) else {}
    seconds = number(document.get("seconds"))
    moment = (
        words(document.get("started")).replace("T", " ").replace("Z", " UTC"),
        f"in {seconds:.1f} s" if seconds else "",
        f"over {words(document.get('source'))}" if document.get("source") else "",
        f"nodedoctor {words(document.get('tool'))}" if document.get("tool") else "",
    )
    shown = (element("span", part) for part in moment if part)
    return element(
        "header",
        element("h1", blocks.word(verdict), f" {words(counts.get('nodes')) or count} nodes"),
        element("p", each(shown, between=" "), class_="when"),
        element("p", each(_counts(counts), between=" "), class_="counts"),
        class_=f"head {verdict.value}",
    )


def _counts(counts: Mapping[str, Any]) -> Iterator[Markup]:
    for one in _ORDER:
        if number(counts.get(one.value)):
            where = "#well" if one in (Status.PASS, Status.SKIP) else "#nodes"
            yield element(
                "a", blocks.mark(words(counts.get(one.value)), one.value), f" {one.value}", href=where
            )
    for state in _STATES[1:]:
        if number(counts.get(state)):
            yield element("a", blocks.mark(words(counts.get(state)), "unknown"), f" {state}", href="#mute")


def _set(name: str, document: Mapping[str, Any]) -> Markup:
    """A node set, to be pasted into srun, scontrol or clush."""
    said = words(document.get(name))
    shown = blocks.labelled(name, blocks.command(_breaking(said)), "div") if said else None
    return element("div", shown, class_="sets") if shown else Markup()


def _oddity(item: Mapping[str, Any]) -> Markup:
    stands = status(item.get("status"))
    majority = item.get("majority")
    usual = words(majority.get("value")) if isinstance(majority, dict) else None
    groups = [_group(group, usual) for group in entries(item.get("groups"))]
    table = element("table", element("tbody", each(groups)), class_="values groups") if groups else None
    return element(
        "article",
        element(
            "h3",
            blocks.word(stands),
            " ",
            words(item.get("title")) or element("code", words(item.get("key"))),
        ),
        element("p", words(item.get("summary")), class_="summary"),
        table,
        blocks.labelled("fix", words(item.get("fix"))),
        blocks.labelled("why", words(item.get("why"))),
        class_=f"item problem {stands.value}",
    )


def _group(group: Mapping[str, Any], usual: str | None) -> Markup:
    """One value and who has it; all but the majority's is marked."""
    value, hosts, count = words(group.get("value")), words(group.get("nodes")), words(group.get("count"))
    odd = usual is not None and value != usual
    return element(
        "tr",
        element(
            "th", (value or "(none)") + (" <" if odd else ""), scope="row", class_="odd" if odd else None
        ),
        element("td", f"{count} node{'' if count == '1' else 's'}"),
        element("td", _breaking(hosts)),
    )


def _mute(nodes: Sequence[Node]) -> Markup:
    """Nodes without a report, those with the same reason together."""
    groups: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        state = words(node.get("state")) or "no state"
        groups.setdefault((state, words(node.get("note"))), []).append(_host(node))
    return blocks.rows(
        blocks.row(blocks.mark("UNKN", "unknown"), _folded(hosts), state, f": {note}" if note else None)
        for (state, note), hosts in groups.items()
    )


class _Alike:
    """Nodes with the same problems."""

    def __init__(self, problems: Sequence[Node]) -> None:
        self.problems = problems
        self.nodes: list[Node] = []
        self.stands: dict[str, Status] = {}
        for problem in problems:
            check, stands = words(problem.get("check")), status(problem.get("status"))
            self.stands[check] = max(stands, self.stands.get(check, Status.SKIP), key=_RANK.index)

    @property
    def hosts(self) -> Markup:
        """The nodes as a set."""
        return _folded(map(_host, self.nodes))

    @property
    def worst(self) -> Status:
        """The verdict these problems come to."""
        return max(self.stands.values(), key=_RANK.index)


def _groups(nodes: Iterable[Node]) -> list[_Alike]:
    """Nodes by what is wrong with them, in the document's order, which is worst first."""
    groups: dict[tuple[tuple[str, str, str], ...], _Alike] = {}
    for node in nodes:
        problems = list(entries(node.get("problems")))
        said = tuple(
            sorted((_id(one), words(one.get("status")), words(one.get("summary"))) for one in problems)
        )
        groups.setdefault(said, _Alike(problems)).nodes.append(node)
    return list(groups.values())


def _id(problem: Mapping[str, Any]) -> str:
    return words(problem.get("id")) or words(problem.get("check"))


def _host(node: Node) -> str:
    return words(node.get("host")) or "(no name)"


def _folded(hosts: Iterable[str]) -> Markup:
    """Names as a node set."""
    return _breaking(fold(hosts))


def _breaking(nodes: str) -> Markup:
    """A node set that breaks where one of its numbers ends."""
    return each(nodes.split(","), between=",<wbr>")


def _matrix(groups: list[_Alike], checks: Sequence[Node]) -> Markup:
    """Nodes by checks; only checks that found something somewhere, nodes with the same row together."""
    seen = {check: None for group in groups for check in group.stands}
    columns = [name for check in checks if (name := words(check.get("check"))) in seen]
    columns += [name for name in seen if name not in columns]
    if not columns:
        return Markup()
    same: dict[tuple[Status | None, ...], list[str]] = {}
    for group in groups:
        row = tuple(group.stands.get(name) for name in columns)
        same.setdefault(row, []).extend(map(_host, group.nodes))
    rows = list(same.items())
    room = max(1, CELLS // len(columns))
    head = element(
        "tr", element("th", "node"), *(element("th", element("span", name), scope="col") for name in columns)
    )
    body = each(_row(row, hosts) for row, hosts in rows[:room])
    table = element("table", element("thead", head), element("tbody", body), class_="checks")
    more = f"{len(rows) - room} more rows are only listed below." if len(rows) > room else None
    return joined(
        blocks.scroll(table, "nodes by checks"), element("p", more, class_="quiet") if more else None
    )


def _row(row: tuple[Status | None, ...], hosts: list[str]) -> Markup:
    many = element("span", f" {len(hosts)}", class_="count") if len(hosts) > 1 else None
    cells = (
        element("td", stands.word, class_=stands.value) if stands else Markup("<td></td>") for stands in row
    )
    name = element("span", _folded(hosts), many)
    return element("tr", element("th", name, scope="row"), *cells, class_="item")


def _nodes(groups: list[_Alike]) -> Markup:
    few = len(groups) <= OPEN
    return each((_node(group, few) for group in groups), between="\n")


def _node(group: _Alike, open_: bool) -> Markup:
    count = f" {len(group.nodes)} nodes" if len(group.nodes) > 1 else None
    names = element("span", " ".join(group.stands), class_="quiet")
    head = element(
        "summary",
        blocks.word(group.worst),
        " ",
        element("strong", group.hosts),
        element("span", count, class_="count") if count else None,
        " ",
        names,
    )
    problems = blocks.rows(map(_problem, group.problems))
    return element("details", head, problems, _reports(group.nodes), class_="item node", open=open_)


def _problem(problem: Mapping[str, Any]) -> Markup:
    action, reason = words(problem.get("action")), words(problem.get("reason"))
    subject = words(problem.get("subject"))
    rest: tuple[Piece, ...] = (
        element("strong", subject) if subject else None,
        " " if subject else None,
        words(problem.get("summary")),
        f" ({reason})" if reason else None,
        element("span", f" {action}", class_="action") if action and action != "none" else None,
    )
    name = element("code", words(problem.get("check")) or "(no name)")
    return element("li", blocks.word(status(problem.get("status"))), name, element("div", *rest))


def _reports(nodes: Sequence[Node]) -> Markup | None:
    files = [words(node.get("report")) for node in nodes[:OPEN] if node.get("report")]
    return blocks.labelled("report", " ".join(files))


def _well(nodes: Sequence[Node]) -> Markup:
    return element("p", _folded(map(_host, nodes)), class_="hosts") if nodes else Markup()
