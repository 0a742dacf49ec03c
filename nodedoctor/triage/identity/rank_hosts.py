"""On which host each rank of a job is, by all lines that say it of any of them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from nodedoctor.grouping import group_pairs
from nodedoctor.triage.identity.world import short_host, world_size
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import (
    DEFAULT_WORLD,
    LOCAL_RANK_LABEL,
    RANK_LABEL,
    TASK_LABEL,
    Event,
    Identity,
)
from nodedoctor.triage.patterns.exits import PeersTerminated, ProcessExit
from nodedoctor.triage.patterns.host_limits import HostOom
from nodedoctor.triage.patterns.machine import TasksPlaced

LISTS_OF_TASKS = (ProcessExit, HostOom, TasksPlaced)
"""Events that may list Slurm's tasks."""
_LOOPBACK = ("localhost", "127.0.0.1")
"""What every host calls itself."""


def locate_ranks(events: Sequence[Event[Any]]) -> dict[int, str]:
    """The hosts of the ranks of which one host alone is known.

    Lines name them, and Slurm lists its tasks; launchers give one host ranks that follow each other.
    """
    names_by_rank = group_pairs((rank, host) for _, rank, host in _located(events))
    hosts = {rank: min(names, key=len) for rank, names in names_by_rank.items() if _are_one(names)}
    for rank, names in group_pairs(_located_tasks(events, hosts)).items():
        if rank not in names_by_rank and _are_one(names):
            hosts[rank] = names[0]
    in_blocks = _of_launchers(events) | _in_blocks(events, hosts)
    return {rank: host for rank, host in in_blocks.items() if rank not in names_by_rank} | hosts


def locate_in_logs(events: Sequence[Event[Any]]) -> dict[str, dict[int, str]]:
    """The hosts that the lines of each log give its ranks; another log may be of another run of them."""
    hosts: dict[str, dict[int, str]] = {}
    pairs = (((source, rank), host) for source, rank, host in _located(events))
    for (source, rank), names in group_pairs(pairs).items():
        if _are_one(names):
            hosts.setdefault(source, {})[rank] = min(names, key=len)
    return hosts


def with_host(who: Identity, hosts: Mapping[int, str]) -> Identity:
    """A rank of the job with its host, where nothing names one."""
    is_placed = who.rank in hosts and not who.host and who.world == DEFAULT_WORLD
    return replace(who, host=hosts[who.rank]) if is_placed and who.rank is not None else who


def find_collectors(events: Iterable[Event[Any]]) -> set[str]:
    """The names of containers and hosts that recorded what processes of other hosts printed.

    `trainer-1  | ` of compose, and syslog's host, are where a line was recorded: the process that printed it
    is there, too, unless lines with the same name in front give a process another host.
    """
    recorded = [event for event in events if event.who.recorder is not None and states_host(event)]
    return {
        event.who.recorder or ""
        for event in recorded
        if short_host(event.who.host) != short_host(event.who.recorder)
    }


def without_recorder(who: Identity, collectors: Collection[str]) -> Identity:
    """An identity without the name of its recorder, and without its host where that is a collector's."""
    if who.recorder is None:
        return who
    is_unknown = who.host == who.recorder and who.recorder in collectors
    return replace(who, host=None if is_unknown else who.host, recorder=None)


def states_host(event: Event[Any]) -> bool:
    """True where a line names a process and its host."""
    who = event.who
    is_ranked = any(kind in (RANK_LABEL, LOCAL_RANK_LABEL, TASK_LABEL) for kind, _ in who.labels)
    names_process = is_ranked or (who.rank, who.local_rank, who.pid) != (None, None, None)
    lists_tasks = isinstance(event.what, LISTS_OF_TASKS) and event.what.tasks
    is_own = event.what is not Mark.PEER_HOST and who.host not in (None, *_LOOPBACK)
    return is_own and bool(names_process or lists_tasks)


def _are_one(names: Iterable[str]) -> bool:
    return len(set(map(short_host, names))) == 1


