"""Many nodes as text: the causes with owner, nodes and first command, who gave no report, who differs.

A cause is written once with the nodes that have it, so that one broken switch is one line and not a hundred.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar, get_args

from nodedoctor.fleet.compare.causes import SharedCause, shared_causes, unexplained
from nodedoctor.fleet.compare.grouping import GroupedProblem, blank, families, fix, nodes
from nodedoctor.fleet.document import fleet_of, kinds_of
from nodedoctor.fleet.model import Fleet, Node, NodeState, Oddity
from nodedoctor.knowledge.ownership import owner_column
from nodedoctor.model import WORST_FIRST, Severity, Status
from nodedoctor.report.inert import inert
from nodedoctor.report.page import FIX, FOLLOWS, WHY
from nodedoctor.report.writer import INDENT, Writer
from nodedoctor.wording import about, count_with_noun, sentences

MOST = 40
"""Problems, oddities or notes shown of each sort; the JSON has all of them."""
ALIKE = 3
"""Problems of one family that are shown; ours."""
AGAIN = 4
"""Commands shown that look again; ours."""

FIX_LINES = 2
"""Lines of a cause's fix; ours."""

Item = TypeVar("Item")
Again = Callable[[str, Iterable[str]], str]
"""The command that asks a node again for some checks."""


def render(
    document: Mapping[str, Any],
    *,
    width: int = 80,
    colour: bool = False,
    quiet: bool = False,
    again: Again | None = None,
) -> str:
    """A whole fleet as lines, from the document that `document.document` makes of it.

    With `quiet` only what is not well, with `again` how to look closer.
    """
    fleet = fleet_of(document)
    page = _Page(Writer(width, colour))
    page.to.status(fleet.verdict, tally(fleet))
    page.causes(shared_causes(fleet.nodes))
    page.silent(fleet)
    page.oddities(fleet.oddities)
    page.problems(fleet)
    if again:
        page.look_again(fleet, again)
    if not quiet:
        page.kinds(fleet)
        page.blind(fleet)
        page.notes(fleet)
        page.standings(fleet)
    return page.to.page()


def tally(fleet: Fleet) -> str:
    """The counts in one line, worst first, without zeros."""
    found = Counter(_standing(fleet, node) for node in fleet.nodes)
    told = [f"{found[key]} {key}" for key in ("fail", "unknown", "warn") if found[key]]
    told += [f"{found[state]} {state}" for state in get_args(NodeState)[1:] if found[state]]
    told += [f"{found[key]} {key}" for key in ("pass", "skip") if found[key]]
    count = count_with_noun(len(fleet.nodes), "node")
    return f"{count} ({fleet.source}): {', '.join(told)}   in {fleet.seconds:.1f} s"


def _standing(fleet: Fleet, node: Node) -> str:
    """How a node counts: its state without a report; fail where it is different in what breaks jobs."""
    if node.state != "answered" or node.verdict is None:
        return node.state
    return Status.FAIL.value if node.host in fleet.barred else node.verdict.value


