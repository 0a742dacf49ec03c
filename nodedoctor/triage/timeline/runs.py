"""The runs of a job in one log; the last one is judged."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from nodedoctor.record import record
from nodedoctor.triage.marks import Mark, kind_of
from nodedoctor.triage.model import Event, Identity
from nodedoctor.triage.patterns.exits import OF_A_SCRIPT, LauncherSignalled, PeersTerminated, ProcessExit
from nodedoctor.triage.patterns.job_stopped import CancelledByUser
from nodedoctor.triage.patterns.machine import ends_allocation
from nodedoctor.triage.patterns.progress import LongWork, TrainingStep, WorldSize
from nodedoctor.triage.patterns.restarts import Restarted
from nodedoctor.triage.patterns.secondary_errors import OF_LAUNCHERS, is_secondary
from nodedoctor.triage.patterns.stacks import program_file
from nodedoctor.triage.patterns.trace import ExceptionRaised
from nodedoctor.triage.timeline.model import FATAL, QUIET, is_trouble

SURVIVED = 3
"""Steps after a scary line that show that the job went on; one or two may come out of a pipe late."""
_WORK = (TrainingStep, LongWork)
_UP = "Application startup complete"
"""What uvicorn prints once it serves; FastAPI, vLLM and SGLang run on it."""
_TRANSITION = "[State Transition]"
"""With what the controller of Ray Train says which state it comes to, behind what it decided on a failure."""
Failure = tuple[str, str]
"""Who failed, and of what."""
NONE: Failure = ("", "")
_JOB_ENDED = re.compile(r"\*\*\* JOB (\d+) ON \S+ CANCELLED AT ")


@record
class LoggedRun:
    """The events of one run of a job, and whether it ended in a death."""

    events: tuple[Event[Any], ...]
    died: bool = False


def separate_runs(events: list[Event[Any]]) -> list[LoggedRun]:
    """The runs in the log of one source, in order; the last one is judged.

    Only a launcher that begins again ends a run that died, or a program that says again what it said first
    and then gets somewhere or fails in another way. What looks like progress does not, since bars are drawn
    again and monitors go on after a death. A launcher that begins after a run said that it is done begins
    another one, and so does one behind a program of one process that ended in an unhandled exception. A
    restart after which neither trouble nor progress is seen leaves the run before it as the last one. What
    several agents announce with nothing done between them is one restart, of one run that died.
    """
    cuts, died = [0], [False]
    agents: set[Identity] = set()
    state = _RunState()
    other_runs = _find_other_jobs(events) | _find_resumed_runs(events)
    restarts = _find_restarts(events)
    single = of_one_process(events)
    for index, event in enumerate(events):
        what = event.what
        starts = what in (Mark.LAUNCHER_STARTED, Mark.RETRY_STARTED)
        new_run = index in other_runs or (starts and state.is_over)
        server_up = single and not state.fatal and _is_server_up(event)
        if len(cuts) > 1 and not state.moved and _enters_decided_state(event, events[cuts[-1]]):
            cuts[-1], state = index, _RunState()
        elif new_run or (state.trouble and (what is Mark.RESTART_ATTEMPT or index in restarts or server_up)):
            cuts.append(index)
            announced = what is Mark.RESTART_ATTEMPT
            same = announced and bool(agents) and event.who not in agents and not state.moved
            died[-1] = (state.fatal or state.trouble) and not same
            agents = ({event.who} if announced else set()) | (agents if same else set())
            died.append(False)
            state = _RunState()
        state.read(event)
    certain_cuts = other_runs | restarts  # these are cut where the run behind them got somewhere
    while (
        len(cuts) > 1
        and cuts[-1] not in certain_cuts
        and not _shows_progress(events[: cuts[-1]], events[cuts[-1] :])
    ):
        events = events[: cuts.pop()]
        died.pop()
    ends = [*cuts[1:], len(events)]
    return [
        LoggedRun(tuple(events[begin:end]), dead) for begin, end, dead in zip(cuts, ends, died, strict=True)
    ]


@dataclass(slots=True)
class _RunState:
    """What the run that is read has shown until here."""

    fatal: bool = False
    trouble: bool = False
    done: bool = False
    moved: bool = False
    raised: bool = False
    several: bool = False
    stopped: bool = False

    def read(self, event: Event[Any]) -> None:
        what = event.what
        self.fatal = self.fatal or kind_of(what) in FATAL
        self.trouble = self.trouble or is_trouble(event)
        self.done = self.done or what is Mark.JOB_FINISHED
        self.moved = self.moved or isinstance(what, TrainingStep)
        self.raised = self.raised or _ends_program(event)
        self.several = self.several or _is_of_several(event)
        self.stopped = self.stopped or isinstance(what, PeersTerminated)

    @property
    def is_over(self) -> bool:
        """True when a launcher that begins now begins another run."""
        taken_down = self.moved and (self.done or (self.stopped and self.trouble))
        return self.fatal or taken_down or (self.raised and not self.several)


def of_one_process(events: list[Event[Any]]) -> bool:
    """True where no line names a process, an end, or a world of several ranks."""
    return not any(map(_is_of_several, events))


def _is_of_several(event: Event[Any]) -> bool:
    what, who = event.what, event.who
    has_identity = who.rank is not None or who.pid is not None
    return has_identity or kind_of(what) in FATAL or (isinstance(what, WorldSize) and what.ranks > 1)


def _enters_decided_state(event: Event[Any], decided: Event[Any]) -> bool:
    """True where Ray Train's controller begins the restart that it had decided on for an error."""
    is_restart = event.what is Mark.RESTART_ATTEMPT is decided.what and event.who == decided.who
    return is_restart and _TRANSITION in event.text and _TRANSITION not in decided.text


