"""Whose clock is off: the start in each report against the moments between which it must lie.

By our own clock a report was begun after the node was asked, and as long before its answer came as it took.
So each clock is known within bounds, however slow a node or its network is, and two clocks surely differ
where their bounds lie apart. Our own clock is one of them, and may be the wrong one. Saved reports say
nothing of clocks, as it is not known when they came.
"""

from __future__ import annotations

import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence

from nodedoctor.fleet.model import Node, Oddity, ValueGroup
from nodedoctor.json_shapes import moment_of
from nodedoctor.model import Status
from nodedoctor.nodeset import fold

MIN_DIFFERENCE = 60.0
"""Seconds between the bounds of two clocks that are worth a line: a fifth of what MUNGE (munge(1), --ttl) and
Kerberos (krb5.conf, clockskew) put up with. Our threshold."""
KEY, TITLE = "clock", "Clocks"
SHOWN = 3
"""Nodes named in a summary."""
WHY = (
    "logs of several nodes have no common order, and from 300 s on Slurm (MUNGE) and Kerberos refuse a node."
)
FIX = (
    "On the nodes named: `nodedoctor net.clock` and `timedatectl` say whether a service keeps it. Start "
    "chrony, and let it step the clock while no job runs."
)
FIX_OURS = "Look at the clock of this machine first, from which the nodes were asked: `timedatectl`."

Bounds = tuple[float, float]
"""Seconds by which a clock is ahead of ours, at least and at most."""


def bounds(node: Node, start: float, end: float) -> Bounds | None:
    """Those of a node that was asked at one moment and had answered by another; None without a time."""
    moment = moment_of(node.started)
    if moment is None or node.replayed:
        return None
    started = moment.timestamp()
    return started - max(start, end - node.seconds), started + 1 - start


def differing_clocks(nodes: Sequence[Node]) -> Iterator[Oddity]:
    """One oddity for all clocks that are far from more than half of the others."""
    clock_by_host = {node.host: node.ahead for node in nodes if node.ahead is not None}
    if not clock_by_host:
        return
    clocks = [*clock_by_host.values(), (0.0, 0.0)]
    if _is_odd((0.0, 0.0), clocks):
        others = [host for host, clock in clock_by_host.items() if _clocks_differ(clock, (0.0, 0.0))]
        difference = _difference_words(-_usual_clock(clock_by_host[host] for host in others))
        subject = f"this machine's clock is {difference} those of"
        summary = f"{subject} {len(others)} of {len(clock_by_host)} nodes, or theirs are wrong"
        groups = (ValueGroup("apart", tuple(others)),)
        yield Oddity(KEY, TITLE, Status.WARN, summary, WHY, groups, None, (), FIX_OURS)
        return
    odd_hosts = [host for host, clock in clock_by_host.items() if _is_odd(clock, clocks)]
    if odd_hosts:
        rest = [host for host in clock_by_host if host not in set(odd_hosts)]
        usual = _usual_clock([*(clock_by_host[host] for host in rest), (0.0, 0.0)])
        off = [
            ValueGroup(_difference_words(sum(clock_by_host[host]) / 2 - usual), (host,)) for host in odd_hosts
        ]
        summary = "; ".join(f"{fold(group.hosts)} is {group.value} the others" for group in off[:SHOWN])
        more = f"; and {len(off) - SHOWN} more" if len(off) > SHOWN else ""
        most = ValueGroup("alike", tuple(rest)) if rest else None
        every = (*((most,) if most else ()), *off)
        yield Oddity(KEY, TITLE, Status.WARN, summary + more, WHY, every, most, tuple(odd_hosts), FIX)


def _is_odd(clock: Bounds, clocks: Sequence[Bounds]) -> bool:
    """Whether more than half of the other clocks are surely apart from this one."""
    before = bisect_left(sorted(last for _, last in clocks), clock[0] - MIN_DIFFERENCE)
    behind = len(clocks) - bisect_right(sorted(first for first, _ in clocks), clock[1] + MIN_DIFFERENCE)
    return 2 * (before + behind) > len(clocks) - 1


def _clocks_differ(first: Bounds, second: Bounds) -> bool:
    """Whether two clocks are surely apart."""
    return first[0] - second[1] > MIN_DIFFERENCE or second[0] - first[1] > MIN_DIFFERENCE


def _usual_clock(clocks: Iterable[Bounds]) -> float:
    return statistics.median(sum(clock) / 2 for clock in clocks)


def _difference_words(seconds: float) -> str:
    """`about 7 min ahead of`."""
    size = abs(seconds)
    duration = f"{size:.0f} s" if size < 90 else f"{size / 60:.0f} min"
    return f"about {duration} {'ahead of' if seconds > 0 else 'behind'}"
