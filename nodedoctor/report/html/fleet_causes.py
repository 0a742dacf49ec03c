"""The causes of a fleet: each with its owner, its nodes and what to type first."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from nodedoctor.json_shapes import number, texts, words
from nodedoctor.knowledge.ownership import owner_word
from nodedoctor.report.document import status_of
from nodedoctor.report.html import blocks
from nodedoctor.report.html.fleet_nodes import breaking
from nodedoctor.report.html.markup import Markup, each_piece, element, join_pieces, prose
from nodedoctor.report.page import CHECK, FIX, FOLLOWS, OWNER

OPEN = 20
"""Causes that are open; more of them are folded. Ours."""


def causes(listed: Sequence[Mapping[str, Any]]) -> Markup:
    """The section of the causes, the worst first."""
    shown, rest = listed[:OPEN], listed[OPEN:]
    return blocks.section(
        "causes",
        "Causes",
        each_piece(map(_cause, shown)),
        element("details", element("summary", f"{len(rest)} more causes"), each_piece(map(_cause, rest)))
        if rest
        else None,
        count=len(listed),
    )


def _cause(cause: Mapping[str, Any]) -> Markup:
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