class _Page:
    """A page under way, and the fixes that are written out on it."""

    def __init__(self, to: Writer) -> None:
        self.to = to
        self._fixes: dict[str, str] = {}

    def kinds(self, fleet: Fleet) -> None:
        """What kinds of nodes there are, where there are several."""
        groups = kinds_of(fleet)
        if len(groups) > 1:
            self._head("kinds of nodes")
            for kind, hosts in groups.items():
                self.to.wrapped(INDENT, f"{kind}: {nodes(hosts)}")

    def silent(self, fleet: Fleet) -> None:
        """Nodes without a report, those with the same reason together."""
        groups: dict[tuple[str, str], list[Node]] = {}
        for node in fleet.silent:
            groups.setdefault((node.state, blank(node.note)), []).append(node)
        if groups:
            self._head("no report")
        self._limited(
            sorted(groups.items(), key=lambda item: -len(item[1])),
            lambda item: self.to.status(
                Status.UNKNOWN, f"{item[0][0]} {nodes(n.host for n in item[1])}: {_noted(item[1])}"
            ),
        )

    def oddities(self, oddities: Iterable[Oddity]) -> None:
        """What sets nodes apart."""
        listed = list(oddities)
        if listed:
            self._head("different from the others")
        self._limited(listed, self._oddity)

    def causes(self, groups: Sequence[SharedCause]) -> None:
        """Each cause with its owner, its nodes and what to type first."""
        if groups:
            self._head("causes")
        self._limited(groups, self._cause)

    def problems(self, fleet: Fleet) -> None:
        """What follows from no cause, the same on several nodes told once."""
        listed = _families(fleet)
        if listed:
            self._head("wrong on the nodes")
        self._limited(listed, self._family)

    def look_again(self, fleet: Fleet, again: Again) -> None:
        """The commands that ask the first node of each problem once more."""
        checks: dict[str, dict[str, None]] = {}
        for group in shared_causes(fleet.nodes):
            checks.setdefault(group.host, {})[group.cause.check] = None
        for first, *_ in _families(fleet):
            checks.setdefault(first.hosts[0], {})[first.found[0][1].check] = None
        if checks:
            self._head("to look again")
        for host, wanted in list(checks.items())[:AGAIN]:
            self.to.line(f"{INDENT}$ {inert(again(host, wanted))}")

    def blind(self, fleet: Fleet) -> None:
        """What could not be seen: the checks by reason and nodes."""
        where: dict[tuple[str, str], dict[str, None]] = {}
        for node in fleet.nodes:
            for problem in node.problems:
                if problem.severity is Severity.BLIND:
                    where.setdefault((problem.reason, problem.check), {})[node.host] = None
        groups: dict[tuple[str, tuple[str, ...]], list[str]] = {}
        for (reason, check), hosts in where.items():
            groups.setdefault((reason, tuple(hosts)), []).append(check)
        if groups:
            self._head("could not be seen")
        self._limited(
            groups.items(),
            lambda item: self.to.status(
                Status.UNKNOWN, f"{item[0][0]}: {' '.join(item[1])}   {nodes(item[0][1])}"
            ),
        )

    def notes(self, fleet: Fleet) -> None:
        """What was strange about answers that came."""
        groups: dict[str, list[Node]] = {}
        for node in fleet.nodes:
            if node.state == "answered" and node.note:
                groups.setdefault(blank(node.note), []).append(node)
        if groups:
            self._head("notes")
        self._limited(
            groups.values(),
            lambda group: self.to.wrapped(INDENT, f"{nodes(n.host for n in group)}: {_noted(group)}"),
        )

    def standings(self, fleet: Fleet) -> None:
        """Every node that answered, once: the counts of the first line by name."""
        odd = {host for oddity in fleet.oddities for host in oddity.odd}
        passing = frozenset(fleet.passing)
        groups: dict[tuple[Status, str], list[str]] = {}
        for node in fleet.nodes:
            if node.state != "answered" or node.verdict is None:
                continue
            status, but = Status(_standing(fleet, node)), ""
            if status in (Status.PASS, Status.WARN) and node.name not in passing:
                but = "but another machine has its name, and fails: "
            elif status is Status.PASS and node.host in odd:
                but = "but different: "
            elif status is Status.SKIP:
                but = "every check was skipped, neither passing nor failing: "
            groups.setdefault((status, but), []).append(node.host)
        if groups:
            self.to.line("")
        for status in WORST_FIRST:
            for (one, but), hosts in sorted(groups.items(), key=lambda item: item[0][1]):
                if one is status:
                    self.to.status(status, but + nodes(hosts))

    def _cause(self, group: SharedCause) -> None:
        cause = group.cause
        todo = f"; {group.todo}" if group.todo else ""
        self.to.status(cause.status, f"{owner_column(cause.owner):<5} {cause.title}{todo} [{cause.check}]")
        words, *others = group.variants.items()
        where = nodes(words[1])
        first = f", first on {group.host}" if len(words[1]) > 1 or others else ""
        self.to.wrapped(INDENT, f"{where}{first}:" if group.command else where)
        if group.command:
            self.to.line(f"{INDENT}$ {inert(group.command)}")
        for words_there, hosts in others[: ALIKE - 1]:
            self.to.wrapped(INDENT, f"{nodes(hosts)}: {words_there}")
        if rest := [host for _, hosts in others[ALIKE - 1 :] for host in hosts]:
            self.to.wrapped(INDENT, f"{nodes(rest)}: the same with other numbers")
        self.to.labelled(FIX, self._shortened(group.fix))
        self.to.labelled(FOLLOWS, ", ".join(group.follows))

    def _oddity(self, oddity: Oddity) -> None:
        self.to.status(oddity.status, f"{oddity.title}: {oddity.summary}")
        self.to.labelled(WHY, oddity.why)
        self.to.labelled(FIX, oddity.fix)

    def _family(self, ones: list[GroupedProblem]) -> None:
        """Problems that differ in numbers at most, with one fix."""
        first = ones[0].found[0][1]
        for one in ones[:ALIKE]:
            self.to.status(first.status, f"{first.check}: {about(one.subject, one.words)}   {one.where}")
        if rest := [found for one in ones[ALIKE:] for found in one.found]:
            where = nodes(dict.fromkeys(node.host for node, _ in rest))
            self.to.status(
                first.status, f"{first.check}: {len(rest)} more with other numbers or subjects   {where}"
            )
        told = fix(ones)
        if told and told in self._fixes:
            self.to.labelled(FIX, f"as for {self._fixes[told]}, above")
        else:
            self.to.labelled(FIX, told)
            self._fixes[told] = first.check
            if first.action not in ("none", "investigate"):
                self.to.labelled("action", first.action)

    def _shortened(self, fix: str) -> str:
        """The first sentences of a fix, as many as fit; the report of each node has all of them."""
        first, *others = sentences(fix) or [""]
        room = FIX_LINES * (self.to.width - len(INDENT) - 8)
        while others and len(f"{first}. {others[0]}.") <= room:
            first = f"{first}. {others.pop(0)}"
        return f"{first}." if first else ""

    def _head(self, title: str) -> None:
        self.to.line("", title)

    def _limited(self, items: Iterable[Item], show: Callable[[Item], None]) -> None:
        listed = list(items)
        for item in listed[:MOST]:
            show(item)
        if len(listed) > MOST:
            self.to.line(f"{INDENT}... and {len(listed) - MOST} more; --json has all")


def _families(fleet: Fleet) -> list[list[GroupedProblem]]:
    """The problems that follow from no cause and are more than not visible."""
    found = ((node, problem) for node in fleet.nodes for problem in unexplained(node))
    return list(families(pair for pair in found if pair[1].severity > Severity.BLIND))


def _noted(group: list[Node]) -> str:
    """The note of the first, and whether the others say the same with other numbers."""
    same = all(node.note == group[0].note for node in group)
    return group[0].note + ("" if same else " (and alike)")
