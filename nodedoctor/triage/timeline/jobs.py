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
from nodedoctor.triage.identity.paths import folder_of_node, identities_from_paths
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
_PART = re.compile(r"!(?:rank\d+|part-[a-z]{2})$")
"""A part of a file that says itself what its ranks did, one behind the other (read/joined.py): of one job."""
_Pids = dict[tuple[str, str, int], set[int]]
"""Process ids by folder, host and rank: those of attempts are in folders of their own."""
OF_A_JOB = (TrainingStep, Mark.JOB_FINISHED, WorldSize, Communicator, ExceptionRaised, TimedOut, ProcessExit)


_Speakers = set[tuple[str, int]]
"""Who speaks in a log: global ranks, and local ranks with the folder of their node."""


@dataclass(slots=True)
class TimeSpan:
    """The first and the last moment of some logs, of those with enough times if there are any."""

    first: float | None = None
    last: float | None = None
    is_timed: bool = False

    def extend(self, stats: SourceStats) -> None:
        """Take in the moments of a log."""
        if stats.first is None or stats.last is None or (self.is_timed and not stats.is_timed):
            return
        if self.first is None or self.last is None or (stats.is_timed and not self.is_timed):
            self.first, self.last, self.is_timed = stats.first, stats.last, stats.is_timed
        self.first, self.last = min(self.first, stats.first), max(self.last, stats.last)

    def is_apart(self, stats: SourceStats) -> bool:
        """True where all this ended well before a log begins, or the other way round."""
        if self.first is None or self.last is None or stats.first is None or stats.last is None:
            return False
        gap = GAP if self.is_timed and stats.is_timed else DAY
        return stats.first - self.last > gap or self.first - stats.last > gap


@dataclass(slots=True)
class LoggedJob:
    """One job: its logs, and what distinguishes it from others."""

    id: str
    sources: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)
    speakers: _Speakers = field(default_factory=set)
    world: int | None = None
    span: TimeSpan = field(default_factory=TimeSpan)
    in_folders: dict[str, TimeSpan] = field(default_factory=dict)
    pids: _Pids = field(default_factory=dict)

    @property
    def first(self) -> float | None:
        """The moment of its first line."""
        return self.span.first

    @property
    def last(self) -> float | None:
        """The moment of its last line."""
        return self.span.last

    def accepts(self, source: str, stats: SourceStats, speakers: _Speakers, pids: _Pids) -> bool:
        """Whether a log can be of this job; its folder's other logs say when that job was, else all."""
        if (part := _PART.search(source)) and any(
            s.startswith(source[: part.start() + 1]) for s in self.sources
        ):
            return True
        own_number, number = _job_number(self.sources[0]), _job_number(source)
        if own_number and number and own_number != number:
            return False
        if any(pids[key].isdisjoint(self.pids[key]) for key in pids.keys() & self.pids.keys()):
            return False
        elsewhere = self.hosts and stats.hosts and self.hosts.isdisjoint(stats.hosts)
        shared = bool(self.speakers & speakers) or not (self.speakers or speakers or elsewhere)
        span = self.in_folders.get(os.path.dirname(source), self.span)
        return not (shared and span.is_apart(stats))

    def add_log(self, source: str, stats: SourceStats, speakers: _Speakers, pids: _Pids) -> None:
        """Add a log."""
        self.sources.append(source)
        self.pids |= {key: self.pids.get(key, set()) | numbers for key, numbers in pids.items()}
        self.hosts |= stats.hosts
        self.speakers |= speakers
        self.span.extend(stats)
        self.in_folders.setdefault(os.path.dirname(source), TimeSpan()).extend(stats)


def separate_jobs(events: Sequence[Event[Any]], speakers: Sources) -> list[LoggedJob]:
    """The jobs in these logs, the oldest first; one when nothing tells two apart."""
    by_log, pids = _speakers_by_log(events, speakers), _pids_by_log(events)
    job_logs = {e.place.source for e in events if e.kind in OF_A_JOB} & speakers.keys()
    jobs: list[LoggedJob] = []
    for source in sorted(job_logs, key=lambda name: (speakers[name].first or 0.0, name)):
        stats = speakers[source]
        matching = [job for job in jobs if job.accepts(source, stats, by_log[source], pids[source])]
        if not matching:
            matching = [LoggedJob(_job_name(source, {job.id for job in jobs}))]
            jobs += matching
        folder = os.path.dirname(source)
        neighbours = (
            [job for job in matching if os.path.dirname(job.sources[0]) == folder]
            if matching[0].sources
            else []
        )
        job = (neighbours or matching)[-1]
        job.add_log(source, stats, by_log[source], pids[source])
    for job in jobs:
        sources = set(job.sources)
        job.world = world_size([event for event in events if event.place.source in sources])
    dated = all(job.last is not None for job in jobs)  # else their names have dates or numbers, if anything
    return sorted(jobs, key=lambda job: (job.last if dated and job.last is not None else 0.0, job.id))


def events_of(job: LoggedJob, jobs: Iterable[LoggedJob], events: Iterable[Event[Any]]) -> list[Event[Any]]:
    """The events of one job, and those of logs that belong to none."""
    foreign = {source for other_job in jobs if other_job is not job for source in other_job.sources}
    return [event for event in events if event.place.source not in foreign]


def _job_number(path: str) -> str:
    numbers = _NUMBER.findall(path)
    return str(numbers[-1]) if numbers else ""


def _job_name(source: str, used_ids: set[str]) -> str:
    """What a person calls a job: its number, else the name of its first log."""
    name = _job_number(source) or os.path.basename(source)
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


def _speakers_by_log(events: Iterable[Event[Any]], sources: Sources) -> dict[str, _Speakers]:
    """Who speaks in each log, by its lines or by its name."""
    speakers = {source: {("", rank) for rank in stats.ranks} for source, stats in sources.items()}
    for source, who in identities_from_paths(sources, None).items():  # each job may have a size of its own
        if who.rank is not None:
            speakers[source].add(("", who.rank))
        if who.local_rank is not None:
            speakers[source].add((folder_of_node(source), who.local_rank))
    for event in events:
        if event.who.rank is not None and event.place.source in speakers:
            speakers[event.place.source].add(("", event.who.rank))
    return speakers
