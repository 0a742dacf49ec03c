"""Reads many logs on all cores, each fork a share of them."""

from __future__ import annotations

import os
import pickle
import signal
import time
from collections.abc import Sequence

from nodedoctor.debug import Log
from nodedoctor.grouping import group_pairs
from nodedoctor.record import record
from nodedoctor.triage.read.archives import ALL_MEMBERS, PACKS, ArchiveShare, count_members
from nodedoctor.triage.read.limits import TAILS
from nodedoctor.triage.read.reader import SourceReading, read_source, read_tail
from nodedoctor.triage.read.scan import choose_depth
from nodedoctor.triage.read.search import usable_cores
from nodedoctor.triage.read.sources import LogSource

ENOUGH = 2 << 20
"""Bytes to be read line by line from which a fork, some 20 ms, pays."""
MOST = 16
"""Processes; more only wait for the disk."""
PACKED = 5
"""Bytes of logs in a byte of an archive: packed logs have ten and more, a tar by itself one. Ours."""
OF_A_STREAM = 4
"""Processes for a tar, which each of them unpacks as a whole. Measured on 200 MB of logs: of 4.4 s on one
core unpacking gzip is 0.7 s and xz 1.5 s, so that more of them would mostly do the same over and over."""
_STREAMS = ("stdin", "pipe")

_log = Log(__name__)


@record
class ReadTask:
    """One source to be read, or a share of the members of an archive."""

    source: LogSource
    share: ArchiveShare = ALL_MEMBERS
    tail: int = 0


TaskReadings = list[tuple[ReadTask, SourceReading]]


def read_all(sources: Sequence[LogSource], reading: SourceReading) -> None:
    """Add the events of all sources, in their order. Ctrl-C ends the reading."""
    began = time.perf_counter()
    reading.depth = choose_depth(len(sources))
    loads = _assign_loads(sources, reading)
    readings = _read_tails(sources, reading)
    children = [_ReaderProcess(load, reading) for load in loads[1:]]
    if reading.limit is not None:
        reading.limit.interrupt_reading()
    readings += _read_each(loads[0], reading)
    if reading.limit is not None:
        reading.limit.interrupt_waiting()
    for child in children:
        readings += child.collect(reading)
    if reading.limit is not None:
        reading.limit.end_late()
    by_path = group_pairs((task.source.path, (task, part)) for task, part in readings)
    for source in sources:
        if parts := by_path.get(source.path):
            reading.add(_merge_shares(source, _most_read(parts), reading))
    _log.debug(
        "%d sources read by %d processes in %.3f s", len(sources), len(loads), time.perf_counter() - began
    )


def _read_tails(sources: Sequence[LogSource], reading: SourceReading) -> TaskReadings:
    """The ends of logs where time is limited, the short ends first."""
    if reading.limit is None:
        return []
    reading.limit.interrupt_reading()
    plain = [source for source in sources if source.kind == "text"]
    return _read_each(
        [ReadTask(source, tail=tail) for tail in TAILS for source in plain if source.size > tail], reading
    )


def _most_read(parts: TaskReadings) -> TaskReadings:
    """The full readings of a source, else its longest uninterrupted tail."""
    full_readings = [pair for pair in parts if not pair[0].tail]
    tails = [pair for pair in parts if pair[0].tail and not pair[1].interrupted]
    if tails and (not full_readings or any(part.interrupted for _, part in full_readings)):
        return [max(tails, key=lambda pair: pair[0].tail)]
    return full_readings or parts[:1]


def _merge_shares(source: LogSource, readings: TaskReadings, reading: SourceReading) -> SourceReading:
    """The reading of a source, merged from its shares, each note once.

    A share beyond its part of the bound does not show that the archive is: then one process reads all of it.
    """
    if len(readings) > 1 and any(part.spent for _, part in readings) and not reading.interrupted:
        readings = _read_each([ReadTask(source)], reading)
    (_, total), *others = sorted(readings, key=lambda pair: pair[0].share.first)
    for _, part in others:
        total.members |= part.members
        total.notes += [note for note in part.notes if note not in total.notes]
        total.unread = max(total.unread, part.unread)
        total.interrupted = total.interrupted or part.interrupted
    return total


def _assign_loads(sources: Sequence[LogSource], reading: SourceReading) -> list[list[ReadTask]]:
    """Which process reads what; one load where forking would cost more than it saves."""
    cores = min(usable_cores(), MOST)
    if cores < 2 or any(source.kind in _STREAMS for source in sources):
        return [list(map(ReadTask, sources))]
    total = sum(source.size for source in sources)
    shares = {source.path: _count_shares(source, total, cores) for source in sources}
    work = sum(min(source.size, reading.depth.size) for source in sources if shares[source.path] == 1)
    work += sum(source.size * PACKED for source in sources if shares[source.path] > 1)
    tasks = [
        ReadTask(source, ArchiveShare(first, shares[source.path]))
        for source in sorted(sources, key=lambda source: -source.size)
        for first in range(shares[source.path])
    ]
    cores = min(cores, len(tasks))
    if cores < 2 or work < ENOUGH:
        return [list(map(ReadTask, sources))]
    # only this process has the answers of its searches
    search_tasks = [task for task in tasks if task.source.path in reading.searches]
    others = [task for task in tasks if task.source.path not in reading.searches]
    return [
        [*search_tasks, *others[cores - 1 :: cores]],
        *(others[first::cores] for first in range(cores - 1)),
    ]


def _count_shares(source: LogSource, total: int, cores: int) -> int:
    """In how many shares an archive is read: one, where it is small."""
    if source.kind not in PACKS or source.size * cores < total:
        return 1
    return min(cores if source.kind == "zip" else OF_A_STREAM, cores, count_members(source))


def _read_each(tasks: Sequence[ReadTask], reading: SourceReading) -> TaskReadings:
    """A reading per task, so that they can be put in order."""
    readings: TaskReadings = []
    for task in tasks:
        if reading.interrupted:
            break
        source = task.source
        part = SourceReading(searches=reading.searches, depth=reading.depth)
        began = time.perf_counter()
        if task.tail:
            read_tail(source, task.tail, part)
        else:
            read_source(source, part, task.share)
        _log.debug("%s read as %s in %.3f s", source.path, source.kind, time.perf_counter() - began)
        reading.interrupted = reading.interrupted or part.interrupted
        readings.append((task, part))
    return readings


class _ReaderProcess:
    """A fork that reads a share. What it cannot send back is read here."""

    def __init__(self, load: Sequence[ReadTask], reading: SourceReading) -> None:
        self._load = load
        self._answer, write_end = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._answer)
            if reading.limit is not None:
                reading.limit.interrupt_reading()
            self._read(write_end, SourceReading(depth=reading.depth))
        os.close(write_end)

    def _read(self, write_end: int, reading: SourceReading) -> None:
        """In the child: read, answer, and leave without running anything of the parent's."""
        try:
            readings = _read_each(self._load, reading)
            with os.fdopen(write_end, "wb") as file:
                pickle.dump(readings, file, pickle.HIGHEST_PROTOCOL)
        finally:
            os._exit(0)

    def collect(self, reading: SourceReading) -> TaskReadings:
        """Its readings; read again here when it did not send all of them."""
        try:
            with os.fdopen(self._answer, "rb") as file:
                readings: TaskReadings = list(pickle.load(file))
        except KeyboardInterrupt:
            reading.interrupted = True
            os.kill(self._pid, signal.SIGKILL)
            readings = []
        except (EOFError, OSError, pickle.UnpicklingError):
            readings = _read_each(self._load, reading)
        os.waitpid(self._pid, 0)
        return readings
