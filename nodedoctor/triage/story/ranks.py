"""Who is who: ranks filled in by process id, by PCI bus, by communicator."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from nodedoctor.triage.events.cuda import GpuFull
from nodedoctor.triage.events.exits import ProcessExit
from nodedoctor.triage.events.machine import XidReported
from nodedoctor.triage.events.nccl import Communicator
from nodedoctor.triage.events.progress import PidRoster, WorldSize
from nodedoctor.triage.events.ray import TaskFailed
from nodedoctor.triage.events.secondary_errors import is_secondary
from nodedoctor.triage.events.trace import CutShort, ExceptionRaised
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import Event, Identity


def assign_ranks(events: list[Event[Any]]) -> list[Event[Any]]:
    """Fill in ranks by process id: a launcher names the pid, another line its rank."""
    events = _with_their_codes(_with_their_gpus(_of_tasks(_of_world(_without_launchers(events)))))
    known = _rank_by_pid(events)
    by_bus = _rank_by_bus(events)
    alone = _one_node(events)
    ended = _failed_ranks(events) if alone else frozenset()
    own = alone and _gpu_equals_rank(events)

    def named(event: Event[Any]) -> Event[Any]:
        rank = _rank_of(known, event.who)
        if rank is None and isinstance(event.what, XidReported):
            rank = _rank_on_bus(by_bus, event.who.host, event.what.bus)
        if rank is None and alone and isinstance(event.what, ProcessExit):
            rank = event.who.local_rank
        if rank is None and isinstance(event.what, GpuFull) and event.who.pid is None:
            rank = event.who.gpu if own else _rank_on_gpu(event.who.gpu, ended)
        if event.who.rank is not None or rank is None:
            return event
        return replace(event, who=replace(event.who, rank=rank))

    return [named(event) for event in events]


CODE = 400
"""Bytes from a line that names a process that ended to the one with its code; MPICH has one between."""


def _with_their_codes(events: list[Event[Any]]) -> list[Event[Any]]:
    """Launchers say in one line who ended, and in one behind it with which code."""
    named: dict[str, Event[Any]] = {}
    found = []
    for event in events:
        if isinstance(event.what, ProcessExit):
            before = named.get(event.place.source)
            if not event.what.told:
                named[event.place.source] = event
            elif before is not None and _is_anonymous(event.who) and not event.what.tasks:
                if event.place.offset - before.place.offset < CODE:
                    event = replace(event, who=before.who, what=replace(event.what, tasks=before.what.tasks))
                del named[event.place.source]
        found.append(event)
    return found


MESSAGE = 200
"""Bytes between the parts of one message that was broken into lines, at most."""


def _with_their_gpus(events: list[Event[Any]]) -> list[Event[Any]]:
    """The message of a full GPU may be broken in front of the GPU that it names."""
    found: list[Event[Any]] = []
    full: dict[str, int] = {}
    for event in events:
        source, at = event.place.source, full.get(event.place.source)
        if isinstance(event.what, GpuFull):
            full[source] = len(found)
        elif event.what is Mark.OF_GPU and at is not None and found[at].who.gpu is None:
            near = event.place.offset - found[at].place.offset < MESSAGE
            gpu = event.who.gpu if near else None
            found[at] = replace(found[at], who=replace(found[at].who, gpu=gpu))
        found.append(event)
    return found


def _is_anonymous(who: Identity) -> bool:
    """True where nothing tells which process is meant."""
    return who.rank is None and who.pid is None and who.local_rank is None


def _failed_ranks(events: list[Event[Any]]) -> frozenset[int]:
    """The ranks of a single node that failed, as their launcher or their own tracebacks tell."""
    failed = [event for event in events if isinstance(event.what, (ProcessExit, ExceptionRaised, CutShort))]
    ranks = (e.who.rank if e.who.rank is not None else e.who.local_rank for e in failed)
    return frozenset(rank for rank in ranks if rank is not None)


def _gpu_equals_rank(events: list[Event[Any]]) -> bool:
    """True where several tell of GPUs, and whoever has a rank is on the one of its number."""
    full = [event.who for event in events if isinstance(event.what, GpuFull) and event.who.gpu is not None]
    ranked = [who for who in full if who.rank is not None]
    same = all(who.gpu == who.rank for who in ranked)
    return bool(ranked) and same and len({who.gpu for who in full}) > 1


def _rank_on_gpu(gpu: int | None, failing: frozenset[int]) -> int | None:
    """The rank of a process that says only which GPU it used, where the rank of this number failed.

    Each rank of a node takes the GPU of its own number, or sees no other than its own: that is GPU 0 to all
    of them, so that a 0 counts only where rank 0 alone failed.
    """
    return gpu if gpu in failing and (gpu or failing == {0}) else None


def _without_launchers(events: list[Event[Any]]) -> list[Event[Any]]:
    """Slurm's tasks are ranks, unless each of them is a launcher with several ranks of its own."""
    launched = {event.place.source for event in events if _is_of_a_launcher(event)}

    def known(event: Event[Any]) -> Event[Any]:
        if event.place.source not in launched or not _SRUN.search(event.text):
            return event
        what = replace(event.what, tasks=()) if isinstance(event.what, ProcessExit) else event.what
        return replace(event, what=what, who=replace(event.who, rank=None))

    return [known(event) for event in events]


def _is_of_a_launcher(event: Event[Any]) -> bool:
    """True for what torch's launcher says, and for what any launcher raises itself."""
    frames = event.what.frames if isinstance(event.what, ExceptionRaised) else ()
    told = _AGENT.search(f"{event.origin} {event.text}") is not None
    return told or any(_LAUNCHER.search(frame.file) for frame in frames)


