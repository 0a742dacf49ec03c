"""The parts of a timeline: events, waits, what counts as trouble, and what is fatal."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, TypeVar

from nodedoctor.grouping import group_by
from nodedoctor.record import record
from nodedoctor.triage.identity.rank_hosts import locate_ranks
from nodedoctor.triage.marks import Kind, Mark
from nodedoctor.triage.model import CollectiveCall, Event, Identity, SideError
from nodedoctor.triage.patterns.activity import TrainingActivity
from nodedoctor.triage.patterns.exits import LauncherSignalled, PeersTerminated, ProcessExit
from nodedoctor.triage.patterns.host_limits import MemoryUser
from nodedoctor.triage.patterns.job_stopped import CancelledByUser
from nodedoctor.triage.patterns.last_lines import LastLines
from nodedoctor.triage.patterns.machine import NodeLost
from nodedoctor.triage.patterns.nccl import Communicator, NcclError
from nodedoctor.triage.patterns.other_way import OtherWayWorked
from nodedoctor.triage.patterns.progress import (
    SettingMentioned,
    TrainingStep,
)
from nodedoctor.triage.patterns.ras import RasCommunicator, RasCount, RasSection
from nodedoctor.triage.patterns.ray import OF_ANOTHER, ActorDied
from nodedoctor.triage.patterns.restarts import Restarted
from nodedoctor.triage.patterns.signs import NON_ERRORS
from nodedoctor.triage.patterns.watchdog import (
    CollectiveFailed,
    CollectiveStatus,
    DesyncJoined,
    ProcessAborting,
    TimedOut,
    WatchdogStuck,
)

W = TypeVar("W")


QUIET = (
    *NON_ERRORS, Restarted, CancelledByUser, Communicator, PeersTerminated, MemoryUser, DesyncJoined,
    TrainingActivity, OtherWayWorked, RasCount, RasCommunicator, RasSection, Mark.STACKS_TAKEN,
    Mark.DUMP_REQUESTED, Mark.LIVE_PROCESS, Mark.PROGRAM_ENDED, Mark.RAS_RANK, Mark.RAS_TABLE,
    Mark.DELIBERATE_SLEEP, Mark.SHUT_DOWN, Mark.REQUEST_REFUSED,
    Mark.RESTART_ATTEMPT, Mark.LAUNCHER_STARTED, Mark.SET_UP, Mark.ACTOR_PID,
    Mark.COMMUNICATOR_DESTROYED, Mark.NOT_A_LOG, Mark.OUTPUT_CONTINUED, Mark.SURVIVED_ERROR,
    Mark.MISSING_RANK_CAME, Mark.RECOVERED_FROM_ERROR, Mark.RETRY_STARTED, Mark.RAS_PROCESS, Mark.RAS_RUNNING,
)  # fmt: skip
"""Events that are no trouble by themselves."""

_ALIVE = (Mark.JOB_FINISHED, CancelledByUser, Mark.RAS_RUNNING, Mark.SERVER_READY)

WAIT_ERRORS = (
    TimedOut, CollectiveStatus, ProcessAborting, CollectiveFailed, WatchdogStuck, NcclError, Mark.GIL_HELD,
)  # fmt: skip
"""Errors of ranks that wait for one that was stopped, or was done."""

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
"""Events that no process survives: the job goes on only by a restart."""


def is_trouble(event: Event[Any]) -> bool:
    """True where a line says that something went wrong, and none that passed."""
    return event.asserted and event.kind not in QUIET


@record
class CollectiveWait:
    """One rank that waited in a collective, by its timeout or its counters; `began`: when it was enqueued."""

    who: Identity
    work: CollectiveCall
    event: Event[TimedOut | CollectiveStatus]
    began: float | None


def offsets_by_source(
    events: Iterable[Event[Any]], choose: Callable[[int, int], int] = min
) -> dict[str, int]:
    """The offset of the first of some events in each log, or of the last one."""
    offsets: dict[str, int] = {}
    for event in events:
        source, offset = event.place.source, event.place.offset
        offsets[source] = choose(offset, offsets.get(source, offset))
    return offsets


@dataclass(frozen=True)
class Timeline:
    """The last incident: its events in order, and the errors that decide nothing (`also_seen`).

    `folded`: Ray merged lines, so that silence proves nothing. `survived` counts deaths after which the job
    was restarted; `steps` how often its busiest counter rose. `earlier` are the events of the runs before
    this one, the oldest first; the n-th from the end of each log belong together.
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
    last_lines: tuple[Event[LastLines], ...] = ()
    """What each speaker printed last, which is no event of the incident."""

    @cached_property
    def waiting_ranks(self) -> frozenset[int | None]:
        """Who waited, put together once: a thousand ranks are asked about a thousand others."""
        return frozenset(wait.who.rank for wait in self.waits)

    def of_kind(self, kind: type[W]) -> list[Event[W]]:
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
        return group_by(self.events, lambda event: event.kind)

    @property
    def alive(self) -> bool:
        """True where the job made progress, served, or came to an end in good order."""
        return self.steps > 0 or self.has_any(_ALIVE)

    @property
    def answers(self) -> bool:
        """True where nothing but the requests that a server answered was counted."""
        steps = [event for event in self.of_kind(TrainingStep) if event.what.rises]
        return bool(steps) and all(event.what.answers for event in steps)

    @property
    def trouble(self) -> list[Event[Any]]:
        """Everything that is not a sign of life or of order."""
        return [event for event in self.events if event.kind not in QUIET]

    @cached_property
    def ranks_seen(self) -> frozenset[int]:
        """Global ranks that printed something, or that a launcher listed."""
        speakers = (event.who.rank for event in (*self.events, *self.last_lines))
        return frozenset(rank for rank in speakers if rank is not None)

    @cached_property
    def rank_hosts(self) -> dict[int, str]:
        """On which host each rank is, as far as it is known."""
        return locate_ranks([*self.events, *self.last_lines])

    @cached_property
    def first_wait(self) -> CollectiveWait | None:
        """The earliest timeout: the rank that waited longest, a victim."""
        return min(self.waits, key=lambda wait: self.moment(wait.event), default=None)

    def moment(self, event: Event[Any]) -> tuple[float, str, int]:
        """When an event happened: its time, else its place in the log."""
        return (
            event.time if event.time is not None else float("inf"),
            event.place.source,
            event.place.offset,
        )

    def gave_up(self, who: Identity) -> bool:
        """True for a rank or process whose own watchdog gave up."""
        keys = self._timeout_keys
        return (who.rank is not None and ("rank", who.rank) in keys) or (
            who.pid is not None and ("pid", who.pid) in keys
        )

    @cached_property
    def _timeout_keys(self) -> frozenset[tuple[str, int | None]]:
        people = [event.who for event in self.timeout_events]
        return frozenset([*(("rank", who.rank) for who in people), *(("pid", who.pid) for who in people)])

    @cached_property
    def first_timeouts(self) -> dict[str, int]:
        """The offset of the first timeout in each log."""
        return offsets_by_source(self.timeout_events)

    @cached_property
    def _first_waits(self) -> dict[str, int]:
        """The offset of the first wait in each log."""
        return offsets_by_source(wait.event for wait in self.waits)

    @cached_property
    def settings(self) -> frozenset[str]:
        """Frameworks and settings that the logs name."""
        return frozenset(event.what.name for event in self.of_kind(SettingMentioned))

    @cached_property
    def pids(self) -> frozenset[int | None]:
        """The processes of which a line tells."""
        return frozenset(event.who.pid for event in self.events)

    @cached_property
    def timeout_events(self) -> list[Event[Any]]:
        """Timeouts and a watchdog's other lines: a log may lack any of them."""
        failed = [event for event in self.of_kind(CollectiveStatus) if event.what.stuck is not None]
        return [*(wait.event for wait in self.waits), *failed, *self.of_kind(ProcessAborting)]

    def late(self, event: Event[Any]) -> bool:
        """True after the others had given up: what comes then is a consequence."""
        first = self.first_wait
        if first is None:
            return False
        timeout_time = first.event.time
        if event.time is not None and timeout_time is not None and event.time != timeout_time:
            return event.time > timeout_time
        if event.time is None and timeout_time is not None and id(event) in self.not_before:
            return self.not_before[id(event)] >= timeout_time
        if event.who.rank is not None and event.who.rank not in self.waiting_ranks:
            return False  # a file may hold the logs of several ranks one after another
        first_offset = self._first_waits.get(event.place.source)
        return first_offset is not None and event.place.offset > first_offset


def follows_timeout(timeline: Timeline, event: Event[Any]) -> bool:
    """True for the end of a process that gave up, or one reported after that.

    Ends are reported at once: a line behind a timeout in a log was printed after it, whatever the clocks of
    two programs say.
    """
    first = timeline.first_timeouts.get(event.place.source)
    behind = first is not None and first < event.place.offset
    if behind or timeline.late(event) or timeline.gave_up(event.who):
        return True
    return event.kind in OF_ANOTHER and _all_gave_up(timeline)


def _all_gave_up(timeline: Timeline) -> bool:
    """True when every process that Ray found dead had given up itself."""
    events = [*timeline.of_kind(ActorDied), *timeline.marked(Mark.ACTOR_PID)]
    processes = [event.who for event in events if event.who.pid is not None or event.who.rank is not None]
    return bool(processes) and all(map(timeline.gave_up, processes))