def _located(events: Sequence[Event[Any]]) -> Iterator[tuple[str, int, str]]:
    """Logs and ranks with the host that a line names; PEER_HOST names that of another one."""
    worlds = {event.who.world for event in events if event.who.rank is not None}
    world = worlds.pop() if len(worlds) == 1 else DEFAULT_WORLD
    for event in events:
        who = event.who
        names_own = event.what is not Mark.PEER_HOST and who.world == world
        if who.rank is not None and who.host and names_own and who.host not in _LOOPBACK:
            yield event.place.source, who.rank, who.host


def _located_tasks(events: Sequence[Event[Any]], hosts: Mapping[int, str]) -> list[tuple[int, str]]:
    """Slurm's tasks with their hosts, where each task evidently is a rank."""
    lists = [event for event in events if isinstance(event.what, LISTS_OF_TASKS)]
    tasks = [(task, event.who.host) for event in lists for task in event.what.tasks if event.who.host]
    numbers = {task for task, _ in tasks}
    ranks = {event.who.rank for event in events} - {None}
    expected = world_size(events)
    several = len(numbers) > len({host for _, host in tasks})  # else each may launch the ranks of its node
    within = numbers <= set(range(expected)) if expected is not None else ranks <= numbers
    if any(isinstance(event.what, TasksPlaced) for event in lists) and expected is not None:
        within = numbers == set(range(expected))
    same_hosts = all(short_host(hosts.get(task, host)) == short_host(host) for task, host in tasks)
    return tasks if same_hosts and within and (several or len(numbers) == expected) else []


def _of_launchers(events: Sequence[Event[Any]]) -> dict[int, str]:
    """The ranks of a log's only torchelastic agent, where its list names its host and the first of them.

    An agent sees all processes of its node, whose ranks follow each other: each fails, or it stops it.
    """
    pids: dict[str, set[int | None]] = {}
    starts: dict[str, set[tuple[int, str | None]]] = {}
    for event in events:
        who, what = event.who, event.what
        if (isinstance(what, PeersTerminated) and what.one_by_one) or (
            isinstance(what, ProcessExit) and what.agent
        ):
            pids.setdefault(event.place.source, set()).add(who.pid)
        if isinstance(what, ProcessExit) and what.agent == "entry" and who.rank is not None:
            first = who.rank - (who.local_rank if who.local_rank is not None else who.rank)
            starts.setdefault(event.place.source, set()).add((first, who.host))
    return {
        rank: host
        for source, places in starts.items()
        if len(places) == 1 and (size := len(pids[source] - {None})) in _BLOCKS
        for first, host in places
        if host and first % size == 0
        for rank in range(first, first + size)
    }


def _in_blocks(events: Sequence[Event[Any]], hosts: Mapping[int, str]) -> dict[int, str]:
    """The ranks beside those whose host is known, where each host has a block of as many.

    How many shows a host of which all ranks are known, the first ranks of two hosts by their local ranks, or
    the size of the world by the number of hosts.
    """
    of_host = group_pairs((short_host(host), rank) for rank, host in hosts.items())
    firsts = {
        who.rank - who.local_rank
        for who in (event.who for event in events)
        if who.rank is not None and who.rank in hosts and who.local_rank is not None
    }
    gaps = [later - before for before, later in pairwise(sorted(firsts))]
    share, rest = divmod(world_size(events) or 0, len(of_host) or 1)
    size = max([*map(len, of_host.values()), min(gaps, default=0), 0 if rest else share])
    if size not in _BLOCKS or len(of_host) < 2:
        return {}
    numbers = {host: {rank // size for rank in ranks} for host, ranks in of_host.items()}
    blocks = [number for own in numbers.values() for number in own]
    if not len(set(blocks)) == len(blocks) == len(of_host):
        return {}
    names = {short_host(host): host for host in hosts.values()}
    return {
        number * size + seat: names[host]
        for host, own in numbers.items()
        for number in own
        for seat in range(size)
    }


_BLOCKS = (2, 4, 8, 16)
"""GPUs of a node that has several, as they are sold."""
