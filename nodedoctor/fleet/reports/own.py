"""Answers that are not a node's own report of now: another node's, or an old one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from nodedoctor.fleet.model import Node, is_old

_MOST = 0.5
"""Share of nodes that call themselves as they were asked, from which names are hostnames here: one that calls
itself otherwise answered for another (our choice; where names are aliases, hardly any does)."""


def own_reports(nodes: Iterable[Node], started: str) -> Iterator[Node]:
    """The nodes, as unreadable where the answer is of another node, or was not made now."""
    listed = list(nodes)
    asked = {_short(node.host) for node in listed}
    answered = [node for node in listed if node.state == "answered" and node.hostname]
    named = sum(_short(node.hostname) == _short(node.host) for node in answered)
    by_hostname = len(answered) > 2 and named > _MOST * len(answered)
    for node in listed:
        known, other = _short(node.host), _short(node.hostname)
        if node.state != "answered":
            yield node
        elif other and other != known and (other in asked or by_hostname):
            yield _not_its_own(node, f"the report is of {node.hostname}, another node")
        elif is_old(node, started):
            when = node.started or "no time"
            yield _not_its_own(node, f"the report is of {when}: an old one, or the node's clock is wrong")
        else:
            yield node


def _not_its_own(node: Node, note: str) -> Node:
    noted = [part for part in node.note.split("; ") if part and not part.startswith("calls itself ")]
    kept = Node(node.host, "unreadable", note="; ".join((note, *noted)), seconds=node.seconds, raw=node.raw)
    return replace(kept, report=node.report, alias=node.alias)


def _short(host: str) -> str:
    return host.rpartition("@")[2].split(".")[0].casefold()
