"""Runs grep(1) over large logs on other cores, while logs are read.

This module loads nothing heavy, so that the search can begin before the rest of triage is loaded.
"""

from __future__ import annotations

import fcntl
import os
import re
import selectors
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import pairwise

from nodedoctor.triage.lines.prefilter import GREP_PREFILTER

LINE_BY_LINE = 384 << 10
"""Files up to this size (bytes) are read line by line; so is this much of a stream's beginning. A line takes
some 80 us: read so, a log of 8 MB takes thirty times as long as one of a line, and twice by what grep finds.
"""
CHUNK = 1 << 20
ANSWER_LIMIT = 8 << 20
"""Bytes of an answer that are kept, the last of them: some 400 000 lines."""
TIMEOUT_S = 600.0
MOST_SEARCHES = 2
"""Logs that are searched before they are read; more would wait for each other."""
PART = 96 << 20
"""Bytes of a file from which one more grep pays: 0.1 s of search against some 20 ms to start it."""
PARTS = 8
"""Parts of a file at most; more greps only wait for memory."""
_STRIDE = 16 << 20
_FEED = """
import os, sys
at, end = int(sys.argv[1]), int(sys.argv[2])
while at < end:
    try:
        sent = os.sendfile(1, 0, at, end - at)
    except OSError:  # some file systems cannot
        sent = os.write(1, os.pread(0, min(end - at, 1 << 20), at))
    if not sent:
        break
    at += sent
os.write(1, sys.argv[3].encode())
"""
"""Gives grep(1), which reads files to their end, a part of one: the pages go from file to pipe uncopied."""

Anchor = tuple[int, int]
"""Offset and number of a line that grep counted."""


class GrepSearch:
    """A search that starts at once; a large file is searched in parts."""

    def __init__(self, path: str, words: Iterable[str] = GREP_PREFILTER, *options: str) -> None:
        words = tuple(words)
        pattern = "|".join(re.sub(r"([][(){}.*+?|^$\\])", r"\\\1", word) for word in words)
        argv = ("grep", "-abnoE", *options, "-e", pattern)
        path = os.path.abspath(path)
        bounds = _part_bounds(path) if not options else ()
        self._parts = (
            [
                _GrepPart(argv, path, span, words[0] if span[1] != bounds[-1] else "")
                for span in pairwise(bounds)
            ]
            if len(bounds) > 2
            else [_GrepPart((*argv, "--", path), path)]
        )

    def answer(self) -> tuple[list[Anchor], bool] | None:
        """The hits, and whether the first were dropped; None when grep failed."""
        self._collect()
        answers = [part.answer() for part in self._parts]
        anchors: list[Anchor] = []
        lines = 0
        for part, hits in zip(self._parts, answers, strict=True):
            if hits is None:
                return None
            anchors += [(offset + part.begin, number + lines) for offset, number in hits]
            lines += part.lines
        return anchors, any(part.truncated for part in self._parts)

    def stop(self) -> None:
        """End a search whose answer is not needed."""
        for part in self._parts:
            part.stop()

    @property
    def is_over(self) -> bool:
        """True when none of its processes runs."""
        return all(part.is_over for part in self._parts)

    def _collect(self) -> None:
        """Read what every grep prints, as it comes, until the time is over."""
        deadline = time.monotonic() + TIMEOUT_S
        with selectors.DefaultSelector() as waiting:
            for part in self._parts:
                if part.output is not None:
                    waiting.register(part.output, selectors.EVENT_READ, part)
            while waiting.get_map() and (remaining := deadline - time.monotonic()) > 0:
                for key, _ in waiting.select(remaining):
                    part = key.data
                    if not part.take():
                        waiting.unregister(part.output)


