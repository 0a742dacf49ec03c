"""Why training jobs die or hang: what each cause of triage means, how to confirm and how to repair it."""

from __future__ import annotations

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
    note: str = ""
    unverified: bool = False


causes = cached_rows("causes", "causes", KnownCause)


def cause(name: str) -> KnownCause | None:
    """The cause of that name, `peer_died`; None for one the table does not have."""
    return next((row for row in causes() if row.cause == name), None)
