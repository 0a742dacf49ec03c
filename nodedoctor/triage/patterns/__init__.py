"""Lines into typed events: one family of patterns per module, in one reader."""

from __future__ import annotations

import re
from collections.abc import Generator, Iterable, Iterator
from dataclasses import replace
from typing import Any, Protocol

from nodedoctor.triage.lines.required_literals import required_literals
from nodedoctor.triage.marks import Mark, kind_of
from nodedoctor.triage.model import DEFAULT_WORLD, SERIOUS, Event, Identity, Line, Place
from nodedoctor.triage.patterns import (
    corruption,
    cuda,
    exits,
    frameworks,
    hangs,
    job_stopped,
    machine,
    nccl,
    nccl_diag,
    progress,
    ras,
    ray,
    reported_ends,
    store,
    watchdog,
)
from nodedoctor.triage.patterns.activity import ActivityDetector, RecoveryDetector
from nodedoctor.triage.patterns.assertion import assertion_of, is_warning, names_error
from nodedoctor.triage.patterns.bars import RayTuneTable, parse_bar
from nodedoctor.triage.patterns.completed import REPORTS_OF_SUCCESS
from nodedoctor.triage.patterns.elastic import ElasticBlock
from nodedoctor.triage.patterns.handling import is_of_other_run, tells_replacement
from nodedoctor.triage.patterns.kubernetes import PodDescriptions
from nodedoctor.triage.patterns.last_lines import LastLines, LastLinesOfRanks
from nodedoctor.triage.patterns.log_pattern import LogPattern, Symptom, identify_speaker, rank_in_words
from nodedoctor.triage.patterns.open_errors import OpenErrors, is_task_end
from nodedoctor.triage.patterns.other_way import AlternativeDetector
from nodedoctor.triage.patterns.pid_table import PidTable
from nodedoctor.triage.patterns.prose import ProseDetector, is_model_text
from nodedoctor.triage.patterns.restarts import RestartDetector, RetryHeadings
from nodedoctor.triage.patterns.secondary_errors import from_helper_process, is_secondary
from nodedoctor.triage.patterns.shapes import Count, LineShape, LineShapes
from nodedoctor.triage.patterns.stack_dumps import StackDumps
from nodedoctor.triage.patterns.step_counters import StepCounters
from nodedoctor.triage.patterns.trace import ExceptionRaised, TracebackReader
from nodedoctor.triage.patterns.unclassified import (
    LastComplaint,
    LastError,
    RetryDetails,
    UnclassifiedError,
    trouble_announced,
    unclassified_error,
)

SIGNS: tuple[LogPattern, ...] = (
    *watchdog.SIGNS,
    *store.SIGNS,
    *hangs.SIGNS,
    *nccl.SIGNS,
    *nccl_diag.SIGNS,
    *cuda.SIGNS,
    *corruption.SIGNS,
    *machine.SIGNS,
    *exits.SIGNS,
    *reported_ends.SIGNS,
    *ray.SIGNS,
    *ras.SIGNS,
    *job_stopped.SIGNS,
    *frameworks.SIGNS,
    *progress.SIGNS,
)
"""Every sign of every family."""

LIVENESS = (progress.TrainingStep, Mark.JOB_FINISHED, progress.LongWork, Mark.SERVER_READY)
"""What does not count as trouble."""

SIDE_FACTS = (
    frameworks.CollectiveShape,
    *corruption.ASIDE,
    nccl.BusBandwidth,
    nccl.VirtualInterface,
    machine.DriveError,
    machine.GpuOnBus,
    machine.HostAddress,
    machine.TasksPlaced,
    Mark.OF_GPU,
    ras.HangFolder,
    Mark.RANK_OF_PID,
    Mark.RANK_OF_POD,
    Mark.STORAGE_FRAME,
    Mark.STORE_LOST,
    Mark.SESSION_CUT,
    Mark.ENDED_FIRST,
    Mark.SEVERAL_NODES,
    progress.AgentRanks,
    progress.GroupJoined,
    progress.PidRoster,
    progress.WorldSize,
    progress.SettingMentioned,
    Mark.RESOURCE_TRACKER_WARNING,
    UnclassifiedError,
    LastLines,
    Mark.HANG_SUSPECTED,
    hangs.StragglerNamed,
)
"""Facts that a line has besides: it may still be one about progress."""

NON_ERRORS = SIDE_FACTS + LIVENESS
"""Events that are no trouble."""

ENDS = (ExceptionRaised, exits.ProcessExit, exits.LauncherSignalled, Mark.FORCE_KILLED, watchdog.TimedOut)
"""Ends, behind which the program may have been started again."""

