"""A rank whose steps end before all others': it did not come to their collective."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nodedoctor.triage.model import Candidate, Confidence
from nodedoctor.triage.patterns.trace import ExceptionRaised
from nodedoctor.triage.timeline.model import Timeline
from nodedoctor.triage.timeline.pace import RankCount, count_steps
from nodedoctor.triage.verdict.causes.missing import absent_rank, ranks_without_timeout

FEWEST_RANKS = 3
"""Ranks that count steps, at least: of two that differ it is unknown which is wrong."""
STEADY_RISES = 3
"""Rises that show that a rank logs its steps: most frameworks let one rank do so. Ours."""
FAR_BEHIND = 3
"""Lines that a rank is behind by: no order of output between processes makes as many. Ours."""


def lagging_rank(timeline: Timeline) -> Iterator[Candidate]:
    """A rank whose steps end before the step in which the others timed out."""
    if timeline.folded or not timeline.waits:
        return
    silent = {who.rank for who in ranks_without_timeout(timeline)}
    for ranks in count_steps(timeline.events).values():
        steady = {rank: count for rank, count in ranks.items() if count.rises >= STEADY_RISES}
        slow = _slow_ranks(timeline, steady)
        if not slow or (silent and not silent & set(slow)):
            continue
        events = [steady[rank].event for rank in slow]
        front = max(count.last for count in steady.values())
        lines = min((front[-1] - steady[rank].last[-1]) / steady[rank].stride for rank in slow)
        confidence: Confidence = "medium" if lines >= FAR_BEHIND else "low"
        step = steady[slow[0]].last[-1]
        yield absent_rank(
            timeline,
            tuple(event.who for event in events),
            (*events[:3], *(wait.event for wait in timeline.waits[:2])),
            f"was last heard at step {step:g}, the others came to {front[-1]:g}",
            "absence",
            confidence,
        )


def _slow_ranks(timeline: Timeline, steady: Mapping[int, RankCount]) -> list[int]:
    """Ranks behind the front line of all others; none where more than a third are."""
    if len(steady) < FEWEST_RANKS:
        return []
    front = max(count.last for count in steady.values())
    behind = {rank: _lines_behind(count, front) for rank, count in steady.items()}
    slow = sorted(rank for rank, lines in behind.items() if lines is None or lines >= 1)
    gave_up = {event.who.rank for event in timeline.timeout_events} | {
        event.who.rank for event in timeline.of_kind(ExceptionRaised)
    }
    if None in behind.values() or len(slow) > max(1, len(steady) // 3) or gave_up & set(slow):
        return []
    return slow


def _lines_behind(count: RankCount, front: tuple[float, ...]) -> float | None:
    """How many of its own lines a rank is behind; None in another epoch."""
    if count.last[:-1] != front[:-1] or len(count.last) != len(front):
        return None
    return (front[-1] - count.last[-1]) / count.stride
