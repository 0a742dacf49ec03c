"""Many logs are read on all cores: forks of this process read a share each and hand back what they read."""

from __future__ import annotations

import os
import pickle
import signal
import time
from collections.abc import Sequence

from nodedoctor.debug import Log
from nodedoctor.triage.read.reader import Reading, read
from nodedoctor.triage.read.scan import depth
from nodedoctor.triage.read.sources import Source

ENOUGH = 2 << 20
"""Bytes to be read line by line from which a fork, some 20 ms, pays."""
MOST = 16
"""Processes; more only wait for the disk."""
_STREAMS = ("stdin", "pipe")

_log = Log(__name__)


def read_all(sources: Sequence[Source], reading: Reading) -> None:
    """Add the events of all sources, in their order. Ctrl-C ends the reading."""
    began = time.perf_counter()
    reading.depth = depth(len(sources))
    shares = _shares(sources, reading)
    children = [_Child(share, reading) for share in shares[1:]]
    parts = {source.path: part for source, part in _each(shares[0], reading)}
    for child in children:
        parts |= child.parts(reading)
    for source in sources:
        part = parts.get(source.path)
        if part is not None:
            _add(part, reading)
    _log.debug(
        "%d sources read by %d processes in %.3f s", len(sources), len(shares), time.perf_counter() - began
    )


def _shares(sources: Sequence[Source], reading: Reading) -> list[Sequence[Source]]:
    """Which process reads which sources; one share where forking would cost more than it saves."""
    work = sum(min(source.size, reading.depth.whole) for source in sources)
    many = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1
    many = min(many, len(sources), MOST)
    if many < 2 or work < ENOUGH or any(source.kind in _STREAMS for source in sources):
        return [sources]
    begun = [source for source in sources if source.path in reading.begun]  # only we have their answers
    large = sorted((s for s in sources if s.path not in reading.begun), key=lambda source: -source.size)
    return [[*begun, *large[many - 1 :: many]], *(large[first::many] for first in range(many - 1))]


def _each(sources: Sequence[Source], reading: Reading) -> list[tuple[Source, Reading]]:
    """A reading per source, so that they can be put in order."""
    made: list[tuple[Source, Reading]] = []
    for source in sources:
        if reading.interrupted:
            break
        part = Reading(begun=reading.begun, depth=reading.depth)
        began = time.perf_counter()
        read(source, part)
        _log.debug("%s read as %s in %.3f s", source.path, source.kind, time.perf_counter() - began)
        reading.interrupted = reading.interrupted or part.interrupted
        made.append((source, part))
    return made


def _add(part: Reading, reading: Reading) -> None:
    reading.events += part.events
    reading.size += part.size
    reading.notes += part.notes
    reading.unread += part.unread
    reading.dumps += part.dumps
    reading.anchors |= part.anchors
    reading.tally.sources |= part.tally.sources
    reading.interrupted = reading.interrupted or part.interrupted


class _Child:
    """A fork that reads a share. What it cannot hand back is read here."""

    def __init__(self, share: Sequence[Source], reading: Reading) -> None:
        self._share = share
        self._answer, told = os.pipe()
        self._pid = os.fork()
        if self._pid == 0:
            os.close(self._answer)
            self._read(told, Reading(depth=reading.depth))
        os.close(told)

    def _read(self, told: int, reading: Reading) -> None:
        """In the child: read, answer, and leave without running anything of the parent's."""
        try:
            parts = [(source.path, part) for source, part in _each(self._share, reading)]
            with os.fdopen(told, "wb") as file:
                pickle.dump(parts, file, pickle.HIGHEST_PROTOCOL)
        finally:
            os._exit(0)

    def parts(self, reading: Reading) -> dict[str, Reading]:
        """What it has read, by path; read again here when it gave no whole answer."""
        try:
            with os.fdopen(self._answer, "rb") as file:
                parts: dict[str, Reading] = dict(pickle.load(file))
        except KeyboardInterrupt:
            reading.interrupted = True
            os.kill(self._pid, signal.SIGKILL)
            parts = {}
        except (EOFError, OSError, pickle.UnpicklingError):
            parts = {source.path: part for source, part in _each(self._share, reading)}
        os.waitpid(self._pid, 0)
        return parts