class _GrepPart:
    """One grep(1) over a file or a part, which ends with `mark`."""

    def __init__(
        self, argv: tuple[str, ...], path: str, span: tuple[int, int] | None = None, mark: str = ""
    ) -> None:
        self.begin = span[0] if span else 0
        self.lines = 0
        self.truncated = False
        self._mark = mark
        self._blocks: deque[bytes] = deque()
        self._size = 0
        self._read_all = False
        self._feeder: subprocess.Popen[bytes] | None = None
        self._child: subprocess.Popen[bytes] | None = None
        with suppress(OSError):
            if span is not None:
                self._feeder = _feed_part(path, span, mark)
            self._child = subprocess.Popen(
                argv,
                stdin=self._feeder.stdout if self._feeder else subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "LC_ALL": "C"},
            )
            _widen_pipe(self.output)
        if self._feeder is not None and self._feeder.stdout is not None:
            self._feeder.stdout.close()

    @property
    def output(self) -> int | None:
        """What grep prints, as a descriptor."""
        return self._child.stdout.fileno() if self._child and self._child.stdout else None

    def take(self) -> bool:
        """Take in what was printed; False at the end."""
        block = os.read(self.output, CHUNK) if self.output is not None else b""
        self._read_all = not block
        self._blocks.append(block)
        self._size += len(block)
        while self._size - len(self._blocks[0]) > ANSWER_LIMIT:
            self._size -= len(self._blocks.popleft())
            self.truncated = True
        return bool(block)

    def answer(self) -> list[Anchor] | None:
        """The hits by offset and line within the part; None without a whole answer."""
        read_all = self._read_all
        if not read_all:
            self.stop()
        codes = self._wait()
        if not read_all or codes not in ((0,), (1,), (0, 0), (0, 1)):
            return None
        rows = b"".join(self._blocks).split(b"\n")[1 if self.truncated else 0 :]
        pairs = (row.split(b":", 2) for row in rows)
        hits = [(int(pair[1]), int(pair[0])) for pair in pairs if len(pair) == 3]
        if self._mark:
            self.lines = hits.pop()[1] - 1
        return hits

    def stop(self) -> None:
        """End what still runs."""
        for child in (self._feeder, self._child):
            if child is not None and child.poll() is None:
                child.kill()
        self._wait()

    @property
    def is_over(self) -> bool:
        """True when its processes are gone."""
        return all(child.poll() is not None for child in (self._feeder, self._child) if child is not None)

    def _wait(self) -> tuple[int, ...]:
        """The exit statuses."""
        if self._child is not None and self._child.stdout is not None:
            self._child.stdout.close()
        return tuple(child.wait() for child in (self._feeder, self._child) if child is not None)


def _feed_part(path: str, span: tuple[int, int], mark: str) -> subprocess.Popen[bytes]:
    """A process that writes a part of a file, then a mark."""
    with open(path, "rb", buffering=0) as file:
        argv = (sys.executable, "-I", "-S", "-c", _FEED, *map(str, span), mark and f"{mark}\n")
        feeder = subprocess.Popen(argv, stdin=file, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    _widen_pipe(feeder.stdout.fileno() if feeder.stdout else None)
    return feeder


def _widen_pipe(pipe: int | None) -> None:
    """Let a pipe hold a MiB, so that its writer seldom waits."""
    if pipe is not None:
        with suppress(OSError, AttributeError):  # Linux alone has it, and bounds it for each user
            fcntl.fcntl(pipe, fcntl.F_SETPIPE_SZ, CHUNK)


def usable_cores() -> int:
    """Cores that this process may use; macOS does not tell, and gets one."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else 1


def _part_bounds(path: str) -> Sequence[int]:
    """The beginnings of a file's parts, which begin with a line, and its end."""
    try:
        with open(path, "rb", buffering=0) as file:
            size = os.fstat(file.fileno()).st_size
            many = min(usable_cores(), PARTS, size // PART)
            bounds = {0, size} | {_next_line(file.fileno(), size * part // many) for part in range(1, many)}
    except OSError:
        return ()
    return sorted(bounds)


def _next_line(descriptor: int, begin: int) -> int:
    """The beginning of the next line; the file's end where none begins."""
    while block := os.pread(descriptor, 65536, begin):
        newline = block.find(b"\n")
        if newline >= 0:
            return begin + newline + 1
        begin += len(block)
    return begin


def start_searches(paths: Iterable[str]) -> dict[str, GrepSearch]:
    """Searches in the first large logs among these paths."""
    searches: dict[str, GrepSearch] = {}
    for path in paths:
        if len(searches) < MOST_SEARCHES and _is_large_text(path):
            searches[path] = GrepSearch(path)
    return searches


def has_short_lines(descriptor: int, size: int) -> bool:
    """True when no line is too long for grep's memory."""
    for offset in range(0, size, _STRIDE):
        step = offset
        while step < min(size, offset + _STRIDE):
            length = 65536 if step == offset else CHUNK
            if b"\n" in os.pread(descriptor, length, step):
                break
            step += length
        else:
            return False
    return True


def _is_large_text(path: str) -> bool:
    try:
        if not os.path.isfile(path) or os.path.getsize(path) <= LINE_BY_LINE:
            return False
        with open(path, "rb", buffering=0) as file:
            return b"\0" not in file.read(65536) and has_short_lines(file.fileno(), os.path.getsize(path))
    except OSError:
        return False
