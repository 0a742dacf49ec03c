"""Lines into typed events: one family of patterns per module, in one reader."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace
from typing import Any, Protocol

from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import DEFAULT_WORLD, Event, Identity, Line, Place
from nodedoctor.triage.patterns import (
    corruption,
    frameworks,
    machine,
    nccl,
    progress,
    watchdog,
)
from nodedoctor.triage.patterns.activity import ActivityDetector, RecoveryDetector
from nodedoctor.triage.patterns.bars import RayTuneTable, parse_bar
from nodedoctor.triage.patterns.elastic import ElasticBlock
from nodedoctor.triage.patterns.kernel_prompts import KernelPrompts
from nodedoctor.triage.patterns.kubernetes import PodDescriptions
from nodedoctor.triage.patterns.last_lines import LastLinesOfRanks
from nodedoctor.triage.patterns.line_events import SAYS_RANK, line_events
from nodedoctor.triage.patterns.log_pattern import identify_speaker, rank_in_words
from nodedoctor.triage.patterns.open_errors import OpenErrors, is_task_end
from nodedoctor.triage.patterns.other_way import AlternativeDetector
from nodedoctor.triage.patterns.pid_table import PidTable
from nodedoctor.triage.patterns.prose import ProseDetector, is_model_text
from nodedoctor.triage.patterns.restarts import RestartDetector, RetryHeadings
from nodedoctor.triage.patterns.shapes import Count, LineShape, LineShapes
from nodedoctor.triage.patterns.signs import ENDS, LIVENESS, NEW_RUNS, NON_ERRORS, SIDE_FACTS, SIGNS
from nodedoctor.triage.patterns.stack_dumps import StackDumps
from nodedoctor.triage.patterns.step_counters import StepCounters
from nodedoctor.triage.patterns.trace import ExceptionRaised, TracebackReader
from nodedoctor.triage.patterns.unclassified import (
    LastComplaint,
    LastError,
    RetryDetails,
    UnclassifiedError,
    unclassified_error,
)

_SHAPES = LineShapes(SIGNS)
MOST_PRINTERS = 4096
"""Processes of syslog's tags and of Ray's of which the ranks are kept."""


def read_events(lines: Iterable[Line]) -> Iterator[Event[Any]]:
    """Every event in a stream of lines, in the order of the lines."""
    reader = EventReader()
    for line in lines:
        yield from reader.read(line)
    yield from reader.flush()


def event_signature(text: str) -> frozenset[str]:
    """The kinds of a line's events, and whether errors name rank or host."""
    signature: set[str] = set()
    for event in read_events([Line(text, Place("", 0))]) if text else ():
        kind = event.kind_name
        if event.kind not in SIDE_FACTS:
            signature.add(kind)
        if event.kind not in NON_ERRORS:
            signature |= {
                f"{kind} {name}" for name in ("rank", "host") if getattr(event.who, name) is not None
            }
    return frozenset(signature)


class Detector(Protocol):
    """Reads all lines, and finds at one of them what only several together show."""

    def read(self, line: Line) -> object | None:
        """What is clear with this line."""


