"""What speaks against an event as a cause: how it was told, and that its process went on after it.

Programs print errors that they handle. Such a line is a hint at most, unless something ties it to a death.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from nodedoctor.triage.events.cuda import GpuFull
from nodedoctor.triage.events.log_pattern import Symptom
from nodedoctor.triage.events.progress import TrainingStep
from nodedoctor.triage.events.system.exits import ProcessExit
from nodedoctor.triage.events.trace import ExceptionRaised
from nodedoctor.triage.model import Event
from nodedoctor.triage.story.model import CollectiveWait
from nodedoctor.triage.story.recovered import FAR

_IMPORTS = re.compile(r"(?:^|\.)(?:ModuleNotFoundError|ImportError)$")
STARTS = ("version_mismatch", "driver_problem")
"""Causes that keep a process from its first collective: one that made many had none of them."""
WORKING = 3
"""Collectives after which a job is past its start."""


def unrelated_warnings(
    events: Sequence[Event[Any]], waits: Iterable[CollectiveWait], expected: int | None
) -> list[Event[Any]]:
    """The events that are hints only."""
    waits = list(waits)
    works, all_waited = _is_past_start(events, waits), _all_waited(waits, expected)
    killed = _first_were_killed([e for e in events if isinstance(e.what, ProcessExit) and e.what.first])
    began: dict[int | None, float] = {}
    for wait in waits:
        if wait.began is not None:
            began[wait.who.rank] = max(began.get(wait.who.rank, wait.began), wait.began)
    return [event for event in events if _is_hint(event, began, all_waited, works, killed)]


def _is_hint(
    event: Event[Any], began: dict[int | None, float], all_waited: bool, works: bool, killed: bool
) -> bool:
    """Whether it is a hint; `began` is when each rank's last wait began."""
    what = event.what
    if event.manner != "plain":
        return True
    if works and event.who.rank is None and _of_the_start(what):
        return True
    personal = isinstance(what, (GpuFull, ExceptionRaised)) or (isinstance(what, Symptom) and what.personal)
    if not personal:
        return False
    rank = event.who.rank
    if rank is not None:  # it came to a collective after this and waited there until its timeout
        return event.time is not None and rank in began and event.time < began[rank]
    return all_waited or (isinstance(what, ExceptionRaised) and killed)


def _is_past_start(events: Sequence[Event[Any]], waits: list[CollectiveWait]) -> bool:
    """True when the job was past its start: it counted steps, or waits in a late collective."""
    if any(wait.work.seq is not None and wait.work.seq > WORKING for wait in waits):
        return True
    rises: Counter[tuple[str, int]] = Counter()
    for event in events:
        if isinstance(event.what, TrainingStep) and event.what.begins:
            rises[event.what.series, event.what.part] += event.what.rises
    return max(rises.values(), default=0) >= FAR


def _of_the_start(what: object) -> bool:
    """True for what keeps a program from its first step; a function imports when it is called."""
    if isinstance(what, ExceptionRaised):
        called = bool(what.frames) and what.frames[-1].function != "<module>"
        return not called and _IMPORTS.search(what.type) is not None
    return isinstance(what, Symptom) and what.cause in STARTS


def _all_waited(waits: list[CollectiveWait], expected: int | None) -> bool:
    """True when every rank of the job waited: nobody is left who could have left early."""
    return bool(waits) and expected is not None and {wait.who.rank for wait in waits} >= set(range(expected))


def _first_were_killed(first: list[Event[ProcessExit]]) -> bool:
    """True when the first to end were killed: an exception ends a process with a code of its own."""
    return bool(first) and all(event.what.signal in (7, 9, 11) for event in first)
