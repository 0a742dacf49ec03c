"""Whether a job goes on, judged from samples alone: what counts as progress, and when silence is suspicious.

The rules, each of which only raises a suspicion; `capture.py` has to confirm it by two looks at the stacks:

1. A rank is stopped, a zombie, or has no process any more, and all other ranks do nothing: no grace.
2. Steps are known (from the output, a heartbeat file or an expression) and none came for `hang_after`, by
   default five times the median step, and a minute at least.
3. No steps are known: every rank has used no CPU time, moved no byte and stayed in the same system call for a
   minute, after the job's first half hour.

Long phases are no hangs: a rank that saves, evaluates, compiles or generates uses CPU, moves bytes or has
children
that do. Waiting ranks on GPUs use a whole core in cudaStreamSynchronize: that is why CPU time alone never
proves progress once steps are known, and its lack never a hang before.
"""

from __future__ import annotations

import re
import statistics
from collections import deque

from nodedoctor.blackbox.samples.sample import TICKS_PER_SECOND, RankSample, Sample
from nodedoctor.probes.job.alive import lives
from nodedoctor.record import record
from nodedoctor.triage.patterns import progress as signs

LEAST = 60.0
"""Seconds of silence that are never suspicious, unless somebody asks for less."""
STEPS = 5.0
"""Median steps of silence that are."""
GRACE = 1800.0
"""Seconds after its start in which a job without known steps may load, compile and wait for its nodes."""
LOST = 10.0
"""Seconds that a rank may be stopped or gone while the others do nothing."""
IDLE = 0.03
"""CPU seconds per second below which a process does nothing: the watchdog threads of torch take less than 1
%."""
QUIET = 4096
"""Bytes per minute below which nothing is moved: a line of a log, a heartbeat of a store."""
LATELY, LATELY_LOOKS = 10.0, 32
"""Seconds, and looks, that count as lately."""
KEPT = 50
"""Steps whose median is taken: what a step took an hour ago says little."""
LEAST_STEPS = 3
"""Steps seen before their median means anything."""
STOPPED, DEAD = ("T", "t"), ("Z", "X")
"""States of /proc/PID/stat in which a process does nothing more: until it is let go on, and until its end."""


@record
class Suspicion:
    """Why a job may hang, as the end of a sentence; `rule` is 1 to 3, `since` the moment it began."""

    rule: int
    why: str
    since: float


@record
class Activity:
    """What a rank did lately: CPU as a share of one core, its own and its children's, and bytes moved."""

    cpu: float = 0.0
    child_cpu: float = 0.0
    bytes: int = 0
    seconds: float = 0.0
    running: int = 0

    @property
    def works(self) -> bool:
        """True when it moves data or has children at work: it saves, loads or compiles.

        On a node that is short of cores children may get no time for long, and still want it.
        """
        return self.running > 0 or self.child_cpu > IDLE or self.bytes > max(QUIET, QUIET * self.seconds / 60)


@record
class ProgressSettings:
    """What a person may say about the job. `hang_after` 0 means: by its own steps."""

    hang_after: float = 0.0
    grace: float = GRACE
    pattern: str = ""


USUAL = ProgressSettings()


