"""What failed on a node, where the logs themselves do not say why."""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.grouping import group_by
from nodedoctor.triage.model import Candidate
from nodedoctor.triage.timeline import Timeline
from nodedoctor.triage.timeline.node_reports import NodeFault


def node_faults(timeline: Timeline) -> Iterator[Candidate]:
    """Failed checks by cause: only where nothing better explains it, so never sure."""
    by_cause = group_by(timeline.of_kind(NodeFault), lambda event: event.what.cause)
    for cause, events in by_cause.items():
        first = events[0]
        where = f" on {first.who.host}" if first.who.host else ""
        yield Candidate(
            cause,
            "node",
            "medium",
            f"the logs do not say why, but {first.what.check} fails{where}: {first.what.summary}",
            tuple(events[:4]),
        )


RULES = (node_faults,)
