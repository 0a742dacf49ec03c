"""What each cause of triage means, and by its kind what to do: the one table that decides on a restart."""

from __future__ import annotations

from functools import cache
from typing import Literal

from nodedoctor.knowledge.table import cached_rows
from nodedoctor.record import record


@record
class KnownCause:
    """One cause. `confirm` and `fix` are steps in order; `see` names checks, variables and other causes."""

    cause: str
    title: str
    means: str
    confirm: tuple[str, ...]
    fix: tuple[str, ...]
    source: str
    see: tuple[str, ...] = ()
    unverified: bool = False


causes = cached_rows("causes", "causes", KnownCause)


def cause(name: str) -> KnownCause | None:
    """The cause of that name, `peer_died`; None for one the table does not have."""
    return next((row for row in causes() if row.cause == name), None)


Decision = Literal["none", "restart", "restart-without", "stop", "look"]
Recurs = Literal["yes", "no", "unknown"]
MoveOf = Literal["NODE", "CODE", "CONFIG", "UNDETERMINED"]


@record
class Kind:
    """One kind: `peer_died/segfault`; `events` show it, and the row without any is for the rest.

    `same_nodes` and `other_nodes`: whether it is expected again when the job is started there. `differs` is
    what NVIDIA's resiliency extension decides, where that is something else.
    """

    kind: str
    events: tuple[str, ...]
    decision: Decision
    same_nodes: Recurs
    other_nodes: Recurs
    owner: MoveOf
    title: str
    why: str
    source: str
    differs: str = ""

    @property
    def reason(self) -> str:
        """Why it is decided so, as a sentence."""
        return f"{self.why[:1].upper()}{self.why[1:]}."

    @property
    def cause(self) -> str:
        """The cause that it belongs to."""
        return self.kind.partition("/")[0]


kinds = cached_rows("kinds", "kinds", Kind)
"""All kinds, those of a cause one after the other."""


@cache
def of_cause(cause: str) -> tuple[Kind, ...]:
    """The kinds of one cause, what is left over last."""
    return tuple(row for row in kinds() if row.cause == cause)


@cache
def cause_of_check(check: str) -> str:
    """The cause that a failure of this check can be, by the kind that has it as an event; else ''."""
    name = event_of_check(check)
    return next((row.cause for row in kinds() if name in row.events), "")


def event_of_check(check: str) -> str:
    """The name of a check, `ib.ports`, among the events of kinds."""
    return check.replace(".", "_").replace("-", "_")


def owner_of_kind(name: str) -> MoveOf:
    """Who must act on what is of this kind."""
    row = kind(name)
    return row.owner if row is not None else "UNDETERMINED"


def kind(name: str) -> Kind | None:
    """The kind of that name, with its cause or, where no other cause has one of that name, without."""
    exact = [row for row in kinds() if row.kind == name]
    matches = exact or [row for row in kinds() if row.kind.partition("/")[2] == name]
    return matches[0] if len(matches) == 1 else None


def kind_of_events(cause: str, names: tuple[tuple[str, ...], ...]) -> str:
    """The kind that events show: the first that a row has; `names` are those of each, the closest first."""
    kinds_by_name = {name: row.kind for row in of_cause(cause) for name in row.events}
    matches = (kinds_by_name[name] for event in names for name in event if name in kinds_by_name)
    return next(matches, f"{cause}/other")
