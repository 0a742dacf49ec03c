"""Which process an event is from, and who wins where its line, its file and other lines disagree.

A number that is not proven names nobody: no culprit is better than a wrong one.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from nodedoctor.debug import Log
from nodedoctor.triage.events.cuda import GpuFull
from nodedoctor.triage.events.system.exits import ProcessExit
from nodedoctor.triage.events.system.kernel import XidReported
from nodedoctor.triage.events.trace import ExceptionRaised
from nodedoctor.triage.identity.gpus import BusTable, GpuTable, rank_communicators
from nodedoctor.triage.identity.hosts import hosts_of, ranks_from_hosts
from nodedoctor.triage.identity.labels import Sources, is_rank
from nodedoctor.triage.identity.messages import join_exit_codes, join_full_gpus, join_ray_tasks
from nodedoctor.triage.identity.paths import identities_from_paths
from nodedoctor.triage.identity.pids import ProcessTable
from nodedoctor.triage.identity.world import Seat, is_one_node, world_size
from nodedoctor.triage.model import NOBODY, SEATED, Event, Identity

_log = Log(__name__)

Claims = Iterator[tuple[str, int | None]]
"""What may tell a rank, and the rank that it tells; of those that disagree the first wins."""


def assign_by_source(events: Sequence[Event[Any]], sources: Sources) -> list[Event[Any]]:
    """The events of all logs, with what their labels, files and hosts prove; no labels are left."""
    world = world_size(events)
    owners = identities_from_paths(sources, world)
    for source, host in hosts_of(sources, owners).items():
        owners[source] = replace(owners[source], host=host)
    by_host = ranks_from_hosts(sources, world)
    proven = {
        (source, kind)
        for source, stats in sources.items()
        for kind, label in stats.labels.items()
        if is_rank(kind, label, world, stats.lines)
    }
    seats = [who.local_rank for who in owners.values() if who.local_rank is not None]
    people = [seat for stats in sources.values() for seat in stats.seats]
    people += [Seat(event.who.rank, event.who.local_rank) for event in events]  # their hosts may be peers'
    alone = is_one_node(people, world) and len(set(seats)) == len(seats)

    def describe(event: Event[Any]) -> Event[Any]:
        """The event with all but its rank; of its labels those that are proven."""
        source, labels = event.place.source, event.who.labels
        owner = replace(owners.get(source, NOBODY), rank=None)
        labels = tuple(label for label in labels if (source, label[0]) in proven)
        seated = next((value for kind, value in labels if kind == SEATED), None)
        who = replace(event.who, labels=labels).filled(owner).filled(Identity(local_rank=seated))
        return event if who == event.who else replace(event, who=who)

    def claims(event: Event[Any]) -> Claims:
        who = event.who
        yield "its line", who.rank
        yield from (("a label", value) for kind, value in who.labels if kind != SEATED)
        yield "a file's name", owners.get(event.place.source, NOBODY).rank
        yield "a host's name", by_host.get(who.host or "")
        yield "its local rank", who.local_rank if alone else None

    return _with_ranks(map(describe, events), claims)


def assign_by_events(events: Sequence[Event[Any]]) -> list[Event[Any]]:
    """The events of one run, with the ranks that other lines of it tell by process id, GPU or list."""
    events = rank_communicators(_without_launcher_tasks(events))
    events = join_exit_codes(join_full_gpus(join_ray_tasks(events)))
    alone = is_one_node((event.who for event in events), world_size(events))
    processes, buses, gpus = ProcessTable(events), BusTable(events), GpuTable(events)

    def claims(event: Event[Any]) -> Claims:
        who, what = event.who, event.what
        yield "its line", who.rank
        yield "a process id", processes.rank_of(who)
        if isinstance(what, XidReported):
            yield "a PCI bus", buses.rank_on(who.host, what.bus)
        if alone and isinstance(what, ProcessExit):
            yield "its local rank", who.local_rank
        if alone and isinstance(what, GpuFull) and who.pid is None:
            yield "a GPU", gpus.rank_on(who.gpu)

    return _with_ranks(events, claims)


def _with_ranks(events: Iterable[Event[Any]], claims: Callable[[Event[Any]], Claims]) -> list[Event[Any]]:
    """The events with the ranks that the first of their claims tell; the debug log says which these are."""
    reasons: Counter[tuple[int, str]] = Counter()
    ranked = []
    for event in events:
        for reason, rank in claims(event):
            if rank is not None:
                reasons[rank, reason] += 1
                break
        else:
            rank = None
        who = replace(event.who, rank=rank, labels=())
        ranked.append(event if who == event.who else replace(event, who=who))
    for (rank, reason), count in sorted(reasons.items()):
        _log.debug("rank %d is known by %s in %d events", rank, reason, count)
    return ranked


def identify_waiting(who: Identity) -> Identity:
    """Who waits in a collective: where only the rank in the group is known, it counts as that in the job."""
    return who if who.rank is not None else replace(who, rank=who.group_rank)


def _without_launcher_tasks(events: Sequence[Event[Any]]) -> list[Event[Any]]:
    """Slurm's tasks are ranks, unless each of them is a launcher with several ranks of its own."""
    launched = {event.place.source for event in events if _is_of_launcher(event)}

    def known(event: Event[Any]) -> Event[Any]:
        if event.place.source not in launched or not _SRUN.search(event.text):
            return event
        what = replace(event.what, tasks=()) if isinstance(event.what, ProcessExit) else event.what
        return replace(event, what=what, who=replace(event.who, rank=None))

    return [known(event) for event in events]


def _is_of_launcher(event: Event[Any]) -> bool:
    """True for what torch's launcher says, and for what any launcher raises itself."""
    frames = event.what.frames if isinstance(event.what, ExceptionRaised) else ()
    agent = _AGENT.search(f"{event.origin} {event.text}") is not None
    return agent or any(_LAUNCHER.search(frame.file) for frame in frames)


_AGENT = re.compile(r"torch[./]distributed[./](?:elastic|run|launch)\b")
_LAUNCHER = re.compile(
    r"torch[/\\]distributed[/\\](?:run|launch|launcher[/\\]api)\.py$"
    r"|deepspeed[/\\]launcher[/\\]\w+\.py$|accelerate[/\\]commands[/\\]launch\.py$"
)
"""Programs have `torch/distributed/elastic` in their stacks, too, where they use its `@record`."""
_SRUN = re.compile(r"\berror: [\w.-]+: tasks? \d[\d,-]*: ")
