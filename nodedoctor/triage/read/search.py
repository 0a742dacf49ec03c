"""grep(1) over a large log: it points at the lines that matter, on a core of its own, while others are read.

This module loads nothing heavy, so that the search can begin before the rest of triage is loaded.
"""

from __future__ import annotations

import os
import re
import subprocess
import threading
from collections import deque
from collections.abc import Iterable

STEMS = (
    "rror", "xception", "Traceback", "atchdog", "ailed", "ailure", "WARN ", "imed out", "emory", "illed",
    "exitcode", "Xid", "enqueued", "GIL ", "inished",
)  # fmt: skip
"""Every line that matters has one of these, or stands close behind one that has."""
WHOLE = 384 << 10
"""Files up to this size (bytes) are read line by line; so is this much of a stream's beginning. A line takes
some 80 us: read so, a log of 8 MB takes thirty times as long as one of a line, and twice by what grep finds.
"""
CHUNK = 1 << 20
KEPT = 8 << 20
"""Bytes of an answer that are kept, the last of them: some 400 000 lines."""
TIMEOUT_S = 600.0
AHEAD = 2
"""Searches that are begun ahead: one core is needed for what they find."""
_STRIDE = 16 << 20

Anchor = tuple[int, int]
"""Offset and number of a line that grep counted."""


class Search:
    """One search, begun at once; its answer is waited for."""

    def __init__(self, path: str, words: Iterable[str] = STEMS, *options: str) -> None:
        pattern = "|".join(re.sub(r"([][(){}.*+?|^$\\])", r"\\\1", word) for word in words)
        argv = ("grep", "-abnoE", *options, "-e", pattern, "--", os.path.abspath(path))
        self._kept: deque[bytes] = deque()
        self._size = 0
        self._truncated = False
        self._child = self._started(argv)
        self._thread = threading.Thread(target=self._collect, daemon=True)
        self._thread.start()

    @staticmethod
    def _started(argv: tuple[str, ...]) -> subprocess.Popen[bytes] | None:
        try:
            return subprocess.Popen(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "LC_ALL": "C"},
            )
        except OSError:
            return None

    def answer(self) -> tuple[list[Anchor], bool] | None:
        """Hits in order and whether the first were too many to keep; None when grep could not be asked."""
        self._thread.join(TIMEOUT_S)
        if self._child is None:
            return None
        if self._thread.is_alive():
            self._child.kill()
            return None
        if self._child.wait() not in (0, 1):
            return None
        lines = b"".join(self._kept).split(b"\n")[1 if self._truncated else 0 :]
        pairs = (line.split(b":", 2) for line in lines)
        return [(int(pair[1]), int(pair[0])) for pair in pairs if len(pair) == 3], self._truncated

    def stop(self) -> None:
        """End a search whose answer nobody wants."""
        if self._child is not None and self._child.poll() is None:
            self._child.kill()
            self._child.wait()

    def _collect(self) -> None:
        if self._child is None or self._child.stdout is None:
            return
        with self._child.stdout as answer:
            while block := answer.read1(CHUNK):  # type: ignore[attr-defined]
                self._kept.append(block)
                self._size += len(block)
                while self._size - len(self._kept[0]) > KEPT:
                    self._size -= len(self._kept.popleft())
                    self._truncated = True


def ahead(paths: Iterable[str]) -> dict[str, Search]:
    """Searches in the first large logs among these paths; those that cannot be searched are left out."""
    begun: dict[str, Search] = {}
    for path in paths:
        if len(begun) < AHEAD and _is_large_text(path):
            begun[path] = Search(path)
    return begun


def even(descriptor: int, size: int) -> bool:
    """True when no line is so long that grep would have to hold it in memory."""
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
        if not os.path.isfile(path) or os.path.getsize(path) <= WHOLE:
            return False
        with open(path, "rb", buffering=0) as file:
            return b"\0" not in file.read(65536) and even(file.fileno(), os.path.getsize(path))
    except OSError:
        return False
