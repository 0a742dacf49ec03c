"""Why the nodes of a fleet are sick: nodes with the same cause in one row, what to type first on them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodedoctor.fleet.compare.grouping import blank
from nodedoctor.fleet.model import Node, NodeCause, Problem
from nodedoctor.nodeset import fold
from nodedoctor.record import record
from nodedoctor.report.inert import inert
from nodedoctor.tui.theme import LABEL, QUIET, STYLE, Glyphs, Para, Row
from nodedoctor.wording import about

CAUSE = "cause "
LISTED = 40
"""Nodes of a cause whose own words are listed."""


@record
class Shared:
    """A cause that several nodes lead with, and those nodes; only numbers set their words apart."""

    key: str
    cause: NodeCause
    nodes: tuple[Node, ...]

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names of the nodes."""
        return tuple(node.host for node in self.nodes)

    @property
    def alike(self) -> bool:
        """Whether all of them say it in the same words."""
        return len({node.causes[0].said for node in self.nodes}) == 1


def shared(nodes: Sequence[Node]) -> list[Shared]:
    """The causes that two nodes or more lead with, in the order of the nodes."""
    groups: dict[tuple[str, str, str], list[Node]] = {}
    for node in nodes:
        if node.causes:
            cause = node.causes[0]
            groups.setdefault((cause.status.value, cause.check, blank(cause.said)), []).append(node)
    return [
        Shared(CAUSE + " ".join(key), found[0].causes[0], tuple(found))
        for key, found in groups.items()
        if len(found) > 1
    ]


def row(group: Shared, here: bool, glyphs: Glyphs) -> Row:
    """The line of a cause: how many nodes and which, what is broken; marked as open or shut."""
    cause = group.cause
    mark = glyphs.open if here else glyphs.shut
    more = "" if group.alike else " (the others alike)"
    said = f"{short(cause.said)}{more}   {fold(group.hosts)}"
    name = f"{mark} {len(group.nodes)} nodes"
    return Row(group.key, cause.status.word, STYLE[cause.status], name, inert(said))


def page(group: Shared) -> Iterator[Para]:
    """What is broken, where, what to type first, and each node's own words where they differ."""
    cause = group.cause
    more = "" if group.alike else " (the others alike)"
    yield Para(inert(cause.said) + more, f"{cause.status.word}  ", LABEL, STYLE[cause.status])
    yield Para(inert(fold(group.hosts)), "nodes     ", verbatim=True)
    yield from _first(cause, fold(group.hosts[:1]))
    if not group.alike:
        yield Para()
        for node in group.nodes[:LISTED]:
            yield Para(inert(short(node.causes[0].said)), f"{inert(node.host)}  ")
        if (left := len(group.nodes) - LISTED) > 0:
            yield Para(f"{left} more", style=QUIET)
    yield Para()
    yield Para("enter lists these nodes, c copies their names", style=QUIET)


def of_node(node: Node) -> Iterator[Para]:
    """The causes of one node, each with what to type first and the checks that follow from it."""
    for cause in node.causes:
        yield Para(inert(cause.said), f"{cause.status.word}  ", LABEL, STYLE[cause.status])
        yield from _first(cause, node.host)
        follows = [problem.check for problem in node.problems if problem.id in cause.explains]
        follows = [check for check in dict.fromkeys(follows) if check != cause.check]
        if follows:
            yield Para(inert(", ".join(follows)), "symptoms  ", QUIET)


def unexplained(node: Node) -> list[Problem]:
    """The problems that follow from none of its causes, the worst first."""
    explained = {id for cause in node.causes for id in cause.explains}
    left = [problem for problem in node.problems if problem.id not in explained]
    return sorted(left, key=lambda problem: (-problem.severity, problem.id))


def short(said: str) -> str:
    """The line of a cause in a list of nodes, where each is about a node."""
    return said.partition(": ")[2] if said.startswith(("provider: ", "administrator: ")) else said


def sentence(problem: Problem) -> str:
    """A problem in one line."""
    return about(problem.subject, problem.said)


def _first(cause: NodeCause, host: str) -> Iterator[Para]:
    if cause.command:
        yield Para(inert(cause.command), "first     $ ", "bold cyan", "cyan", verbatim=True)
        yield Para(f"on {inert(host)}", " " * 10, QUIET)
