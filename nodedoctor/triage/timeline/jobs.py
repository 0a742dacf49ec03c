"""Separates the jobs in one folder: one timeline of two jobs would be wrong.

Logs belong to different jobs when they cannot belong to one: they carry different job numbers in their names,
or the same ranks speak in both and one ended before the other began. A log that names no job, like a node's
kernel log, belongs to all of them. Logs of different hosts are not separated by their clocks: those may
differ by hours.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from nodedoctor.triage.identity.labels import Sources, SourceStats
from nodedoctor.triage.identity.paths import identities_from_paths
from nodedoctor.triage.identity.world import world_size
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import Event
from nodedoctor.triage.patterns.exits import ProcessExit
from nodedoctor.triage.patterns.nccl import Communicator
from nodedoctor.triage.patterns.progress import TrainingStep, WorldSize
from nodedoctor.triage.patterns.trace import ExceptionRaised
from nodedoctor.triage.patterns.watchdog import TimedOut

GAP = 60.0
"""Seconds between the last line of one job and the first of the next, at least: queues are slower. Ours."""
DAY = 86400.0
"""The same for logs in which hardly a line has a time: one that is pasted is of the same day. Ours."""
_NUMBER = re.compile(r"(?:slurm|job|jobid|sge|pbs|lsf)[-_.]?(\d{3,12})(?!\d)", re.IGNORECASE)
_Span = tuple[float | None, float | None]
_Pids = dict[tuple[str, str, int], set[int]]
"""Process ids by folder, host and rank: those of attempts are in folders of their own."""
OF_A_JOB = (TrainingStep, Mark.JOB_FINISHED, WorldSize, Communicator, ExceptionRaised, TimedOut, ProcessExit)


@dataclass(slots=True)
class LoggedJob:
    """One job: its logs, and what distinguishes it from others."""

    id: str
    sources: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)
    ranks: set[int] = field(default_factory=set)
    world: int | None = None
    first: float | None = None
    last: float | None = None
    is_timed: bool = False
    """Whether enough lines have a time in the logs of which these are the first and the last one."""
    pids: _Pids = field(default_factory=dict)

    def accepts(self, number: str, stats: SourceStats, ranks: set[int], pids: _Pids) -> bool:
        """Whether a log can be of this job."""
        own_number = _job_number(self.sources[0])
        if own_number and number and own_number != number:
            return False
        if any(pids[key].isdisjoint(self.pids[key]) for key in pids.keys() & self.pids.keys()):
            return False
        elsewhere = self.hosts and stats.hosts and self.hosts.isdisjoint(stats.hosts)
        shared = bool(self.ranks & ranks) or not (self.ranks or ranks or elsewhere)
        gap = GAP if self.is_timed and stats.is_timed else DAY
        return not (shared and _are_apart((self.first, self.last), (stats.first, stats.last), gap))

    def add_log(self, source: str, stats: SourceStats, ranks: set[int], pids: _Pids) -> None:
        """Add a log."""
        self.sources.append(source)
        self.pids |= {key: self.pids.get(key, set()) | numbers for key, numbers in pids.items()}
        self.hosts |= stats.hosts
        self.ranks |= ranks
        if stats.first is None or stats.last is None or (self.is_timed and not stats.is_timed):
            return
        if self.first is None or self.last is None or (stats.is_timed and not self.is_timed):
            self.first, self.last, self.is_timed = stats.first, stats.last, stats.is_timed
        self.first, self.last = min(self.first, stats.first), max(self.last, stats.last)


def separate_jobs(events: Sequence[Event[Any]], speakers: Sources) -> list[LoggedJob]:
    """The jobs in these logs, the oldest first; one when nothing tells two apart."""
    ranks, pids = _ranks_by_log(events, speakers), _pids_by_log(events)
    job_logs = {e.place.source for e in events if e.kind in OF_A_JOB} & speakers.keys()
    jobs: list[LoggedJob] = []
    for source in sorted(job_logs, key=lambda name: (speakers[name].first or 0.0, name)):
        stats, number = speakers[source], _job_number(source)
        matching = [job for job in jobs if job.accepts(number, stats, ranks[source], pids[source])]
        if not matching:
            matching = [LoggedJob(_job_name(source, number, {job.id for job in jobs}))]
            jobs += matching
        folder = os.path.dirname(source)
        neighbours = (
            [job for job in matching if os.path.dirname(job.sources[0]) == folder]
            if matching[0].sources
            else []
        )
        job = (neighbours or matching)[-1]
        job.add_log(source, stats, ranks[source], pids[source])
    for job in jobs:
        sources = set(job.sources)
        job.world = world_size([event for event in events if event.place.source in sources])
    dated = all(job.last is not None for job in jobs)  # else their names have dates or numbers, if anything
    return sorted(jobs, key=lambda job: (job.last if dated and job.last is not None else 0.0, job.id))


def events_of(job: LoggedJob, jobs: Iterable[LoggedJob], events: Iterable[Event[Any]]) -> list[Event[Any]]:
    """The events of one job, and those of logs that belong to none."""
    foreign = {source for other_job in jobs if other_job is not job for source in other_job.sources}
    return [event for event in events if event.place.source not in foreign]


def _are_apart(a: _Span, b: _Span, gap: float) -> bool:
    """True when both spans are known and one ends well before the other begins."""
    (first, last), (begin, end) = a, b
    if first is None or last is None or begin is None or end is None:
        return False
    return begin - last > gap or first - end > gap


def _job_number(path: str) -> str:
    numbers = _NUMBER.findall(path)
    return str(numbers[-1]) if numbers else ""


def _job_name(source: str, number: str, used_ids: set[str]) -> str:
    """What a person calls a job: its number, else the name of its first log."""
    name = number or os.path.basename(source)
    return name if name not in used_ids else source


def _pids_by_log(events: Iterable[Event[Any]]) -> dict[str, _Pids]:
    """The process ids of ranks by log; a rank that has another one was started again."""
    pids: dict[str, _Pids] = defaultdict(dict)
    for event in events:
        source, who = event.place.source, event.who
        if isinstance(event.what, Communicator) and who.pid is not None and who.host is not None:
            key = os.path.dirname(source), who.host, event.what.rank
            pids[source].setdefault(key, set()).add(who.pid)
    return pids


def _ranks_by_log(events: Iterable[Event[Any]], speakers: Sources) -> dict[str, set[int]]:
    """The ranks of each log, by its lines or by its name."""
    ranks = {source: stats.ranks for source, stats in speakers.items()}
    for source, who in identities_from_paths(speakers, None).items():  # each job may have a size of its own
        ranks[source] |= {rank for rank in (who.rank, who.local_rank) if rank is not None}
    for event in events:
        if event.who.rank is not None and event.place.source in ranks:
            ranks[event.place.source].add(event.who.rank)
    return ranks
