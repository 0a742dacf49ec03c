"""Separates the jobs in one folder: one timeline of two jobs would be wrong.

Logs belong to different jobs when they cannot belong to one: they carry different job numbers in their names,
or the same ranks speak in both and one ended before the other began. The output and the errors of a process
are one log, of which one file may have no times, and so are the parts of one that was rotated. The attempts
of one launcher are one job. A log that names no job, like a node's kernel log, belongs to all of them. Logs
of different hosts are not separated by their clocks: those may differ by hours.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from nodedoctor.triage.identity.file_trees import attempt_of
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
from nodedoctor.triage.timeline.rotations import newer_files

GAP = 60.0
"""Seconds between the last line of one job and the first of the next, at least: queues are slower. Ours."""
RESUMED = 3600.0
"""Seconds between two parts of one log, at most: a container or an operator starts a job again. Ours."""
DAY = 86400.0
"""The same for logs in which hardly a line has a time: one that is pasted is of the same day. Ours."""
_NUMBER = re.compile(r"(?:slurm|job|jobid|sge|pbs|lsf)[-_.]?(\d{3,12})(?!\d)", re.IGNORECASE)
_PART = re.compile(r"!(?:rank\d+|part-[a-z]{2})$")
"""A part of a file that holds its ranks one behind the other (read/joined_files.py): all are of one job."""
_STREAM = re.compile(r"(?<![a-z])(?:std)?(?:out|err)(?:put|or)?(?![a-z])|\.(?:log|txt)$", re.IGNORECASE)
"""What the names of one process's two streams differ in."""
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

    def extend(self, span: TimeSpan) -> None:
        """Take in the moments of a log."""
        if span.first is None or span.last is None or (self.is_timed and not span.is_timed):
            return
        if self.first is None or self.last is None or (span.is_timed and not self.is_timed):
            self.first, self.last, self.is_timed = span.first, span.last, span.is_timed
        self.first, self.last = min(self.first, span.first), max(self.last, span.last)

    def is_apart(self, span: TimeSpan) -> bool:
        """True where all this ended well before a log begins, or the other way round."""
        if self.first is None or self.last is None or span.first is None or span.last is None:
            return False
        gap = GAP if self.is_timed and span.is_timed else DAY
        return span.first - self.last > gap or self.first - span.last > gap


@dataclass(slots=True)
class ProcessLog:
    """What one process wrote: one file, or its output and its errors."""

    sources: list[str] = field(default_factory=list)
    hosts: set[str] = field(default_factory=set)
    speakers: _Speakers = field(default_factory=set)
    span: TimeSpan = field(default_factory=TimeSpan)
    pids: _Pids = field(default_factory=dict)
    trees: set[str] = field(default_factory=set)
    """The folders above those of a launcher's attempts."""

    @property
    def folder(self) -> str:
        """The folder of its files."""
        return os.path.dirname(self.sources[0])

    @property
    def order(self) -> tuple[bool, float, str]:
        """Its place among logs: by its first moment, those without one last."""
        return self.span.first is None, self.span.first or 0.0, self.sources[0]

    def add(self, log: ProcessLog) -> None:
        """Add what another one wrote."""
        self.sources += log.sources
        self.hosts |= log.hosts
        self.speakers |= log.speakers
        self.span.extend(log.span)
        self.pids |= {key: self.pids.get(key, set()) | numbers for key, numbers in log.pids.items()}
        self.trees |= log.trees


@dataclass(slots=True)
class LoggedJob:
    """One job: its logs, and what distinguishes it from others."""

    id: str
    logs: ProcessLog = field(default_factory=ProcessLog)
    world: int | None = None
    in_folders: dict[str, TimeSpan] = field(default_factory=dict)

    @property
    def sources(self) -> list[str]:
        """The files of its logs."""
        return self.logs.sources

    @property
    def hosts(self) -> set[str]:
        """The hosts that are named in front of its lines."""
        return self.logs.hosts

    @property
    def first(self) -> float | None:
        """The moment of its first line."""
        return self.logs.span.first

    @property
    def last(self) -> float | None:
        """The moment of its last line."""
        return self.logs.span.last

    def accepts(self, log: ProcessLog) -> bool:
        """Whether a log can be of this job; its folder's other logs say when that job was, else all."""
        own, source = self.logs, log.sources[0]
        if (part := _PART.search(source)) and any(
            name.startswith(source[: part.start() + 1]) for name in own.sources
        ):
            return True
        own_number, number = job_number(own.sources[0]), job_number(source)
        if own_number and number and own_number != number:
            return False
        if not own.trees.isdisjoint(log.trees):
            return True
        if any(log.pids[key].isdisjoint(own.pids[key]) for key in log.pids.keys() & own.pids.keys()):
            return False
        elsewhere = own.hosts and log.hosts and own.hosts.isdisjoint(log.hosts)
        shared = bool(own.speakers & log.speakers) or not (own.speakers or log.speakers or elsewhere)
        span = self.in_folders.get(log.folder, own.span)
        return not (shared and span.is_apart(log.span))

    def add_log(self, log: ProcessLog) -> None:
        """Add a log."""
        self.logs.add(log)
        self.in_folders.setdefault(log.folder, TimeSpan()).extend(log.span)


