"""The ranks of torchrun's --log-dir: a file is of a local rank, and a tree of files of one node."""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from nodedoctor.triage.identity.labels import Sources
from nodedoctor.triage.identity.world import short_host
from nodedoctor.triage.model import LARGEST_WORLD, Event, Identity
from nodedoctor.triage.patterns.exits import ProcessExit
from nodedoctor.triage.patterns.nccl import Communicator
from nodedoctor.triage.patterns.progress import AgentRanks, GroupJoined

_ATTEMPT = re.compile(r"(?P<tree>^|.*(?:/|__))(?:attempt|restart)[_-]?(?P<number>\d{1,4})(?:/|__)")
"""A folder, or the part of a name in which people put what its folders were."""
_WORD = re.compile(r"[A-Za-z0-9-]+")


def attempt_of(path: str) -> tuple[str, int] | None:
    """The tree of a file and the attempt that wrote it, as torchrun names folders."""
    match = _ATTEMPT.match(path)
    return (match["tree"], int(match["number"])) if match else None


def later_attempts(paths: Iterable[str]) -> dict[str, int]:
    """By file: the number of attempts behind its own, of which there are files in its tree."""
    attempts = {path: attempt for path in paths if (attempt := attempt_of(path)) is not None}
    numbers: dict[str, set[int]] = defaultdict(set)
    for tree, number in attempts.values():
        numbers[tree].add(number)
    return {path: sum(later > number for later in numbers[tree]) for path, (tree, number) in attempts.items()}


def ranks_in_trees(
    owners: Mapping[str, Identity], sources: Sources, events: Iterable[Event[Any]], world: int | None
) -> dict[str, int | None]:
    """By file of a local rank: its rank, which is as far from it as for all others of its node.

    None where its tree contradicts itself; trees that tell nothing are left out. Files say it themselves, or
    the list of an agent, or of those that failed, on the node of the tree.
    """
    trees = {
        path: attempt[0]
        for path, who in owners.items()
        if who.local_rank is not None and who.rank is None and (attempt := attempt_of(path)) is not None
    }
    if not trees:
        return {}
    own_ranks: dict[str, set[int]] = {path: set(sources[path].ranks) for path in trees}
    shifts: dict[str, set[int]] = defaultdict(set)
    for event in events:
        path, what = event.place.source, event.what
        if path in own_ranks:
            own_ranks[path] |= {rank} if (rank := _rank_in(event, world)) is not None else set()
        elif isinstance(what, AgentRanks):
            for tree in {tree for tree in trees.values() if _is_beside(path, tree)}:
                shifts[tree].add(what.ranks[0])
        elif isinstance(what, ProcessExit) and (shift := _shift(event.who)) is not None:
            for tree in {tree for tree in trees.values() if short_host(event.who.host) in _nodes(tree)}:
                shifts[tree].add(shift)
    for path, ranks in own_ranks.items():
        if len(ranks) == 1:
            shifts[trees[path]].add(min(ranks) - (owners[path].local_rank or 0))
    return {
        path: min(shifts[tree]) + (owners[path].local_rank or 0) if _is_one_node(shifts[tree]) else None
        for path, tree in trees.items()
        if shifts[tree]
    }


def _is_one_node(shifts: set[int]) -> bool:
    """True where all say the same of how far the ranks of a tree are from their local ranks."""
    return len(shifts) == 1 and 0 <= min(shifts) < LARGEST_WORLD


def _rank_in(event: Event[Any], world: int | None) -> int | None:
    """The rank that a file's own process has by one of its lines."""
    if isinstance(event.what, (Communicator, GroupJoined)):
        size = event.what.ranks if isinstance(event.what, Communicator) else event.what.size
        return event.what.rank if size == world else None
    return event.who.rank


def _shift(who: Identity) -> int | None:
    """How far a rank is from its local rank."""
    return who.rank - who.local_rank if who.rank is not None and who.local_rank is not None else None


def _nodes(path: str) -> set[str]:
    """The folders of a path, one of which may be called like its node."""
    return {short_host(name) for name in path.split("/") if name}


def _is_beside(path: str, tree: str) -> bool:
    """True for the log of an agent in the folder above a tree, or with the name of its node."""
    above = os.path.dirname(tree.rstrip("/"))
    words = {short_host(word) for word in _WORD.findall(os.path.basename(path)) if not word.isalpha()}
    return os.path.dirname(path) == above or not _nodes(tree).isdisjoint(words)