class EventReader:
    """Reads the events of one stream of lines, also those of several lines."""

    def __init__(self) -> None:
        self._dumps, self._stalls = StackDumps(), frameworks.StallReports()
        self._traces, self._block, self._last_warning = TracebackReader(), ElasticBlock(), nccl.LastErrors()
        self._open_errors, self._retries, self._counters = OpenErrors(), RetryDetails(), StepCounters()
        self._trials, self._pids = RayTuneTable(), PidTable()
        self._pods, self._kernel = PodDescriptions(), KernelPrompts()
        self._asides = (
            RetryHeadings(),
            ActivityDetector(),
            AlternativeDetector(),
            corruption.NanLossDetector(),
            corruption.CurveDetector(),
        )
        self._restarts, self._recovery = RestartDetector(), RecoveryDetector()
        self._last_error, self._last_complaint = LastError(), LastComplaint()
        self._prose, self._last_lines = ProseDetector(), LastLinesOfRanks()
        self._printers: set[tuple[int, Identity]] = set()
        self._last: Line | None = None

    def read(self, line: Line) -> Iterator[Event[Any]]:
        """The events of a line, and those of earlier lines that it decides."""
        if "(default_pg) Rank " in line.text and line.who.rank is None:
            own = _DEFAULT_GROUP.search(line.text)
            line = replace(line, who=identify_speaker(line.who, own)) if own else line
        self._last = line
        self._prose.read(line)
        if is_model_text(line):
            return
        for event in (*self._dumps.read(line), *self._stalls.read(line), *self._pids.read(line)):
            yield from self._counters.flush()
            yield event
        yield from self._read_printer(line)
        yield from self._pods.read(line)
        self._kernel.read(line)
        shape = _SHAPES.shape_of(line.text)
        events = [
            self._kernel.complete(self._pods.complete(event)) for event in self._own_events(line, shape)
        ]
        yield from self._open_errors.read(line)
        if self._last_error.read(line, erred=any(e.kind not in NON_ERRORS for e in events)):
            yield Event.at(line, Mark.SURVIVED_ERROR)
        count = self._trials.read(line.text) or next(
            (value for read in shape.counters if (value := read(line.text))), None
        )
        yield from _detected(line, self._asides)
        restarts = () if count is not None else (self._restarts,)
        for event in _detected(line, (*restarts, self._recovery)):
            yield from self._open_errors.release()
            yield event
        if all(event.kind in SIDE_FACTS for event in events):
            self._last_lines.read(line)
        elif any(event.kind in NEW_RUNS for event in events):
            self._last_lines.restart()
        elif any(event.kind is watchdog.TimedOut for event in events):
            yield from self._last_lines.flush()
        decided = yield from self._emit_events(line, events, count)
        if not decided:
            yield from self._read_rest(line, shape, count)

    def flush(self) -> Iterator[Event[Any]]:
        """The events that are open when the lines end."""
        yield from self._open_errors.release()
        yield from self._counters.flush()
        yield from self._traces.flush()
        yield from self._dumps.flush()
        yield from self._stalls.flush()
        yield from self._last_lines.flush()
        yield from self._pids.flush()
        if self._last is not None and self._prose.is_article:
            yield Event(Mark.NOT_A_LOG, self._last.place, Identity(), None, self._last.text)

    def _read_printer(self, line: Line) -> Iterator[Event[Any]]:
        """Which rank a process of syslog's tags or of Ray's is, once for each: at no time, but always."""
        who = line.who
        of_ray = who.world != DEFAULT_WORLD and who.rank is not None and not line.repeated
        pid = line.printer if who.pid is None else who.pid if of_ray else None
        if pid is None or (who.rank is None and not who.labels):
            return
        if (pid, who) not in self._printers and len(self._printers) < MOST_PRINTERS:
            self._printers.add((pid, who))
            yield replace(Event.at(line, Mark.RANK_OF_PID, who=replace(who, pid=pid)), time=None)

    def _own_events(self, line: Line, shape: LineShape) -> list[Event[Any]]:
        """The events of a line by itself."""
        events = self._last_warning.read(line, list(line_events(line, shape, self._traces, self._block)))
        if self._retries.detail(line) and all(event.what is Mark.UNREAD_TROUBLE for event in events):
            return [replace(event, what=UnclassifiedError(aside=True)) for event in events]
        return events

    def _emit_events(
        self, line: Line, events: list[Event[Any]], count: Count | None
    ) -> Generator[Event[Any], None, bool]:
        """Emit the events of a line; True where nothing else is read from it."""
        if not events:
            return False
        if any(event.kind in ENDS for event in events):
            self._restarts.note_failure(line)
        yield from self._open_errors.release()
        if any(isinstance(event.what, ExceptionRaised) or is_task_end(event) for event in events):
            yield from self._counters.flush()
            self._open_errors.hold(line, events)
            return True
        if all(event.kind in SIDE_FACTS for event in events):
            yield from events
            return any(event.what in (Mark.STORE_LOST, Mark.NOT_A_NUMBER) for event in events)
        works = all(event.kind in LIVENESS for event in events)
        if count is not None and works and parse_bar(line.text) is None:  # no bar of that work
            self._counters.read(line, rank_in_words(line.who, SAYS_RANK, line.text), *count)
        yield from self._counters.flush()
        if any(machine.ends_allocation(event.what, event.text) for event in events):
            self._counters.end_all()
        yield from events
        return True

    def _read_rest(self, line: Line, shape: LineShape, count: Count | None) -> Iterator[Event[Any]]:
        """Counters, what a server answers, and words of failure that no pattern reads."""
        if count is not None:
            self._counters.read(line, rank_in_words(line.who, SAYS_RANK, line.text), *count)
            self._traces.count_step()
        if shape.answers and progress.is_request_served(line.text):
            self._counters.count_answer(line, line.who)
        elif shape.answers and progress.REFUSED.search(line.text):
            yield from self._open_errors.release()
            yield Event.at(line, Mark.REQUEST_REFUSED)
        complains = shape.complains and not self._traces.holds(line)
        complaint = unclassified_error(line) if complains else None
        if complaint is not None:
            yield Event.at(line, complaint)
        if self._last_complaint.read(complains=complaint is not None):
            yield Event.at(line, Mark.OUTPUT_CONTINUED)


def _detected(line: Line, detectors: Iterable[Detector]) -> Iterator[Event[Any]]:
    for detector in detectors:
        if (what := detector.read(line)) is not None:
            yield Event.at(line, what)


_DEFAULT_GROUP = re.compile(r"\[PG [^\]]{0,60}\(default_pg\) Rank (?P<rank>\d{1,7})\]")
"""How a watchdog gives its rank in the default group: of this all ranks are."""
