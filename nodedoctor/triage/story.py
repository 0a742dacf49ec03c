"""The events of the last incident put in relation: who is who, who waited, what the job survived."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

from nodedoctor.noun import noun
from nodedoctor.triage.events import LIFE
from nodedoctor.triage.events.exits import Ended, Exit, Forced, NodeLost, Stopped
from nodedoctor.triage.events.kernel import Xid
from nodedoctor.triage.events.nccl import Communicator
from nodedoctor.triage.events.oom import MemoryUser
from nodedoctor.triage.events.progress import Finished, Mentions, RankOfPid, Roster, Size, Step
from nodedoctor.triage.events.ras import RasCount, RasProcess, RasRunning
from nodedoctor.triage.events.ray import ActorDied, ActorPid
from nodedoctor.triage.events.seen import Seen
from nodedoctor.triage.events.slurm import Attempt, Begun, OrderedStop
from nodedoctor.triage.events.trace import Raised
from nodedoctor.triage.events.watchdog import Blamed, Dying, Failed, Left, Status, TimedOut
from nodedoctor.triage.model import Collective, Event, Group, Who

W = TypeVar("W")

SURVIVED = 3
"""Steps after a scary line that show that the job went on; one or two may come out of a pipe late."""
LONGER = 16
"""The same after a whole traceback, for a counter that was not there before: a few steps are no long run."""

QUIET = (
    *LIFE, OrderedStop, Attempt, Begun, Size, RankOfPid, Roster, Mentions, Communicator, Stopped, MemoryUser,
    ActorPid, Left, Blamed, Seen, RasCount, RasProcess, RasRunning,
)  # fmt: skip
"""Events that are no trouble by themselves."""

FATAL = (TimedOut, Dying, Exit, Forced, Failed, Ended, ActorDied, NodeLost)
"""Events no process survives: only a restart ends them."""


@noun
class Wait:
    """One rank that waited in one collective until its timeout; `began` is when it enqueued it, if known."""

    who: Who
    work: Collective
    event: Event[TimedOut]
    began: float | None


@dataclass(frozen=True)
class Story:
    """The last incident. `folded`: Ray merged lines, so that silence proves nothing.

    `survived` counts deaths after which the job was restarted; `steps` how often its busiest counter rose.
    """

    events: tuple[Event[Any], ...]
    incidents: int = 0
    survived: int = 0
    folded: bool = False
    waits: tuple[Wait, ...] = ()
    steps: int = 0
    sources: int = 1
    expected: int | None = None
    _index: dict[type, list[Event[Any]]] = field(default_factory=dict, repr=False, compare=False)

    def of(self, kind: type[W]) -> list[Event[W]]:
        """All events of one kind, in order."""
        if not self._index:
            for event in self.events:
                self._index.setdefault(type(event.what), []).append(event)
        return self._index.get(kind, [])

    @property
    def trouble(self) -> list[Event[Any]]:
        """Everything that is not a sign of life or of order."""
        return [event for event in self.events if not isinstance(event.what, QUIET)]

    @property
    def ranks_seen(self) -> frozenset[int]:
        """Global ranks that printed something, or that a launcher listed."""
        return frozenset(e.who.rank for e in self.events if e.who.rank is not None)

    @property
    def first_wait(self) -> Wait | None:
        """The earliest timeout: the rank that waited longest, a victim."""
        return min(self.waits, key=lambda wait: self.moment(wait.event), default=None)

    def moment(self, event: Event[Any]) -> tuple[float, str, int]:
        """When an event happened, as far as can be told: by its time, else by its place."""
        return (
            event.time if event.time is not None else float("inf"),
            event.place.source,
            event.place.offset,
        )

    def gave_up(self, who: Who) -> bool:
        """True for a rank or process that printed a timeout of its own."""
        return any(
            (who.rank is not None and who.rank == wait.who.rank)
            or (who.pid is not None and who.pid == wait.who.pid)
            for wait in self.waits
        )

    def late(self, event: Event[Any]) -> bool:
        """True when the others had already given up: what comes then is no cause but a consequence."""
        first = self.first_wait
        if first is None:
            return False
        if event.time is not None and first.event.time is not None:
            return event.time > first.event.time
        if event.who.rank is not None and event.who.rank not in {wait.who.rank for wait in self.waits}:
            return False  # logs of several ranks may stand one after another in a file
        same = [w.event.place.offset for w in self.waits if w.event.place.source == event.place.source]
        return bool(same) and event.place.offset > min(same)


def follows(story: Story, event: Event[Any]) -> bool:
    """True for an end that follows from a timeout: of a process that gave up, or told after one did."""
    return bool(story.waits) and (story.late(event) or story.gave_up(event.who))


def tell(events: Sequence[Event[Any]]) -> Story:
    """The story of the last incident in these events, read from any number of sources."""
    incidents = 0
    last: list[Event[Any]] = []
    for source in _by_source(events):
        kept, ended = _last_incident(source)
        incidents = max(incidents, ended)
        last += _unsurvived(kept)
    last = _identified(last)
    return Story(
        events=tuple(last),
        incidents=incidents + any(not isinstance(e.what, QUIET) for e in last),
        survived=incidents,
        folded=any(e.repeated for e in last),
        waits=tuple(_waits(last)),
        steps=_furthest(last),
        sources=len({e.place.source for e in events}),
        expected=_expected(last),
    )


def _furthest(events: Iterable[Event[Any]]) -> int:
    """How often the busiest counter of steps rose."""
    rises: Counter[str] = Counter()
    for event in events:
        if isinstance(event.what, Step):
            rises[event.what.series] += event.what.rises
    return max(rises.values(), default=0)


def _by_source(events: Iterable[Event[Any]]) -> Iterable[list[Event[Any]]]:
    sources: dict[str, list[Event[Any]]] = defaultdict(list)
    for event in events:
        sources[event.place.source].append(event)
    return sources.values()


def _last_incident(events: list[Event[Any]]) -> tuple[list[Event[Any]], int]:
    """What follows the last death that the job was restarted after, and how many such deaths there were.

    Only a restart ends an incident: a launcher that begins again. What looks like progress does not, since
    bars are drawn again and monitors go on after a death. A restart after which neither trouble nor
    progress is seen leaves the death as the last that is known.
    """
    cuts, fatal, trouble = [0], False, False
    for index, event in enumerate(events):
        what = event.what
        if (isinstance(what, Begun) and fatal) or (isinstance(what, Attempt) and trouble):
            cuts.append(index)
            fatal = trouble = False
        fatal = fatal or isinstance(what, FATAL)
        trouble = trouble or not isinstance(what, QUIET)
    while len(cuts) > 1 and not _went_on(events[: cuts[-1]], events[cuts[-1] :]):
        events, cuts = events[: cuts[-1]], cuts[:-1]
    return events[cuts[-1] :], len(cuts) - 1


def _went_on(before: list[Event[Any]], after: list[Event[Any]]) -> bool:
    """True when a new run shows anything of its own: trouble, an end, or steps past the old one's last."""
    if any(isinstance(e.what, Finished) or not isinstance(e.what, QUIET) for e in after):
        return True
    reached: dict[str, tuple[float, ...]] = {}
    for event in before:
        if isinstance(event.what, Step):
            name = event.what.series.rpartition("|")[2]
            reached[name] = max(reached.get(name, ()), event.what.last)
    steps: Counter[str] = Counter()
    for event in after:
        if isinstance(event.what, Step):
            name = event.what.series.rpartition("|")[2]
            if event.what.last > reached.get(name, ()):
                steps[name] += event.what.rises
    return max(steps.values(), default=0) >= SURVIVED


