"""The size of a job, its number of nodes, the names of hosts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import Event, Identity
from nodedoctor.triage.patterns.exits import PeersTerminated, ProcessExit
from nodedoctor.triage.patterns.nccl import Communicator
from nodedoctor.triage.patterns.progress import WorldSize
from nodedoctor.triage.patterns.restarts import Restarted

PER_NODE = 8
"""GPUs of the largest common node: in a larger world a local rank is not the rank."""

_NEW_RUNS = (Mark.RESTART_ATTEMPT, Mark.LAUNCHER_STARTED, Mark.RETRY_STARTED)
"""Behind one of these an agent may report once more."""


class RankLocation(NamedTuple):
    """Rank, local rank and host of a process, as far as its line says."""

    rank: int | None = None
    local_rank: int | None = None
    host: str | None = None


def world_size(events: Sequence[Event[Any]]) -> int | None:
    """The number of ranks that most lines name; None when a rank is beyond."""
    sizes = Counter(e.what.ranks for e in events if isinstance(e.what, (WorldSize, Communicator)))
    size = max(sizes, key=lambda size: (sizes[size], size), default=0)
    return size if size > max((event.who.rank or 0 for event in events), default=0) else None


def launched_ranks(events: Sequence[Event[Any]]) -> int | None:
    """How many processes torchelastic's only agent saw fail or ended, if all but one speak."""
    pids = {
        event.who.pid
        for event in events
        if (isinstance(event.what, PeersTerminated) and event.what.one_by_one)
        or (isinstance(event.what, ProcessExit) and event.what.agent)
    } - {None}
    one_node = is_one_node([event.who for event in events], None, events)
    speakers = {event.who.rank for event in events} - {None}
    return (
        len(pids)
        if one_node and len(speakers) == len(pids) - 1 > 1 and speakers < {*range(len(pids))}
        else None
    )


def is_one_node(
    people: Iterable[Identity | RankLocation], world: int | None, events: Sequence[Event[Any]]
) -> bool:
    """True when no line is of a second node: then local ranks are ranks.

    A second node shows in what the job was started with, in an agent of its own, in its name, in a rank that
    differs from its local rank, and in a world that is larger than a node, unless each of its ranks is a
    local rank, too.
    """
    if any(event.what is Mark.SEVERAL_NODES for event in events) or _has_several_agents(events):
        return False
    people = list(people)
    hosts = {short_host(who.host) for who in people if who.host is not None}
    local_ranks = {who.local_rank for who in people if who.local_rank is not None}
    differ = any(None not in (who.rank, who.local_rank) and who.rank != who.local_rank for who in people)
    largest = max([world or 0, *(who.rank + 1 for who in people if who.rank is not None)])
    return len(hosts) < 2 and not differ and (largest <= PER_NODE or local_ranks == set(range(largest)))


def _has_several_agents(events: Iterable[Event[Any]]) -> bool:
    """True for a run in one log with two agents of torchelastic's: each node has one, which reports once."""
    failed: dict[str, int | None] = {}
    for event in events:
        source, pid, what = event.place.source, event.who.pid, event.what
        if event.kind in _NEW_RUNS or (isinstance(what, Restarted) and what.explicit):
            failed.pop(source, None)
            continue
        notice = pid is not None and isinstance(what, ProcessExit) and what.agent == "notice"
        if notice and failed.setdefault(source, pid) != pid:
            return True
    return False


def is_address(host: str) -> bool:
    """Whether a host is an address or localhost, which is no name of its own."""
    return host.replace(".", "").isdigit() or ":" in host or host == "localhost"


def short_host(host: str | None) -> str:
    """A host's name without its domain, in small letters; an address stays as it is."""
    name = (host or "").lower()
    return name if is_address(name) else name.partition(".")[0]
