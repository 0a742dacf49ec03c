"""Which numbers in front of lines are ranks, by all lines that have one.

`[rank3]:` is a rank. `3:` of `srun --label` is the rank of a task, or the number of a node when the task is
a launcher, or the line number of `grep -n`. So each kind of number is judged by all lines that have it:
against the ranks that the same lines name, the size of the world, and how the numbers are spread.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from nodedoctor.triage.identity.world import RankLocation, is_address
from nodedoctor.triage.model import (
    BESIDE_LABEL,
    DEFAULT_WORLD,
    LOCAL_RANK_LABEL,
    RANK_LABEL,
    SHORT_LABEL,
    TASK_LABEL,
    Identity,
    Line,
)

KINDS_AT_MOST = 4096
"""Different values of one kind of number that are kept."""
LOCATIONS_AT_MOST = 1 << 17
"""Different speakers of one log that are kept; the largest runs known have some 10^5 ranks."""
TIMED = 3
"""Lines with a time that tell when a log was written, where most have none: one may be pasted. Ours."""
_LAUNCHER = re.compile(
    r"torch[./]distributed[./](?:elastic|run|launch)|torchrun|ChildFailedError|\[default\d|deepspeed[./]launcher"
    r"|launch\.py:\d|accelerate\.commands|Root Cause \(first observed"
)
_SUPERVISOR = re.compile(
    r"(?:srun|slurmstepd(?:-[\w.-]+)?|slurmd|raylet|kubelet|kernel|salloc|sbatch|mpirun|prterun): "
)
"""Programs that report about many processes, and are none of a rank."""
_ACTOR = re.compile(r":actor_name:([A-Za-z]\w{0,99}?)(?:_\d{1,5}:\d{1,3})?(?:\(|$)")
"""Of Ray's workers (python/ray/_raylet.pyx), without the place that verl puts behind the names of its own."""
_FRAME = re.compile(r"\s*File \"")
"""In a traceback: a launcher's code is also below the program that it started."""


@dataclass(slots=True)
class LabelStats:
    """How one kind of number is spread over the lines of one source."""

    lines: int = 0
    last: int = -1
    rising: bool = True
    falls: bool = False
    launcher: bool = False
    supervisor: bool = False
    """A line is from what started or ended the launcher."""
    values: Counter[int] = field(default_factory=Counter)
    pids: set[int] = field(default_factory=set)
    ranks: dict[int, set[int]] = field(default_factory=dict)

    def observe(self, value: int, line: Line, own: bool = False) -> None:
        """Count a line with this number; an `own` one is behind an actor's name."""
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
        self.supervisor = self.supervisor or _SUPERVISOR.match(line.text) is not None
        self.launcher = (
            self.launcher
            or (line.who.world != DEFAULT_WORLD and not own)
            or (_LAUNCHER.search(f"{line.origin} {line.text}") is not None and not _FRAME.match(line.text))
        )

    def agrees(self) -> bool | None:
        """Whether lines that name their rank agree; None when too few do.

        A 0 agrees with anything.
        """
        same = all(ranks == {value} for value, ranks in self.ranks.items())
        return same if not same or len(self.ranks) > 1 else None