class Progress:
    """Follows one job, sample by sample."""

    def __init__(self, settings: ProgressSettings = USUAL) -> None:
        self._settings = settings
        self._pattern = re.compile(settings.pattern) if settings.pattern else None
        self._series: dict[str, tuple[tuple[float, ...], float]] = {}
        self._before: dict[str, tuple[tuple[float, ...], float]] = {}
        self._steps: deque[float] = deque(maxlen=KEPT)
        self._heartbeat: int | None = None
        self._last: Sample | None = None
        self._still: dict[tuple[int, int], tuple[float, RankSample]] = {}
        self._seen: dict[tuple[int, int], RankSample] = {}
        self._missing: tuple[RankSample, ...] = ()
        self._lost: dict[tuple[int, int], float] = {}
        self._lately: dict[tuple[int, int], deque[tuple[float, RankSample]]] = {}
        self.first: float | None = None
        self.stepped: float | None = None
        """The moment of the last progress that the output or the heartbeat showed."""
        self.count = 0

    @property
    def median(self) -> float | None:
        """Seconds a step takes; None while too few were seen."""
        return statistics.median(self._steps) if len(self._steps) >= LEAST_STEPS else None

    @property
    def longest(self) -> float:
        """Seconds of the longest step among those that are kept; 0 before the first."""
        return max(self._steps, default=0.0)

    @property
    def threshold(self) -> float:
        """Seconds without a step that are suspicious."""
        return self._settings.hang_after or max(STEPS * (self.median or 0), LEAST)

    @property
    def missing(self) -> tuple[RankSample, ...]:
        """Ranks whose process has ended, as the kernel has it at the last sample.

        What a task's shell or prolog started has the environment of the rank, too, and ends long before it;
        and a rank that was restarted has another process. A process without a rank is not missed.
        """
        return self._missing

    def _ended_ranks(self, sample: Sample) -> tuple[RankSample, ...]:
        now = {rank.key for rank in sample.living}
        ranks = {(rank.job, rank.rank) for rank in sample.living}
        return tuple(
            rank
            for key, rank in self._seen.items()
            if key not in now and (rank.job, rank.rank) not in ranks and not lives(rank.pid, rank.start)
        )

    def feed(self, sample: Sample) -> bool:
        """Take in a sample; True when it shows progress by a step or a heartbeat."""
        self.first = sample.moment if self.first is None else self.first
        before = self._last
        self._last = sample
        went_on = [
            self._is_step(line, sample.moment) for part in sample.output for line in _output_lines(part.text)
        ]
        self._note_steps()
        if sample.heartbeat is not None and sample.heartbeat != self._heartbeat:
            went_on.append(self._heartbeat is not None)
            if self._heartbeat is not None and before is not None:
                self._steps.append(sample.moment - (self.stepped or before.moment))
            self._heartbeat = sample.heartbeat
        for rank in sample.living:
            if rank.rank is not None:
                self._seen[rank.key] = rank
            lately = self._lately.setdefault(rank.key, deque(maxlen=LATELY_LOOKS))
            lately.append((sample.moment, rank))
            while len(lately) > 2 and sample.moment - lately[1][0] >= LATELY:
                lately.popleft()
            last_move = self._still.get(rank.key)
            if last_move is None or _has_moved(last_move[1], rank, sample.moment - last_move[0]):
                self._still[rank.key] = (sample.moment, rank)
        self._missing = self._ended_ranks(sample)
        lost_keys = {rank.key for rank in (*filter(_is_lost, sample.living), *self._missing)}
        self._lost = {key: self._lost.get(key, sample.moment) for key in lost_keys}
        if any(went_on):
            self.stepped = sample.moment
            self.count += 1
            self._lost.clear()
        return any(went_on)

    def suspicion(self) -> Suspicion | None:
        """What speaks for a hang now; None when nothing does."""
        sample = self._last
        if sample is None or not sample.living:
            return None
        return self._someone_lost(sample) or self._no_step(sample) or self._all_still(sample)

    def still_for(self, rank: RankSample) -> float:
        """Seconds a rank has used no CPU time, moved no byte and stayed in its system call."""
        last_move = self._still.get(rank.key)
        return self._last.moment - last_move[0] if last_move and self._last else 0.0

    def all_moved(self, since: float) -> bool:
        """True when every rank there is has used CPU time, moved bytes or left its system call since then."""
        living = self._last.living if self._last else ()
        return bool(living) and not self.missing and all(self._still[rank.key][0] > since for rank in living)

    def activity(self, rank: RankSample, since: float = 0.0) -> Activity:
        """What a rank did since a moment, but in about the last ten seconds at most."""
        lately = [look for look in self._lately.get(rank.key, ()) if look[0] >= since]
        running = max((rank.running for _, rank in lately), default=0)
        if len(lately) < 2:
            return Activity(running=running)
        (begin, before), (end, now) = lately[0], lately[-1]
        seconds = max(end - begin, 0.001)
        moved = (now.bytes or 0) - (before.bytes or 0) + max(0, now.child_bytes - before.child_bytes)
        return Activity(
            (now.ticks - before.ticks) / TICKS_PER_SECOND / seconds,
            max(0, now.child_ticks - before.child_ticks) / TICKS_PER_SECOND / seconds,
            moved,
            seconds,
            running,
        )

    def _someone_lost(self, sample: Sample) -> Suspicion | None:
        others = [rank for rank in sample.living if rank.key not in self._lost]
        lost_keys = [key for key, since in self._lost.items() if sample.moment - since >= LOST]
        if not lost_keys or not others or not all(self.still_for(rank) >= LOST for rank in others):
            return None
        since = min(self._lost[key] for key in lost_keys)
        names = ", ".join(self._seen[key].called for key in sorted(lost_keys)[:4])
        return Suspicion(1, f"{names} is stopped or gone, and the other ranks do nothing", since)

    def _no_step(self, sample: Sample) -> Suspicion | None:
        if self.stepped is None or (silent := sample.moment - self.stepped) < self.threshold:
            return None
        usual = f" (a step takes {self.median:.3g} s)" if self.median else ""
        return Suspicion(2, f"no step for {silent:.0f} s{usual}", self.stepped)

    def _all_still(self, sample: Sample) -> Suspicion | None:
        if self.stepped is not None or self.first is None:
            return None
        needed = self._settings.hang_after or LEAST
        if sample.moment - self.first < (0 if self._settings.hang_after else self._settings.grace):
            return None
        still = [self.still_for(rank) for rank in sample.living]
        if min(still) < needed:
            return None
        why = f"no rank has used CPU time or moved a byte for {min(still):.0f} s"
        return Suspicion(3, why, sample.moment - min(still))

    def _is_step(self, line: str, moment: float) -> bool:
        """Whether a line of the output shows progress: a counter of one series that rises."""
        counter: tuple[str, tuple[float, ...]]
        if self._pattern is not None:
            if not self._pattern.search(line):
                return False
            counter = ("", (self._series.get("", ((0.0,), moment))[0][0] + 1,))
        else:
            step_counter = signs.step_counter(line)
            if step_counter is None:
                return False
            counter = step_counter
        name, value = counter
        latest = self._series.get(name)
        if latest is None:
            self._series[name] = (value, moment)
            return True
        if value <= latest[0]:
            return False
        if moment > latest[1]:
            self._before[name] = latest
        self._series[name] = (value, moment)
        return True

    def _note_steps(self) -> None:
        """What a step took since the look before, in which there may have been many."""
        for name, (value, moment) in self._before.items():
            newest, now = self._series[name]
            rises = newest[-1] - value[-1] if newest[:-1] == value[:-1] else 1
            self._steps.append((now - moment) / max(rises, 1))
        self._before.clear()


def _has_moved(before: RankSample, now: RankSample, seconds: float) -> bool:
    """Whether a rank did something since it was last seen to move."""
    allowed = max(IDLE * seconds * TICKS_PER_SECOND, 2)
    used = now.ticks - before.ticks + max(0, now.child_ticks - before.child_ticks)
    bytes_moved = (now.bytes or 0) - (before.bytes or 0) + max(0, now.child_bytes - before.child_bytes)
    elsewhere = (now.syscall, now.wchan) != (before.syscall, before.wchan)
    return used > allowed or bytes_moved > max(QUIET, QUIET * seconds / 60) or elsewhere


def _is_lost(rank: RankSample) -> bool:
    """True for a process that is stopped, and for a rank that is dead; others may end as they like."""
    return rank.state in STOPPED or (rank.state in DEAD and rank.rank is not None)


def _output_lines(text: str) -> list[str]:
    """The lines of an output; a progress bar redraws its line behind a carriage return."""
    return [line for part in text.split("\n") for line in part.split("\r") if line.strip()]
