"""`--debug-log FILE`: what was started when, what it answered after how long, and what fell back.

Imported only where it is asked for. The file may lie on a dead file system, so a thread of its own writes it,
and nobody waits for that thread longer than `LAST_LINES_S`.
"""

from __future__ import annotations

import atexit
import logging
import threading
from logging.handlers import QueueHandler
from queue import SimpleQueue

from nodedoctor.cli.console import say

LAST_LINES_S = 1.0
"""Seconds that the last lines may take once everything else is done (chosen by us, no external source)."""

_LINE = logging.Formatter("%(asctime)s %(process)d %(name)s: %(message)s")

Records = SimpleQueue["logging.LogRecord | None"]


def start(path: str) -> None:
    """Append what the modules of nodedoctor log to a file, until the process ends."""
    records: Records = SimpleQueue()
    writer = threading.Thread(target=_write, args=(path, records), name="debug-log", daemon=True)
    logger = logging.getLogger("nodedoctor")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    logger.addHandler(QueueHandler(records))
    writer.start()
    atexit.register(_end, writer, records)


def _write(path: str, records: Records) -> None:
    """The life of the thread: a line a record, each written at once, so that a hang loses none."""
    try:
        with open(path, "a", encoding="utf-8", errors="backslashreplace", buffering=1) as file:
            while (record := records.get()) is not None:
                file.write(_LINE.format(record) + "\n")
    except OSError as error:
        say(f"--debug-log {path}: {error.strerror or error}")


def _end(writer: threading.Thread, records: Records) -> None:
    records.put(None)
    writer.join(LAST_LINES_S)
