"""Errors behind which the job counted on: steps that rise, or the same error logged again and again."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from nodedoctor.patterns import mask_digits
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import DEFAULT_WORLD, Event
from nodedoctor.triage.patterns.cuda import DEVICE_ERRORS
from nodedoctor.triage.patterns.host_limits import HostOom
from nodedoctor.triage.patterns.job_stopped import CancelledByUser
from nodedoctor.triage.patterns.log_pattern import Symptom
from nodedoctor.triage.patterns.machine import XidReported
from nodedoctor.triage.patterns.progress import TrainingStep
from nodedoctor.triage.patterns.signs import NEW_RUNS
from nodedoctor.triage.patterns.stacks import is_library
from nodedoctor.triage.patterns.trace import CutShort, ExceptionRaised
from nodedoctor.triage.timeline.model import FATAL, QUIET, is_trouble
from nodedoctor.triage.timeline.recovery.requests import is_of_request
from nodedoctor.triage.timeline.recovery.survived import is_death, is_done, last_index
from nodedoctor.triage.timeline.runs import SURVIVED

FAR = 40
"""Steps of a counter that was not there before an error, from which the error was none: what counts may be
another program, which began after the first one had died. Ours."""
DATED = 5
"""Steps with times, of a counter that was not there before an error: loggers print at once, and a rank that
ended stops all others at their next collective. What has no time may have waited in a buffer until the end.
Ours."""
OWN = 2
"""Steps of its own behind an error from which a rank or process has outlived it: three values of a counter.
Ours."""
PAST_DEATH = 20
"""Steps behind the end of a process that no rank's end leaves to the others, who meet it in each. Ours."""
WORDS = 4
"""Words of a message that stay the same when a program fails in the same place again. Ours."""
_LAST_WORDS = re.compile(r"thread terminated with exception: |^\s*what\(\): ")
"""With which torch's watchdog and C++ end a process, whatever the others still count."""


def drop_before_more_steps(events: list[Event[Any]]) -> list[Event[Any]]:
    """Without trouble after which the job counted on. A death stays."""
    remaining: list[Event[Any]] = []
    trouble = [e for e in events if is_trouble(e) and e.what is not Mark.UNREAD_TROUBLE]
    isolated = len({event.place.offset for event in trouble}) < 2 and not any(map(_is_detailed, trouble))
    progress = _RankProgress(events)
    for event, counters in _from_the_end(events):
        last = is_death(event) or event.kind in QUIET or _LAST_WORDS.search(event.text) is not None
        last = last or (_is_of_failed_gpu(event) and not counters.went_on(done=False))
        final = progress.is_final(event) and not counters.are_dated
        if last or final or not counters.survived(event, isolated):
            remaining.append(event)
    return _without_recurring(events, remaining[::-1])


def _without_recurring(events: list[Event[Any]], remaining: list[Event[Any]]) -> list[Event[Any]]:
    """Without exceptions of a kind that the job had survived before, behind which it has counted once more.

    Where any process ended, the last one may have ended with it.
    """
    if any(map(is_death, events)):
        return remaining
    ids = set(map(id, remaining))
    kinds = Counter(kind for event in events if id(event) not in ids for kind in _raised_kinds(event))
    recurring = {kind for kind, count in kinds.items() if count >= SURVIVED}
    last_rise = last_index(events, lambda e: isinstance(e.what, TrainingStep) and e.what.rises > 0)
    passed = {id(event) for event in events[:last_rise] if _raised_kinds(event) & recurring}
    return [event for event in remaining if id(event) not in passed]


def _raised_kinds(event: Event[Any]) -> set[str]:
    return _error_kinds(event) if isinstance(event.what, ExceptionRaised) else set()


