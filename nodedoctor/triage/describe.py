"""Names of culprits in words: ranks, nodes, processes, GPUs."""

from __future__ import annotations

from collections.abc import Iterable

from nodedoctor.triage.model import Identity
from nodedoctor.wording import comma_list

NAMES_AT_MOST = 12
"""Names of a list that are written out."""


def identities_of(ranks: Iterable[int | None]) -> tuple[Identity, ...]:
    """Ranks of which nothing else is known."""
    return tuple(Identity(rank=rank) for rank in ranks)


def distinct_ranks(people: Iterable[Identity]) -> list[Identity]:
    """One identity per global rank, without those that have no rank."""
    by_rank: dict[tuple[str, int], Identity] = {}
    for who in people:
        if who.rank is not None:
            key = (who.world, who.rank)
            by_rank[key] = by_rank[key].fill_from(who) if key in by_rank else who
    return sorted(by_rank.values(), key=lambda who: (who.world, who.rank or 0))


def blameable_identities(*people: Identity) -> tuple[Identity, ...]:
    """Identities by rank, else by process, else by GPU."""
    ranked = tuple(distinct_ranks(people))
    processes = _distinct_processes(people)
    gpus = {(who.host, who.gpu): who for who in people if who.gpu is not None}
    return ranked or tuple(processes) or tuple(gpus.values())


def _distinct_processes(people: Iterable[Identity]) -> list[Identity]:
    """One identity per process: where only one host is named, those without one are there, too."""
    processes: dict[int, dict[str | None, Identity]] = {}
    for who in people:
        if who.pid is not None:
            by_host = processes.setdefault(who.pid, {})
            by_host[who.host] = by_host[who.host].fill_from(who) if who.host in by_host else who
    for by_host in processes.values():
        if len(by_host) == 2 and None in by_host:
            (host,) = by_host.keys() - {None}
            by_host[host] = by_host.pop(None).fill_from(by_host[host])
    return [who for by_host in processes.values() for who in by_host.values()]


def nodes_of(people: Iterable[Identity]) -> tuple[Identity, ...]:
    """The one rank with its node, else the nodes of the identities, else the identities."""
    people = tuple(people)
    hosts = sorted({who.host for who in people if who.host is not None})
    ranked = tuple(distinct_ranks(people))
    return (
        ranked
        if len(ranked) == 1
        else tuple(Identity(host=host) for host in hosts) or blameable_identities(*people)
    )


def describe_briefly(people: Iterable[Identity]) -> str:
    """`node gpu-07` and `nodes a and b` for nodes, as `describe_identities` for others."""
    people = tuple(people)
    hosts = sorted({who.host for who in people if who == Identity(host=who.host) and who.host is not None})
    if not hosts:
        return describe_identities(people)
    return f"node {hosts[0]}" if len(hosts) == 1 else f"nodes {comma_list(hosts, NAMES_AT_MOST)}"


def describe_identities(people: Iterable[Identity]) -> str:
    """`rank 3 on node-1`, `policy ranks 0 and 1`, `process 4711`, or nothing."""
    people = tuple(people)
    ranks = sorted({who.rank for who in people if who.rank is not None})
    roles = {who.role for who in people}
    role = f"{roles.pop()} " if len(roles) == 1 and "" not in roles else ""
    if len(ranks) == 1:
        host = next((who.host for who in people if who.rank == ranks[0] and who.host), None)
        return f"{role}rank {ranks[0]}" + (f" on {host}" if host else "")
    if ranks:
        return f"{role}ranks {rank_ranges(ranks)}"
    pids = sorted({who.pid for who in people if who.pid is not None})
    if pids:
        return f"process {pids[0]}" if len(pids) == 1 else f"processes {comma_list(pids, NAMES_AT_MOST)}"
    gpus = sorted({who.gpu for who in people if who.gpu is not None})
    if not gpus:
        hosts = sorted({who.host for who in people if who.host is not None})
        return f"a process on {hosts[0]}" if len(hosts) == 1 else ""
    return f"the process on GPU {gpus[0]}" if len(gpus) == 1 else f"the processes on GPUs {rank_ranges(gpus)}"


def rank_ranges(ranks: Iterable[int]) -> str:
    """`0`, `0 and 1`, `0, 1 and 5`, `0-7`; long lists are cut."""
    ranks = sorted(ranks)
    if len(ranks) > 2 and ranks[-1] - ranks[0] == len(ranks) - 1:
        return f"{ranks[0]}-{ranks[-1]}"
    return comma_list(ranks, NAMES_AT_MOST)
