"""Saved stacks: most processes wait in a collective, and a few are elsewhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nodedoctor.triage.describe import blameable_identities, describe_identities
from nodedoctor.triage.model import Candidate
from nodedoctor.triage.patterns.stacks import ThreadStack, describe_frame
from nodedoctor.triage.timeline.model import Timeline
from nodedoctor.wording import count_with_noun, singular_or_plural


def are_awaited(few: Sequence[object], waiting: Sequence[object]) -> bool:
    """True when the processes elsewhere are no more than those waiting in a collective."""
    return bool(few) and len(few) <= len(waiting)


def describe_holdup(who: str, doing: str, waiting: int, collective: str, *, gil: bool, more: str = "") -> str:
    """The headline: where a process is, what else is known, how many wait for it."""
    lock = " and keeps Python's lock" if gil else ""
    wait = singular_or_plural(waiting, "waits", "wait")
    return f"{who} {doing}{lock}{more}; {count_with_noun(waiting, 'rank')} {wait} for it in {collective}"


def outside_collective(timeline: Timeline) -> Iterator[Candidate]:
    """All but a few processes are in a collective, and wait for the few."""
    stacks = timeline.of_kind(ThreadStack)
    waiting = [event for event in stacks if event.what.collective]
    busy = {(e.who.rank, e.who.pid) for e in waiting}
    outside = [e for e in stacks if not e.what.collective and (e.who.rank, e.who.pid) not in busy]
    if not are_awaited(outside, waiting):
        return
    culprits = blameable_identities(*(event.who for event in outside))
    who, doing = (
        describe_identities(culprits) or "one process",
        f"is in {describe_frame(outside[0].what.frames)}",
    )
    gil = any(event.what.owns_gil for event in outside)
    yield Candidate(
        "cpu_stuck_or_slow_rank",
        "absence",
        "medium",
        describe_holdup(who, doing, len(waiting), waiting[0].what.collective, gil=gil),
        (*outside[:3], *waiting[:3]),
        culprits,
        tuple(event.who for event in waiting if event.who.rank is not None),
    )
