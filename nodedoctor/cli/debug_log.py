"""`--debug-log FILE`: what was started when, what it answered after how long, and what fell back.

Imported only where it is asked for. The file may lie on a dead file system, so a child writes it: a thread of
ours that waits for a disk could not be killed, and we not with it. We wait for the child no longer than
`LAST_LINES_S`.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import subprocess
import threading
from logging.handlers import QueueHandler
from queue import SimpleQueue

from nodedoctor.children.programs import child
from nodedoctor.cli.console import write_stderr

LAST_LINES_S = 0.3
"""Seconds that the last lines may take once everything else is done: of the half second that all that is
called at exit has (`__main__.py`), so that the child is ended, too."""

_LINE = logging.Formatter("%(asctime)s %(process)d %(name)s: %(message)s")

Records = SimpleQueue["logging.LogRecord | None"]


def start(path: str) -> None:
    """Append what the modules of nodedoctor log to a file, until the process ends."""
    pipe, nowhere = subprocess.PIPE, subprocess.DEVNULL
    try:
        argv = child("host/append", path)
        writer = subprocess.Popen(argv, stdin=pipe, stdout=pipe, stderr=nowhere, start_new_session=True)
    except OSError as error:
        write_stderr(f"--debug-log {path}: {error.strerror or error}")
        return
    records: Records = SimpleQueue()
    feeder = threading.Thread(
        target=_feed_writer, args=(path, records, writer), name="debug-log", daemon=True
    )
    logger = logging.getLogger("nodedoctor")
    logger.setLevel(logging.DEBUG)
    logger.propagate = False
    logger.addHandler(QueueHandler(records))
    feeder.start()
    atexit.register(_end_writer, feeder, records, writer)


def _feed_writer(path: str, records: Records, writer: subprocess.Popen[bytes]) -> None:
    """The life of the thread: a line a record, each handed on at once, so that a hang loses none."""
    assert writer.stdin is not None and writer.stdout is not None
    with contextlib.suppress(OSError):  # the child has ended, and says why
        while (record := records.get()) is not None:
            writer.stdin.write(f"{_LINE.format(record)}\n".encode("utf-8", "backslashreplace"))
            writer.stdin.flush()
    with contextlib.suppress(OSError):
        writer.stdin.close()
    if complaint := writer.stdout.read().decode("utf-8", "replace").strip():
        write_stderr(f"--debug-log {path}: {complaint}")
    writer.wait()


def _end_writer(feeder: threading.Thread, records: Records, writer: subprocess.Popen[bytes]) -> None:
    records.put(None)
    feeder.join(LAST_LINES_S)
    if writer.poll() is None:
        writer.kill()