@dataclass(slots=True)
class SourceStats:
    """The identities that the lines of one source name, and their times."""

    labels: dict[str, LabelStats] = field(default_factory=lambda: defaultdict(LabelStats))
    together: set[tuple[tuple[str, int], ...]] = field(default_factory=set)
    """The labels of lines that have several."""
    locations: set[RankLocation] = field(default_factory=set)
    host_lines: Counter[str] = field(default_factory=Counter)
    """The lines of each host."""
    process_hosts: set[str] = field(default_factory=set)
    """The hosts in front of lines that have the number of a process, too."""
    first: float | None = None
    last: float | None = None
    lines: int = 0
    timed: int = 0
    actor: str = ""
    """The class of the actor whose output it is: Ray puts it at the head of a worker's files."""

    def observe(self, line: Line) -> None:
        """Count the identity and the time of a line."""
        who = line.who
        self.lines += 1
        if line.text.startswith(":actor_name:") and (actor := _ACTOR.match(line.text)) is not None:
            self.actor = actor[1]
        if line.time is not None:
            self.timed += 1
            self.first = line.time if self.first is None else self.first
            self.last = line.time
        for kind, value in who.labels:
            self.labels[kind].observe(value, line, kind.startswith("own "))
        if len(who.labels) > 1 and len(self.together) < KINDS_AT_MOST:
            self.together.add(who.labels)
        rank = who.rank
        if rank is None and who.labels and who.labels[0][0] == RANK_LABEL:
            rank = who.labels[0][1]
        location = RankLocation(rank, who.local_rank, who.host)
        if location != NO_LOCATION and len(self.locations) < LOCATIONS_AT_MOST:
            self.locations.add(location)
        if who.host is not None and not _is_of_ray(who) and len(self.host_lines) < KINDS_AT_MOST:
            self.host_lines[who.host] += 1
            if who.pid is not None:
                self.process_hosts.add(who.host)

    def without_hosts(self, names: Collection[str]) -> SourceStats:
        """The same, of lines without these names in front."""
        return replace(
            self,
            locations={
                location._replace(host=None) if location.host in names else location
                for location in self.locations
            }
            - {NO_LOCATION},
            host_lines=Counter({host: n for host, n in self.host_lines.items() if host not in names}),
            process_hosts=self.process_hosts - set(names),
        )

    def tells_apart(self, kind: str) -> bool:
        """Whether a number without a name tells all others beside it.

        A rank tells its node and its GPU, and neither of them tells it. A number that never falls counts
        attempts or steps, and no process.
        """
        if not _is_learned(kind):
            return True
        beside: dict[int, set[tuple[tuple[str, int], ...]]] = defaultdict(set)
        for labels in self.together:
            if (value := dict(labels).get(kind)) is not None:
                beside[value].add(
                    tuple(
                        (name, number)
                        for name, number in labels
                        if name != kind and _is_beside(name) and self.labels[name].falls
                    )
                )
        return all(len(others) == 1 for others in beside.values())

    @property
    def ranks(self) -> set[int]:
        """The ranks that the lines name."""
        return {location.rank for location in self.locations if location.rank is not None}

    @property
    def hosts(self) -> set[str]:
        """The hosts that are named in front of lines."""
        return {location.host for location in self.locations if location.host is not None}

    @property
    def own_hosts(self) -> set[str]:
        """The hosts in front of lines of the job: beside a process or a rank, or of most lines.

        Ray names the host of each process that is not on its driver's: so it is that of no other.
        """
        of_most = {host for host, lines in self.host_lines.items() if 2 * lines >= self.lines}
        of_ranks = {place.host for place in self.locations if place.host and place.rank is not None}
        return of_most | of_ranks | self.process_hosts

    @property
    def span(self) -> tuple[float, float] | None:
        """The times of its first and last line; None when few have one."""
        if self.first is None or self.last is None or not self.is_timed:
            return None
        return self.first, self.last

    @property
    def is_timed(self) -> bool:
        """True where so many lines have a time that it is when the log was written."""
        return self.timed >= TIMED or 2 * self.timed >= self.lines


def _is_of_ray(who: Identity) -> bool:
    """True where a host is one that Ray puts behind the number of its process."""
    return who.world != DEFAULT_WORLD or (who.pid is not None and is_address(who.host or ""))


def _is_learned(kind: str) -> bool:
    return kind.startswith(("prefix ", "own prefix "))


def _is_beside(kind: str) -> bool:
    return _is_learned(kind) or kind.startswith(BESIDE_LABEL)


NO_LOCATION = RankLocation()

Sources = dict[str, SourceStats]
"""By the name of the source."""


def is_rank(kind: str, stats: LabelStats, world: int | None, lines: int) -> bool:
    """Whether this kind of number is the rank of the lines that have it."""
    agrees = stats.agrees()
    if agrees is False or kind == "node" or kind.startswith(BESIDE_LABEL):
        return False
    # In front of all that a launcher or several processes print it is a local index, not a rank.
    if kind in (RANK_LABEL, LOCAL_RANK_LABEL):
        alone = len(stats.values) == 1
        only = alone and 0 in stats.values and 2 * stats.lines > lines  # as below: it separates no ranks
        return agrees or not (stats.launcher or stats.supervisor or only or (alone and len(stats.pids) > 1))
    if world is not None and max(stats.values, default=0) >= world:
        return False
    if agrees or kind == "inner":
        return True
    if kind == SHORT_LABEL:  # several that take turns: rounds and revisions never fall
        return not stats.launcher and len(stats.values) > 1 and stats.falls
    line_or_step = stats.rising and stats.lines > 2
    if stats.launcher or line_or_step or 2 * stats.lines < lines:
        return False
    if kind == TASK_LABEL:
        return set(stats.values) != {0}  # a launcher's, or the only task's: it separates no ranks
    several = stats.lines > len(stats.values) and stats.falls
    return several and is_permutation(stats.values, world)


def is_permutation(values: Iterable[int], world: int | None) -> bool:
    """True for 0..N-1, of a world that is not known to be larger."""
    ranks = set(values)
    return len(ranks) > 1 and ranks == set(range(len(ranks))) and world in (None, len(ranks))
