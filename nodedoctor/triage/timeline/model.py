"""The nouns of a story: its events, who waited, what counts as trouble and what nobody survives."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from nodedoctor.record import record
from nodedoctor.triage.marks import Kind, Mark
from nodedoctor.triage.model import CollectiveCall, Event, Identity, SideError
from nodedoctor.triage.patterns import LIVENESS, corruption
from nodedoctor.triage.patterns.activity import TrainingActivity
from nodedoctor.triage.patterns.exits import LauncherSignalled, PeersTerminated, ProcessExit
from nodedoctor.triage.patterns.frameworks import CollectiveShape
from nodedoctor.triage.patterns.lifecycle import CancelledByUser
from nodedoctor.triage.patterns.machine import MemoryUser, NodeLost
from nodedoctor.triage.patterns.nccl import Communicator
from nodedoctor.triage.patterns.not_a_log import ProcessState
from nodedoctor.triage.patterns.progress import PidRoster, SettingMentioned, TrainingStep, WorldSize
from nodedoctor.triage.patterns.ras import HangFolder, RasCount
from nodedoctor.triage.patterns.ray import ActorDied
from nodedoctor.triage.patterns.restarts import Restarted
from nodedoctor.triage.patterns.unclassified import UnclassifiedError
from nodedoctor.triage.patterns.watchdog import (
    CollectiveFailed,
    CollectiveStatus,
    DesyncJoined,
    DumpRequested,
    ProcessAborting,
    TimedOut,
)

W = TypeVar("W")


QUIET = (
    *LIVENESS, Restarted, CancelledByUser, WorldSize, PidRoster, SettingMentioned, Communicator,
    PeersTerminated, MemoryUser, DesyncJoined, DumpRequested, ProcessState, UnclassifiedError,
    TrainingActivity, CollectiveShape, RasCount, HangFolder,
    Mark.DELIBERATE_SLEEP, Mark.RESOURCE_TRACKER_WARNING, Mark.SHUT_DOWN, Mark.REQUEST_REFUSED,
    Mark.RESTART_ATTEMPT, Mark.LAUNCHER_STARTED, Mark.RANK_OF_PID, Mark.SET_UP, Mark.ACTOR_PID,
    Mark.COMMUNICATOR_DESTROYED, Mark.NOT_A_LOG, Mark.OUTPUT_CONTINUED, Mark.SURVIVED_ERROR,
    Mark.RECOVERED_FROM_ERROR, Mark.RETRY_STARTED, Mark.OF_GPU, Mark.RAS_PROCESS, Mark.RAS_RUNNING,
    *corruption.ASIDE,
)  # fmt: skip
"""Events that are no trouble by themselves."""

_ALIVE = (Mark.JOB_FINISHED, CancelledByUser, Mark.RAS_RUNNING, Mark.SERVER_READY)

FATAL = (
    TimedOut,
    ProcessAborting,
    ProcessExit,
    Mark.FORCE_KILLED,
    CollectiveFailed,
    LauncherSignalled,
    ActorDied,
    NodeLost,
)
"""Events no process survives: only a restart ends them."""


@record
class CollectiveWait:
    """One rank that waited in one collective until its timeout; `began` is when it enqueued it, if known."""

    who: Identity
    work: CollectiveCall
    event: Event[TimedOut]
    began: float | None


@record
class EarliestWait:
    """The earliest wait, the ranks that waited, and where the first of them stands in each log."""

    first: CollectiveWait | None
    ranks: frozenset[int | None]
    begun: dict[str, int]


@dataclass(frozen=True)
class Timeline:
    """The last incident. `also_seen` are the errors of it that decide nothing, each with the reason.
    `folded`: Ray merged lines, so that silence proves nothing.

    `survived` counts deaths after which the job was restarted; `steps` how often its busiest counter rose.
    `earlier` are the events of the runs before this one, the oldest first; the n-th from the end of each log
    belong together.
    """

    events: tuple[Event[Any], ...]
    also_seen: tuple[SideError, ...] = ()
    incidents: int = 0
    survived: int = 0
    folded: bool = False
    waits: tuple[CollectiveWait, ...] = ()
    steps: int = 0
    sources: int = 1
    expected: int | None = None
    not_before: dict[int, float] = field(default_factory=dict, repr=False, compare=False)
    """By `id` of an event without a time: the time before which it was not printed."""
    earlier: tuple[tuple[Event[Any], ...], ...] = ()
    _waiting: list[EarliestWait] = field(default_factory=list, repr=False, compare=False)

    @property
    def waiting(self) -> EarliestWait:
        """Who waited, put together once: a thousand ranks are asked about a thousand others."""
        if not self._waiting:
            begun: dict[str, int] = {}
            for wait in self.waits:
                place = wait.event.place
                begun[place.source] = min(begun.get(place.source, place.offset), place.offset)
            first = min(self.waits, key=lambda wait: self.moment(wait.event), default=None)
            self._waiting.append(EarliestWait(first, frozenset(wait.who.rank for wait in self.waits), begun))
        return self._waiting[0]

    def of(self, kind: type[W]) -> list[Event[W]]:
        """All events of one class, in order."""
        return self._by_kind.get(kind, [])

    def marked(self, mark: Mark) -> list[Event[Mark]]:
        """All events that are a mark, in order."""
        return self._by_kind.get(mark, [])

    def has_any(self, kinds: Iterable[Kind]) -> bool:
        """True where one of its events is of one of some kinds."""
        return not self._by_kind.keys().isdisjoint(kinds)

    @cached_property
    def _by_kind(self) -> dict[Kind, list[Event[Any]]]:
        found: dict[Kind, list[Event[Any]]] = {}
        for event in self.events:
            found.setdefault(event.kind, []).append(event)
        return found

    @property
    def alive(self) -> bool:
        """True where the job made progress, served, or came to an end in good order."""
        return self.steps > 0 or self.has_any(_ALIVE)

    @property
    def answers(self) -> bool:
        """True where nothing but the requests that a server answered was counted."""
        counted = [event for event in self.of(TrainingStep) if event.what.rises]
        return bool(counted) and all(event.what.answers for event in counted)

    @property
    def trouble(self) -> list[Event[Any]]:
        """Everything that is not a sign of life or of order."""
        return [event for event in self.events if event.kind not in QUIET]

    @property
    def ranks_seen(self) -> frozenset[int]:
        """Global ranks that printed something, or that a launcher listed."""
        return frozenset(e.who.rank for e in self.events if e.who.rank is not None)

    @cached_property
    def first_wait(self) -> CollectiveWait | None:
        """The earliest timeout: the rank that waited longest, a victim."""
        return self.waiting.first

    def moment(self, event: Event[Any]) -> tuple[float, str, int]:
        """When an event happened, as far as can be told: by its time, else by its place."""
        return (
            event.time if event.time is not None else float("inf"),
            event.place.source,
            event.place.offset,
        )

    def gave_up(self, who: Identity) -> bool:
        """True for a rank or process whose own watchdog gave up."""
        told = self._names_given_up
        return (who.rank is not None and ("rank", who.rank) in told) or (
            who.pid is not None and ("pid", who.pid) in told
        )

    @cached_property
    def _names_given_up(self) -> frozenset[tuple[str, int | None]]:
        people = [event.who for event in self.given_up]
        return frozenset([*(("rank", who.rank) for who in people), *(("pid", who.pid) for who in people)])

    @cached_property
    def first_given_up(self) -> dict[str, int]:
        """The offset of the first timeout in each log."""
        first: dict[str, int] = {}
        for event in self.given_up:
            source, offset = event.place.source, event.place.offset
            first[source] = min(first.get(source, offset), offset)
        return first

    @cached_property
    def pids(self) -> frozenset[int | None]:
        """The processes of which a line tells."""
        return frozenset(event.who.pid for event in self.events)

    @cached_property
    def given_up(self) -> list[Event[Any]]:
        """Timeouts, and what a watchdog says besides: any of its lines may be missing from a log."""
        failed = [event for event in self.of(CollectiveStatus) if event.what.stuck is not None]
        return [*(wait.event for wait in self.waits), *failed, *self.of(ProcessAborting)]

    def late(self, event: Event[Any]) -> bool:
        """True when the others had already given up: what comes then is no cause but a consequence."""
        first = self.first_wait
        if first is None:
            return False
        began = first.event.time
        if event.time is not None and began is not None and event.time != began:
            return event.time > began
        if event.time is None and began is not None and id(event) in self.not_before:
            return self.not_before[id(event)] >= began
        if event.who.rank is not None and event.who.rank not in self.waiting.ranks:
            return False  # logs of several ranks may stand one after another in a file
        begun = self.waiting.begun.get(event.place.source)
        return begun is not None and event.place.offset > begun


def follows_timeout(story: Timeline, event: Event[Any]) -> bool:
    """True for an end that follows from a timeout: of a process that gave up, or told after one did.

    Whoever reports ends does so at once: what stands behind a timeout in a log was told after it, whatever
    the clocks of two programs say.
    """
    first = story.first_given_up.get(event.place.source)
    behind = first is not None and first < event.place.offset
    if behind or story.late(event) or story.gave_up(event.who):
        return True
    return event.kind in (ActorDied, Mark.ACTOR_PID) and _all_gave_up(story)


def _all_gave_up(story: Timeline) -> bool:
    """True when every process that Ray found dead had given up itself, wherever Ray's lines stand."""
    told = [*story.of(ActorDied), *story.marked(Mark.ACTOR_PID)]
    named = [event.who for event in told if event.who.pid is not None or event.who.rank is not None]
    return bool(named) and all(map(story.gave_up, named))
