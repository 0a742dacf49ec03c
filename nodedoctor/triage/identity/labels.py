"""Who speaks: numbers in front of lines, in names of files and hosts are ranks only when they prove to be.

`[rank3]:` is a rank. `3:` of `srun --label` is the rank of a task, or the number of a node when the task is
a launcher, or the line number of `grep -n`. So each kind of number is judged by all lines that have it:
against the ranks that the same lines name, the size of the world, and how the numbers are spread. A number
that is not proven names nobody: no culprit is better than a wrong one.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nodedoctor.triage.events.nccl import Communicator
from nodedoctor.triage.events.progress import WorldSize
from nodedoctor.triage.identity.hosts import hosts_of, own_name
from nodedoctor.triage.model import DEFAULT_WORLD, LARGEST_WORLD, SEATED, STATED, Event, Identity, Line

KINDS_AT_MOST = 4096
"""Different values of one kind of number that are kept."""
PER_NODE = 8
"""GPUs of the largest common node: in a larger world a local rank is not the rank."""
TIMED = 3
"""Lines with a time that tell when a log was written, where most have none: one may be pasted. Ours."""
_LAUNCHER = re.compile(
    r"torch[./]distributed[./](?:elastic|run|launch)|torchrun|ChildFailedError|\[default\d|deepspeed[./]launcher"
    r"|launch\.py:\d|accelerate\.commands|Root Cause \(first observed"
)
_ABOVE = re.compile(
    r"(?:srun|slurmstepd(?:-[\w.-]+)?|slurmd|raylet|kubelet|kernel|salloc|sbatch|mpirun|prterun): "
)
"""What speaks of many processes, and is itself none of a rank."""
_FRAME = re.compile(r"\s*File \"")
"""In a traceback: a launcher's code is also below the program that it started."""
_REPLICA = re.compile(r"-(master|worker)-(\d{1,6})$")
_DIGITS = re.compile(r"\d+")
_NAMED = re.compile(r"(?<![a-z])(?:global[_-]?)?rank[._-]?(\d{1,6})(?!\d)", re.IGNORECASE)
_GPU = re.compile(r"(?<![a-z])gpu[_-]?(0|[1-9]\d?)(?!\d)", re.IGNORECASE)
"""A GPU's index is not padded: `gpu-005` is a host."""


@dataclass(slots=True)
class LabelStats:
    """How one kind of number is spread over the lines of one source."""

    lines: int = 0
    last: int = -1
    rising: bool = True
    falls: bool = False
    launcher: bool = False
    above: bool = False
    """What started the launcher, or ended it, speaks."""
    values: Counter[int] = field(default_factory=Counter)
    pids: set[int] = field(default_factory=set)
    ranks: dict[int, set[int]] = field(default_factory=dict)

    def observe(self, value: int, line: Line, own: bool = False) -> None:
        """Count one line with this number; its `own` one stands behind the name of its actor."""
        self.lines += 1
        self.rising = self.rising and value > self.last
        self.falls = self.falls or value < self.last  # a clock in seconds never does
        self.last = value
        if len(self.values) < KINDS_AT_MOST or value in self.values:
            self.values[value] += 1
        if line.who.pid is not None and len(self.pids) < 2:
            self.pids.add(line.who.pid)
        rank = line.who.rank
        if rank is not None and len(self.ranks) < KINDS_AT_MOST:
            self.ranks.setdefault(value, set()).add(rank)
        self.above = self.above or _ABOVE.match(line.text) is not None
        self.launcher = (
            self.launcher
            or (line.who.world != DEFAULT_WORLD and not own)
            or (_LAUNCHER.search(f"{line.origin} {line.text}") is not None and not _FRAME.match(line.text))
        )

    def agrees(self) -> bool | None:
        """Whether lines that name their rank say the same; None when too few do: a 0 agrees with anything."""
        agree = all(ranks == {value} for value, ranks in self.ranks.items())
        return agree if not agree or len(self.ranks) > 1 else None

    @property
    def counted(self) -> bool:
        """True for numbers of lines, times and steps: they only rise."""
        return self.rising and self.lines > 2


