"""What the Fleet screen says of a row: a cause with owner and first command, a difference, a node."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from nodedoctor.fleet.compare.causes import SharedCause, follows_from, unexplained
from nodedoctor.fleet.model import Fleet, Node, NodeCause, Oddity, ValueGroup
from nodedoctor.knowledge.ownership import action_words, owner_word
from nodedoctor.nodeset import fold
from nodedoctor.report.inert import inert
from nodedoctor.report.page import FIX, FOLLOWS, OWNER, WHY
from nodedoctor.tui.lines.nodes import Entry, standing, value_of
from nodedoctor.tui.theme import LABEL, QUIET, STYLE, Para
from nodedoctor.wording import about, capitalised

NODES_SHOWN = 40
"""Nodes of a cause whose own words are listed; ours."""


def page(fleet: Fleet, entry: Entry | None) -> list[Para]:
    """Everything about a row."""
    if entry is None:
        return [Para("nothing fits this filter" if fleet.nodes else "no node has answered yet")]
    match entry.subject:
        case SharedCause() as group:
            return list(_shared_paras(group, fleet.oddities))
        case Oddity() as oddity:
            return list(_oddity_paras(oddity))
        case Node() as node:
            return list(_node_paras(node, fleet.oddities))
        case None:
            return list(_all_well(entry.nodes))


def _shared_paras(group: SharedCause, oddities: Sequence[Oddity]) -> Iterator[Para]:
    """A cause: what is broken, whose move it is, what to type first, where; then the nodes' own words."""
    yield from _cause_paras(group.cause, group.host, group.command)
    alone = len(group.members) == 1
    yield Para(inert(fold(group.hosts)), "node      " if alone else "nodes     ", verbatim=True)
    yield from _fix_paras(group.fix, group.follows)
    if not group.same_words:
        yield Para()
        for node, cause in group.members[:NODES_SHOWN]:
            yield Para(inert(cause.title), f"{inert(node.host)}  ")
        if (rest := len(group.members) - NODES_SHOWN) > 0:
            yield Para(f"{rest} more", style=QUIET)
    yield Para()
    if alone:
        yield from _extra_paras(group.members[0][0], oddities, group.cause)
    else:
        yield Para("enter lists these nodes, c copies their names", style=QUIET)


def _node_paras(node: Node, oddities: Sequence[Oddity]) -> Iterator[Para]:
    status = standing(node)
    yield Para(inert(node.host), f"{status.word}  ", LABEL, STYLE[status])
    if node.state != "answered":
        yield Para(inert(node.note), f"{node.state}  ")
        return
    for cause in node.causes:
        yield from _cause_paras(cause, node.host, cause.command)
        yield from _fix_paras("", follows_from(node, cause))
    if node.cause and not node.causes:
        yield Para(inert(node.cause), style=LABEL)
    yield from _extra_paras(node, oddities, None)


def _extra_paras(node: Node, oddities: Sequence[Oddity], shown: NodeCause | None) -> Iterator[Para]:
    """What else a node has beside the cause that is shown; with none, beside all its causes."""
    for cause in node.causes if shown is not None else ():
        if cause is not shown:
            yield Para(inert(cause.title), f"{cause.status.word}  ", lead_style=STYLE[cause.status])
    if node.note and node.state == "answered":
        yield Para(inert(node.note), "note      ")
    for problem in unexplained(node):
        yield Para()
        yield Para(inert(problem.check), f"{problem.status.word}  ", LABEL, STYLE[problem.status])
        yield Para(inert(about(problem.subject, problem.said)))
        yield Para(inert(problem.fix) or problem.action, f"{FIX:<10}", most=3)
    if strange := [oddity for oddity in oddities if node.host in oddity.odd]:
        yield Para()
        yield from (Para(inert(value_of(node, oddity)), "ODD  ") for oddity in strange)
    if node.state != "answered":
        return
    yield Para()
    tally = "  ".join(f"{count} {status}" for status, count in node.counts.items() if count)
    yield Para(f"{inert(tally)}   in {node.seconds:.1f} s", style=QUIET)
    if node.report:
        yield Para("enter opens its report", style=QUIET)


def _cause_paras(cause: NodeCause, host: str, command: str) -> Iterator[Para]:
    """What is broken, whose move it is and what to do, what to type first and where."""
    yield Para(inert(cause.title), f"{cause.status.word}  ", LABEL, STYLE[cause.status])
    todo = action_words(cause.action, cause.owner, cause.subjects)
    if cause.owner:
        yield Para("; ".join(filter(None, (owner_word(cause.owner), todo))), f"{OWNER:<10}")
    if command:
        yield Para(inert(command), "first     $ ", "bold cyan", "cyan", verbatim=True)
        yield Para(f"on {inert(host)}", " " * 10, QUIET)


def _fix_paras(fix: str, follows: Iterable[str]) -> Iterator[Para]:
    if fix:
        yield Para(inert(fix), f"{FIX:<10}")
    if shown := ", ".join(follows):
        yield Para(inert(shown), f"{FOLLOWS:<10}", QUIET)


def _oddity_paras(oddity: Oddity) -> Iterator[Para]:
    yield Para(inert(oddity.summary), f"{oddity.status.word}  ", LABEL, STYLE[oddity.status])
    if kind := oddity.title.partition(" (")[2].removesuffix(")"):
        yield Para(inert(kind), "among     ")
    yield Para()
    for group in oddity.groups:
        yield _group_para(group, oddity)
    yield Para()
    if oddity.odd:
        yield Para(inert(fold(oddity.odd)), "look at   ")
    if oddity.fix:
        yield Para(inert(oddity.fix), f"{FIX:<10}")
    if oddity.why:
        yield Para(capitalised(inert(oddity.why)), f"{WHY:<10}")


def _group_para(group: ValueGroup, oddity: Oddity) -> Para:
    usual = oddity.majority is not None and group.value == oddity.majority.value
    count = f"{len(group.hosts):>6}  "
    text = f"{group.value or '(none)'}   {fold(group.hosts)}"
    return Para(inert(text), count, QUIET if usual else LABEL, QUIET, verbatim=True)


def _all_well(nodes: Sequence[Node]) -> Iterator[Para]:
    have = "node has" if len(nodes) == 1 else "nodes have"
    yield Para(f"{len(nodes)} {have} no problem; p lists them one by one")
    yield Para()
    yield Para(inert(fold([node.host for node in nodes])), verbatim=True)