def drop_caught_as_before(events: list[Event[Any]]) -> list[Event[Any]]:
    """Without exceptions that a call caught which had caught others before, behind which the job counted on.

    A traceback begins at the call that catches it: one that ends a program begins at the program's own first.
    What is said of the same exception in the same line goes with it. Where any process ended, it may have
    ended with the last one, and so may a program whose last words it is; an actor is one of several.
    """
    if any(map(is_death, events)):
        return events
    last_rise = last_index(events, lambda e: isinstance(e.what, TrainingStep) and e.what.rises > 0)
    counts = Counter(_catching_call(event) for event in events[:last_rise])
    habits = {call for call, count in counts.items() if call and count >= SURVIVED}
    actors = {event.who.world for event in events if _catching_call(event) in habits} - {DEFAULT_WORLD}
    places = {
        event.place
        for event in events
        if _catching_call(event) in habits or (event.who.world in actors and _lacks_calls(event))
    }
    last = next((event for event in reversed(events) if event.kind not in QUIET), None)
    if last is not None and isinstance(last.what, ExceptionRaised) and last.who.world == DEFAULT_WORLD:
        steps = (event for event in events if isinstance(event.what, TrainingStep))
        if all(event.place.offset < last.place.offset for event in steps):
            places.discard(last.place)
    return [event for event in events if event.place not in places or event.kind in QUIET]


def _lacks_calls(event: Event[Any]) -> bool:
    """True for a traceback that is cut off in front of its first call, or whose calls Ray folded away."""
    what = event.what
    folded = isinstance(what, ExceptionRaised) and bool(event.repeated)
    return (folded or isinstance(what, CutShort)) and not what.frames


def _catching_call(event: Event[Any]) -> tuple[str, int, str] | None:
    """The program's own call at which a traceback begins; None for the first one of a program or thread.

    What a logger prints is judged by itself (`drop_repeated_errors`).
    """
    what = event.what
    logged = isinstance(what, ExceptionRaised) and what.logged
    frames = what.frames if isinstance(what, (ExceptionRaised, CutShort)) and not logged else ()
    if not frames or frames[0].function == "<module>" or is_library(frames[0]):
        return None
    return frames[0].file, frames[0].line, frames[0].function


def drop_deaths_before_many_steps(events: list[Event[Any]]) -> list[Event[Any]]:
    """Without ends of processes behind which the job counted far, or to a reported success.

    What a rank does not survive ends its job within a few steps: these were a helper's, or are quoted. Where
    another end is behind those steps, it may be the last word on the first.
    """
    remaining: list[Event[Any]] = []
    done = is_last_end = False
    for event, counters in _from_the_end(events):
        done = done or is_done(event)
        if is_death(event):
            if not is_last_end and counters.went_on(done=done):
                continue
            is_last_end = True
        remaining.append(event)
    return remaining[::-1]


def drop_outlived_interrupts(events: list[Event[Any]]) -> list[Event[Any]]:
    """Without Ctrl-C behind which the job counted on: it ended a monitor, or a program raised and caught it.

    Actors of a class that outlived several outlive one more.
    """
    interrupts = [event for event in events if isinstance(event.what, CancelledByUser) and event.what.by_hand]
    outlived = _find_outlived(events, set(map(id, interrupts)))
    counts = Counter(event.who.world for event in interrupts if id(event) in outlived)
    habits = {world for world, count in counts.items() if count >= SURVIVED} - {DEFAULT_WORLD}
    outlived |= {id(event) for event in interrupts if event.who.world in habits}
    return [event for event in events if id(event) not in outlived]


def _find_outlived(events: list[Event[Any]], ids: set[int]) -> set[int]:
    """Those of some events behind which a counter rose that had begun before, in the same run."""
    starts: dict[tuple[str, int], int] = {}
    for index, event in enumerate(events if ids else ()):
        if isinstance(event.what, TrainingStep):
            starts.setdefault((event.what.series, event.what.part), index)
    rises: Counter[tuple[str, int]] = Counter()
    first, outlived = len(events), set()
    for index in range(len(events) - 1 if ids else -1, -1, -1):
        event, what = events[index], events[index].what
        if isinstance(what, TrainingStep):
            rises[what.series, what.part] += what.rises
            if rises[what.series, what.part] >= SURVIVED:
                first = min(first, starts[what.series, what.part])
        elif event.kind in _BEGINNINGS:
            rises.clear()
            first = len(events)
        elif id(event) in ids and first < index:
            outlived.add(id(event))
    return outlived


