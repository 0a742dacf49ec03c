"""States of a node in which Slurm starts no new job there: sinfo(1), NODE STATE CODES, and scontrol(1)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from nodedoctor.patterns import regex
from nodedoctor.record import record

StateKind = Literal["fault", "drain", "maintenance", "closed"]


@record
class SlurmState:
    """One state. `name` is how scontrol writes it, and sinfo in small letters; `short` how sinfo may.

    `kind`: a fault, a drain by a person or a health check, a maintenance, or closed for another reason.
    """

    name: str
    kind: StateKind
    why: str
    short: str = ""

    @property
    def words(self) -> tuple[str, ...]:
        """How sinfo writes it."""
        return tuple(filter(None, (self.name.lower(), self.short)))


STATES = (
    SlurmState("DOWN", "fault", "down"),
    SlurmState("ERROR", "fault", "in error", "err"),
    SlurmState("FAIL", "fault", "about to fail"),
    SlurmState("FAILING", "fault", "about to fail", "failg"),
    SlurmState("NOT_RESPONDING", "fault", "not responding"),  # sinfo: an asterisk behind the state
    SlurmState("DRAIN", "drain", "drained"),
    SlurmState("DRAINED", "drain", "drained"),
    SlurmState("DRAINING", "drain", "draining", "drng"),
    SlurmState("MAINT", "maintenance", "in maintenance"),
    SlurmState("MAINTENANCE", "maintenance", "in maintenance"),
    SlurmState("FUTURE", "closed", "not there yet"),
    SlurmState("INVAL", "closed", "registered with fewer resources than slurm.conf says"),
    SlurmState("PERFCTRS", "closed", "in use for performance counters"),
    SlurmState("POWER_DOWN", "closed", "being powered down"),
    SlurmState("POWERED_DOWN", "closed", "powered down"),
    SlurmState("POWERING_DOWN", "closed", "being powered down"),
    SlurmState("REBOOT", "closed", "about to reboot"),
    SlurmState("RESERVED", "closed", "reserved"),
    SlurmState("UNKNOWN", "closed", "not known to be up", "unk"),
)


def kinds_of(states: Iterable[str]) -> set[StateKind]:
    """Of which kinds some states are, in any spelling."""
    wanted = {state.lower() for state in states}
    return {row.kind for row in STATES if not wanted.isdisjoint(row.words)}


_FAULT = regex(
    r"Not responding|[Kk]ill task failed|[Ll]ow (?:Real)?[Mm]em|lower than configured|(?:Pro|Epi)log error"
    r"|unexpectedly|[Dd]uplicate jobid|batch job complete|(?i:xid|gpu|nvlink|ecc|fail|error|fell"
    r"|lost|dead|broken|panic|crash|defect|\bbad\b|hca|\bib\b|link|oom|disk|hang|hung|dcgm|nhc|health)"
)
"""Reasons of slurmctld and slurmd, and words of a fault in what a person or a health check wrote."""
_PLAN = regex(
    r"(?i:maint|reserv|upgrad|updat|patch|plan|schedul|reboot|firmware|\bfw\b|driver|kernel|\bos\b|imag"
    r"|install|mov(?:e|ing)|decom|retir|power sav|benchmark|\btest)"
)
"""Words of a plan in a reason. Ours."""


def is_planned(reason: str) -> bool:
    """Whether a reason to take a node out is a plan, and names no fault."""
    return _PLAN.search(reason) is not None and _FAULT.search(reason) is None


def is_trouble(states: Iterable[str], reason: str) -> bool:
    """Whether a node in these states is out for a fault: down or drained, and not taken out by plan."""
    kinds = kinds_of(states)
    by_plan = "maintenance" in kinds or ("drain" in kinds and is_planned(reason))
    return bool(kinds & {"fault", "drain"}) and not by_plan