_AGENT = re.compile(r"torch[./]distributed[./](?:elastic|run|launch)\b")
_LAUNCHER = re.compile(
    r"torch[/\\]distributed[/\\](?:run|launch|launcher[/\\]api)\.py$"
    r"|deepspeed[/\\]launcher[/\\]\w+\.py$|accelerate[/\\]commands[/\\]launch\.py$"
)
"""Programs have `torch/distributed/elastic` in their stacks, too, where they use its `@record`."""
_SRUN = re.compile(r"\berror: [\w.-]+: tasks? \d[\d,-]*: ")


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
        (_short_host(event.who.host), event.what.bus): event.who.rank
        for event in events
        if isinstance(event.what, Communicator) and event.what.bus and event.who.rank is not None
    }


def _rank_on_bus(by_bus: dict[tuple[str, int], int], host: str | None, bus: int) -> int | None:
    """The rank on a GPU; a kernel's log that names no host is of the only one that has a GPU on that bus."""
    if host is not None:
        return by_bus.get((_short_host(host), bus))
    ranks = [rank for (_, other), rank in by_bus.items() if other == bus]
    return ranks[0] if len(ranks) == 1 else None


def _of_tasks(events: list[Event[Any]]) -> list[Event[Any]]:
    """Ray prints the exception of a task behind a line that names its process."""
    task: dict[str, Event[Any]] = {}
    speaker: dict[str, int | None] = {}
    found = []
    for event in events:
        source, same = event.place.source, task.get(event.place.source)
        if isinstance(event.what, TaskFailed):
            task[source] = event
        elif isinstance(event.what, (ExceptionRaised, GpuFull)) and same is not None:
            own = _speaks_for_itself(event.who, speaker.get(source), same.what.teller)
            if event.place.offset == same.place.offset:
                speaker[source] = event.who.pid
            elif not own:
                event = replace(event, who=_task_speaker(event.who, same.who))
            if isinstance(event.what, ExceptionRaised) and event.place.offset != same.place.offset:
                del task[source]
        elif (
            isinstance(event.what, CutShort)
            and same is not None
            and not _speaks_for_itself(event.who, speaker.get(source), same.what.teller)
        ):
            event = replace(
                event, who=_task_speaker(event.who, same.who), what=_cut_traceback(event.what, same)
            )
        found.append(event)
    return found


def _speaks_for_itself(who: Identity, speaker: int | None, teller: int | None) -> bool:
    """True for a process that is known, and is none of those that pass a task's exception on."""
    return who.rank is not None or who.pid not in (None, speaker, teller)


def _task_speaker(speaker: Identity, task: Identity) -> Identity:
    """Who printed a task's exception, as the process that Ray names in front of it, and on its node."""
    return replace(speaker, pid=task.pid, host=task.host or speaker.host)


def _cut_traceback(what: CutShort, task: Event[TaskFailed]) -> CutShort:
    """A traceback that the log does not finish, of an exception that Ray names in front of it."""
    error = ExceptionRaised(task.what.error, "")
    return replace(what, error=task.what.error, echo=is_secondary(error)) if task.what.error else what


def _short_host(host: str | None) -> str:
    """A host's name without its domain; an address stays whole."""
    name = (host or "").lower()
    return name if name[:1].isdigit() else name.partition(".")[0]


def _one_node(events: list[Event[Any]]) -> bool:
    """True when nothing speaks of a second node: then a local rank is the global one."""
    hosts = {event.who.host for event in events if event.who.host is not None}
    sizes = [event.what.ranks for event in events if isinstance(event.what, (WorldSize, Communicator))]
    ranks = [event.who.rank for event in events if event.who.rank is not None]
    return len(hosts) < 2 and max([*sizes, *(rank + 1 for rank in ranks)], default=1) <= PER_NODE


PER_NODE = 8
"""GPUs of the largest common node; more ranks mean several nodes."""


Known = dict[tuple[int, str], set[int]]
"""Ranks by process id and place, two of each at most: only a single one is of use. A place is a host, ""
where none is told, or ANY, ADDRESS and NAME for all, all with an address and all with a name."""
ANY, ADDRESS, NAME = "any place", "any address", "any name"


def _rank_of(known: Known, who: Identity) -> int | None:
    """The rank of a process, when only one fits: containers on several hosts give the same process ids.

    Two hosts differ by their names, or by their addresses; an address and a name may be of the same one.
    """
    if who.pid is None:
        return None
    host = _short_host(who.host)
    places = (host, "", NAME if host[:1].isdigit() else ADDRESS) if host else (ANY,)
    ranks = set().union(*(known.get((who.pid, place), set()) for place in places))
    return ranks.pop() if len(ranks) == 1 else None


def _add_rank(known: Known, pid: int, host: str, rank: int) -> None:
    places = (host, ANY, ADDRESS if host[:1].isdigit() else NAME) if host else ("", ANY)
    for place in places:
        ranks = known.setdefault((pid, place), set())
        if len(ranks) < 2:
            ranks.add(rank)


def _rank_by_pid(events: list[Event[Any]]) -> Known:
    """Process ids whose rank is told."""
    known: Known = {}
    for event in events:
        if event.who.pid is not None and event.who.rank is not None:
            _add_rank(known, event.who.pid, _short_host(event.who.host), event.who.rank)
    for event in events:
        if isinstance(event.what, PidRoster):
            listed = {pid: rank for rank, pid in enumerate(event.what.pids)}
            sure = [pid for pid in listed if (pid, ANY) in known]
            if len(sure) > 1 and all(known[pid, ANY] == {listed[pid]} for pid in sure):
                for pid in listed.keys() - set(sure):
                    _add_rank(known, pid, "", listed[pid])
    return known