def _ends_program(event: Event[Any]) -> bool:
    """True for an unhandled exception: a launcher after it is another command."""
    what = event.what
    raised = isinstance(what, ExceptionRaised) and bool(what.frames) and not what.logged
    return raised and event.manner == "plain"


def _is_server_up(event: Event[Any]) -> bool:
    """True where a server says that it is up: what it raised before is over."""
    return event.what is Mark.SERVER_READY and _UP in event.text


def _find_restarts(events: list[Event[Any]]) -> set[int]:
    """Indexes where the log begins again as before, and the run gets somewhere.

    It counts or serves before anything in it ends, and no counter goes on that had begun before; or it was at
    work when somebody stopped it. It may also have failed by itself: one that a program calls a run, or in
    another way than the run before it. Where another program fails in it than before, it is the next stage of
    a script, which fails because the stage before it did; where another rank does, it is still the same run.
    """
    if not any(isinstance(event.what, Restarted) for event in events):
        return set()
    restarts: set[int] = set()
    counter_starts: dict[tuple[str, int], int] = {}
    open_at: int | None = None
    works = False
    failures = [_failed_program(event) for event in events]
    last_failures = _last_failures(failures)
    next_failures = _last_failures(failures[::-1])[::-1]
    for index, event in enumerate(events):
        what = event.what
        if isinstance(what, Restarted):
            (program, error), (next_program, next_error) = last_failures[index], next_failures[index]
            open_at, works = index if next_program in (program, "") else None, False
            if next_program == program != "" and (what.explicit or error != next_error):
                restarts.add(index)
        elif isinstance(what, TrainingStep):
            began = counter_starts.setdefault((what.series, what.part), index)
            if open_at is not None and what.rises and began < open_at:
                open_at = None
            elif open_at is not None and what.begins and what.rises >= SURVIVED:
                restarts.add(open_at)
        elif open_at is not None and (
            kind_of(what) in (Mark.JOB_FINISHED, Mark.SERVER_READY) or (works and _is_user_stop(what))
        ):
            restarts.add(open_at)
        works = works or kind_of(what) in _WORK
        if kind_of(what) in FATAL:
            open_at = None
    return restarts


def _is_user_stop(what: object) -> bool:
    """True where somebody stopped the program at its keyboard."""
    return isinstance(what, CancelledByUser) and what.by_hand


def _last_failures(failures: list[Failure]) -> list[Failure]:
    """In each place the last failure until there."""
    last = NONE
    return [last := failure if failure != NONE else last for failure in failures]


def _failed_program(event: Event[Any]) -> Failure:
    """The program and rank that raised an error of its own, and which error."""
    what = event.what
    if not isinstance(what, ExceptionRaised) or not event.asserted or is_secondary(what):
        return NONE
    name = program_file(what.frames)
    if not name:
        return NONE
    # each rank asks for memory where it is: another place is no other way
    how = what.type if what.type.endswith("OutOfMemoryError") else f"{what.type} {what.frames[-1]}"
    return f"{name} {event.who.rank}", how