_BEGINNINGS = (*NEW_RUNS, Mark.SET_UP)


def drop_repeated_errors(events: list[Event[Any]]) -> list[Event[Any]]:
    """Without errors that the program catches and logs again and again while it counts on.

    What the interpreter prints of an exception that ends a program bears no mark of the program's logger.
    Where any process ended, the repetition may have ended with it.
    """
    if any(map(is_death, events)):
        return events
    folded = {
        e.who.world for e in events if isinstance(e.what, ExceptionRaised) and e.what.logged and e.repeated
    }
    counts: Counter[str] = Counter()
    recent: set[str] = set()
    earlier: set[str] = set()
    recurring: set[str] = set()
    for event in events:
        if isinstance(event.what, TrainingStep) and event.what.rises:
            earlier |= recent
            recent.clear()
        elif _is_logged(event, folded):
            kinds = _error_kinds(event)
            counts.update(kinds)
            recent |= kinds
            recurring |= kinds & earlier
    repeated_kinds = {kind for kind in recurring if counts[kind] > SURVIVED}
    return [event for event in events if not _error_kinds(event) & repeated_kinds]


def _is_logged(event: Event[Any], folded: set[str]) -> bool:
    """True for a logger's error; Ray folds the first lines of tracebacks that are alike."""
    what = event.what
    if isinstance(what, ExceptionRaised):
        return what.logged or (not what.frames and event.who.world in folded)
    return what is Mark.UNREAD_TROUBLE


def _error_kinds(event: Event[Any]) -> set[str]:
    """What errors from the same place of a program have in common."""
    what = event.what
    if what is Mark.UNREAD_TROUBLE:
        return {message_shape(event.text)}
    if not isinstance(what, ExceptionRaised):
        return set()
    inner = what.frames[-1] if what.frames else None
    kinds = {f"{what.type}: {message_shape(what.message)}"} if what.message else set()
    return kinds | ({f"{what.type} in {inner.file}, {inner.function}"} if inner is not None else set())


def message_shape(text: str) -> str:
    """What messages from the same place of a program have in common."""
    return mask_digits(" ".join(text.split()[:WORDS]))


def outlived_before(complaint: Event[Any], complaints: Iterable[Event[Any]], last_step: int) -> bool:
    """True where the job counted on behind a complaint like this one, in the same log."""
    shape, source = message_shape(complaint.text), complaint.place.source
    return any(
        earlier.place.source == source
        and earlier.place.offset < last_step
        and message_shape(earlier.text) == shape
        for earlier in complaints
    )


def _from_the_end(events: list[Event[Any]]) -> Iterator[tuple[Event[Any], _LaterCounters]]:
    """Each event, the last first, with what all counters did behind it."""
    counters = _LaterCounters(events)
    for event in reversed(events):
        if isinstance(event.what, TrainingStep):
            counters.add(event)
        yield event, counters


