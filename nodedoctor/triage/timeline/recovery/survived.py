"""Errors that the job survived: it counted on, came to its end, or had been cancelled before."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from nodedoctor.triage.marks import Kind, Mark, kind_of
from nodedoctor.triage.model import Event
from nodedoctor.triage.patterns.exits import ProcessExit
from nodedoctor.triage.patterns.lifecycle import CancelledByUser
from nodedoctor.triage.patterns.log_pattern import Symptom
from nodedoctor.triage.patterns.machine import HostOom, XidReported
from nodedoctor.triage.patterns.progress import TrainingStep
from nodedoctor.triage.patterns.store import BarrierMissed
from nodedoctor.triage.patterns.trace import ExceptionRaised
from nodedoctor.triage.timeline.model import FATAL, QUIET
from nodedoctor.triage.timeline.recovery.requests import of_a_request
from nodedoctor.triage.timeline.runs import SURVIVED, of_one_process

FAR = 40
"""Steps of a counter that was not there before an error, from which the error was none: what counts may be
another program, which began after the first one had died. Ours."""
WORDS = 4
"""Words of a message that stay the same when a program fails in the same place again. Ours."""
_DIGITS = re.compile(r"\d+")
_LAST_WORDS = re.compile(r"thread terminated with exception: |^\s*what\(\): ")
"""With which torch's watchdog and C++ end a process, whatever the others still count."""
_RESULT = re.compile(r"\btrain_runtime\b|Trainer\.fit` stopped: `max_|\brun_stop\b.{1,300}success")
"""How trainers report a training that they have done (Hugging Face, Lightning, MLPerf): a script's own "Done"
may follow a program that failed."""


def drop_before_long_output(events: list[Event[Any]]) -> list[Event[Any]]:
    """Without the errors of a process that wrote very much behind them."""
    return _drop_before(events, (Mark.SURVIVED_ERROR,), lambda _: True) if of_one_process(events) else events


def drop_before_ordinary_lines(events: list[Event[Any]]) -> list[Event[Any]]:
    """Without the errors behind which a program's logger printed many ordinary lines."""
    if not of_one_process(events):
        return events
    return _drop_before(
        events, (Mark.RECOVERED_FROM_ERROR,), lambda what: what is Mark.UNREAD_TROUBLE or _is_caught(what)
    )


def drop_before_the_end(events: list[Event[Any]]) -> list[Event[Any]]:
    """Without what may pass, of a job that came to its end behind it, or was cancelled."""
    return _drop_before(events, (Mark.JOB_FINISHED, CancelledByUser), _may_pass)


def drop_before_success(events: list[Event[Any]]) -> list[Event[Any]]:
    """Without exceptions in front of a run's report of its success, where no process is known to have failed.

    A rank that had an error and never said that it was done keeps it.
    """
    if any(event.kind in FATAL for event in events):
        return events
    done = {event.who.rank for event in events if _reports_success(event)}
    end = _last_index(events, _reports_success)
    raised = {
        event.place
        for event in events[:end]
        if (isinstance(event.what, ExceptionRaised) or event.manner == "retold") and event.who.rank in done
    }
    return [event for event in events if event.place not in raised or event.kind in QUIET]


def _reports_success(event: Event[Any]) -> bool:
    return event.what is Mark.JOB_FINISHED and _RESULT.search(event.text) is not None


def _last_index(events: list[Event[Any]], is_wanted: Callable[[Event[Any]], bool]) -> int:
    """The index of the last event of a kind; 0 where there is none, since nothing is before the first."""
    return max((index for index, event in enumerate(events) if is_wanted(event)), default=0)


def _drop_before(
    events: list[Event[Any]], last: tuple[Kind, ...], is_dropped: Callable[[object], bool]
) -> list[Event[Any]]:
    """Without the trouble before the last event of a kind."""
    end = _last_index(events, lambda event: event.kind in last)
    return [
        event
        for index, event in enumerate(events)
        if index >= end or event.kind in QUIET or not is_dropped(event.what)
    ]


def _is_caught(what: object) -> bool:
    return isinstance(what, ExceptionRaised) and what.logged


def _may_pass(what: object) -> bool:
    return what is Mark.UNREAD_TROUBLE or (isinstance(what, BarrierMissed) and what.passing)


def drop_before_more_steps(events: list[Event[Any]]) -> list[Event[Any]]:
    """Without trouble after which the job went on counting: it was no end of anything. A death stays."""
    kept: list[Event[Any]] = []
    trouble = [e for e in events if e.asserted and e.kind not in (*QUIET, Mark.UNREAD_TROUBLE)]
    alone = len({event.place.offset for event in trouble}) < 2 and not any(map(_is_told_in_full, trouble))
    counters = _LaterCounters(events)
    speakers = _Speakers(events)
    for event in reversed(events):
        what = event.what
        if isinstance(what, TrainingStep):
            counters.add(what)
        last = kind_of(what) in (*QUIET, *FATAL) or _LAST_WORDS.search(event.text) is not None
        if last or speakers.final(event) or not counters.survived(event, alone):
            kept.append(event)
    return kept[::-1]


def drop_repeated_errors(events: list[Event[Any]]) -> list[Event[Any]]:
    """Without errors that the program catches and logs again and again while it counts on.

    What the interpreter prints of an exception that ends a program bears no mark of the program's logger.
    Where anything ended for good, that may be the end of the habit, too.
    """
    if any(event.kind in FATAL for event in events):
        return events
    folded = {
        e.who.world for e in events if isinstance(e.what, ExceptionRaised) and e.what.logged and e.repeated
    }
    told: Counter[str] = Counter()
    new: set[str] = set()
    before: set[str] = set()
    after: set[str] = set()
    for event in events:
        if isinstance(event.what, TrainingStep) and event.what.rises:
            before |= new
            new.clear()
        elif _is_logged(event, folded):
            kinds = _error_kinds(event)
            told.update(kinds)
            new |= kinds
            after |= kinds & before
    habits = {kind for kind in after if told[kind] > SURVIVED}
    return [event for event in events if not _error_kinds(event) & habits]