NEW_RUNS = (Mark.LAUNCHER_STARTED, Mark.RESTART_ATTEMPT)
"""Beginnings of a run, behind which every rank begins again."""

SUSPICIONS = (
    Symptom, cuda.GpuFull, machine.HostOom, ExceptionRaised, nccl.NcclError, store.PeerGone,
    *corruption.SUSPICIONS,
)  # fmt: skip
"""Errors that the program may have handled: the words around them decide."""

ERRORS_LOGGED_AS_WARNING = (
    exits.PeersTerminated, Mark.FORCE_KILLED, exits.LauncherSignalled, machine.NodeLost,
    Mark.DUMP_REQUESTED, watchdog.CollectiveStatus, Mark.COMMUNICATOR_DESTROYED, Mark.PROGRAM_ENDED,
    Mark.GIL_HELD, watchdog.WatchdogStuck,
    Mark.RESTART_ATTEMPT, Mark.LAUNCHER_STARTED, job_stopped.CancelledByUser, Mark.SHUT_DOWN,
    nccl.Communicator,
    Mark.DELIBERATE_SLEEP, Mark.RESOURCE_TRACKER_WARNING, Mark.UNREAD_TROUBLE, machine.KernelTaskHung,
    machine.XidReported, ras.RasCommunicator, ras.RasCount, ras.RasSection,
    Mark.RAS_RUNNING, Mark.RAS_RANK, Mark.RAS_TABLE, Mark.RAS_INCOMPLETE,
    Mark.RAS_PROCESS, Mark.ACTOR_PID, machine.MemoryUser, store.BarrierMissed, watchdog.ProcessAborting,
)  # fmt: skip
"""Errors that torchelastic, Ray, the kernel's loggers and NCCL print at the level of a warning or below."""

ALSO_AT_WARNING = (*NON_ERRORS, *ERRORS_LOGGED_AS_WARNING)
"""Events that keep their manner in a line whose exception is handled."""

NEEDLES: tuple[str, ...] = (
    *(
        n
        for n in {needle: None for sign in SIGNS for needle in sign.needles}
        if len(n) > 6 or n in ("Xid (", "Killed")
    ),
    *(needle for report in REPORTS_OF_SUCCESS for needle in required_literals(report.pattern)),
    "Traceback (most recent",
    "Last error:",
    "Missing ranks:",
    '"MainThread"',
)
"""Words that find every line that matters, without the short ones that ordinary lines are full of."""


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
        self._trials, self._pids, self._pods = RayTuneTable(), PidTable(), PodDescriptions()
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
        shape = _SHAPES.shape_of(line.text)
        events = [self._pods.complete(event) for event in self._own_events(line, shape)]
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
        events = self._last_warning.read(line, list(_line_events(line, shape, self._traces, self._block)))
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
            self._counters.read(line, rank_in_words(line.who, _SAYS_RANK, line.text), *count)
        yield from self._counters.flush()
        if any(machine.ends_allocation(event.what, event.text) for event in events):
            self._counters.end_all()
        yield from events
        return True

    def _read_rest(self, line: Line, shape: LineShape, count: Count | None) -> Iterator[Event[Any]]:
        """Counters, what a server answers, and words of failure that no pattern reads."""
        if count is not None:
            self._counters.read(line, rank_in_words(line.who, _SAYS_RANK, line.text), *count)
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


_TEST_ID = re.compile(r"[\w./-]{1,200}\.py::\w")
"""How pytest begins what it says of a test: what the test printed is no job's."""
_DEFAULT_GROUP = re.compile(r"\[PG [^\]]{0,60}\(default_pg\) Rank (?P<rank>\d{1,7})\]")
"""How a watchdog gives its rank in the default group: of this all ranks are."""
_SAYS_RANK = re.compile(r"(?<!\bnot )\b[Rr]ank(?:[ =:]{1,2}|(?<=\[rank)(?=\d{1,6}\]))(?P<rank>\d{1,6})\b")
"""How programs without a prefix report progress in their own words: `rank=3 finished`."""
_OWN_RANK = re.compile(r"^\[?[Rr]ank[ :=]?(?P<rank>\d{1,7})(?:\]?: |, node )")
"""The label with which an exception's message begins, `Rank 3: found NaN`: the rank of the program."""


