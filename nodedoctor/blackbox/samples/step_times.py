"""When each rank came to each step: by the times in its lines, else by when its output grew.

Launchers that pass on what ranks print look at it ten times a second: only what a rank writes into the file
itself is timed better than that. Lines that came together, as a buffer was full, have no times of their own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from nodedoctor.blackbox.samples.sample import OutputPart, RankSample, Sample
from nodedoctor.triage.lines.prefixes import parse_line
from nodedoctor.triage.live.lateness import FEWEST_RANKS, FEWEST_STEPS, Lateness, Step, find_late_rank
from nodedoctor.triage.model import Line, Place
from nodedoctor.triage.patterns import progress

STEPS_KEPT = 100
"""Steps that are kept of each counter: a rank that was late an hour ago may have caught up."""
OWN = 0.001
"""Seconds between two of the times that loggers print."""
DIRECT, PASSED_ON = 0.01, 0.1
"""Seconds between two looks at a file: ours (probes/job/sampler.py, GRAIN), and torchrun's at what a rank
printed (torch/distributed/elastic/multiprocessing/tail_log.py, interval_sec)."""

_IN_TEXT = re.compile(r"\brank\b['\"]?\s?[:= ]\s?(\d{1,6})\b", re.IGNORECASE)
_CLOCKS = (OWN, DIRECT, PASSED_ON)


class StepTimes:
    """Collects the moments of one node's ranks; each counter, and each way to know the time, for itself."""

    def __init__(self) -> None:
        self._arrivals: dict[tuple[str, float], dict[int, dict[Step, float]]] = {}
        self._printing: set[int] = set()

    @property
    def needs_looks(self) -> bool:
        """True while several ranks print steps, and it is not known well enough when."""
        return len(self._printing) >= FEWEST_RANKS and not any(
            sum(len(steps) > FEWEST_STEPS for steps in ranks.values()) >= FEWEST_RANKS
            for ranks in self._arrivals.values()
        )

    def feed(self, sample: Sample) -> None:
        """Take in what the outputs got."""
        by_pid = {rank.pid: rank for rank in sample.living if rank.rank is not None}
        for part in sample.output:
            self._feed_part(part, by_pid)

    def late(self, sample: Sample) -> tuple[int, Lateness] | None:
        """The rank that comes late among those of the node, if one does."""
        ranks = [rank.rank for rank in sample.living if rank.rank is not None]
        if len({rank.job for rank in sample.living}) > 1 or len(set(ranks)) < len(sample.living):
            return None
        for clock in _CLOCKS:
            for (_, resolution), arrivals in self._arrivals.items():
                late_rank = find_late_rank(arrivals, ranks, resolution) if resolution == clock else None
                if late_rank is not None:
                    return late_rank
        return None

    def _feed_part(self, part: OutputPart, by_pid: Mapping[int, RankSample]) -> None:
        rows = [
            (line, moment)
            for raw, moment in zip(part.text.split("\n"), _line_times(part), strict=True)
            for line in parse_line(raw, Place(part.path, 0))
        ]
        exact = any(line.time is not None and line.time % 1 for line, _ in rows)  # else whole seconds
        together: dict[tuple[int, str, float], list[Step]] = {}
        for line, moment in rows:
            counter = progress.step_counter(line.text)
            rank = _rank_of(line, part, by_pid)
            if counter is None or rank is None or rank.rank is None:
                continue
            self._printing.add(rank.rank)
            name, step = counter
            if exact and line.time is not None:
                self._note_step(name, OWN, rank.rank, step, line.time)
            elif not exact and moment is not None:
                clock = DIRECT if rank.pid in part.writers else PASSED_ON
                together.setdefault((rank.rank, name, moment), []).append(step)
                self._note_step(name, clock, rank.rank, step, moment)
        for (number, name, _), steps in together.items():
            for step in steps if len(steps) > 1 else ():
                for clock in (DIRECT, PASSED_ON):
                    self._arrivals.get((name, clock), {}).get(number, {}).pop(step, None)

    def _note_step(self, name: str, clock: float, rank: int, step: Step, moment: float) -> None:
        steps = self._arrivals.setdefault((name, clock), {}).setdefault(rank, {})
        if step not in steps:  # a line that is printed again for the same step tells nothing of its arrival
            steps[step] = moment
        while len(steps) > STEPS_KEPT:
            del steps[next(iter(steps))]


def _line_times(part: OutputPart) -> Iterator[float | None]:
    """When each line of a part was there as a whole, None where nothing looked."""
    end, growth = 0, iter(part.grown)
    size, moment = next(growth, (0, None))
    for line in part.text.split("\n"):
        end += len(line.encode()) + 1
        while size < end and moment is not None:
            size, moment = next(growth, (0, None))
        yield moment


def _rank_of(line: Line, part: OutputPart, by_pid: Mapping[int, RankSample]) -> RankSample | None:
    """Which rank of this node printed a line: by its file, its prefix, or what it says itself."""
    if len(part.writers) == 1 and part.writers[0] in by_pid:
        return by_pid[part.writers[0]]
    if line.who.pid is not None:
        return by_pid.get(line.who.pid)
    in_text = _IN_TEXT.search(line.text)
    number = line.who.rank
    if number is None and line.who.labels:
        number = line.who.labels[0][1]
    if number is None and line.who.local_rank is not None:
        return _only_rank(rank for rank in by_pid.values() if rank.local == line.who.local_rank)
    if number is None and in_text is not None:
        number = int(in_text[1])
    return _only_rank(rank for rank in by_pid.values() if rank.rank == number) if number is not None else None


def _only_rank(ranks: Iterator[RankSample]) -> RankSample | None:
    candidates = list(ranks)
    return candidates[0] if len(candidates) == 1 else None