def _unsurvived(events: list[Event[Any]]) -> list[Event[Any]]:
    """Drop trouble after which the job went on counting: it was no end of anything. A death stays."""
    kept: list[Event[Any]] = []
    later: dict[tuple[str, int], list[Step]] = defaultdict(list)
    known = Counter((event.what.series, event.what.part) for event in events if isinstance(event.what, Step))
    for event in reversed(events):
        what = event.what
        if isinstance(what, Step):
            known[what.series, what.part] -= 1
            later[what.series, what.part].append(what)
        if isinstance(what, (*QUIET, *FATAL)) or _final(event, events) or not _survived(event, later, known):
            kept.append(event)
    return kept[::-1]


def _survived(
    event: Event[Any], later: dict[tuple[str, int], list[Step]], known: Counter[tuple[str, int]]
) -> bool:
    """True when a counter of before went on after this, or one began and came far."""
    needed = LONGER if isinstance(event.what, Raised) and event.what.frames else SURVIVED
    for key, steps in later.items():
        rises = sum(step.rises for step in steps)
        if rises >= SURVIVED and known[key] > 0:
            return True
        if rises >= needed and steps[0].begins:
            return True
    return False


def _final(event: Event[Any], events: list[Event[Any]]) -> bool:
    """True when the process that said it is never heard again, while others are known by name."""
    rank = event.who.rank
    if rank is None:
        return False
    again = [e for e in events if e.who.rank == rank and isinstance(e.what, Step)]
    return all(e.place.offset < event.place.offset for e in again) and any(
        e.who.rank not in (None, rank) and isinstance(e.what, FATAL) for e in events
    )


