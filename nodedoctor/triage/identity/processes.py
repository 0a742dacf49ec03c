"""Ranks by other lines of the run: by process id, PCI bus and GPU, and of messages in several lines."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from nodedoctor.triage.identity.world import RankLocation, is_address, short_host
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import DEFAULT_WORLD, Event, Identity
from nodedoctor.triage.patterns.cuda import GpuFull
from nodedoctor.triage.patterns.exits import ProcessExit
from nodedoctor.triage.patterns.machine import GpuOnBus
from nodedoctor.triage.patterns.nccl import Communicator
from nodedoctor.triage.patterns.progress import AgentRanks, GroupJoined, PidRoster
from nodedoctor.triage.patterns.ray import TaskFailed
from nodedoctor.triage.patterns.secondary_errors import is_secondary
from nodedoctor.triage.patterns.trace import CutShort, ExceptionRaised

ANY, ADDRESS, NAME = "any place", "any address", "any name"
CODE = 400
"""Bytes from a line that names a process that ended to the one with its code; MPICH has one between."""
MESSAGE = 200
"""Bytes between the parts of one message that was broken into lines, at most."""


class ProcessTable:
    """Ranks by process id and place; only a single one is of use.

    A place is a host, "" where none is named, or ANY, ADDRESS and NAME for all, all with an address and all
    with a name.
    """

    def __init__(self, events: Iterable[Event[Any]]) -> None:
        self._ranks: dict[tuple[int, str], set[int]] = {}
        events = list(events)
        for event in events:
            if event.who.pid is not None and event.who.rank is not None:
                self._add(event.who.pid, short_host(event.who.host), event.who.rank)
        for event in events:
            if isinstance(event.what, PidRoster):
                self._add_roster(event.what, short_host(event.who.host))

    def rank_of(self, who: Identity) -> int | None:
        """The rank of a process when only one fits: hosts may share process ids.

        Two hosts differ by their names, or by their addresses; an address and a name may be of the same one.
        """
        if who.pid is None:
            return None
        host = short_host(who.host)
        places = (host, "", NAME if is_address(host) else ADDRESS) if host else (ANY,)
        ranks = set().union(*(self._ranks.get((who.pid, place), ()) for place in places))
        return ranks.pop() if len(ranks) == 1 else None

    def _add(self, pid: int, host: str, rank: int) -> None:
        places = (host, ANY, ADDRESS if is_address(host) else NAME) if host else ("", ANY)
        for place in places:
            ranks = self._ranks.setdefault((pid, place), set())
            if len(ranks) < 2:
                ranks.add(rank)

    def _add_roster(self, roster: PidRoster, host: str) -> None:
        """Take a list of process ids with ranks, or of ranks in order where two known ones agree."""
        for pid, rank in zip(roster.pids, roster.ranks, strict=False):
            self._add(pid, host, rank)
        if roster.ranks:
            return
        ranks = {pid: rank for rank, pid in enumerate(roster.pids)}
        sure = [pid for pid in ranks if (pid, ANY) in self._ranks]
        if len(sure) > 1 and all(self._ranks[pid, ANY] == {ranks[pid]} for pid in sure):
            for pid in ranks.keys() - set(sure):
                self._add(pid, "", ranks[pid])


def remaining_ranks(
    events: Iterable[Event[Any]], processes: ProcessTable, size: int | None
) -> dict[tuple[str, int], int]:
    """The rank of a process by its class and id, where all others of its class have all other ranks.

    A class is one of Ray's actors. Two groups of one class say the same ranks: then there is no answer.
    """
    ranks: dict[str, dict[int, int | None]] = defaultdict(dict)
    for event in events:
        who = event.who
        if who.pid is not None and who.world != DEFAULT_WORLD:
            earlier = ranks[who.world].get(who.pid)
            ranks[who.world][who.pid] = processes.rank_of(who) if earlier is None else earlier
    remaining = {}
    for world, members in ranks.items():
        unknown = [pid for pid, rank in members.items() if rank is None]
        present = {rank for rank in members.values() if rank is not None}
        gaps = set(range(size or max(present, default=0) + 1)) - present
        if len(unknown) == len(gaps) == 1 and len(present) == len(members) - 1 > 1:
            remaining[world, unknown[0]] = gaps.pop()
    return remaining


class AgentTable:
    """The ranks that launchers give to the local ranks of their nodes, or list at the end."""

    def __init__(self, events: Iterable[Event[Any]]) -> None:
        self._lists: dict[tuple[str, str], set[tuple[int, ...]]] = {}
        self._exits: dict[str, set[Identity]] = {}
        for event in events:
            source, who = event.place.source, event.who
            if isinstance(event.what, AgentRanks):
                for host in {"", short_host(who.host)}:
                    self._lists.setdefault((source, host), set()).add(event.what.ranks)
            elif isinstance(event.what, ProcessExit) and None not in (who.rank, who.local_rank):
                self._exits.setdefault(source, set()).add(who)

    @property
    def people(self) -> list[RankLocation]:
        """Every rank with its local rank."""
        lists = set().union(*self._lists.values())
        return [RankLocation(rank, local) for ranks in lists for local, rank in enumerate(ranks)]

    def rank_of(self, source: str, who: Identity) -> int | None:
        """The rank of a local rank by the only list of its host, or of the log, else None."""
        lists = self._lists.get((source, short_host(who.host))) or self._lists.get((source, ""), set())
        local = who.local_rank
        ranks = {ranks[local] for ranks in lists if local is not None and local < len(ranks)}
        return ranks.pop() if len(ranks) == 1 else None

    def listed_rank(self, source: str, who: Identity) -> int | None:
        """The rank of a local rank by the list of those that failed, in a log of one node."""
        exits = self._exits.get(source, set())
        hosts = {short_host(failure.host) for failure in exits} | (
            {short_host(who.host)} if who.host else set()
        )
        ranks = {failure.rank for failure in exits if failure.local_rank == who.local_rank}
        return ranks.pop() if len(hosts) == len(ranks) == 1 else None


def rank_started_processes(events: Sequence[Event[Any]], agents: AgentTable) -> list[Event[Any]]:
    """The events, those of processes that a launcher starts with the ranks that it gives them."""
    return [
        replace(event, who=replace(event.who, rank=agents.rank_of(event.place.source, event.who)))
        if event.what is Mark.RANK_OF_PID and event.who.rank is None
        else event
        for event in events
    ]


def rank_communicators(events: Sequence[Event[Any]]) -> list[Event[Any]]:
    """The events, those of the largest communicator with its ranks: these are global ones."""
    largest = max((event.what.ranks for event in events if isinstance(event.what, Communicator)), default=0)

    def is_global(event: Event[Any]) -> bool:
        what = event.what
        return isinstance(what, Communicator) and what.ranks == largest and event.who.rank is None

    return [
        replace(event, who=replace(event.who, rank=event.what.rank)) if is_global(event) else event
        for event in events
    ]


def rank_group_members(events: Sequence[Event[Any]]) -> list[Event[Any]]:
    """The events, those of processes that joined the largest group of their class with their ranks.

    Actors of one class, and engines in particular, may be several groups, each with ranks from 0: then two
    say the same rank, or there are more of them than one group has.
    """
    claims = [event for event in events if isinstance(event.what, GroupJoined) and event.who.pid is not None]
    largest: dict[str, int] = {}
    for event in claims:
        largest[event.who.world] = max(event.what.size, largest.get(event.who.world, 0))
    processes = _count_processes(events) if claims else {}
    alone = {world for world, size in largest.items() if 1 < size >= processes[world]}
    pids: dict[tuple[str, int], set[int | None]] = {}
    members = [event for event in claims if event.what.size == largest[event.who.world]]
    for event in members:
        pids.setdefault((event.who.world, event.what.rank), set()).add(event.who.pid)
    alone -= {world for (world, _), claimants in pids.items() if len(claimants) > 1}
    sure = {id(event) for event in members if event.who.world in alone and not event.repeated}
    return [
        replace(event, who=replace(event.who, rank=event.what.rank)) if id(event) in sure else event
        for event in events
    ]


def _count_processes(events: Iterable[Event[Any]]) -> dict[str, int]:
    """How many processes of each class are heard: those of two hosts may share an id."""
    hosts: dict[tuple[str, int], set[str]] = {}
    for event in events:
        if event.who.pid is not None:
            known_hosts = hosts.setdefault((event.who.world, event.who.pid), set())
            known_hosts.update([event.who.host] if event.who.host else ())
    counts: Counter[str] = Counter()
    for (world, _), names in hosts.items():
        counts[world] += max(1, len(names))
    return counts


class BusTable:
    """Which rank used the GPU on a PCI bus of a host, by NCCL, a program or, on a single node, nvidia-smi."""

    def __init__(self, events: Sequence[Event[Any]], ranks_of_node: int | None) -> None:
        self._ranks = {
            (short_host(event.who.host), event.what.bus): event.who.rank
            for event in events
            if isinstance(event.what, (Communicator, GpuOnBus)) and event.what.bus
            if event.who.rank is not None
        }
        gpus = {event.what.bus: event.who.gpu for event in events if isinstance(event.what, GpuOnBus)}
        # Ranks of a node take its GPUs in order; one that leaves some out may leave out any.
        self._gpus = gpus if set(gpus.values()) == set(range(ranks_of_node or 0)) else {}

    def rank_on(self, host: str | None, bus: int) -> int | None:
        """The rank on a GPU; without a host, that of the only one there."""
        if not self._ranks:
            return self._gpus.get(bus)
        if host is not None:
            return self._ranks.get((short_host(host), bus))
        ranks = [rank for (_, bus_number), rank in self._ranks.items() if bus_number == bus]
        return ranks[0] if len(ranks) == 1 else None


class GpuTable:
    """The ranks of a single node by the GPUs of their numbers."""

    def __init__(self, events: Sequence[Event[Any]]) -> None:
        failures = [e.who for e in events if isinstance(e.what, (ProcessExit, ExceptionRaised, CutShort))]
        ranks = (who.rank if who.rank is not None else who.local_rank for who in failures)
        self._failed_ranks = {rank for rank in ranks if rank is not None}
        full = [
            event.who for event in events if isinstance(event.what, GpuFull) and event.who.gpu is not None
        ]
        ranked = [who for who in full if who.rank is not None]
        same = all(who.gpu == who.rank for who in ranked)
        self._gpu_is_rank = bool(ranked) and same and len({who.gpu for who in full}) > 1

    def rank_on(self, who: Identity) -> int | None:
        """The rank of a process that says only which GPU it used.

        It is that of the GPU's number where several name GPUs and those with a rank are on the one of
        their number, and where the rank of this number failed. Each rank of a node takes the GPU of its own
        number, or sees no other than its own: that is GPU 0 to all of them, so that a 0 counts only where
        rank 0 alone failed.
        """
        gpu = who.gpu if who.pid is None else None
        failed = gpu in self._failed_ranks and (gpu != 0 or self._failed_ranks == {0})
        return gpu if self._gpu_is_rank or failed else None


def join_exit_codes(events: Iterable[Event[Any]]) -> list[Event[Any]]:
    """Give an exit the code that its launcher prints in a later line."""
    exits_without_code: dict[str, Event[Any]] = {}
    new_events = []
    for event in events:
        if isinstance(event.what, ProcessExit):
            before = exits_without_code.get(event.place.source)
            if not event.what.has_code:
                exits_without_code[event.place.source] = event
            elif before is not None and _is_anonymous(event.who) and not event.what.tasks:
                if event.place.offset - before.place.offset < CODE:
                    event = replace(event, who=before.who, what=replace(event.what, tasks=before.what.tasks))
                del exits_without_code[event.place.source]
        new_events.append(event)
    return new_events


def _is_anonymous(who: Identity) -> bool:
    """True where the identity names no process."""
    return who.rank is None and who.pid is None and who.local_rank is None


def join_full_gpus(events: Iterable[Event[Any]]) -> list[Event[Any]]:
    """Give a full GPU its number, where the message was broken in front of it."""
    new_events: list[Event[Any]] = []
    full: dict[str, int] = {}
    for event in events:
        source, at = event.place.source, full.get(event.place.source)
        if isinstance(event.what, GpuFull):
            full[source] = len(new_events)
        elif event.what is Mark.OF_GPU and at is not None and new_events[at].who.gpu is None:
            near = event.place.offset - new_events[at].place.offset < MESSAGE
            gpu = event.who.gpu if near else None
            new_events[at] = replace(new_events[at], who=replace(new_events[at].who, gpu=gpu))
        new_events.append(event)
    return new_events


def join_ray_tasks(events: Iterable[Event[Any]]) -> list[Event[Any]]:
    """Give the exception of a Ray task its process, which an earlier line names."""
    tasks: dict[str, Event[Any]] = {}
    printers: dict[str, int | None] = {}
    new_events = []
    for event in events:
        source, task = event.place.source, tasks.get(event.place.source)
        if isinstance(event.what, TaskFailed):
            tasks[source] = event
        elif task is not None and isinstance(event.what, (ExceptionRaised, GpuFull, CutShort)):
            same_line = event.place.offset == task.place.offset
            itself = _is_other_process(event.who, printers.get(source), task.what.printer)
            if same_line and not isinstance(event.what, CutShort):
                printers[source] = event.who.pid
            elif not itself:
                who = replace(event.who, pid=task.who.pid, host=task.who.host or event.who.host)
                event = replace(event, who=who, what=_with_task_error(event.what, task.what.error))
            if isinstance(event.what, ExceptionRaised) and not same_line:
                del tasks[source]
        new_events.append(event)
    return new_events


def _is_other_process(who: Identity, printer: int | None, reporter: int | None) -> bool:
    """True for a known process that passes on no exception of a task."""
    return who.rank is not None or who.pid not in (None, printer, reporter)


def _with_task_error(what: Any, error: str) -> Any:
    """A cut traceback with the exception that Ray named in front of it."""
    if not isinstance(what, CutShort) or not error:
        return what
    return replace(what, error=error, echo=is_secondary(ExceptionRaised(error, "")))