@dataclass(slots=True)
class SourceStats:
    """What was heard in one source."""

    spreads: dict[str, LabelStats] = field(default_factory=dict)
    ranks: set[int] = field(default_factory=set)
    locals: dict[int, set[int]] = field(default_factory=dict)
    hosts: dict[str, set[int]] = field(default_factory=dict)
    first: float | None = None
    last: float | None = None
    lines: int = 0
    timed: int = 0

    def observe(self, line: Line) -> None:
        """Take notice of who a line says it is from, and when."""
        who = line.who
        self.lines += 1
        if line.time is not None:
            self.timed += 1
            self.first = line.time if self.first is None else self.first
            self.last = line.time
        for kind, value in who.labels:
            spread = self.spreads.get(kind)
            if spread is None:
                spread = self.spreads[kind] = LabelStats()
            spread.observe(value, line, kind.startswith("own "))
        rank = who.rank
        if rank is None and who.labels and who.labels[0][0] == STATED:
            rank = who.labels[0][1]
        if rank is not None and len(self.ranks) < LARGEST_WORLD:
            self.ranks.add(rank)
        if who.local_rank is not None and len(self.locals) < KINDS_AT_MOST:
            told = self.locals.setdefault(who.local_rank, set())
            if rank is not None:
                told.add(rank)
        if who.host is not None and (who.host in self.hosts or len(self.hosts) < KINDS_AT_MOST):
            told = self.hosts.setdefault(who.host, set())
            if rank is not None:
                told.add(rank)

    @property
    def span(self) -> tuple[float, float] | None:
        """When its first and its last line were printed; None when hardly any line has a time."""
        if self.first is None or self.last is None or (self.timed < TIMED and 2 * self.timed < self.lines):
            return None
        return self.first, self.last


@dataclass(slots=True)
class SourceIndex:
    """What was heard in all sources."""

    sources: dict[str, SourceStats] = field(default_factory=dict)

    def of(self, source: str) -> SourceStats:
        """The record of one source."""
        return self.sources.setdefault(source, SourceStats())


def resolve_ranks(events: Sequence[Event[Any]], tally: SourceIndex) -> list[Event[Any]]:
    """The same events with the ranks that are proven, and without the numbers that are not."""
    world = _world_size(events)
    files = ranks_from_paths(tally, world)
    hosts = _by_hosts(tally, world)
    host_of = hosts_of(tally, files)
    proven = {
        (source, kind): _is_rank(kind, spread, world, heard.lines)
        for source, heard in tally.sources.items()
        for kind, spread in heard.spreads.items()
    }
    alone = _one_node(tally, world) and not any(map(_is_elsewhere, events))

    def named(event: Event[Any]) -> Event[Any]:
        who, source = event.who, event.place.source
        rank = who.rank
        if rank is None:
            labels = (value for kind, value in who.labels if kind != SEATED and proven.get((source, kind)))
            rank = next(labels, None)
        told = files.get(source)
        if rank is None and told is not None:
            rank = told.rank
        if rank is None and who.host is not None:
            rank = hosts.get(who.host)
        sits = (value for kind, value in who.labels if kind == SEATED and proven.get((source, kind)))
        local = who.local_rank if who.local_rank is not None else told.local_rank if told else None
        local = local if local is not None else next(sits, None)
        if rank is None and alone and local is not None:
            rank = local
        gpu = who.gpu if who.gpu is not None else told.gpu if told else None
        pid = who.pid if who.pid is not None else told.pid if told else None
        host = who.host if who.host is not None else host_of.get(source)
        mine = replace(who, rank=rank, local_rank=local, gpu=gpu, pid=pid, host=host, labels=())
        return event if mine == who else replace(event, who=mine)

    return [named(event) for event in events]


def _world_size(events: Iterable[Event[Any]]) -> int | None:
    """The size of the world that most lines name."""
    sizes = Counter(e.what.ranks for e in events if isinstance(e.what, (WorldSize, Communicator)))
    return max(sizes, key=lambda size: (sizes[size], size), default=None)


def _is_rank(kind: str, spread: LabelStats, world: int | None, lines: int) -> bool:
    """Whether this kind of number is the global rank of the lines that have it, of so many in its source."""
    agrees = spread.agrees()
    if agrees is False or kind == "node":
        return False
    # Around all that a launcher or several processes print it is their seat, not a rank.
    if kind in (STATED, SEATED):
        alone = len(spread.values) == 1
        only = alone and 0 in spread.values and 2 * spread.lines > lines  # as below: it tells nobody apart
        return agrees or not (spread.launcher or spread.above or only or (alone and len(spread.pids) > 1))
    if world is not None and max(spread.values, default=0) >= world:
        return False
    if agrees or kind == "inner":
        return True
    if spread.launcher or spread.counted or 2 * spread.lines < lines:
        return False
    if kind == "label":
        return set(spread.values) != {0}  # a launcher's, or the only task's: either way it tells nobody apart
    several = spread.lines > len(spread.values) and spread.falls
    return several and _is_permutation(spread.values, world)


def _is_permutation(values: Iterable[int], world: int | None) -> bool:
    """True for 0..N-1, of a world that is not known to be larger."""
    found = set(values)
    return len(found) > 1 and found == set(range(len(found))) and (world is None or world == len(found))


