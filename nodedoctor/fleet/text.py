"""Many nodes for people without a screen of ours: who gave no report, who differs, what is wrong where.

Problems are told once with the nodes they are on, so that one broken switch is one line and not a hundred.
"""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Callable, Iterable
from typing import TypeVar, get_args

from nodedoctor.fleet.document import counts
from nodedoctor.fleet.judge import kinds
from nodedoctor.fleet.model import Fleet, Node, Oddity, Problem, State
from nodedoctor.fleet.nodeset import fold
from nodedoctor.model import Status
from nodedoctor.report.inert import inert

MOST = 40
"""Problems, oddities or notes shown of each sort; the JSON has all of them."""

_INDENT = "     "
_COLOUR = {Status.FAIL: "1;31", Status.WARN: "33", Status.UNKNOWN: "35", Status.PASS: "32", Status.SKIP: "2"}
_NUMBER = re.compile(r"[0-9]+(?:\.[0-9]+)?")
_BLIND = 2

Item = TypeVar("Item")


def render(fleet: Fleet, *, width: int = 80, colour: bool = False, quiet: bool = False) -> str:
    """The whole fleet as lines; with `quiet` only what is not well."""
    page = _Page(max(width, 40), colour, fleet.source)
    page.status(fleet.verdict, tally(fleet))
    if not quiet:
        page.kinds(fleet)
    page.silent(fleet)
    page.oddities(fleet.oddities)
    page.problems(fleet)
    if not quiet:
        page.blind(fleet)
        page.notes(fleet)
        page.well(fleet)
    return "\n".join(page.lines) + "\n"


def tally(fleet: Fleet) -> str:
    """The counts in one line, worst first, without zeros."""
    found = counts(fleet.nodes)
    told = [f"{found[key]} {key}" for key in ("fail", "unknown", "warn") if found[key]]
    told += [f"{found[state]} {state}" for state in get_args(State)[1:] if found[state]]
    told += [f"{found[key]} {key}" for key in ("pass", "skip") if found[key]]
    nodes = f"{found['nodes']} node{'' if found['nodes'] == 1 else 's'}"
    return f"{nodes} ({fleet.source}): {', '.join(told)}   in {fleet.seconds:.1f} s"


