"""Lines into typed events: one family of signs per module, tried on the lines a fast search has found."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

from nodedoctor.triage.events import corruption, cuda, nccl, nccl_diag, progress, ras, ray, store, watchdog
from nodedoctor.triage.events.anew import Beginnings
from nodedoctor.triage.events.bars import bar
from nodedoctor.triage.events.broken import joined
from nodedoctor.triage.events.complaints import (
    Complaint,
    LastComplaint,
    LastError,
    Outlived,
    Retries,
    TalkedOn,
    complaint,
)
from nodedoctor.triage.events.counters import Counters
from nodedoctor.triage.events.echoes import of_a_helper
from nodedoctor.triage.events.manner import manner, warned
from nodedoctor.triage.events.measures import Works
from nodedoctor.triage.events.onward import Onward
from nodedoctor.triage.events.open_errors import OpenErrors
from nodedoctor.triage.events.programs import (
    accelerate,
    amd,
    ascend,
    horovod,
    jax,
    mindspore,
    paddle,
    serving,
)
from nodedoctor.triage.events.seen import Article, Prose, UnreadTrouble, unread
from nodedoctor.triage.events.shapes import Shape, Shapes
from nodedoctor.triage.events.sign import Sign, Symptom, identified
from nodedoctor.triage.events.stacks import Dumps
from nodedoctor.triage.events.system import exits, helpers, kernel, limits, mpi, nodes, oom, schedulers, slurm
from nodedoctor.triage.events.system.elastic import ElasticBlock
from nodedoctor.triage.events.trace import Raised, Tracebacks, own_rank
from nodedoctor.triage.events.trace_owners import Continued, Gathered, Spawned
from nodedoctor.triage.events.trials import Trials
from nodedoctor.triage.events.tries import Tries
from nodedoctor.triage.model import LARGEST_WORLD, SERIOUS, Event, Line, Who
from nodedoctor.whole_numbers import whole

SIGNS: tuple[Sign, ...] = (
    *watchdog.SIGNS,
    *store.SIGNS,
    *nccl.SIGNS,
    *nccl_diag.SIGNS,
    *cuda.SIGNS,
    *corruption.SIGNS,
    *oom.SIGNS,
    *limits.SIGNS,
    *exits.SIGNS,
    *mpi.SIGNS,
    *helpers.SIGNS,
    *nodes.SIGNS,
    *ray.SIGNS,
    *ras.SIGNS,
    *kernel.SIGNS,
    *slurm.SIGNS,
    *schedulers.SIGNS,
    *jax.SIGNS,
    *horovod.SIGNS,
    *paddle.SIGNS,
    *mindspore.SIGNS,
    *serving.SIGNS,
    *accelerate.SIGNS,
    *ascend.SIGNS,
    *amd.SIGNS,
    *progress.SIGNS,
)
"""Every sign of every family."""

LIFE = (progress.TrainingStep, progress.Finished, progress.LongWork, progress.Serving)
"""What does not count as trouble."""

ASIDE = (
    accelerate.Passed,
    *corruption.ASIDE,
    cuda.OfGpu,
    ras.HangFolder,
    progress.RankOfPid,
    progress.Size,
    progress.Mentions,
    progress.Gone,
    Complaint,
)
"""What a line tells in passing: it may still be one about progress."""

HARMLESS = ASIDE + LIFE
"""What a line may tell without speaking of trouble."""

ENDS = (Raised, exits.ProcessExit, exits.Ended, exits.Forced, watchdog.TimedOut)
"""Behind which somebody may have started the program again."""

SUSPICIONS = (
    Symptom, cuda.GpuFull, oom.HostOom, Raised, nccl.NcclError, store.PeerGone, *corruption.SUSPICIONS,
)  # fmt: skip
"""What may be handled by the program that says it, so that it matters how it is said."""

TOLD_AS_WARNING = (
    exits.Stopped, exits.Forced, exits.Ended, nodes.NodeLost, watchdog.Blamed,
    watchdog.CollectiveStatus, watchdog.Left, watchdog.GilHeld, watchdog.Heartbeat,
    slurm.Attempt, slurm.Begun, slurm.OrderedStop, serving.ShutDown, nccl.Communicator,
    progress.Asleep, progress.Gone, UnreadTrouble, kernel.Stalled, kernel.Xid, ras.RasCount, ras.RasRunning,
    ras.RasProcess, ray.ActorPid, oom.MemoryUser, store.BarrierMissed, watchdog.Dying,
)  # fmt: skip
"""What torchelastic, Ray, the kernel's loggers and NCCL tell at the level of a warning or below."""

