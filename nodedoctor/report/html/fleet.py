"""Many nodes on one page: the causes, the odd ones out, those that said nothing, what is wrong where.

Nodes that say the same are one row, so that a thousand of them open at once on a phone.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from nodedoctor.json_shapes import mapping, number, objects, texts, words
from nodedoctor.knowledge.ownership import owner_word
from nodedoctor.model import WORST_FIRST, Status
from nodedoctor.report.document import status_of
from nodedoctor.report.html import blocks, markup
from nodedoctor.report.html.fleet_nodes import NodeFindings, blind, breaking, host, hosts_of, matrix, problems
from nodedoctor.report.html.markup import Markup, each_piece, element, join_pieces, prose
from nodedoctor.report.page import CHECK, FIX, FOLLOWS, OWNER
from nodedoctor.wording import count_with_noun, utc_time

OPEN = 20
"""Causes that are open; more of them are folded. Ours."""
WHOLE = 16
"""Characters of a value that stays on one line, as a version must; a phone has room for 40 in all."""

_STATES = ("answered", "silent", "unreachable", "unable", "unreadable")


def render(document: Mapping[str, Any]) -> str:
    """The page of a `nodedoctor.fleet/1` document."""
    nodes = objects(document.get("nodes"))
    answered = [NodeFindings(node) for node in nodes if node.get("state") == "answered"]
    mute = [node for node in nodes if node.get("state") != "answered"]
    sick = [node for node in answered if node.problems]
    unseen = [node for node in answered if node.unseen and not node.problems]
    healthy = [node for node in answered if not (node.unseen or node.problems)]
    checks = [words(check.get("check")) for check in objects(document.get("checks"))]
    return markup.page(
        f"{status_of(document.get('verdict')).word} {count_with_noun(len(nodes), 'node')}",
        _page_head(document, len(nodes)),
        causes(objects(document.get("causes"))),
        _node_set("failing", document),
        blocks.section(
            "odd", "The odd ones out", each_piece(map(_oddity_block, objects(document.get("oddities"))))
        ),
        blocks.section("mute", "Without a report", _silent_nodes(mute), count=len(mute)),
        blocks.section("matrix", "Checks with a problem", matrix(sick, checks)),
        blocks.section("nodes", "Nodes with a problem", problems(sick), count=len(sick)),
        blocks.section("kinds", "Kinds of nodes", _kinds_table(objects(document.get("kinds")))),
        blocks.folded("unseen", "Not seen in full", blind(unseen), count=len(unseen)),
        blocks.folded("well", "Nodes without a problem", _healthy_nodes(healthy), count=len(healthy)),
        _node_set("passing", document),
    )


def _page_head(document: Mapping[str, Any], count: int) -> Markup:
    verdict = status_of(document.get("verdict"))
    counts = mapping(document.get("counts"))
    seconds = number(document.get("seconds"))
    moment = (
        utc_time(words(document.get("started"))),
        f"in {seconds:.1f} s" if seconds else "",
        f"over {words(document.get('source'))}" if document.get("source") else "",
        f"nodedoctor {words(document.get('tool'))}" if document.get("tool") else "",
    )
    shown = (element("span", part) for part in moment if part)
    return element(
        "header",
        element(
            "h1",
            blocks.word(verdict),
            f" {words(counts.get('nodes')) or count} node{'' if count == 1 else 's'}",
        ),
        element("p", each_piece(shown, between=" "), class_="when"),
        element("p", each_piece(_count_links(counts), between=" "), class_="counts"),
        class_=f"head {verdict.value}",
    )


def _count_links(counts: Mapping[str, Any]) -> Iterator[Markup]:
    for status in WORST_FIRST:
        if number(counts.get(status.value)):
            where = "#well" if status in (Status.PASS, Status.SKIP) else "#nodes"
            yield element(
                "a",
                blocks.mark(words(counts.get(status.value)), status.value),
                f" {status.value}",
                href=where,
            )
    for state in _STATES[1:]:
        if number(counts.get(state)):
            yield element("a", blocks.mark(words(counts.get(state)), "unknown"), f" {state}", href="#mute")


def _kinds_table(kinds: Sequence[Mapping[str, Any]]) -> Markup | None:
    """What nodes there are, where they are not all of one kind."""
    if len(kinds) < 2:
        return None
    groups = [{"value": kind.get("kind"), **kind} for kind in kinds]
    return element(
        "table",
        element("tbody", each_piece(_value_row(group, None) for group in groups)),
        class_="values groups",
    )


def _node_set(name: str, document: Mapping[str, Any]) -> Markup:
    """A node set, to be pasted into srun, scontrol or clush."""
    nodes = words(document.get(name))
    shown = blocks.labelled(name, blocks.command(breaking(nodes)), "div") if nodes else None
    return element("div", shown, class_="sets") if shown else Markup()


def _oddity_block(item: Mapping[str, Any]) -> Markup:
    status = status_of(item.get("status"))
    majority = item.get("majority")
    usual = words(majority.get("value")) if isinstance(majority, dict) else None
    groups = [_value_row(group, usual) for group in objects(item.get("groups"))]
    table = element("table", element("tbody", each_piece(groups)), class_="values groups") if groups else None
    return element(
        "article",
        element(
            "h3",
            blocks.word(status),
            " ",
            words(item.get("title")) or element("code", words(item.get("key"))),
        ),
        element("p", prose(words(item.get("summary"))), class_="summary"),
        table,
        blocks.labelled("fix", prose(words(item.get("fix")))),
        blocks.labelled("why", prose(words(item.get("why")))),
        class_=f"item problem {status.value}",
    )


def _value_row(group: Mapping[str, Any], usual: str | None) -> Markup:
    """One value and who has it; all but the majority's is marked."""
    value, hosts, count = words(group.get("value")), words(group.get("nodes")), words(group.get("count"))
    is_odd = usual is not None and value != usual
    marks = [mark for mark, has in (("odd", is_odd), ("whole", len(value) <= WHOLE)) if has]
    return element(
        "tr",
        element(
            "th", (value or "(none)") + (" <" if is_odd else ""), scope="row", class_=" ".join(marks) or None
        ),
        element("td", f"{count} node{'' if count == '1' else 's'}"),
        element("td", breaking(hosts)),
    )


