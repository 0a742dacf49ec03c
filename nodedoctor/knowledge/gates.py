"""Whether new jobs may start on a node with a finding: the one table that decides `schedulable`."""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import cache

from nodedoctor.knowledge.table import cached_rows
from nodedoctor.model import Schedulable, Status
from nodedoctor.record import record

_WORST: tuple[Schedulable, ...] = ("no", "drain-when-idle", "yes")


@record
class GateRow:
    """One finding id or pattern of ids: `schedulable` where it fails, `warn` where it only warns.

    With an `action` the row is for findings whose fix has that action. `harmless`: a difference or a setting
    that slows and stops nothing by itself.
    """

    id: str
    schedulable: Schedulable
    reason: str
    source: str
    warn: Schedulable = "yes"
    action: str = ""
    harmless: bool = False

    @property
    def check(self) -> str:
        """The check whose findings the row is for."""
        return self.id.partition("@")[0]


gates = cached_rows("gates", "gates", GateRow)


def gate_row(id: str, action: str = "") -> GateRow | None:
    """The row of a finding: one for its action before others, then the longest id. None for a plug-in's."""
    check = id.partition("@")[0]
    fitting = (row for row in _of_check(check) if row.action in ("", action))
    rows = (row for row in fitting if row.id == check or fnmatchcase(id, row.id))
    return max(rows, key=lambda row: (bool(row.action), len(row.id)), default=None)


def schedulable(id: str, status: Status, action: str = "") -> Schedulable:
    """Whether new jobs may start on a node with this finding.

    A plug-in's check has no row: its site wrote it to act on, so what it fails on gates. What could not be
    judged asks for a look when the node is idle, if it could have been a reason to start no job.
    """
    if status is Status.UNKNOWN:
        return "drain-when-idle" if may_refuse(id.partition("@")[0]) else "yes"
    row = gate_row(id, action)
    if row is None:
        return "no" if status is Status.FAIL else "yes"
    return row.schedulable if status is Status.FAIL else row.warn


def strictness(answer: Schedulable) -> int:
    """Where an answer comes: what lets no job start first."""
    return _WORST.index(answer)


def is_harmless(id: str) -> bool:
    """Whether a finding is of a difference or a setting that slows and stops nothing by itself."""
    row = gate_row(id)
    return row is not None and row.harmless


def worst(answers: Iterator[Schedulable]) -> Schedulable:
    """The strictest of several answers."""
    return min(answers, key=_WORST.index, default="yes")


def may_refuse(check: str) -> bool:
    """Whether a check may say that no new job may start."""
    own = _of_check(check)
    return not own or any(row.schedulable == "no" for row in own)


def may_gate(check: str) -> bool:
    """Whether any answer of a check keeps new jobs away or drains the node when it is idle."""
    own = _of_check(check)
    return not own or any(answer != "yes" for row in own for answer in (row.schedulable, row.warn))


@cache
def _of_check(check: str) -> tuple[GateRow, ...]:
    return tuple(row for row in gates() if row.check == check)
