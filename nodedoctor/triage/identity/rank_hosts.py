"""On which host each rank of a job is, by all lines that say it of any of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Any

from nodedoctor.grouping import group_pairs
from nodedoctor.triage.identity.world import short_host, world_size
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import DEFAULT_WORLD, Event
from nodedoctor.triage.patterns.exits import ProcessExit
from nodedoctor.triage.patterns.host_limits import HostOom
from nodedoctor.triage.patterns.machine import TasksPlaced

_LOOPBACK = ("localhost", "127.0.0.1")
"""What every host calls itself."""


def locate_ranks(events: Sequence[Event[Any]]) -> dict[int, str]:
    """The hosts of the ranks of which one host alone is known.

    Lines name them, and Slurm lists its tasks; launchers give one host ranks that follow each other.
    """
    hosts = group_pairs(_located(events))
    if not hosts:
        return {}
    located = {rank: min(names, key=len) for rank, names in hosts.items() if _are_one(names)}
    tasks = group_pairs(_placed_tasks(events, located))
    located |= {rank: names[0] for rank, names in tasks.items() if rank not in hosts and _are_one(names)}
    beside = _in_blocks(events, located)
    return {**{rank: host for rank, host in beside.items() if rank not in hosts}, **located}


def _are_one(names: Iterable[str]) -> bool:
    return len(set(map(short_host, names))) == 1


def _located(events: Iterable[Event[Any]]) -> Iterator[tuple[int, str]]:
    """Ranks with the host that their line names; PEER_HOST names that of another one."""
    for event in events:
        who = event.who
        names_own = event.what is not Mark.PEER_HOST and who.world == DEFAULT_WORLD
        if who.rank is not None and who.host and names_own and who.host not in _LOOPBACK:
            yield who.rank, who.host


def _placed_tasks(events: Sequence[Event[Any]], located: Mapping[int, str]) -> list[tuple[int, str]]:
    """Slurm's tasks with their hosts, where each task evidently is a rank."""
    lists = [event for event in events if isinstance(event.what, (ProcessExit, HostOom, TasksPlaced))]
    tasks = [(task, event.who.host) for event in lists for task in event.what.tasks if event.who.host]
    numbers = {task for task, _ in tasks}
    ranks = {event.who.rank for event in events} - {None}
    expected = world_size(events)
    complete = numbers == set(range(expected or len(numbers)))
    several = len(numbers) > len({host for _, host in tasks}) or expected is not None
    consistent = all(located.get(task, host) == host for task, host in tasks)
    return tasks if complete and several and consistent and ranks <= numbers else []


def _in_blocks(events: Iterable[Event[Any]], located: Mapping[int, str]) -> dict[int, str]:
    """The ranks beside those with a local rank and a host, as far as all others leave room."""
    firsts = {
        who.rank - who.local_rank: located[who.rank]
        for who in (event.who for event in events)
        if who.rank in located and who.rank is not None and who.local_rank is not None
    }
    begins = sorted(firsts)
    hosts = {short_host(host) for host in firsts.values()}
    if len(begins) < 2 or len(hosts) != len(begins) or begins[0] < 0:
        return {}
    size = min(later - before for before, later in pairwise(begins))
    if any(first % size for first in begins):
        return {}
    return {first + seat: host for first, host in firsts.items() for seat in range(size)}