def _identified(events: list[Event[Any]]) -> list[Event[Any]]:
    """Fill in ranks by process id: a launcher names the pid, another line its rank."""
    events = _of_world(events)
    known = _rank_by_pid(events)
    by_bus = _rank_by_bus(events)
    alone = _one_node(events)

    def named(event: Event[Any]) -> Event[Any]:
        rank = known.get(event.who.pid) if event.who.pid is not None else None
        if rank is None and isinstance(event.what, Xid):
            rank = by_bus.get((_short(event.who.host), event.what.bus))
        if rank is None and alone and isinstance(event.what, Exit):
            rank = event.who.local_rank
        if event.who.rank is not None or rank is None:
            return event
        return replace(event, who=replace(event.who, rank=rank))

    return [named(event) for event in events]


def _of_world(events: list[Event[Any]]) -> list[Event[Any]]:
    """The largest communicator's ranks are global ones: NCCL's lines then tell pid and GPU of each."""
    largest = max((event.what.ranks for event in events if isinstance(event.what, Communicator)), default=0)

    def ranked(event: Event[Any]) -> Event[Any]:
        what = event.what
        if not isinstance(what, Communicator) or what.ranks != largest or event.who.rank is not None:
            return event
        return replace(event, who=replace(event.who, rank=what.rank))

    return [ranked(event) for event in events]


def _rank_by_bus(events: list[Event[Any]]) -> dict[tuple[str, int], int]:
    """Which rank used the GPU on a PCI bus of a host."""
    return {
        (_short(event.who.host), event.what.bus): event.who.rank
        for event in events
        if isinstance(event.what, Communicator) and event.what.bus and event.who.rank is not None
    }


def _short(host: str | None) -> str:
    return (host or "").partition(".")[0].lower()


def _one_node(events: list[Event[Any]]) -> bool:
    """True when nothing speaks of a second node: then a local rank is the global one."""
    hosts = {event.who.host for event in events if event.who.host is not None}
    sizes = [event.what.ranks for event in events if isinstance(event.what, (Size, Communicator))]
    ranks = [event.who.rank for event in events if event.who.rank is not None]
    return len(hosts) < 2 and max([*sizes, *(rank + 1 for rank in ranks)], default=1) <= PER_NODE


PER_NODE = 8
"""GPUs of the largest common node; more ranks mean several nodes."""


def _rank_by_pid(events: list[Event[Any]]) -> dict[int, int]:
    """Process ids whose rank is told, and told the same way each time."""
    told: dict[int, set[int]] = defaultdict(set)
    for event in events:
        if event.who.pid is not None and event.who.rank is not None:
            told[event.who.pid].add(event.who.rank)
    known = {pid: min(ranks) for pid, ranks in told.items() if len(ranks) == 1}
    for event in events:
        if isinstance(event.what, Roster):
            listed = dict(zip(event.what.pids, range(len(event.what.pids)), strict=True))
            sure = [pid for pid in listed if pid in known]
            if len(sure) > 1 and all(known[pid] == listed[pid] for pid in sure):
                known = {**listed, **known}
    return known


def _waits(events: list[Event[Any]]) -> Iterable[Wait]:
    """One wait per rank, group and collective; the group may stand only in a later line about it."""
    groups: dict[tuple[int | None, int | None], Group] = {}
    for event in events:
        what = event.what
        if isinstance(what, Status) and what.group.name and what.stuck is not None:
            groups.setdefault((event.who.rank, what.stuck), what.group)
        if isinstance(what, TimedOut) and what.work.group.name:
            groups.setdefault((event.who.rank, what.work.seq), what.work.group)
    seen: dict[tuple[Any, ...], Wait] = {}
    for event in events:
        what = event.what
        if not isinstance(what, TimedOut):
            continue
        rank = event.who.rank if event.who.rank is not None else event.who.group_rank
        work = what.work
        if not work.group.name:
            work = replace(work, group=groups.get((event.who.rank, work.seq), Group()))
        key = (rank, event.who.world, work.seq, work.op)
        if key in seen:
            continue
        ran = what.ran_ms / 1000 if what.ran_ms is not None else None
        began = event.time - ran if event.time is not None and ran is not None and what.fresh else None
        seen[key] = Wait(replace(event.who, rank=rank), work, event, began)
    return seen.values()


def _expected(events: list[Event[Any]]) -> int | None:
    """The number of ranks, from a line that says so; the most frequent one when they differ."""
    sizes = Counter(e.what.ranks for e in events if isinstance(e.what, (Size, Communicator)))
    said = max(sizes, key=lambda size: (sizes[size], size), default=None)
    seen = [e.who.rank for e in events if e.who.rank is not None]
    return said if said and said > max(seen, default=0) else None
