"""Why nodes are not well: nodes with the same cause together, for every view and for the document.

Two nodes have the same cause when the same check found it with the same owner and action, and only numbers
set the words apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from nodedoctor.fleet.compare.grouping import blank, fix_of
from nodedoctor.fleet.model import Node, NodeCause, Problem
from nodedoctor.grouping import group_pairs
from nodedoctor.knowledge.ownership import action_words
from nodedoctor.model import Severity, Status
from nodedoctor.record import record
from nodedoctor.wording import about, comma_list, count_with_noun


@record
class SharedCause:
    """A cause, and every node that has it with the node's own words."""

    key: str
    members: tuple[tuple[Node, NodeCause], ...]

    @property
    def cause(self) -> NodeCause:
        """The cause in the words of the first node."""
        return self.members[0][1]

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes, in their order."""
        return tuple(node for node, _ in self.members)

    @property
    def hosts(self) -> tuple[str, ...]:
        """The names of the nodes."""
        return tuple(node.host for node, _ in self.members)

    @property
    def variants(self) -> dict[str, list[str]]:
        """The nodes by their own words, the words of the first node first."""
        return group_pairs((cause.headline, node.host) for node, cause in self.members)

    @property
    def same_words(self) -> bool:
        """Whether all nodes say it in the same words."""
        return len(self.variants) == 1

    @property
    def host(self) -> str:
        """The node on which to type the command."""
        return next((node.host for node, cause in self.members if cause.command), self.hosts[0])

    @property
    def command(self) -> str:
        """What to type first there; empty where nothing is to be typed."""
        return next((cause.command for _, cause in self.members if cause.command), "")

    @property
    def todo(self) -> str:
        """What to do, in a few words; empty where nothing was said."""
        return action_words(self.cause.action, self.cause.owner, self.cause.subjects)

    @property
    def fix(self) -> str:
        """What to do, as far as all nodes say the same."""
        roots = [_root_problem(node, cause) for node, cause in self.members]
        return fix_of(problem for problem in roots if problem) if any(roots) else ""

    @property
    def follows(self) -> tuple[str, ...]:
        """The checks that fail because of it."""
        checks = (check for node, cause in self.members for check in follows_from(node, cause))
        return tuple(dict.fromkeys(checks))


def shared_causes(nodes: Iterable[Node]) -> list[SharedCause]:
    """Every cause that a report names, the worst first, then those on most nodes."""
    return _group_causes((node, cause) for node in nodes for cause in node.causes)


def shared_reasons(nodes: Iterable[Node]) -> list[SharedCause]:
    """As `shared_causes`, and beside them why there is no report, and what follows from no cause."""
    return _group_causes((node, reason) for node in nodes for reason in (*node.causes, *lead(node)))


def lead(node: Node) -> Iterator[NodeCause]:
    """What is to be said of a node beside the causes in its report; nothing where it is well."""
    if node.state != "answered":
        yield NodeCause(node.state, Status.UNKNOWN, headline=f"{node.state}: {node.note}")
        return
    problems = unexplained(node)
    for problem in problems:
        if problem.severity > Severity.BLIND:
            headline = f"{problem.check}: {about(problem.subject, problem.summary)}"
            yield NodeCause(
                problem.check,
                problem.status,
                explains=(problem.id,),
                headline=headline,
                preview=problem.preview,
                reason=problem.reason,
            )
    if problems and not node.causes and problems[0].severity is Severity.BLIND:
        checks = count_with_noun(len({problem.check for problem in problems}), "check")
        reasons = comma_list(dict.fromkeys(problem.reason for problem in problems))
        headline = f"{checks} could not be judged: {reasons}"
        yield NodeCause("", Status.UNKNOWN, headline=headline, reason=problems[0].reason)


def unexplained(node: Node) -> list[Problem]:
    """The problems that follow from none of its causes, the worst first."""
    explained = {id for cause in node.causes for id in cause.explains}
    problems = [problem for problem in node.problems if problem.id not in explained]
    return sorted(problems, key=lambda problem: (-problem.severity, problem.id))


def follows_from(node: Node, cause: NodeCause) -> list[str]:
    """The other checks whose problems a cause explains."""
    checks = (problem.check for problem in node.problems if problem.id in cause.explains)
    return [check for check in dict.fromkeys(checks) if check != cause.check]


def _group_causes(pairs: Iterable[tuple[Node, NodeCause]]) -> list[SharedCause]:
    groups: dict[str, dict[str, tuple[Node, NodeCause]]] = {}
    for node, cause in pairs:
        key = " ".join((cause.status.value, cause.check, cause.owner, cause.action, blank(cause.headline)))
        groups.setdefault(key, {}).setdefault(node.host, (node, cause))
    shared = [SharedCause(key, tuple(members.values())) for key, members in groups.items()]
    return sorted(shared, key=lambda group: (-group.cause.severity, -len(group.hosts)))


def _root_problem(node: Node, cause: NodeCause) -> Problem | None:
    """The problem that is the cause itself."""
    return next((problem for problem in node.problems if problem.id in cause.explains[:1]), None)
