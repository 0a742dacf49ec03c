"""Which nodes each node tries, and which one the others cannot reach: all reports as one matrix."""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from nodedoctor.fleet.model import Node, Oddity, Problem, ValueGroup
from nodedoctor.model import Severity, Status
from nodedoctor.nodeset import fold, natural_key, short_host
from nodedoctor.record import replace

_TITLE = "Nodes reach each other"
_WHY = "ranks meet over this network; a node the others cannot reach keeps the whole job at its start."
_FIX = (
    "On the nodes named: is the interface up, is the name right in DNS and /etc/hosts, does a firewall drop "
    "packets? `nodedoctor net` looks at all three."
)
KEY, CHECK = "peers", "net.peers"
"""The key of the oddity, and the check of each node that it gathers."""
SHOWN = 4
"""Pairs of nodes named in a summary."""

Pair = tuple[str, str]


def unreached(nodes: Sequence[Node]) -> Iterator[Oddity]:
    """One oddity for all that did not answer. A node most cannot reach, or that reaches few, is the odd one.

    What is left are single ways between two nodes, and neither end is blamed; nor is anybody where most
    nodes are not reached, which looks like a network that lets neither ping nor the port through.
    """
    tried = {(node.host, target): why for node in nodes for target, why in node.peers.items()}
    bad = {pair: why for pair, why in tried.items() if why}
    if not bad:
        return
    targets = _find_culprits(bad, tried, end=1)
    if 2 * len(targets) > len({pair[1] for pair in tried}):
        summary = (
            f"{len(bad)} of {len(tried)} ways between nodes are silent: neither ping nor the port answers"
        )
        groups = [ValueGroup(f"not reached by {_count_of(bad, tried, host, 1)}", (host,)) for host in targets]
        yield Oddity(KEY, _TITLE, Status.WARN, summary, _WHY, tuple(groups), None, (), _FIX)
        return
    sources = _find_culprits({p: w for p, w in bad.items() if p[1] not in targets}, tried, end=0)
    broken = {p: w for p, w in bad.items() if p[1] not in targets and p[0] not in sources}
    groups = [
        *(ValueGroup(f"not reached by {_count_of(bad, tried, host, 1)}", (host,)) for host in targets),
        *(ValueGroup(f"does not reach {_count_of(bad, tried, host, 0)}", (host,)) for host in sources),
        *(ValueGroup(f"does not reach {pair[1]}: {why}", (pair[0],)) for pair, why in sorted(broken.items())),
    ]
    phrases = [f"{fold(group.hosts)} {group.value}" for group in groups]
    more = f"; and {len(phrases) - SHOWN} more" if len(phrases) > SHOWN else ""
    odd_hosts = tuple(sorted({*targets, *sources}, key=natural_key))
    yield Oddity(
        KEY,
        _TITLE,
        Status.FAIL if odd_hosts else Status.WARN,
        "; ".join(phrases[:SHOWN]) + more,
        _WHY,
        tuple(groups),
        None,
        odd_hosts,
        _FIX,
    )


def cleared(nodes: Iterable[Node], oddities: Iterable[Oddity]) -> Iterator[Node]:
    """The nodes without what they say of a node that is named already: one that is off fails itself alone."""
    odd_hosts = {host for oddity in oddities if oddity.key == KEY for host in oddity.odd}
    subjects = {f"peer:{host.rpartition('@')[2]}" for host in odd_hosts}
    for node in nodes:
        problems = tuple(p for p in node.problems if p.check != CHECK or p.subject not in subjects)
        yield _judge_again(node, problems) if len(problems) < len(node.problems) else node


def _judge_again(node: Node, problems: tuple[Problem, ...]) -> Node:
    """The node as if only these problems had been found."""
    worst = max((problem.counted for problem in problems), default=Severity.PASS)
    peer_severity = max((p.severity for p in problems if p.check == CHECK), default=Severity.PASS)
    was, now = node.statuses.get(CHECK, Status.PASS), peer_severity.status
    counts = dict(node.counts)
    counts[was.value] = counts.get(was.value, 1) - 1
    counts[now.value] = counts.get(now.value, 0) + 1
    return replace(
        node,
        problems=problems,
        verdict=worst.status,
        statuses={**node.statuses, CHECK: now},
        counts=counts,
    )


def _find_culprits(bad: Mapping[Pair, str], tried: Mapping[Pair, str], end: int) -> list[str]:
    """Hosts at this end of more than half of the ways tried with them, and of two at least."""
    failed, all_tries = Counter(pair[end] for pair in bad), Counter(pair[end] for pair in tried)
    return sorted((h for h, n in failed.items() if n > 1 and 2 * n > all_tries[h]), key=natural_key)


def _count_of(bad: Mapping[Pair, str], tried: Mapping[Pair, str], host: str, end: int) -> str:
    """`3 of 4 (gpu-[1-3]): ETIMEDOUT`."""
    whys = Counter(why for pair, why in bad.items() if pair[end] == host)
    others = [pair[1 - end] for pair in bad if pair[end] == host]
    total = sum(pair[end] == host for pair in tried)
    return f"{len(others)} of {total} ({fold(others)}): {whys.most_common(1)[0][0]}"


EVERYBODY = 16
"""Names up to which all are tried; ours. Beyond, everybody trying everybody would cost the square."""
NEIGHBOURS = 4
"""Nodes each tries of more: as many others then say of every node whether it can be reached."""


def neighbours(hosts: Sequence[str], me: str) -> tuple[str, ...]:
    """The hosts that the node called `me` tries: not itself among others, of many the next in their ring.

    All nodes are given the same names, so one command line serves them all, and each finds its place.
    """
    names = tuple(dict.fromkeys(hosts))
    place = next((i for i, host in enumerate(names) if short_host(host) == short_host(me)), None)
    others = tuple(host for i, host in enumerate(names) if i != place) if len(names) > 1 else names
    if len(names) <= EVERYBODY:
        return others
    # A node that is not in the list by its own name starts where its name happens to point.
    start = place if place is not None else zlib.crc32(me.encode("utf-8", "replace")) % len(others)
    return tuple(others[(start + step) % len(others)] for step in range(NEIGHBOURS))
