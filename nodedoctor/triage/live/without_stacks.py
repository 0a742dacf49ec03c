"""Finds the rank that others wait for without any stack: by its steps, and by what all GPUs do."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from nodedoctor.triage.describe import describe_identities
from nodedoctor.triage.lines.prefixes import parse_line
from nodedoctor.triage.live.activity import (
    IDLE_TICKS,
    activity_event,
    activity_events,
    describe_activity,
    identity_of,
    long_work,
)
from nodedoctor.triage.live.gpu_use import compare
from nodedoctor.triage.live.running_job import LiveJob, RankProcess
from nodedoctor.triage.model import Candidate, Cause, Confidence, Event, Place
from nodedoctor.triage.patterns import read_events
from nodedoctor.triage.timeline.build import build_timeline
from nodedoctor.triage.verdict.causes.ras import ranks_behind
from nodedoctor.wording import count_with_noun

FEWEST_WAITING = 2
"""GPUs that wait, at least: of two that differ it is not known which is wrong."""


def late_ranks(live: LiveJob) -> Iterator[Candidate]:
    """A rank that comes late to its steps on its node, with what its GPU or NCCL says of it."""
    for process in live.processes:
        if process.late is None:
            continue
        who = identity_of(live, process)
        headline = f"{describe_identities([who])} {process.late.words}{reason(live, process)}"
        evidence = (activity_event(live, process, process.late.words),)
        yield Candidate("cpu_stuck_or_slow_rank", "absence", "medium", headline, evidence, (who,))


def reason(live: LiveJob, process: RankProcess) -> str:
    """What else tells a late rank from those on its node, after a semicolon, or ''."""
    peers = [peer for peer in live.processes if peer.host == process.host and peer != process]
    clauses = [compare(process.gpu, [peer.gpu for peer in peers])]
    if process.pid in set.intersection(*map(_pids_behind, live.ras)):
        clauses.append("NCCL counted fewer operations of it both times")
    return "".join(f"; {words}" for words in clauses if words)


def ras_events(answer: str) -> list[Event[Any]]:
    """The events in an answer of NCCL's RAS."""
    rows = enumerate(answer.split("\n"), 1)
    return list(
        read_events(line for number, raw in rows for line in parse_line(raw, Place("NCCL RAS", number)))
    )


def _pids_behind(answer: str) -> set[int]:
    """The processes that launched fewer operations than others, as RAS answers."""
    behind = ranks_behind(build_timeline(ras_events(answer)))
    return {event.who.pid for event in behind if event.who.pid is not None}


def idle_gpu(live: LiveJob) -> Iterator[Candidate]:
    """One rank whose GPU is idle, while those of all others wait in a kernel for other GPUs.

    That rank has launched nothing. Where it works on something else, it may come yet: a suspicion.
    """
    waiting = [process for process in live.processes if process.polls]
    idle = [process for process in live.processes if process.gpu is not None and process.gpu.is_idle]
    if len(idle) != 1 or len(waiting) < FEWEST_WAITING or len(waiting) + 1 < len(live.processes):
        return
    (late,) = idle
    who = identity_of(live, late)
    works = late.moved or late.ticks > IDLE_TICKS or bool(long_work(late))
    gpu = late.gpu.words if late.gpu is not None else ""
    peers = _words_of(waiting)
    headline = (
        f"{describe_identities([who])} {describe_activity(late)}, and its {gpu}; "
        f"{count_with_noun(len(waiting), 'rank')} wait for it in a collective's kernel ({peers})"
    )
    evidence = activity_events(live, (late, *waiting[:3]))
    victims = tuple(identity_of(live, process) for process in waiting)
    sure: Confidence = "low" if works else "medium"
    cause: Cause = "cpu_stuck_or_slow_rank"
    yield Candidate(cause, "absence", sure, headline, evidence, (who,), victims, decides=not works)


def _words_of(waiting: Sequence[RankProcess]) -> str:
    draws = [process.gpu.power_w for process in waiting if process.gpu and process.gpu.power_w is not None]
    return f"GPUs busy at {max(draws):.0f} W at most, nothing passes PCIe or NVLink"