def separate_jobs(events: Sequence[Event[Any]], speakers: Sources) -> list[LoggedJob]:
    """The jobs in these logs, the oldest first; one when nothing tells two apart."""
    jobs: list[LoggedJob] = []
    for log in sorted(_process_logs(events, speakers), key=lambda log: log.order):
        matching = [job for job in jobs if job.accepts(log)]
        neighbours = [job for job in matching if job.logs.folder == log.folder]
        if not matching:
            matching = [LoggedJob(_job_name(log.sources[0], {job.id for job in jobs}))]
            jobs += matching
        (neighbours or matching)[-1].add_log(log)
    for job in jobs:
        sources = set(job.sources)
        job.world = world_size([event for event in events if event.place.source in sources])
    dated = all(job.last is not None for job in jobs)  # else their names have dates or numbers, if anything
    return sorted(jobs, key=lambda job: (job.last if dated and job.last is not None else 0.0, job.id))


def _process_logs(events: Sequence[Event[Any]], speakers: Sources) -> Iterable[ProcessLog]:
    """The logs in which a job speaks, both streams of a process together."""
    by_log, pids = _speakers_by_log(events, speakers), _pids_by_log(events)
    waits = _wait_starts(events)
    job_logs = {e.place.source for e in events if e.kind in OF_A_JOB} & speakers.keys()
    parts = newer_files(job_logs)
    logs: dict[str, ProcessLog] = {}
    for source in sorted(job_logs):
        stats = speakers[source]
        first = None if stats.first is None else min(stats.first, waits.get(source, stats.first))
        span = TimeSpan(first, stats.last, stats.is_timed)
        attempt = attempt_of(source)
        trees = {attempt[0]} if attempt is not None else set()
        log = ProcessLog([source], set(stats.hosts), by_log[source], span, pids[source], trees)
        newer = parts.get(source, [source])
        goes_on = source in parts and _goes_on(stats, speakers[newer[-1]])
        logs.setdefault(_process_of(newer[0] if goes_on else source), ProcessLog()).add(log)
    return logs.values()


def _goes_on(older: SourceStats, newer: SourceStats) -> bool:
    """True for a part of a log behind which the next one begins soon."""
    if older.last is None or newer.first is None:
        return False
    return -1.0 <= newer.first - older.last <= RESUMED


def _process_of(source: str) -> str:
    """The name that the output and the errors of a process have in common."""
    if _PART.search(source):
        return source
    return os.path.join(os.path.dirname(source), _STREAM.sub("", os.path.basename(source)).strip("._-"))


def _wait_starts(events: Iterable[Event[Any]]) -> dict[str, float]:
    """By log: when the first wait began that it reports; until it ends, nothing is printed."""
    starts: dict[str, float] = {}
    for event in events:
        if isinstance(event.what, TimedOut) and event.what.ran_ms is not None and event.time is not None:
            start = event.time - event.what.ran_ms / 1000
            starts[event.place.source] = min(start, starts.get(event.place.source, start))
    return starts


def events_of(job: LoggedJob, jobs: Iterable[LoggedJob], events: Iterable[Event[Any]]) -> list[Event[Any]]:
    """The events of one job, and those of logs that belong to none."""
    foreign = {source for other_job in jobs if other_job is not job for source in other_job.sources}
    return [event for event in events if event.place.source not in foreign]


def job_number(path: str) -> str:
    """The number of a job in a path; '' without one."""
    numbers = _NUMBER.findall(path)
    return str(numbers[-1]) if numbers else ""


def _job_name(source: str, used_ids: set[str]) -> str:
    """What a person calls a job: its number, else the name of its first log."""
    name = job_number(source) or os.path.basename(source)
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
