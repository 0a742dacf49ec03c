"""The nouns of a fleet: a node as its report tells it, what sets nodes apart, and all of it together.

Of each report only what the fleet compares is kept, so that ten thousand of them fit in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Literal

from nodedoctor.errors import NodeDoctorError
from nodedoctor.json_shapes import moment_of
from nodedoctor.model import Action, Severity, Status, identifier
from nodedoctor.record import field, record

NodeState = Literal["answered", "silent", "unreachable", "unable", "unreadable"]
"""What came of asking a node: a report; nothing in time; no way to it; it was reached, but nodedoctor could
not run there; an answer that is not a report of ours."""


FRESH_S = 3600.0
"""Seconds between a fleet's start and the time in a report from which the report is old, or the node's clock
far off (chosen by us, no external source)."""


class FleetError(NodeDoctorError):
    """Why the nodes cannot be asked at all, in one line."""


@record
class FleetRequest:
    """What every node is asked to do.

    `arguments` are those of `nodedoctor` on the node, `deadline` the seconds one node has from being asked
    to its last byte, `width` how many are asked at once, `pyz` the single file to bring along (or None).
    """

    arguments: tuple[str, ...] = ("--json",)
    deadline: float = 50.0
    width: int = 64
    pyz: str | None = None


@record
class Problem:
    """A finding of a node's report that is not well.

    `title` is what holds when the check passes, `fix` what the report says to do. One in `preview` is shown
    and makes no node sick.
    """

    check: str
    subject: str
    status: Status
    summary: str
    action: Action = "investigate"
    reason: str = ""
    title: str = ""
    fix: str = ""
    preview: bool = False

    @property
    def id(self) -> str:
        """Check and subject: the same problem on two nodes has the same id."""
        return identifier(self.check, self.subject)

    @property
    def severity(self) -> Severity:
        """How bad it is; nothing here is waived, as what is waived is no problem."""
        return Severity.of(self.status, self.reason, preview=self.preview)

    @property
    def counted(self) -> Severity:
        """How bad it is for the verdict."""
        return self.severity.counted(self.preview)

    @property
    def said(self) -> str:
        """Its summary, marked where it does not count."""
        return f"{self.summary} (preview)" if self.preview and self.status is Status.WARN else self.summary


@record
class NodeCause:
    """A cause of a node's report: whose move it is, what is broken and what to do in one line.

    `check` is the one that found it, `said` the whole line, `headline` what is broken, `command` what to type
    first on the node (or nothing), `explains` the ids of the finding itself and of those that follow from it.
    """

    check: str
    status: Status
    said: str = ""
    command: str = ""
    explains: tuple[str, ...] = ()
    headline: str = ""
    owner: str = ""
    action: str = ""
    subjects: tuple[str, ...] = ()
    preview: bool = False
    reason: str = ""  # why it is unknown

    @property
    def title(self) -> str:
        """Its headline, marked where it does not count."""
        return f"{self.headline} (preview)" if self.preview else self.headline

    @property
    def severity(self) -> Severity:
        """How bad it is; of what is in preview at most a warning."""
        return Severity.of(self.status, self.reason, preview=self.preview)


@record
class Node:
    """One node: what came of asking it, and what its report says as far as nodes are compared.

    `note` says why there is no report, or what was strange about the answer. `cause` is the line its report
    leads with: whose move it is, the worst cause, what to do; `causes` are all of them. `traits` are what
    somebody decided (versions, limits, counts), `readings` what was measured or counted, both by the keys of
    `fleet/compare/traits.py`. `report` is the file the whole report lies in, if it lies in one. `hostname`
    and `boot_id`
    are the machine's own, and so are `uptime` in seconds (0 when not known) and the `serials` of its GPUs.
    `peers` is what came of trying the way to other nodes: "" or why there was none. `raw` is the answer
    itself, which the gatherer saves or lets go of. `gate` is the exit code of `--gate` for the report, None
    without one; what is `replayed` is as old as its recording. `ahead` are the least and the most seconds by
    which its clock is ahead of ours, None where it is not known when it was asked. `alias` is set where
    another machine has the same name: then `host` tells the two apart for people, and `alias` is what
    schedulers know. `acceptance` is the document of `accept`, where that was asked in place of a report.
    """

    host: str
    state: NodeState = "answered"
    note: str = ""
    seconds: float = 0.0
    started: str = ""
    tool: str = ""
    gpus: int | None = None
    verdict: Status | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    statuses: Mapping[str, Status] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    cause: str = ""
    causes: tuple[NodeCause, ...] = ()
    traits: Mapping[str, str] = field(default_factory=dict)
    readings: Mapping[str, float] = field(default_factory=dict)
    report: str = ""
    hostname: str = ""
    boot_id: str = ""
    uptime: float = 0.0
    serials: tuple[str, ...] = ()
    alias: str = ""
    peers: Mapping[str, str] = field(default_factory=dict)
    raw: str = ""
    gate: int | None = None
    replayed: bool = False
    ahead: tuple[float, float] | None = None
    acceptance: Mapping[str, Any] = field(default_factory=dict)

    @property
    def severity(self) -> Severity:
        """How bad the node is, for sorting; one without a report is as bad as one where something broke."""
        if self.state != "answered":
            return Severity.BROKEN
        default = Severity.PASS if self.judged else Severity.SKIP
        return max((problem.counted for problem in self.problems), default=default)

    @property
    def judged(self) -> bool:
        """Whether anything was looked at: a node that skipped every check is neither well nor sick."""
        return self.verdict is not Status.SKIP

    @property
    def name(self) -> str:
        """What lists for schedulers have."""
        return self.alias or self.host


@record
class ValueGroup:
    """Nodes that have the same value of something. `hosts` are sorted as people count."""

    value: str
    hosts: tuple[str, ...]


@record
class Oddity:
    """One thing in which nodes differ that should not: the groups, the largest first.

    `majority` is the group the others are measured against, None when no group holds more than half.
    `odd` are the nodes to look at.
    """

    key: str
    title: str
    status: Status
    summary: str
    why: str
    groups: tuple[ValueGroup, ...]
    majority: ValueGroup | None
    odd: tuple[str, ...]
    fix: str = ""


@record
class Fleet:
    """Everything one run over many nodes says; every view is made from this and nothing else."""

    tool: str
    source: str
    started: str
    seconds: float
    nodes: tuple[Node, ...]
    oddities: tuple[Oddity, ...] = ()
    titles: Mapping[str, str] = field(default_factory=dict)
    gated: bool = False

    @property
    def severity(self) -> Severity:
        """The severity of the worst node or oddity; `SKIP` without nodes."""
        of_oddities = (Severity.of(oddity.status) for oddity in self.oddities)
        return max((*(node.severity for node in self.nodes), *of_oddities), default=Severity.SKIP)

    @property
    def verdict(self) -> Status:
        """The worst of nodes and oddities; a node without a report counts as unknown."""
        return self.severity.status

    @property
    def barred(self) -> frozenset[str]:
        """The hosts that are different in what breaks jobs, whatever their own reports say."""
        return frozenset(h for oddity in self.oddities if oddity.status is Status.FAIL for h in oddity.odd)

    @property
    def failing(self) -> tuple[str, ...]:
        """The names to keep a job away from: a failure, something broken, no report, or oddly different.

        Of two machines with one name a scheduler may give either: one that fails bars the name.
        """
        barred = self.barred
        if self.gated:
            passing = frozenset(self.passing)
            return _node_names(node for node in self.nodes if node.name not in passing)
        return _node_names(
            node for node in self.nodes if node.severity >= Severity.BROKEN or node.host in barred
        )

    @property
    def unjudged(self) -> tuple[str, ...]:
        """The names of nodes that skipped every check: nothing was looked at, so nothing is said."""
        if self.gated:
            return ()
        failing = frozenset(self.failing)
        skipped = (node for node in self.nodes if node.severity is Severity.SKIP)
        return _node_names(node for node in skipped if node.name not in failing)

    @property
    def passing(self) -> tuple[str, ...]:
        """All other names; by the gate those of nodes that may start jobs, the fewest warnings first."""
        if self.gated:
            barred = self.barred
            refused = {n.name for n in self.nodes if not self._passes_gate(n) or n.host in barred}
            ordered = sorted(self.nodes, key=lambda node: len(node.problems))
            return _node_names(node for node in ordered if node.name not in refused)
        others = frozenset((*self.failing, *self.unjudged))
        return _node_names(node for node in self.nodes if node.name not in others)

    def _passes_gate(self, node: Node) -> bool:
        """Whether the gate lets new jobs start: by exit code 0 or 3 of a report that is not old."""
        return node.state == "answered" and node.gate in (0, 3) and not is_old(node, self.started)

    @property
    def silent(self) -> tuple[Node, ...]:
        """The nodes that gave no report, whatever the reason."""
        return tuple(node for node in self.nodes if node.state != "answered")

    def worst_first(self) -> tuple[Node, ...]:
        """Nodes by severity, then as they were given."""
        return tuple(sorted(self.nodes, key=lambda node: -node.severity))


def is_old(node: Node, started: str) -> bool:
    """Whether a report was made long before or after the fleet was asked, or does not say when."""
    if node.replayed:
        return False
    fleet_start, node_start = moment_of(started), moment_of(node.started)
    if fleet_start is None or node_start is None:
        return True
    return abs((fleet_start - node_start).total_seconds()) > FRESH_S


def _node_names(nodes: Iterable[Node]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(node.name for node in nodes))
