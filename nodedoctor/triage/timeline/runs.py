"""The runs of a job in the log of one source: those that died, and the last one, which is judged."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from typing import Any

from nodedoctor.record import record
from nodedoctor.triage.marks import Mark, kind_of
from nodedoctor.triage.model import Event
from nodedoctor.triage.patterns.exits import OF_A_SCRIPT, LauncherSignalled, ProcessExit
from nodedoctor.triage.patterns.frames import program_file
from nodedoctor.triage.patterns.lifecycle import CancelledByUser
from nodedoctor.triage.patterns.progress import LongWork, TrainingStep, WorldSize
from nodedoctor.triage.patterns.restarts import Restarted
from nodedoctor.triage.patterns.secondary_errors import OF_LAUNCHERS, is_secondary
from nodedoctor.triage.patterns.trace import ExceptionRaised
from nodedoctor.triage.timeline.model import FATAL, QUIET

SURVIVED = 3
"""Steps after a scary line that show that the job went on; one or two may come out of a pipe late."""
_WORK = (TrainingStep, LongWork)
_UP = "Application startup complete"
"""What uvicorn says once it serves; FastAPI, vLLM and SGLang stand on it."""
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
    another one, and so does one behind a program of one process that raised what nobody handled. A restart
    after which neither trouble nor progress is seen leaves the run before it as the last that is known.
    """
    cuts, died = [0], [False]
    seen = _RunState()
    others = _other_jobs(events) | _after_all_had_ended(events)
    anew = _begun_anew(events)
    single = of_one_process(events)
    for index, event in enumerate(events):
        what = event.what
        starts = what in (Mark.LAUNCHER_STARTED, Mark.RETRY_STARTED)
        again = index in others or (starts and seen.over)
        up = single and not seen.fatal and _is_server_up(event)
        if again or (seen.trouble and (what is Mark.RESTART_ATTEMPT or index in anew or up)):
            cuts.append(index)
            died[-1] = seen.fatal or seen.trouble
            died.append(False)
            seen = _RunState()
        seen.read(event)
    shown = others | anew  # these are cut where the run behind them got somewhere
    while len(cuts) > 1 and cuts[-1] not in shown and not _went_on(events[: cuts[-1]], events[cuts[-1] :]):
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

    def read(self, event: Event[Any]) -> None:
        what = event.what
        self.fatal = self.fatal or kind_of(what) in FATAL
        self.trouble = self.trouble or kind_of(what) not in QUIET
        self.done = self.done or what is Mark.JOB_FINISHED
        self.moved = self.moved or isinstance(what, TrainingStep)
        self.raised = self.raised or _ends_a_program(event)
        self.several = self.several or _is_of_several(event)

    @property
    def over(self) -> bool:
        """True when a launcher that begins now begins another run."""
        return self.fatal or (self.done and self.moved) or (self.raised and not self.several)


def of_one_process(events: list[Event[Any]]) -> bool:
    """True where nothing tells of several processes, or of one that ended: then who had the error goes on."""
    return not any(map(_is_of_several, events))


def _is_of_several(event: Event[Any]) -> bool:
    what, who = event.what, event.who
    named = who.rank is not None or who.pid is not None
    return named or kind_of(what) in FATAL or (isinstance(what, WorldSize) and what.ranks > 1)


def _ends_a_program(event: Event[Any]) -> bool:
    """True for what nobody handled: behind one process that raised it, a launcher is another command."""
    what = event.what
    return isinstance(what, ExceptionRaised) and bool(what.frames) and event.asserted and not what.logged


def _is_server_up(event: Event[Any]) -> bool:
    """True where a server says that it is up: what it raised before is over."""
    return event.what is Mark.SERVER_READY and _UP in event.text


def _begun_anew(events: list[Event[Any]]) -> set[int]:
    """Where the log begins again as a run before it did, and that run got somewhere.

    It counts or serves before anything in it ends, and no counter goes on that had begun before; or it was at
    work when somebody stopped it. It may also have failed by itself: one that a program calls a run, or in
    another way than the run before it. Where another program fails in it than before, it is the next stage of
    a script, which fails because the stage before it did; where another rank does, it is still the same run.
    """
    if not any(isinstance(event.what, Restarted) for event in events):
        return set()
    found: set[int] = set()
    counted: dict[tuple[str, int], int] = {}
    open_at: int | None = None
    works = False
    failures = [_failed_program(event) for event in events]
    before = _last_failures(failures)
    after = _last_failures(failures[::-1])[::-1]
    for index, event in enumerate(events):
        what = event.what
        if isinstance(what, Restarted):
            (ended, how), (ends, otherwise) = before[index], after[index]
            open_at, works = index if ends in (ended, "") else None, False
            if ends == ended != "" and (what.told or how != otherwise):
                found.add(index)
        elif isinstance(what, TrainingStep):
            began = counted.setdefault((what.series, what.part), index)
            if open_at is not None and what.rises and began < open_at:
                open_at = None
            elif open_at is not None and what.begins and what.rises >= SURVIVED:
                found.add(open_at)
        elif open_at is not None and (
            kind_of(what) in (Mark.JOB_FINISHED, Mark.SERVER_READY) or (works and _by_hand(what))
        ):
            found.add(open_at)
        works = works or kind_of(what) in _WORK
        if kind_of(what) in FATAL:
            open_at = None
    return found