def _is_logged(event: Event[Any], folded: set[str]) -> bool:
    """True for what a logger printed; Ray folds the first lines of tracebacks that are alike."""
    what = event.what
    if isinstance(what, ExceptionRaised):
        return what.logged or (not what.frames and event.who.world in folded)
    return what is Mark.UNREAD_TROUBLE


def _error_kinds(event: Event[Any]) -> set[str]:
    """What another error has in common with this one if both come out of the same place."""
    what = event.what
    if what is Mark.UNREAD_TROUBLE:
        return {_message_shape(event.text)}
    if not isinstance(what, ExceptionRaised):
        return set()
    inner = what.frames[-1] if what.frames else None
    kinds = {f"{what.type}: {_message_shape(what.message)}"} if what.message else set()
    return kinds | ({f"{what.type} in {inner.file}, {inner.function}"} if inner is not None else set())


def _message_shape(text: str) -> str:
    return _DIGITS.sub("#", " ".join(text.split()[:WORDS]))


def drop_exits_after_cancel(events: list[Event[Any]]) -> list[Event[Any]]:
    """Without the exit codes of jobs, and of tasks where the reason is outside the job, that were stopped."""
    ordered = next((i for i, e in enumerate(events) if isinstance(e.what, CancelledByUser)), len(events))
    told = (isinstance(e.what, ProcessExit) and e.what.of_job for e in events[ordered:])
    events = [*events[:ordered], *(e for e, job in zip(events[ordered:], told, strict=True) if not job)]
    stop = next(
        (i for i, e in enumerate(events) if isinstance(e.what, CancelledByUser) and e.what.outside), None
    )
    if stop is None or any(event.kind not in QUIET for event in events[:stop]):
        return events
    ends = (isinstance(e.what, ProcessExit) and e.what.signal is None for e in events[stop:])
    return [*events[:stop], *(e for e, end in zip(events[stop:], ends, strict=True) if not end)]


class _LaterSteps:
    """What one counter did behind an event; `last` is the last that it said."""

    def __init__(self, last: TrainingStep) -> None:
        self.last = last
        self.rises: float = 0
        self.epochs: float = 0

    def add(self, step: TrainingStep) -> None:
        self.rises += step.rises
        self.epochs = max(self.epochs, step.epochs)


class _LaterCounters:
    """What all counters did behind an event, read from a log's end.

    Those of requests count for some events only, and are asked one by one.
    """

    def __init__(self, events: list[Event[Any]]) -> None:
        steps = [event.what for event in events if isinstance(event.what, TrainingStep)]
        self._before = Counter((step.series, step.part) for step in steps)
        self._steps: dict[tuple[str, int], _LaterSteps] = {}
        self._of_requests: dict[tuple[str, int], _LaterSteps] = {}
        self._going_on: set[tuple[str, int]] = set()
        self._rises: float = 0
        self._epochs: float = 0

    def add(self, step: TrainingStep) -> None:
        """One step further back."""
        key = step.series, step.part
        self._before[key] -= 1
        found = self._steps.setdefault(key, _LaterSteps(step))
        found.add(step)
        if found.last.answers:
            self._of_requests[key] = found
            return
        if self._goes_on(key, found):
            self._going_on.add(key)
        else:
            self._going_on.discard(key)
        if found.last.begins:
            self._rises = max(self._rises, found.rises)
            self._epochs = max(self._epochs, found.epochs)

    def survived(self, event: Event[Any], alone: bool) -> bool:
        """True when a counter went on after this, or began and came far."""
        mild = event.what is Mark.UNREAD_TROUBLE or not event.asserted or _is_hint(event.what)
        needed = SURVIVED if alone or mild else FAR
        if self._going_on or self._rises >= needed or self._epochs >= SURVIVED:
            return True
        return any(
            self._goes_on(key, steps)
            or (steps.last.begins and (steps.rises >= needed or steps.epochs >= SURVIVED))
            for key, steps in self._of_requests.items()
            if of_a_request(event, key[0]) or _is_hint(event.what)
        )

    def _goes_on(self, key: tuple[str, int], steps: _LaterSteps) -> bool:
        return steps.rises >= SURVIVED and self._before[key] > 0


def _is_hint(what: object) -> bool:
    """True for what may pass, such as a long wait: an engine that answers again waits no more."""
    return isinstance(what, Symptom) and not what.decisive


def _is_told_in_full(event: Event[Any]) -> bool:
    """True for more than one scary line: a whole traceback, a process that has a name, a witness outside."""
    what = event.what
    return (
        event.who.rank is not None
        or isinstance(what, (XidReported, HostOom))
        or (isinstance(what, ExceptionRaised) and bool(what.frames))
    )


class _Speakers:
    """When each rank last counted, and whose end is known."""

    def __init__(self, events: list[Event[Any]]) -> None:
        self._counted: dict[int, int] = {}
        self._dead: set[int] = set()
        for event in events:
            rank = event.who.rank
            if rank is not None and isinstance(event.what, TrainingStep):
                self._counted[rank] = max(self._counted.get(rank, 0), event.place.offset)
            elif rank is not None and event.kind in FATAL:
                self._dead.add(rank)

    def final(self, event: Event[Any]) -> bool:
        """True when the process that said it is never heard again, while others are known by name."""
        rank = event.who.rank
        if rank is None:
            return False
        others = len(self._dead) > (rank in self._dead)
        return others and self._counted.get(rank, -1) < event.place.offset
