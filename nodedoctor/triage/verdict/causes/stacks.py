"""Stacks that somebody kept: most processes wait in a collective, and a few stand elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodedoctor.triage.describe import blameable_identities, describe_identities
from nodedoctor.triage.model import Candidate
from nodedoctor.triage.patterns.stacks import ThreadStack, describe_frame
from nodedoctor.triage.timeline import Timeline
from nodedoctor.wording import count_with_noun, singular_or_plural


def waited_for(few: Sequence[object], waiting: Sequence[object]) -> bool:
    """True when those that stand elsewhere are no more than those that wait in a collective."""
    return bool(few) and len(few) <= len(waiting)


def held_up(who: str, doing: str, waiting: int, collective: str, *, gil: bool, more: str = "") -> str:
    """The headline: who stands where, what else is known of it, and how many wait for it."""
    lock = " and keeps Python's lock" if gil else ""
    wait = singular_or_plural(waiting, "waits", "wait")
    return f"{who} {doing}{lock}{more}; {count_with_noun(waiting, 'rank')} {wait} for it in {collective}"


def outside_collective(story: Timeline) -> Iterator[Candidate]:
    """All but a few stand in a collective: the few are waited for."""
    told = story.of(ThreadStack)
    waiting = [event for event in told if event.what.collective]
    busy = {(e.who.rank, e.who.pid) for e in waiting}
    others = [e for e in told if not e.what.collective and (e.who.rank, e.who.pid) not in busy]
    if not waited_for(others, waiting):
        return
    culprits = blameable_identities(*(event.who for event in others))
    who, doing = (
        describe_identities(culprits) or "one process",
        f"is in {describe_frame(others[0].what.frames)}",
    )
    gil = any(event.what.owns_gil for event in others)
    yield Candidate(
        "cpu_stuck_or_slow_rank",
        "absence",
        "medium",
        held_up(who, doing, len(waiting), waiting[0].what.collective, gil=gil),
        (*others[:3], *waiting[:3]),
        culprits,
        tuple(event.who for event in waiting if event.who.rank is not None),
    )


RULES = (outside_collective,)
