"""On what real hardware a check was seen: the outputs it has judged, and judged correctly."""

from __future__ import annotations

from nodedoctor.knowledge.table import cached_rows
from nodedoctor.model import Provenance
from nodedoctor.record import record


@record
class SeenOutput:
    """One output of real hardware, `real` if nodedoctor itself asked for it, `pasted` if somebody posted it.

    `output` is the probe under whose name it replays, `shows` what is known of the node from elsewhere. Where
    the address of a post was not kept, the row is unverified.
    """

    provenance: Provenance
    hardware: str
    output: str
    shows: str
    checks: tuple[str, ...]
    source: str


@record
class WithoutHardware:
    """Checks whose inputs no hardware shapes, and why: they are stable without an output of any."""

    why: str
    source: str
    checks: tuple[str, ...]


@record
class Awaited:
    """What checks in preview have not judged yet."""

    needs: str
    source: str
    checks: tuple[str, ...]


awaited = cached_rows("seen_on", "preview", Awaited)
"""What is missing, for every check in preview."""
without_hardware = cached_rows("seen_on", "without_hardware", WithoutHardware)
"""The checks that are the same on every machine."""
outputs = cached_rows("seen_on", "outputs", SeenOutput)
"""Every output that made a check stable."""


def missing_for(check: str) -> str:
    """What a check in preview waits for; empty for one that is stable."""
    return next((row.needs for row in awaited() if check in row.checks), "")


def seen_on(check: str) -> tuple[SeenOutput, ...]:
    """The outputs that a check has judged; none for one in preview, or one that needs no hardware."""
    return tuple(row for row in outputs() if check in row.checks)