class _LaterSteps:
    """What one counter did behind an event; `last` is its last step."""

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
        self._of_ranks: Counter[int] = Counter()
        self._of_processes: Counter[tuple[str, str, int | None]] = Counter()
        self._dated: float = 0
        self._going_on: set[tuple[str, int]] = set()
        self._rises: float = 0
        self._epochs: float = 0

    def add(self, event: Event[TrainingStep]) -> None:
        """One step further back."""
        step, rank = event.what, event.who.rank
        key = step.series, step.part
        if not step.answers:
            self._of_processes[_process_of(event)] += step.rises
        if step.length is None and not step.answers:
            if rank is not None:
                self._of_ranks[rank] += step.rises
            self._dated = max(self._dated, step.rises if event.time is not None else 0)
        self._before[key] -= 1
        counter = self._steps.setdefault(key, _LaterSteps(step))
        counter.add(step)
        if counter.last.answers:
            self._of_requests[key] = counter
            return
        if self._goes_on(key, counter):
            self._going_on.add(key)
        else:
            self._going_on.discard(key)
        if counter.last.begins:
            self._rises = max(self._rises, counter.rises)
            self._epochs = max(self._epochs, counter.epochs)

    @property
    def are_dated(self) -> bool:
        """True when a logger's counter came so far behind this that all ranks worked."""
        return self._dated >= DATED

    def survived(self, event: Event[Any], isolated: bool) -> bool:
        """True when a counter went on after this, or began and came far, or its rank's own came far."""
        caught = event.manner != "plain"
        mild = event.what is Mark.UNREAD_TROUBLE or caught or _is_hint(event.what)
        needed = SURVIVED if isolated or mild else FAR
        if self._going_on or self._rises >= needed or self._epochs >= SURVIVED:
            return True
        if event.who.rank is not None and self._of_ranks[event.who.rank] >= OWN:
            return True
        if event.who.pid is not None and self._of_processes[_process_of(event)] >= OWN:
            return True
        if self.are_dated:
            return True
        if caught and any(steps.rises >= SURVIVED or steps.last.is_full for steps in self._steps.values()):
            return True
        return any(
            self._goes_on(key, steps)
            or (steps.last.begins and (steps.rises >= needed or steps.epochs >= SURVIVED))
            for key, steps in self._of_requests.items()
            if is_of_request(event, key[0]) or _is_hint(event.what)
        )

    def went_on(self, *, done: bool) -> bool:
        """True where a counter went far since, or some steps to the end of a job that is done.

        What was there before counts, or of a job that is done what began since; no bar of preparing data,
        which each rank has for itself.
        """
        if done and any(steps.last.begins and steps.rises >= FAR for steps in self._steps.values()):
            return True
        return any(
            steps.rises >= (SURVIVED if done else PAST_DEATH)
            for key, steps in self._steps.items()
            if self._before[key] > 0 and (done or steps.last.length is None)
        )

    def _goes_on(self, key: tuple[str, int], steps: _LaterSteps) -> bool:
        return steps.rises >= SURVIVED and self._before[key] > 0


def _process_of(event: Event[Any]) -> tuple[str, str, int | None]:
    """Of which process an event is; one that is started again has another id."""
    return event.place.source, event.who.host or "", event.who.pid


def _is_of_failed_gpu(event: Event[Any]) -> bool:
    """True for an error of CUDA behind which a process can no longer use its GPU."""
    what = event.what
    return event.manner == "plain" and isinstance(what, Symptom) and what.name in DEVICE_ERRORS


def _is_hint(what: object) -> bool:
    """True for what may pass, such as a long wait that ends."""
    return isinstance(what, Symptom) and not what.decisive


def _is_detailed(event: Event[Any]) -> bool:
    """True for a whole traceback, a known rank, or a report from outside the job."""
    what = event.what
    return (
        event.who.rank is not None
        or isinstance(what, (XidReported, HostOom))
        or (isinstance(what, ExceptionRaised) and bool(what.frames))
    )


class _RankProgress:
    """Where each rank counted last, and which ranks ended."""

    def __init__(self, events: list[Event[Any]]) -> None:
        self._counted: dict[int, int] = {}
        self._dead: set[int] = set()
        for event in events:
            rank = event.who.rank
            if rank is not None and isinstance(event.what, TrainingStep):
                self._counted[rank] = max(self._counted.get(rank, 0), event.place.offset)
            elif rank is not None and event.kind in FATAL:
                self._dead.add(rank)

    def is_final(self, event: Event[Any]) -> bool:
        """True when its rank counted nothing after it, and other ranks have ended."""
        rank = event.who.rank
        if rank is None:
            return False
        others = len(self._dead) > (rank in self._dead)
        return others and self._counted.get(rank, -1) < event.place.offset
