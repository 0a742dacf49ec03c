"""A rank whose steps end before those of all others: it did not come to where they waited."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from nodedoctor.triage.model import Candidate, Confidence
from nodedoctor.triage.patterns.trace import ExceptionRaised
from nodedoctor.triage.timeline import Timeline
from nodedoctor.triage.timeline.counts import RankCount, count_steps
from nodedoctor.triage.verdict.causes.missing import absent_rank, ranks_without_timeout

FEWEST = 3
"""Ranks that count: of two that differ nobody knows which is wrong."""
HABIT = 3
"""Rises that show that a rank tells its steps: most frameworks let one rank tell them. Ours."""
FAR = 3
"""Lines that a rank is behind by: no order of output between processes makes as many. Ours."""


def lagging_rank(story: Timeline) -> Iterator[Candidate]:
    """The others came to the same step and timed out; this one's steps end before, and it did not wait."""
    if story.folded or not story.waits:
        return
    known = {who.rank for who in ranks_without_timeout(story)}
    for ranks in count_steps(story.events).values():
        steady = {rank: count for rank, count in ranks.items() if count.rises >= HABIT}
        slow = _slow_ranks(story, steady)
        if not slow or (known and not known & set(slow)):
            continue
        told = [steady[rank].event for rank in slow]
        front = max(count.last for count in steady.values())
        lines = min((front[-1] - steady[rank].last[-1]) / steady[rank].stride for rank in slow)
        confidence: Confidence = "medium" if lines >= FAR else "low"
        step = steady[slow[0]].last[-1]
        yield absent_rank(
            story,
            tuple(event.who for event in told),
            (*told[:3], *(wait.event for wait in story.waits[:2])),
            f"was last heard at step {step:g}, the others came to {front[-1]:g}",
            "absence",
            confidence,
        )


def _slow_ranks(story: Timeline, steady: Mapping[int, RankCount]) -> list[int]:
    """Ranks behind all others, which stand within a line of each other; none where more than a third are."""
    if len(steady) < FEWEST:
        return []
    front = max(count.last for count in steady.values())
    behind = {rank: _lines_behind(count, front) for rank, count in steady.items()}
    slow = sorted(rank for rank, lines in behind.items() if lines is None or lines >= 1)
    gave_up = {event.who.rank for event in story.given_up} | {
        event.who.rank for event in story.of(ExceptionRaised)
    }
    if None in behind.values() or len(slow) > max(1, len(steady) // 3) or gave_up & set(slow):
        return []
    return slow


def _lines_behind(count: RankCount, front: tuple[float, ...]) -> float | None:
    """How many of its own lines a rank is behind; None in another epoch, where nobody can tell."""
    if count.last[:-1] != front[:-1] or len(count.last) != len(front):
        return None
    return (front[-1] - count.last[-1]) / count.stride


RULES = (lagging_rank,)