def _silent_nodes(nodes: Sequence[Mapping[str, Any]]) -> Markup:
    """Nodes without a report, those with the same reason together."""
    groups: dict[tuple[str, str], list[str]] = {}
    for node in nodes:
        state = words(node.get("state")) or "no state"
        groups.setdefault((state, words(node.get("note"))), []).append(host(node))
    return blocks.rows(
        blocks.row(blocks.mark("UNKN", "unknown"), hosts_of(hosts), state, f": {note}" if note else None)
        for (state, note), hosts in groups.items()
    )


def _healthy_nodes(nodes: Iterable[NodeFindings]) -> Markup:
    shown = hosts_of(node.host for node in nodes)
    return element("p", shown, class_="hosts") if shown else shown


def causes(causes: Sequence[Mapping[str, Any]]) -> Markup:
    """The section of the causes, the worst first."""
    shown, rest = causes[:OPEN], causes[OPEN:]
    return blocks.section(
        "causes",
        "Causes",
        each_piece(map(_cause_block, shown)),
        element(
            "details", element("summary", f"{len(rest)} more causes"), each_piece(map(_cause_block, rest))
        )
        if rest
        else None,
        count=len(causes),
    )


def _cause_block(cause: Mapping[str, Any]) -> Markup:
    status, count = status_of(cause.get("status")), number(cause.get("count")) or 1
    host, command = words(cause.get("host")), words(cause.get("command"))
    mark = " (preview)" if cause.get("preview") is True else ""
    nodes = element("strong", breaking(words(cause.get("nodes"))))
    others_note = ", others with other numbers" if cause.get("alike") is False else ""
    many = element("span", f" {count:.0f} nodes{others_note}", class_="count") if count > 1 else None
    where = element("p", f"on {host}", class_="quiet")
    owner, todo = owner_word(words(cause.get("owner"))), words(cause.get("todo"))
    return element(
        "article",
        element("h3", blocks.word(status), " ", prose(f"{words(cause.get('headline'))}{mark}")),
        blocks.labelled(OWNER, f"{owner}; {todo}" if todo else owner),
        blocks.labelled("nodes", element("span", nodes, many)),
        blocks.labelled("first", join_pieces(blocks.command(command), where), "div") if command else None,
        blocks.labelled(FIX, prose(words(cause.get("fix")))),
        blocks.labelled(FOLLOWS, ", ".join(texts(cause, "follows"))),
        blocks.labelled(CHECK, element("code", words(cause.get("check")))),
        class_=f"item problem {status.value}",
    )