class _Page:
    """Lines under way, at one width."""

    def __init__(self, width: int, colour: bool, source: str) -> None:
        self.lines: list[str] = []
        self._width = width
        self._colour = colour
        self._source = source
        self._fixes: dict[str, str] = {}

    def kinds(self, fleet: Fleet) -> None:
        """What kinds of nodes there are, where there are several."""
        answered = [node for node in fleet.nodes if node.state == "answered"]
        groups = {kind: [node.host for node in members] for kind, members in kinds(answered).items()}
        told = {host for hosts in groups.values() for host in hosts}
        if others := [node.host for node in answered if node.host not in told]:
            groups["no GPU"] = others
        if len(groups) > 1:
            self._head("kinds of nodes")
            for kind, hosts in groups.items():
                self._wrapped(_INDENT, f"{kind}: {_nodes(hosts)}")

    def silent(self, fleet: Fleet) -> None:
        """Nodes without a report, those with the same reason together."""
        groups: dict[tuple[str, str], list[Node]] = {}
        for node in fleet.silent:
            groups.setdefault((node.state, _alike(node.note)), []).append(node)
        if groups:
            self._head("no report")
        self._limited(
            sorted(groups.items(), key=lambda item: -len(item[1])),
            lambda item: self.status(
                Status.UNKNOWN, f"{item[0][0]} {_nodes(n.host for n in item[1])}: {_noted(item[1])}"
            ),
        )

    def oddities(self, oddities: Iterable[Oddity]) -> None:
        """What sets nodes apart."""
        listed = list(oddities)
        if listed:
            self._head("different from the others")
        self._limited(listed, self._oddity)

    def problems(self, fleet: Fleet) -> None:
        """What the nodes' own reports say, the same on several nodes told once."""
        groups: dict[tuple[str, ...], list[tuple[Node, Problem]]] = {}
        for node in fleet.nodes:
            for problem in node.problems:
                if problem.severity > _BLIND:
                    groups.setdefault(_sort(problem), []).append((node, problem))
        if groups:
            self._head("wrong on the nodes")
        worst = sorted(groups.values(), key=lambda group: (-group[0][1].severity, -len(group)))
        self._limited(worst, self._problem)

    def blind(self, fleet: Fleet) -> None:
        """What could not be seen, by reason."""
        groups: dict[str, dict[str, None]] = {}
        where: dict[str, dict[str, None]] = {}
        for node in fleet.nodes:
            for problem in node.problems:
                if problem.severity == _BLIND:
                    groups.setdefault(problem.reason, {})[problem.check] = None
                    where.setdefault(problem.reason, {})[node.host] = None
        if groups:
            self._head("could not be seen")
        for reason, checks in groups.items():
            self.status(Status.UNKNOWN, f"{reason}: {' '.join(checks)}   {_nodes(where[reason])}")

    def notes(self, fleet: Fleet) -> None:
        """What was strange about answers that came."""
        groups: dict[str, list[Node]] = {}
        for node in fleet.nodes:
            if node.state == "answered" and node.note:
                groups.setdefault(_alike(node.note), []).append(node)
        if groups:
            self._head("notes")
        self._limited(
            groups.values(),
            lambda group: self._wrapped(_INDENT, f"{_nodes(n.host for n in group)}: {_noted(group)}"),
        )

    def well(self, fleet: Fleet) -> None:
        """The nodes nothing is wrong with."""
        odd = {host for oddity in fleet.oddities for host in oddity.odd}
        well = [
            n.host
            for n in fleet.nodes
            if n.state == "answered" and n.severity <= _BLIND and n.host not in odd
        ]
        if well:
            self.lines.append("")
            self.status(Status.PASS, _nodes(well))

    def status(self, status: Status, text: str) -> None:
        """A line that begins with the status."""
        self._wrapped(f"{status.word} ", text, self._paint(status, status.word) + " ")

    def _oddity(self, oddity: Oddity) -> None:
        self.status(oddity.status, f"{oddity.title}: {oddity.summary}")
        self._labelled("why", oddity.why)
        self._labelled("fix", oddity.fix)

    def _problem(self, group: list[tuple[Node, Problem]]) -> None:
        (_, first), hosts = group[0], list(dict.fromkeys(node.host for node, _ in group))
        same = all((p.subject, p.summary) == (first.subject, first.summary) for _, p in group)
        subject = f" {first.subject}" if first.subject else ""
        alike = "" if same else f" (and alike, {len(group)} in all)"
        self.status(first.status, f"{first.check}{subject}: {first.summary}{alike}   {_nodes(hosts)}")
        if first.fix in self._fixes:
            self._labelled("fix", f"as for {self._fixes[first.fix]}, above")
        else:
            self._labelled("fix", first.fix)
            self._fixes[first.fix] = first.check
            if first.action not in ("none", "investigate"):
                self._labelled("action", first.action)
        if command := _closer(self._source, group[0][0], first.check):
            self.lines.append(f"{_INDENT}$ {inert(command)}")

    def _labelled(self, label: str, text: str) -> None:
        if text:
            self._wrapped(f"{_INDENT}{label:<7} ", text)

    def _head(self, title: str) -> None:
        self.lines += ["", title]

    def _limited(self, items: Iterable[Item], show: Callable[[Item], None]) -> None:
        listed = list(items)
        for item in listed[:MOST]:
            show(item)
        if len(listed) > MOST:
            self.lines.append(f"{_INDENT}... and {len(listed) - MOST} more; --json has all")

    def _wrapped(self, lead: str, text: str, painted: str = "") -> None:
        """Lines that fit behind a lead; node sets, paths and addresses stay whole."""
        room = self._width - len(lead)
        first, *rest = textwrap.wrap(inert(text), room, break_long_words=False, break_on_hyphens=False) or [
            ""
        ]
        self.lines += [(painted or lead) + first, *(" " * len(lead) + line for line in rest)]

    def _paint(self, status: Status, word: str) -> str:
        return f"\x1b[{_COLOUR[status]}m{word}\x1b[0m" if self._colour else word


def _closer(source: str, node: Node, check: str) -> str:
    """The command that shows all that node has to say about it, where there is a short one."""
    if source == "ssh":
        return f"ssh {shlex.quote(node.host)} nodedoctor {shlex.quote(check)}"
    if source == "slurm":
        return f"srun -w {shlex.quote(node.host)} nodedoctor {shlex.quote(check)}"
    return ""


def _sort(problem: Problem) -> tuple[str, ...]:
    """What makes problems one line: the same check, status and words, whatever the numbers in them."""
    return problem.check, problem.status.value, _alike(problem.subject), _alike(problem.summary)


def _noted(group: list[Node]) -> str:
    """The note of the first, and whether the others say the same with other numbers."""
    same = all(node.note == group[0].note for node in group)
    return group[0].note + ("" if same else " (and alike)")


def _alike(text: str) -> str:
    return _NUMBER.sub("#", text)


def _nodes(hosts: Iterable[str]) -> str:
    listed = list(hosts)
    return f"{len(listed)} nodes {fold(listed)}" if len(listed) > 1 else fold(listed)