def _line_events(
    line: Line, shape: LineShape, traces: TracebackReader, block: ElasticBlock
) -> Iterator[Event[Any]]:
    """What one line says, other than how far a counter is."""
    listed_exit = block.read(line)
    is_source = traces.holds(line) and not line.text.lstrip().startswith('File "')  # of a call in a stack
    is_quote = is_source or (".py::" in line.text and _TEST_ID.match(line.text) is not None)
    signs = [] if is_quote else list(_pattern_events(line, shape.signs))
    signalled = any(isinstance(event.what, exits.LauncherSignalled) for event in signs)
    exceptions = [] if listed_exit is not None else list(traces.read(line, signalled=signalled))
    of_no_peer = any(
        from_helper_process(raised) or how == "handled" or not is_secondary(raised)
        for raised, how in exceptions
    )
    caught = next((how for _, how in exceptions if how != "plain"), "")
    has_event = False
    for event in signs:
        if of_no_peer and isinstance(event.what, store.PeerGone):
            continue
        if caught and event.asserted and event.kind not in ALSO_AT_WARNING:
            event = replace(event, manner=caught)  # one line says one thing in one way
        has_event = has_event or event.kind not in SIDE_FACTS
        yield event
    if listed_exit is not None:
        yield listed_exit
        return
    for raised, how in exceptions:
        who = rank_in_words(line.who, _OWN_RANK, raised.message)
        yield Event.at(line, raised, who=who, manner=how)
        has_event = True
    if has_event:
        return
    alive = progress.read_liveness(line.text) if shape.alive else None
    begins = line.text.startswith("Traceback (most recent")
    if alive is None and not begins and (shape.announces or line.level in SERIOUS):
        alive = trouble_announced(line)
    if alive is not None:
        yield Event.at(line, alive, who=rank_in_words(line.who, _SAYS_RANK, line.text))


def _pattern_events(line: Line, signs: Iterable[LogPattern]) -> Iterator[Event[Any]]:
    for sign in signs:
        reading = sign.read(line.text)
        if not reading:
            continue
        what, match = reading
        how = assertion_of(line, match.start(), match.end(), _words_begin(sign, match))
        if isinstance(what, Symptom) and "NCCL INFO " in line.text[: match.start()]:
            how = "warning"  # it looks for libraries that it can do without
        elif how == "quoted" and what is Mark.HANG_SUSPECTED:
            continue
        elif kind_of(what) in SIDE_FACTS:
            how = "plain"
        elif how == "warning" and _only_level_warns(what, line, match):
            how = "retold" if names_error(line.text[: match.end()]) else "plain"
        elif how == "quoted" or (how == "described" and kind_of(what) in SUSPICIONS):
            continue
        elif (
            how == "described"
            or (how in ("handled", "retold") and _is_report(what, line, match))
            or (how == "retold" and isinstance(what, watchdog.TimedOut))
        ):
            how = "plain"
        elif how == "plain" and line.level == "W" and _is_optional(what):
            how = "warning"
        # Another process reports a dead actor: the prefix of the line is not the dead one's.
        of_another = kind_of(what) in (*ray.OF_ANOTHER, Mark.REPEAT_DIFFERS) or (
            isinstance(what, Symptom) and what.of_another
        )
        speaker = Identity(world=line.who.world) if of_another else line.who
        if machine.is_of_node(what, line.text):
            speaker = Identity(host=line.who.host)
        if isinstance(what, ray.TaskFailed):
            what = replace(what, printer=line.who.pid)
        yield Event.at(line, what, who=identify_speaker(speaker, match), manner=how)


def _words_begin(sign: LogPattern, match: re.Match[str]) -> int:
    """Where a pattern's words begin; its match may begin in front of them."""
    places = (match.string.find(needle, *match.span()) for needle in sign.needles)
    return min((place for place in places if place >= 0), default=match.start())


def _only_level_warns(what: object, line: Line, match: re.Match[str]) -> bool:
    """True for an error whose level alone makes it a warning."""
    of_row = isinstance(what, (Symptom, cuda.GpuFull)) and bool(what.as_warning)
    own = kind_of(what) in ERRORS_LOGGED_AS_WARNING or of_row or _is_of_reporter(what, line)
    return own and not is_warning(line.text, match.end())


def _is_of_reporter(what: object, line: Line) -> bool:
    """True for the end of a whole job, or of a container, whatever its reporter's level is."""
    if isinstance(what, exits.ProcessExit):
        return what.of_job
    return isinstance(what, machine.HostOom) and what.said_by == "Kubernetes" and not line.severity


def _is_report(what: object, line: Line, match: re.Match[str]) -> bool:
    """True for what a launcher or library reports of others and survives; no exception."""
    raised = names_error(line.text[: match.end()])
    own = isinstance(what, exits.ProcessExit) and not what.helper
    own = own and not raised and not tells_replacement(line.text)
    return (own or _only_level_warns(what, line, match)) and not is_of_other_run(line.text)


def _is_optional(what: object) -> bool:
    """True for a library or driver that a program can do without."""
    missed = ("version_mismatch", "driver_problem")
    return isinstance(what, Symptom) and what.cause in missed and not what.as_warning