def _by_hand(what: object) -> bool:
    """True where somebody stopped the program at its keyboard."""
    return isinstance(what, CancelledByUser) and what.by_hand


def _last_failures(failures: list[Failure]) -> list[Failure]:
    """In each place the last failure until there."""
    last = NONE
    return [last := failure if failure != NONE else last for failure in failures]


def _failed_program(event: Event[Any]) -> Failure:
    """The program, and its rank, that raised what is no echo of somebody else's end; and what it was."""
    what = event.what
    if not isinstance(what, ExceptionRaised) or not event.asserted or is_secondary(what):
        return NONE
    name = program_file(what.frames)
    if not name:
        return NONE
    # each rank asks for memory where it is: another place is no other way
    how = what.type if what.type.endswith("OutOfMemoryError") else f"{what.type} {what.frames[-1]}"
    return f"{name} {event.who.rank}", how


def _other_jobs(events: list[Event[Any]]) -> set[int]:
    """Where the log of another job begins: scripts append to one file, and Slurm tells each job's end.

    A script may also run one program after another: the next one reads its model or data before it counts.
    """
    begins: set[int] = set()
    ended, job = None, ""
    killed, again = None, False
    for index, event in enumerate(events):
        found = _JOB_ENDED.search(event.text) if isinstance(event.what, CancelledByUser) else None
        what = event.what
        counts = isinstance(what, TrainingStep) and what.begins and what.rises >= SURVIVED
        moved = counts or isinstance(what, LongWork)
        if ended is not None and ((found and found[1] != job) or moved):
            begins.add(ended + 1)
            ended = None
        if isinstance(what, ProcessExit) and OF_A_SCRIPT.match(event.text):
            killed, again = index, False
        elif killed is not None and counts and again:
            begins.add(killed + 1)
            killed = None
        again = again or isinstance(what, LongWork)
        if found:
            ended, job = index, found[1]
    return begins


def _after_all_had_ended(events: list[Event[Any]]) -> set[int]:
    """Where every rank of the job, or their launcher, has ended, and a counter begins again behind it.

    Nobody was left who could have counted. It begins where it did at first, or at the last checkpoint, and
    comes further than before. One that had not counted before may be a script's next program, which says
    nothing of the one that failed, unless it counts epochs.
    """
    begins: set[int] = set()
    world = max((e.what.ranks for e in events if isinstance(e.what, WorldSize)), default=0)
    gone: set[int] = set()
    over: int | None = None
    counted: dict[str, TrainingStep] = {}
    for index, event in enumerate(events):
        what = event.what
        if isinstance(what, ProcessExit) and event.who.rank is not None and not what.helper:
            gone.add(event.who.rank)
            over = index if over is not None or len(gone) >= world > 0 else None
        elif isinstance(what, LauncherSignalled) or _of_a_launcher(event):
            over = index
        elif over is None:
            if isinstance(what, TrainingStep) and not gone:
                counted[what.series] = what
        elif isinstance(what, TrainingStep):
            if _counts_anew(what, counted.get(what.series)):
                begins.add(over + 1)
                gone, over = set(), None
        elif kind_of(what) not in QUIET:
            over = index
    return begins


def _counts_anew(step: TrainingStep, known: TrainingStep | None) -> bool:
    """True for a counter that begins again, or at the last checkpoint; `known`: how far it came before."""
    if step.rises < SURVIVED:
        return False
    if known is None:
        return step.begins and step.epochs >= SURVIVED
    resumed = step.first <= known.last < step.last
    return step.part > known.part and (step.begins or resumed)


def _of_a_launcher(event: Event[Any]) -> bool:
    """True for the exception in which a launcher ends that takes all its processes with it."""
    what = event.what
    return isinstance(what, ExceptionRaised) and what.type.endswith(OF_LAUNCHERS) and event.asserted


def _went_on(before: list[Event[Any]], after: list[Event[Any]]) -> bool:
    """True when a new run shows anything of its own: trouble, an end, or steps past the old one's last."""
    told = [e for e in after if e.asserted]
    if after and _is_server_up(after[0]):
        return True
    if any(e.what is Mark.JOB_FINISHED or e.kind not in QUIET for e in told):
        return True
    if any(_by_hand(e.what) for e in after) and any(e.kind in _WORK for e in after):
        return True
    reached: dict[str, tuple[float, ...]] = {}
    for event in before:
        if isinstance(event.what, TrainingStep):
            name = event.what.series.rpartition("|")[2]
            reached[name] = max(reached.get(name, ()), event.what.last)
    steps: Counter[str] = Counter()
    for event in after:
        if isinstance(event.what, TrainingStep):
            name = event.what.series.rpartition("|")[2]
            if event.what.last > reached.get(name, ()):
                steps[name] += event.what.rises
    return max(steps.values(), default=0) >= SURVIVED
