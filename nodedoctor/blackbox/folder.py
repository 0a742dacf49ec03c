"""Where a job's black box is kept: one folder per job and node, bounded, readable by its owner alone.

Its file system may be full, slow or gone, and neither the job nor we may notice: a child does all the writing
(probes/job/keeper.py), a thread feeds it from a bounded queue, and what does not fit or cannot be written is
counted, and the loss is said.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import select
import socket
import subprocess
import threading
import time
from pathlib import Path

from nodedoctor.children.programs import child
from nodedoctor.errors import NodeDoctorError
from nodedoctor.json_shapes import loaded, mapping

WAITING = 512
"""Writes that wait for a slow disk."""
MAKING = 5.0
"""Seconds the folder may take to be made: the job waits for it, and a dead file server never answers."""
PARTING = 2.0
"""Seconds that the last writes have at the end: SIGTERM leaves us five for all there is to do."""

SETTLING = 1.0
"""Seconds in which it is found out what could not be written."""


class FolderProblem(NodeDoctorError):
    """The folder cannot be made, in one line."""

    exit_code = 74


class Folder:
    """One folder; every method but `make`, `settle` and `close` returns at once."""

    def __init__(self, path: Path, keeper: subprocess.Popen[bytes]) -> None:
        self.path = path
        self.lost = 0
        """Writes that came to nothing."""
        self.problem = ""
        self._keeper = keeper
        self._queue: queue.Queue[bytes | None] = queue.Queue(WAITING)
        self._settled = threading.Event()
        for work in (self._feed_keeper, self._hear_keeper):
            threading.Thread(target=work, name="folder", daemon=True).start()

    @classmethod
    def make(cls, parent: str, *, copy: int | None = None) -> Folder:
        """A new folder `<host>-<start>-<pid>` below `parent`; FolderProblem when that cannot be.

        `copy` is the reading end of a pipe whose bytes the keeper adds to logs/output.log.
        """
        host = socket.gethostname().split(".")[0]
        path = Path(os.path.abspath(parent), f"{host}-{time.strftime('%Y%m%dT%H%M%S')}-{os.getpid()}")
        more = () if copy is None else (str(copy),)
        try:
            keeper = subprocess.Popen(
                child("job/keeper", str(path.parent), path.name, *more),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
                pass_fds=() if copy is None else (copy,),
            )
        except OSError as error:  # no more processes, or an interpreter that we may not start
            raise FolderProblem(f"--dir {parent}: the program that writes it: {error.strerror}") from None
        answer = _first_line(keeper, MAKING)
        if "made" not in answer:
            keeper.kill()
            why = str(answer.get("error") or f"no answer in {MAKING:g} s")
            raise FolderProblem(f"--dir {parent}: {why}")
        return cls(path, keeper)

    def write(self, name: str, data: str | bytes) -> None:
        """Keep a file, whole or not at all; the last of a name wins."""
        self._enqueue(name, data, False)

    def append(self, name: str, data: str | bytes) -> None:
        """Add to a file, of which the newest part is kept."""
        self._enqueue(name, data, True)

    def settle(self, seconds: float = SETTLING) -> None:
        """Wait until all that was handed over is written or lost, so that the losses are known."""
        self._settled.clear()
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait(json.dumps({"mark": 1, "size": 0}).encode() + b"\n")
            self._settled.wait(seconds)

    def close(self, seconds: float = PARTING) -> bool:
        """Let the last writes come to their end; False when they did not in time."""
        with contextlib.suppress(queue.Full):
            self._queue.put_nowait(None)
        try:
            self._keeper.wait(seconds)
        except subprocess.TimeoutExpired:
            return False
        return True

    def _enqueue(self, name: str, data: str | bytes, more: bool) -> None:
        raw = data.encode("utf-8", "replace") if isinstance(data, str) else data
        head = json.dumps({"name": name, "size": len(raw), "more": more}).encode()
        try:
            self._queue.put_nowait(head + b"\n" + raw)
        except queue.Full:
            self._count_loss("the disk is slower than what is to be kept")

    def _feed_keeper(self) -> None:
        """A thread: write what waits; it may wait for the keeper, and the keeper for the disk."""
        pipe = self._keeper.stdin
        assert pipe is not None
        while (frame := self._queue.get()) is not None:
            try:
                pipe.write(frame)
                pipe.flush()
            except (OSError, ValueError) as error:
                self._count_loss(str(error))
        with contextlib.suppress(OSError):
            pipe.close()

    def _hear_keeper(self) -> None:
        """A thread: count what the keeper could not write."""
        assert self._keeper.stdout is not None
        for line in self._keeper.stdout:
            with contextlib.suppress(ValueError):
                answer = mapping(loaded(line))
                if "mark" in answer:
                    self._settled.set()
                else:
                    self._count_loss(str(answer.get("problem", "")))

    def _count_loss(self, problem: str) -> None:
        self.lost += 1
        self.problem = problem or self.problem


def _first_line(keeper: subprocess.Popen[bytes], seconds: float) -> dict[str, object]:
    assert keeper.stdout is not None
    if not select.select([keeper.stdout], [], [], seconds)[0]:
        return {}
    try:
        answer = loaded(keeper.stdout.readline())
    except ValueError:
        return {}
    return answer if isinstance(answer, dict) else {}