NEEDLES: tuple[str, ...] = (
    *(
        n
        for n in {needle: None for sign in SIGNS for needle in sign.needles}
        if len(n) > 6 or n in ("Xid (", "Killed")
    ),
    "Traceback (most recent",
    "Last error:",
    "Missing ranks:",
)
"""Words that find every line that matters, without the short ones that ordinary lines are full of."""


_SHAPES = Shapes(SIGNS)


def read_events(lines: Iterable[Line]) -> Iterator[Event[Any]]:
    """Every event in a stream of lines, in the order of the lines."""
    counters = Counters()
    traces, block, open_errors = Tracebacks(), ElasticBlock(), OpenErrors()
    prose, dumps, last_errors, last = Prose(), Dumps(), nccl.LastErrors(), None
    continued, spawned, stalls = Continued(), Spawned(), horovod.Stalls()
    gathered, beginnings, onward = Gathered(), Beginnings(), Onward()
    complained, failed, retries = LastComplaint(), LastError(), Retries()
    trials, tries, working = Trials(), Tries(), Works()
    told = map(gathered.line, map(continued.line, map(spawned.line, joined(lines))))
    for line in map(_of_the_job, map(block.said, told)):
        last = line
        prose.read(line)
        yield from dumps.read(line)
        yield from stalls.read(line)
        shape = _SHAPES.of(line.text)
        events = last_errors.told(line, list(_events(line, shape, traces, block)))
        if retries.detail(line) and all(isinstance(event.what, UnreadTrouble) for event in events):
            events = [replace(event, what=Complaint(aside=True)) for event in events]
        yield from open_errors.told(line)
        if failed.read(line, erred=any(not isinstance(event.what, HARMLESS) for event in events)):
            yield Event(Outlived(), line.place, line.who, line.time, line.text)
        counted = trials.read(line.text) or next(
            (found for read in shape.counters if (found := read(line.text))), None
        )
        for aside in (tries.read(line), working.read(line.text)):
            if aside is not None:
                yield Event(aside, line.place, line.who, line.time, line.text)
        if counted is None and (anew := beginnings.read(line)) is not None:
            yield from open_errors.released()
            yield Event(anew, line.place, line.who, line.time, line.text)
        if (went_on := onward.read(line)) is not None:
            yield from open_errors.released()
            yield Event(went_on, line.place, line.who, line.time, line.text)
        if events:
            if any(isinstance(event.what, ENDS) for event in events):
                beginnings.ended(line)
            yield from open_errors.released()
            if any(isinstance(event.what, Raised) for event in events):
                yield from counters.flush()
                open_errors.hold(line, events)
                continue
            if not all(isinstance(event.what, ASIDE) for event in events):
                works = all(isinstance(event.what, LIFE) for event in events)
                if counted is not None and works and bar(line.text) is None:  # no bar of that work
                    counters.read(line, _speaker(line), *counted)
                yield from counters.flush()
                yield from events
                continue
            yield from events
        if counted is not None:
            counters.read(line, _speaker(line), *counted)
            traces.stepped()
        if shape.answers and progress.answered(line.text):
            counters.answered(line, line.who)
        elif shape.answers and progress.REFUSED.search(line.text):
            yield from open_errors.released()
            yield Event(progress.Refused(), line.place, line.who, line.time, line.text)
        said = complaint(line) if shape.complains and not traces.holds(line) else None
        if said is not None:
            yield Event(said, line.place, line.who, line.time, line.text, line.repeated, line.origin)
        if complained.read(complains=said is not None):
            yield Event(TalkedOn(), line.place, line.who, line.time, line.text)
    yield from open_errors.released()
    yield from counters.flush()
    yield from traces.left()
    yield from dumps.flush()
    if last is not None and prose.is_article:
        yield Event(Article(), last.place, Who(), None, last.text)


_OF_ALL = re.compile(r"\[PG [^\]]{0,60}\(default_pg\) Rank (\d{1,7})\]")


