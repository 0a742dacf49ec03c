"""From sources to events: opens each in the way it needs, bounded in memory whatever its size."""

from __future__ import annotations

import bz2
import gzip
import importlib
import json
import lzma
import os
import sys
import traceback
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO

from nodedoctor.engine import input_files
from nodedoctor.triage import lines, scan
from nodedoctor.triage.events import ras, read_events
from nodedoctor.triage.events.progress import Step
from nodedoctor.triage.model import Event, Line, Place, Who
from nodedoctor.triage.sources import NoSuchPath, Source, owner
from nodedoctor.whole_numbers import json_integer

KEPT = 150
"""Events kept per kind and rank, the first and the last of them: a flood says the same over and over."""
NOBODY = Who()
RAS_LARGEST = 64 << 20
"""Bytes of an answer of RAS."""
STREAM_LARGEST = 64 << 30
"""Bytes of a stream, or of what a compressed file unpacks to: an end to one that has none. Ours."""
STEPS_KEPT = 8
"""Steps in a row that are kept: only that there were several matters."""


@dataclass(slots=True)
class Reading:
    """What was read so far: events in order, bytes, and what could not be read."""

    events: list[Event[Any]] = field(default_factory=list)
    size: int = 0
    notes: list[str] = field(default_factory=list)
    interrupted: bool = False
    anchors: dict[str, list[scan.Anchor]] = field(default_factory=dict)


def read(source: Source, reading: Reading) -> None:
    """Add a source's events; trouble with it becomes a note. Ctrl-C ends the reading, not the judging."""
    thin = EventSampler()
    try:
        for event in _events(source, reading):
            thin.add(event)
    except KeyboardInterrupt:
        _interrupted(source, reading)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        reading.notes.append(f"{source.path}: read only in part: {error}")
    except ImportError:
        reading.notes.append(
            f"{source.path}: zstd needs the Python package zstandard; or pipe `zstdcat` into `-`"
        )
    except NoSuchPath:
        raise
    except Exception as fault:  # whatever one source does to us costs the others nothing
        reading.notes.append(unexpected(source.path, fault))
    reading.events += thin.events()


def unexpected(path: str, fault: Exception) -> str:
    """A note for a fault that no reader foresaw: it is ours, and the rest of the sources is still judged."""
    last = traceback.extract_tb(fault.__traceback__)[-1:]
    where = "".join(f" in {os.path.basename(frame.filename)}:{frame.lineno}" for frame in last)
    why = " ".join(str(fault).split())[:200]
    return f"{path}: read only in part, a fault of nodedoctor{where}: {type(fault).__name__}: {why}"


def _events(source: Source, reading: Reading) -> Iterator[Event[Any]]:
    return _ras(source, reading) if source.kind == "ras" else read_events(_counted(source, reading))


def _ras(source: Source, reading: Reading) -> Iterator[Event[Any]]:
    """RAS's answer in its JSON form."""
    try:
        with open(source.path, "rb") as file:
            document = json.loads(file.read(RAS_LARGEST), parse_int=json_integer)
    except (OSError, ValueError, RecursionError) as error:
        reading.notes.append(f"{source.path}: {error}")
        return
    reading.size += source.size
    if isinstance(document, dict):
        yield from ras.read_document(document, Place(source.path, 0))


class EventSampler:
    """Keeps the first and last events of each kind and rank, in their order: bounded memory in any flood."""

    def __init__(self) -> None:
        self._first: dict[tuple[type, int | None], list[tuple[int, Event[Any]]]] = {}
        self._last: dict[tuple[type, int | None], deque[tuple[int, Event[Any]]]] = {}
        self._index = self._steps = 0

    def add(self, event: Event[Any]) -> None:
        """Take an event in, or let it go."""
        self._index += 1
        self._steps = self._steps + 1 if isinstance(event.what, Step) else 0
        if self._steps > STEPS_KEPT:
            return
        key = (type(event.what), event.who.rank)
        kept = self._first.setdefault(key, [])
        if len(kept) < KEPT:
            kept.append((self._index, event))
        else:
            self._last.setdefault(key, deque(maxlen=KEPT)).append((self._index, event))

    def events(self) -> list[Event[Any]]:
        """What was kept."""
        pairs = [pair for kept in (*self._first.values(), *self._last.values()) for pair in kept]
        return [event for _, event in sorted(pairs, key=lambda pair: pair[0])]


def _interrupted(source: Source, reading: Reading) -> None:
    if not reading.interrupted:
        reading.notes.append(f"{source.path}: reading was interrupted")
    reading.interrupted = True


def _counted(source: Source, reading: Reading) -> Iterator[Line]:
    """The lines of a source; reading stops where Ctrl-C comes."""
    end = 0
    whose = owner(source.path)
    try:
        for offset, raw in _spots(source, reading):
            end = max(end, offset + len(raw))
            text = raw[: 4 * lines.LONGEST].decode("utf-8", "replace")
            for line in lines.parse(text, Place(source.path, offset)):
                yield line if whose == NOBODY else replace(line, who=line.who.filled(whose))
    except KeyboardInterrupt:
        _interrupted(source, reading)
    finally:
        reading.size += max(source.size if source.kind == "text" else 0, end)


def _spots(source: Source, reading: Reading) -> Iterator[scan.Spot]:
    if source.kind == "text":
        yield from scan.spots(source.path, source.size, reading.anchors.setdefault(source.path, []))
        return
    if source.kind == "stdin":
        yield from scan.stream(_eager(sys.stdin.buffer, source, reading))
        return
    with _opened(source) as file:
        yield from scan.stream(_eager(file, source, reading))


def _eager(file: BinaryIO, source: Source, reading: Reading) -> Callable[[int], bytes]:
    """Reads what is there instead of waiting until a whole chunk is, as far as a stream is read."""
    read1: Callable[[int], bytes] = getattr(file, "read1", None) or file.read
    left = STREAM_LARGEST

    def read(size: int) -> bytes:
        nonlocal left
        chunk = read1(size) if left > 0 else b""
        left -= len(chunk)
        if chunk and left <= 0:
            reading.notes.append(f"{source.path}: only the first {STREAM_LARGEST >> 30} GiB were read")
        return chunk

    return read


def _opened(source: Source) -> BinaryIO:
    if source.kind == "pipe":
        try:
            return input_files.opened(source.path, pipes=True)
        except OSError as error:
            raise NoSuchPath(f"{source.path}: {error.strerror}") from None
    opened: Any = _OPENERS.get(source.kind, open)(source.path, "rb")
    file: BinaryIO = opened
    return file


def _zstd(path: str) -> BinaryIO:
    """Python has zstd from 3.14; before that the package zstandard, where it is installed."""
    try:
        opened: BinaryIO = importlib.import_module("compression.zstd").open(path)
    except ImportError:
        opened = importlib.import_module("zstandard").open(path, "rb")
    return opened


_OPENERS: dict[str, Callable[[str, str], Any]] = {
    "gzip": gzip.open,
    "bzip2": bz2.open,
    "xz": lzma.open,
    "zstd": lambda path, mode: _zstd(path),
}