def _one_node(tally: SourceIndex, world: int | None) -> bool:
    """True when nothing speaks of a second node and no rank differs from its local rank."""
    hosts = {host for heard in tally.sources.values() for host in heard.hosts}
    ranks = {rank for heard in tally.sources.values() for rank in heard.ranks}
    differ = any(told - {local} for heard in tally.sources.values() for local, told in heard.locals.items())
    seats = [_rank_from_path(source).local_rank for source in tally.sources]
    twice = Counter(seat for seat in seats if seat is not None)
    largest = max([world or 0, *(rank + 1 for rank in ranks)])
    spoke = {local for heard in tally.sources.values() for local in heard.locals}
    return (
        len(hosts) < 2
        and not differ
        and (largest <= PER_NODE or spoke == set(range(largest)))
        and max(twice.values(), default=1) == 1
    )


def _is_elsewhere(event: Event[Any]) -> bool:
    """True for a process of a second node: torchelastic's list tells its rank there and that in the job."""
    return event.who.rank is not None and event.who.local_rank not in (None, event.who.rank)


def _by_hosts(tally: SourceIndex, world: int | None) -> dict[str, int]:
    """One process per host: the number in the hosts' names, where it is that of a whole world."""
    told: dict[str, set[int]] = defaultdict(set)
    seats: set[int] = set()
    for heard in tally.sources.values():
        seats |= heard.locals.keys()
        for host, ranks in heard.hosts.items():
            told[host] |= ranks
    if seats - {0} or any(len(ranks) > 1 for ranks in told.values()):
        return {}
    found = [*_replica_ranks(list(told)), *_numbered_names(list(told))]
    known = {host: next(iter(ranks)) for host, ranks in told.items() if ranks}
    for numbers in found:
        agreed = all(numbers[host] == rank for host, rank in known.items() if host in numbers)
        if agreed and (known or world == len(numbers)) and _is_permutation(numbers.values(), world):
            return numbers
    return {}


def _replica_ranks(hosts: Sequence[str]) -> list[dict[str, int]]:
    """Pods of a PyTorchJob: its master is the first, and its workers are counted from 0 behind it."""
    found = [(host, _REPLICA.search(host)) for host in hosts]
    if not any(name and name[1] == "master" for _, name in found):
        return []
    return [{host: int(name[2]) + (name[1] == "worker") for host, name in found if name}]


def ranks_from_paths(tally: SourceIndex, world: int | None) -> Mapping[str, Identity]:
    """Who each file is from: by the word in front of its number, or by the number that tells them apart."""
    told = {source: _rank_from_path(source) for source in tally.sources}
    for numbers in _numbered_names(list(tally.sources)):
        contradicted = any(tally.sources[source].ranks - {number} for source, number in numbers.items())
        heard = [tally.sources[source] for source in numbers]
        agreed = any(tally.sources[source].ranks == {number} for source, number in numbers.items())
        likely = agreed or world == len(numbers) or _written_together(heard)
        if not contradicted and likely and _is_permutation(numbers.values(), world):
            for source, number in numbers.items():
                if told[source].rank is None and told[source].local_rank is None:
                    told[source] = replace(told[source], rank=number)
    return {
        source: replace(who, rank=None)
        if who.rank is not None and tally.sources[source].ranks - {who.rank}
        else who
        for source, who in told.items()
    }


def _written_together(heard: Sequence[SourceStats]) -> bool:
    """True for logs that were written at the same time: those of attempts follow each other."""
    spans = [span for one in heard if (span := one.span)]
    return all(begin <= other and start <= end for begin, end in spans for start, other in spans)


def _rank_from_path(path: str) -> Identity:
    """What a path says about the process that wrote it."""
    from nodedoctor.triage.read.sources import log_owner

    ranks, gpus = _NAMED.findall(own_name(path)), _GPU.findall(path)
    who = log_owner(path)
    return replace(
        who, rank=int(ranks[-1]) if ranks else who.rank, gpu=int(gpus[-1]) if gpus and ranks else who.gpu
    )


def _numbered_names(names: Sequence[str]) -> list[dict[str, int]]:
    """For each number in which some names differ that are else alike: the names and their numbers."""
    alike: dict[str, list[tuple[str, list[int]]]] = defaultdict(list)
    for name in names:
        numbers = [int(digits) for digits in _DIGITS.findall(name) if len(digits) < 12]
        alike[_DIGITS.sub("0", name)].append((name, numbers))
    found: list[dict[str, int]] = []
    for group in alike.values():
        width = min(len(numbers) for _, numbers in group)
        if len(group) < 2:
            continue
        for column in reversed(range(width)):
            if len({numbers[column] for _, numbers in group}) == len(group):
                found.append({name: numbers[column] for name, numbers in group})
    return found
