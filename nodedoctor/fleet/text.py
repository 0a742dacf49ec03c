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
from nodedoctor.grouping import group_by, group_pairs
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
    counts = Counter(_node_standing(fleet, node) for node in fleet.nodes)
    phrases = [f"{counts[key]} {key}" for key in ("fail", "unknown", "warn") if counts[key]]
    phrases += [f"{counts[state]} {state}" for state in get_args(NodeState)[1:] if counts[state]]
    phrases += [f"{counts[key]} {key}" for key in ("pass", "skip") if counts[key]]
    count = count_with_noun(len(fleet.nodes), "node")
    return f"{count} ({fleet.source}): {', '.join(phrases)}   in {fleet.seconds:.1f} s"


def _node_standing(fleet: Fleet, node: Node) -> str:
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
            self._write_head("kinds of nodes")
            for kind, hosts in groups.items():
                self.to.wrapped(INDENT, f"{kind}: {nodes(hosts)}")

    def silent(self, fleet: Fleet) -> None:
        """Nodes without a report, those with the same reason together."""
        groups = group_by(fleet.silent, lambda node: (node.state, blank(node.note)))
        if groups:
            self._write_head("no report")
        self._write_limited(
            sorted(groups.items(), key=lambda item: -len(item[1])),
            lambda item: self.to.status(
                Status.UNKNOWN, f"{item[0][0]} {nodes(n.host for n in item[1])}: {_shared_note(item[1])}"
            ),
        )

    def oddities(self, oddities: Iterable[Oddity]) -> None:
        """What sets nodes apart."""
        all_oddities = list(oddities)
        if all_oddities:
            self._write_head("different from the others")
        self._write_limited(all_oddities, self._write_oddity)

    def causes(self, groups: Sequence[SharedCause]) -> None:
        """Each cause with its owner, its nodes and what to type first."""
        if groups:
            self._write_head("causes")
        self._write_limited(groups, self._write_cause)

    def problems(self, fleet: Fleet) -> None:
        """What follows from no cause, the same on several nodes shown once."""
        groups = _problem_families(fleet)
        if groups:
            self._write_head("wrong on the nodes")
        self._write_limited(groups, self._write_family)

    def look_again(self, fleet: Fleet, again: Again) -> None:
        """The commands that ask the first node of each problem once more."""
        checks: dict[str, dict[str, None]] = {}
        for group in shared_causes(fleet.nodes):
            checks.setdefault(group.host, {})[group.cause.check] = None
        for first, *_ in _problem_families(fleet):
            checks.setdefault(first.hosts[0], {})[first.found[0][1].check] = None
        if checks:
            self._write_head("to look again")
        for host, wanted in list(checks.items())[:AGAIN]:
            self.to.line(f"{INDENT}$ {inert(again(host, wanted))}")

    def blind(self, fleet: Fleet) -> None:
        """What could not be seen: the checks by reason and nodes."""
        where: dict[tuple[str, str], dict[str, None]] = {}
        for node in fleet.nodes:
            for problem in node.problems:
                if problem.severity is Severity.BLIND:
                    where.setdefault((problem.reason, problem.check), {})[node.host] = None
        groups = group_pairs(((reason, tuple(hosts)), check) for (reason, check), hosts in where.items())
        if groups:
            self._write_head("could not be seen")
        self._write_limited(
            groups.items(),
            lambda item: self.to.status(
                Status.UNKNOWN, f"{item[0][0]}: {' '.join(item[1])}   {nodes(item[0][1])}"
            ),
        )

    def notes(self, fleet: Fleet) -> None:
        """What was strange about answers that came."""
        groups = group_pairs(
            (blank(node.note), node) for node in fleet.nodes if node.state == "answered" and node.note
        )
        if groups:
            self._write_head("notes")
        self._write_limited(
            groups.values(),
            lambda group: self.to.wrapped(INDENT, f"{nodes(n.host for n in group)}: {_shared_note(group)}"),
        )

    def standings(self, fleet: Fleet) -> None:
        """Every node that answered, once: the counts of the first line by name."""
        odd_hosts = {host for oddity in fleet.oddities for host in oddity.odd}
        passing = frozenset(fleet.passing)
        groups: dict[tuple[Status, str], list[str]] = {}
        for node in fleet.nodes:
            if node.state != "answered" or node.verdict is None:
                continue
            status, but = Status(_node_standing(fleet, node)), ""
            if status in (Status.PASS, Status.WARN) and node.name not in passing:
                but = "but another machine has its name, and fails: "
            elif status is Status.PASS and node.host in odd_hosts:
                but = "but different: "
            elif status is Status.SKIP:
                but = "every check was skipped, neither passing nor failing: "
            groups.setdefault((status, but), []).append(node.host)
        if groups:
            self.to.line("")
        for status in WORST_FIRST:
            for (group_status, but), hosts in sorted(groups.items(), key=lambda item: item[0][1]):
                if group_status is status:
                    self.to.status(status, but + nodes(hosts))

    def _write_cause(self, group: SharedCause) -> None:
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
        self.to.labelled(FIX, self._shorten_fix(group.fix))
        self.to.labelled(FOLLOWS, ", ".join(group.follows))

    def _write_oddity(self, oddity: Oddity) -> None:
        self.to.status(oddity.status, f"{oddity.title}: {oddity.summary}")
        self.to.labelled(WHY, oddity.why)
        self.to.labelled(FIX, oddity.fix)

    def _write_family(self, ones: list[GroupedProblem]) -> None:
        """Problems that differ in numbers at most, with one fix."""
        first = ones[0].found[0][1]
        for grouped in ones[:ALIKE]:
            self.to.status(
                first.status, f"{first.check}: {about(grouped.subject, grouped.words)}   {grouped.where}"
            )
        if rest := [pair for grouped in ones[ALIKE:] for pair in grouped.found]:
            where = nodes(dict.fromkeys(node.host for node, _ in rest))
            self.to.status(
                first.status, f"{first.check}: {len(rest)} more with other numbers or subjects   {where}"
            )
        fix_text = fix(ones)
        if fix_text and fix_text in self._fixes:
            self.to.labelled(FIX, f"as for {self._fixes[fix_text]}, above")
        else:
            self.to.labelled(FIX, fix_text)
            self._fixes[fix_text] = first.check
            if first.action not in ("none", "investigate"):
                self.to.labelled("action", first.action)

    def _shorten_fix(self, fix: str) -> str:
        """The first sentences of a fix, as many as fit; the report of each node has all of them."""
        first, *others = sentences(fix) or [""]
        room = FIX_LINES * (self.to.width - len(INDENT) - 8)
        while others and len(f"{first}. {others[0]}.") <= room:
            first = f"{first}. {others.pop(0)}"
        return f"{first}." if first else ""

    def _write_head(self, title: str) -> None:
        self.to.line("", title)

    def _write_limited(self, items: Iterable[Item], show: Callable[[Item], None]) -> None:
        entries = list(items)
        for item in entries[:MOST]:
            show(item)
        if len(entries) > MOST:
            self.to.line(f"{INDENT}... and {len(entries) - MOST} more; --json has all")


def _problem_families(fleet: Fleet) -> list[list[GroupedProblem]]:
    """The problems that follow from no cause and are more than not visible."""
    pairs = ((node, problem) for node in fleet.nodes for problem in unexplained(node))
    return list(families(pair for pair in pairs if pair[1].severity > Severity.BLIND))


def _shared_note(group: list[Node]) -> str:
    """The note of the first, and whether the others say the same with other numbers."""
    same = all(node.note == group[0].note for node in group)
    return group[0].note + ("" if same else " (and alike)")