def _find_other_jobs(events: list[Event[Any]]) -> set[int]:
    """Indexes where the log of another job begins: scripts append to one file.

    Slurm reports each job's end. A script may also run one program after another: the next one reads its
    model or data before it counts. What is cancelled may still save.
    """
    starts: set[int] = set()
    cancel_index, job = None, ""
    script_end, has_long_work = None, False
    for index, event in enumerate(events):
        match = _JOB_ENDED.search(event.text) if isinstance(event.what, CancelledByUser) else None
        what = event.what
        counts = isinstance(what, TrainingStep) and what.begins and what.rises >= SURVIVED
        progress = counts or (isinstance(what, LongWork) and what.is_setup)
        if cancel_index is not None and ((match and match[1] != job) or progress):
            starts.add(cancel_index + 1)
            cancel_index = None
        if isinstance(what, ProcessExit) and OF_A_SCRIPT.match(event.text):
            script_end, has_long_work = index, False
        elif script_end is not None and counts and has_long_work:
            starts.add(script_end + 1)
            script_end = None
        has_long_work = has_long_work or isinstance(what, LongWork)
        if match:
            cancel_index, job = index, match[1]
    return starts


def _find_resumed_runs(events: list[Event[Any]]) -> set[int]:
    """Indexes where a counter begins again after every rank, their launcher, or the allocation has ended.

    No process was left that could have counted. The counter begins where it did at first, or at the last
    checkpoint, and comes further than before. One that had not counted before may be a script's next program,
    which says nothing of the one that failed, unless it counts epochs. In the log of one rank alone it ends
    with what it raised.
    """
    starts: set[int] = set()
    is_of_one_rank = len({event.who.rank for event in events} - {None}) == 1
    world = max((e.what.ranks for e in events if isinstance(e.what, WorldSize)), default=0)
    ended_ranks: set[int] = set()
    end_index: int | None = None
    is_raise = False
    old_steps: dict[str, TrainingStep] = {}
    for index, event in enumerate(events):
        what = event.what
        if isinstance(what, ProcessExit) and what.of_job:
            end_index = index
        elif isinstance(what, ProcessExit) and event.who.rank is not None and not what.helper:
            ended_ranks.add(event.who.rank)
            end_index = index if end_index is not None or len(ended_ranks) >= world > 0 else None
        elif _is_launcher_end(event) or ends_allocation(what, event.text):
            end_index, is_raise = index, False
        elif end_index is None and is_of_one_rank and _ends_program(event):
            end_index, is_raise = index, True
        elif is_raise and isinstance(what, TrainingStep) and _goes_on(what, old_steps.get(what.series)):
            end_index, is_raise = None, False
        elif end_index is None:
            if isinstance(what, TrainingStep) and not ended_ranks:
                old_steps[what.series] = what
        elif isinstance(what, TrainingStep):
            if _counts_again(what, old_steps.get(what.series)):
                starts.add(end_index + 1)
                ended_ranks, end_index, is_raise = set(), None, False
        elif kind_of(what) not in QUIET:
            end_index = index
    return starts


def _goes_on(step: TrainingStep, earlier: TrainingStep | None) -> bool:
    """True for a counter that rises as before: what was raised ended nothing."""
    return earlier is not None and step.part == earlier.part and step.rises > 0


def _counts_again(step: TrainingStep, earlier: TrainingStep | None) -> bool:
    """True for a counter that begins again, or at the last checkpoint.

    `earlier`: its last step before that.
    """
    if step.rises < SURVIVED:
        return False
    if earlier is None:
        return step.begins and step.epochs >= SURVIVED
    resumed = step.first <= earlier.last < step.last
    return step.part > earlier.part and (step.begins or resumed)


def _is_launcher_end(event: Event[Any]) -> bool:
    """True for the signal or the exception in which a launcher ends, with all its processes."""
    what = event.what
    if isinstance(what, LauncherSignalled):
        return True
    return isinstance(what, ExceptionRaised) and what.type.endswith(OF_LAUNCHERS) and event.asserted


def _shows_progress(old_events: list[Event[Any]], new_events: list[Event[Any]]) -> bool:
    """True when a new run shows trouble, an end, or steps beyond the old one's."""
    asserted_events = [e for e in new_events if e.asserted]
    if new_events and _is_server_up(new_events[0]):
        return True
    if any(e.what is Mark.JOB_FINISHED or e.kind not in QUIET for e in asserted_events):
        return True
    if any(_is_user_stop(e.what) for e in new_events) and any(e.kind in _WORK for e in new_events):
        return True
    reached: dict[str, tuple[float, ...]] = {}
    for event in old_events:
        if isinstance(event.what, TrainingStep):
            name = event.what.series.rpartition("|")[2]
            reached[name] = max(reached.get(name, ()), event.what.last)
    steps: Counter[str] = Counter()
    for event in new_events:
        if isinstance(event.what, TrainingStep):
            name = event.what.series.rpartition("|")[2]
            if event.what.last > reached.get(name, ()):
                steps[name] += event.what.rises
    return max(steps.values(), default=0) >= SURVIVED
