"""What accelerate's processes pass to a collective, where it compares that (utils/operations.py)."""

from __future__ import annotations

from nodedoctor.record import record
from nodedoctor.triage.events.log_pattern import LogPattern, log_pattern

DIFFER = "DistributedOperationException"
"""What it raises where they differ; a line for each process follows."""


@record
class CollectiveShape:
    """The shape of what one process passed: behind the exception, one of those that differ."""

    shape: str


SIGNS: tuple[LogPattern, ...] = (
    log_pattern(
        r"^\s*(?:- )?Process (?P<rank>\d{1,6}): (?P<shape>\[[\d, ]{0,120}\])$",
        lambda found: CollectiveShape(found["shape"]),
    ),
)
