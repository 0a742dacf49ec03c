"""Which process an event is from, by its line, its file and other lines.

A number that is not proven names no rank: no culprit is better than a wrong one.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any

from nodedoctor.debug import Log
from nodedoctor.grouping import group_pairs
from nodedoctor.triage.identity.file_trees import ranks_in_trees
from nodedoctor.triage.identity.hosts import hosts_of, ranks_from_hosts
from nodedoctor.triage.identity.labels import Sources, is_rank
from nodedoctor.triage.identity.paths import has_one_file_tree, identities_from_paths
from nodedoctor.triage.identity.processes import (
    AgentTable,
    BusTable,
    GpuTable,
    ProcessTable,
    join_exit_codes,
    join_full_gpus,
    join_ray_tasks,
    rank_communicators,
    rank_group_members,
    rank_started_processes,
    remaining_ranks,
)
from nodedoctor.triage.identity.rank_hosts import (
    LISTS_OF_TASKS,
    find_collectors,
    locate_in_logs,
    locate_ranks,
    states_host,
    with_host,
    without_recorder,
)
from nodedoctor.triage.identity.world import RankLocation, is_one_node, world_size
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import (
    DEFAULT_WORLD,
    ENGINE_WORLD,
    LOCAL_RANK_LABEL,
    NOBODY,
    TASK_LABEL,
    Event,
    Identity,
)
from nodedoctor.triage.patterns.cuda import GpuFull
from nodedoctor.triage.patterns.exits import OF_SRUN, ProcessExit
from nodedoctor.triage.patterns.host_limits import HostOom
from nodedoctor.triage.patterns.last_lines import LastLines
from nodedoctor.triage.patterns.log_pattern import Symptom
from nodedoctor.triage.patterns.machine import TasksPlaced, XidReported, is_of_node
from nodedoctor.triage.patterns.trace import ExceptionRaised

_log = Log(__name__)


def assign_by_source(events: Sequence[Event[Any]], sources: Sources) -> list[Event[Any]]:
    """The events with the ranks that labels, files and hosts prove, without labels."""
    collectors = find_collectors(events)
    events = [_with_identity(event, without_recorder(event.who, collectors)) for event in events]
    if collectors:
        sources = {source: stats.without_hosts(collectors) for source, stats in sources.items()}
    own_hosts = {source: stats.own_hosts for source, stats in sources.items()}
    events = [_without_foreign_host(event, own_hosts.get(event.place.source, ())) for event in events]
    events = _without_launcher_tasks(events, sources)
    world = world_size(events)
    owners = identities_from_paths(sources, world)
    reported = {event.who.host for event in events if event.who.host}
    stated = group_pairs((event.place.source, event.who.host) for event in events if states_host(event))
    for source, host in hosts_of(sources, owners, reported, stated).items():
        owners[source] = replace(owners[source], host=host)
    by_host = ranks_from_hosts(sources, world, {e.who.host for e in events if isinstance(e.what, HostOom)})
    by_host |= {e.who.host: e.who.rank for e in events if e.what is Mark.RANK_OF_POD and e.who.host}
    proven = {
        (source, kind)
        for source, stats in sources.items()
        for kind, label in stats.labels.items()
        if is_rank(kind, label, world, stats.lines) and stats.tells_apart(kind)
    }
    people = [location for stats in sources.values() for location in stats.locations]
    people += AgentTable(events).people
    # without their hosts, which may be those of peers
    people += [
        RankLocation(event.who.rank, event.who.local_rank) for event in events if event.kind is not LastLines
    ]
    in_trees = ranks_in_trees(owners, sources, events, world)
    people += [RankLocation(rank, owners[path].local_rank) for path, rank in in_trees.items()]
    one_node = is_one_node(people, world, events) and has_one_file_tree(sources)
    one_node = one_node and None not in in_trees.values()

    @cache
    def identify(source: str, who: Identity, *, of_node: bool = False) -> Identity:
        owner = owners.get(source, NOBODY)
        owner = Identity(host=owner.host) if of_node else owner
        labels = [(kind, value) for kind, value in who.labels if (source, kind) in proven]
        label = next((value for kind, value in labels if kind != LOCAL_RANK_LABEL), None)
        local_ranks = (
            who.local_rank,
            owner.local_rank,
            *(value for kind, value in labels if kind == LOCAL_RANK_LABEL),
        )
        local_rank = next((number for number in local_ranks if number is not None), None)
        of_file = {
            "the file's name": owner.rank,
            "its node's files": in_trees.get(source),
            "the host's name": by_host.get(who.host or ""),
        }
        claims = {
            "its line": who.rank,
            "a label in front": label,
            **({} if of_node else of_file),
            "its local rank": local_rank if one_node else None,
        }
        return replace(
            who.fill_from(owner), rank=_first_rank(source, claims), local_rank=local_rank, labels=()
        )

    return _separate_engines(
        [
            _with_identity(
                event, identify(event.place.source, event.who, of_node=is_of_node(event.what, event.text))
            )
            for event in events
        ]
    )


def _without_foreign_host(event: Event[Any], own_hosts: Collection[str]) -> Event[Any]:
    """A speaker's last lines, without a host in front of them that is none of its log's."""
    who = event.who
    if event.kind is not LastLines or who.host is None or states_host(event) or who.host in own_hosts:
        return event
    return replace(event, who=replace(who, host=None))


def _separate_engines(events: list[Event[Any]]) -> list[Event[Any]]:
    """The events, workers of an inference engine without ranks where other programs have some."""
    alone = all(event.who.rank is None or event.who.world == ENGINE_WORLD for event in events)

    def as_process(who: Identity) -> Identity:
        return replace(who, world=DEFAULT_WORLD, rank=who.rank if alone else None)

    return [
        replace(event, who=as_process(event.who)) if event.who.world == ENGINE_WORLD else event
        for event in events
    ]


def assign_by_events(
    events: Sequence[Event[Any]], last_lines: Sequence[Event[LastLines]] = ()
) -> tuple[list[Event[Any]], list[Event[LastLines]]]:
    """The events of one run and the last lines of its speakers, with ranks by process id, GPU or list."""
    events = rank_group_members(rank_communicators(events))
    events = join_exit_codes(join_full_gpus(join_ray_tasks(events)))
    agents = AgentTable(events)
    events = rank_started_processes(events, agents)
    people: list[Identity | RankLocation] = [*agents.people, *(event.who for event in events)]
    world = world_size(events)
    one_node = is_one_node(people, world, events)
    processes, gpus = ProcessTable(events), GpuTable(events)
    buses = BusTable(events, world if one_node else None)
    remaining = remaining_ranks([*events, *last_lines], processes, world)

    def identify(event: Event[Any]) -> Identity:
        who, what = event.who, event.what
        if who.rank is not None:
            return who
        claims = {
            "its process id": processes.rank_of(who),
            "the ranks of all others of its class": remaining.get((who.world, who.pid or 0)),
            "its agent's list": agents.rank_of(event.place.source, who)
            if isinstance(what, ProcessExit)
            else None,
            "the list of its node's failures": agents.listed_rank(event.place.source, who),
            "its PCI bus": buses.rank_on(who.host, what.bus) if isinstance(what, XidReported) else None,
            "its local rank": who.local_rank if one_node and isinstance(what, ProcessExit) else None,
            "its GPU": gpus.rank_on(who) if one_node and isinstance(what, (GpuFull, Symptom)) else None,
        }
        return replace(who, rank=_first_rank(event.place.source, claims))

    ranked = [_with_identity(event, identify(event)) for event in events]
    ranked_last = [_with_identity(event, identify(event)) for event in last_lines]
    hosts, in_logs = locate_ranks([*ranked, *ranked_last]), locate_in_logs([*ranked, *ranked_last])

    def place(event: Event[Any]) -> Event[Any]:
        who = with_host(with_host(event.who, hosts), in_logs.get(event.place.source, {}))
        return _with_identity(event, who)

    return [place(event) for event in ranked], [place(event) for event in ranked_last]


def _with_identity(event: Event[Any], who: Identity) -> Event[Any]:
    """The event with this identity."""
    return event if who == event.who else replace(event, who=who)


def _first_rank(source: str, claims: Mapping[str, int | None]) -> int | None:
    """The rank of the first claim that has one; the debug log says which."""
    for reason, rank in claims.items():
        if rank is not None:
            _log.debug("%s: rank %d is known by %s", source, rank, reason)
            return rank
    return None


def identify_waiting(who: Identity) -> Identity:
    """The identity of a waiting rank; its group rank counts where nothing else is known."""
    return who if who.rank is not None else replace(who, rank=who.group_rank)


def _without_launcher_tasks(events: Sequence[Event[Any]], sources: Sources) -> list[Event[Any]]:
    """Remove the ranks of Slurm's tasks where a task launches several ranks.

    It does so where a launcher is heard, or where the lines of a task name other ranks than its number.
    """
    launched = {event.place.source for event in events if _is_of_launcher(event)}
    launched |= {
        source
        for source, stats in sources.items()
        if TASK_LABEL in stats.labels and stats.labels[TASK_LABEL].agrees() is False
    }

    def is_task(event: Event[Any]) -> bool:
        lists_tasks = isinstance(event.what, TasksPlaced) or OF_SRUN.search(event.text) is not None
        return event.place.source in launched and lists_tasks

    return [_without_rank(event) if is_task(event) else event for event in events]


def _without_rank(event: Event[Any]) -> Event[Any]:
    what = replace(event.what, tasks=()) if isinstance(event.what, LISTS_OF_TASKS) else event.what
    return replace(event, what=what, who=replace(event.who, rank=None))


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