def _of_the_job(line: Line) -> Line:
    """The line with its rank, where a watchdog gives that in the default group: of this all ranks are."""
    if line.who.rank is not None or "(default_pg) Rank " not in line.text:
        return line
    found = _OF_ALL.search(line.text)
    rank = whole(found[1], LARGEST_WORLD - 1) if found else None
    return line if rank is None else replace(line, who=replace(line.who, rank=rank))


def _events(line: Line, shape: Shape, traces: Tracebacks, block: ElasticBlock) -> Iterator[Event[Any]]:
    """What one line says, other than how far a counter is."""
    listed = block.read(line)
    ended = [] if listed is not None else list(traces.read(line))
    passing = any(of_a_helper(raised) or how == "handled" for raised, _, how in ended)
    found = False
    for event in _signs(line, shape.signs):
        if passing and isinstance(event.what, store.PeerGone):
            continue
        found = found or not isinstance(event.what, ASIDE)
        yield event
    if listed is not None:
        yield listed
        return
    for raised, spawned, how in ended:
        rank = own_rank(raised.message) if spawned is None else spawned
        who = replace(line.who, rank=rank) if rank is not None and line.who.rank is None else line.who
        yield Event(raised, line.place, who, line.time, line.text, line.repeated, line.origin, manner=how)
        found = True
    if found:
        return
    alive = progress.read(line.text) if shape.alive else None
    begins = line.text.startswith("Traceback (most recent")
    if alive is None and not begins and (shape.announces or line.level in SERIOUS):
        alive = unread(line)
    if alive is not None:
        yield Event(alive, line.place, _speaker(line), line.time, line.text, line.repeated, line.origin)


def _signs(line: Line, signs: Iterable[Sign]) -> Iterator[Event[Any]]:
    for sign in signs:
        said = sign.read(line.text)
        if not said:
            continue
        what, match = said
        how = manner(line, match.start(), match.end(), _words_at(sign, match))
        if isinstance(what, Symptom) and "NCCL INFO " in line.text[: match.start()]:
            how = "warning"  # it looks for libraries that it can do without
        elif isinstance(what, ASIDE) or (how == "warning" and _level_alone(what, line, match)):
            how = "plain"
        elif how == "quoted" or (how == "described" and isinstance(what, SUSPICIONS)):
            continue
        elif how == "described" or (how == "handled" and _is_report(what, line, match)):
            how = "plain"
        elif how == "plain" and line.level == "W" and _can_be_missed(what):
            how = "warning"
        # A dead actor is told of by another process: what stands in front of the line is not the dead one.
        of_another = isinstance(what, (*ray.OF_ANOTHER, corruption.RepeatDiffers)) or (
            isinstance(what, Symptom) and what.of_another
        )
        told_by = Who(world=line.who.world) if of_another else line.who
        if isinstance(what, ray.TaskFailed):
            what = replace(what, teller=line.who.pid)
        who = identified(told_by, match)
        yield Event(what, line.place, who, line.time, line.text, line.repeated, line.origin, manner=how)


def _words_at(sign: Sign, match: re.Match[str]) -> int:
    """Where in its line a sign's first words stand: its pattern may begin with what is in front of them."""
    places = (match.string.find(needle, *match.span()) for needle in sign.needles)
    return min((place for place in places if place >= 0), default=match.start())


def _level_alone(what: object, line: Line, match: re.Match[str]) -> bool:
    """True for what its program tells as a warning although it is none, if only the level says so."""
    own = isinstance(what, TOLD_AS_WARNING) or (isinstance(what, Symptom) and what.as_warning)
    return own and not warned(line.text, match.end())


def _is_report(what: object, line: Line, match: re.Match[str]) -> bool:
    """True for what a launcher or a library reports of others and then goes on by itself."""
    return isinstance(what, exits.ProcessExit) or _level_alone(what, line, match)


def _can_be_missed(what: object) -> bool:
    """True for a library or a driver that does not fit: the program that only warns of it does without."""
    missed = ("version_mismatch", "driver_problem")
    return isinstance(what, Symptom) and what.cause in missed and not what.as_warning


def _speaker(line: Line) -> Who:
    """Who reports progress: programs without a prefix say it in their own words, `rank=3 finished`."""
    said = _SAYS_RANK.search(line.text) if line.who.rank is None else None
    return replace(line.who, rank=whole(said[1], LARGEST_WORLD - 1)) if said else line.who


_SAYS_RANK = re.compile(r"\b[Rr]ank[ =:]{1,2}(\d{1,6})\b")
