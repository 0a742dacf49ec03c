"""Read and judge in a fork: a path on a dead file system costs the answer, and not the terminal."""

from __future__ import annotations

import contextlib
import math
import mmap
import os
import pickle
import select
import signal
import time
from collections.abc import Callable
from typing import NoReturn, TypeVar

from nodedoctor.children.kernel_state import kernel_state, slowest
from nodedoctor.errors import NodeDoctorError
from nodedoctor.intake.inputs import At

T = TypeVar("T")

STALLED = 30.0
"""Seconds in which a reader may neither compute nor answer; ours: a pipe that was named has fifteen."""
_LOOK = 0.5
"""Seconds between two looks at a silent reader; ours."""
_PATH = 4096
"""Bytes of the path a reader is at: PATH_MAX of Linux."""


class Stalled(NodeDoctorError):
    """The file at which reading came to a halt, in one line."""


class Crashed(NodeDoctorError):
    """How the reader ended without an answer."""


class TookTooLong(NodeDoctorError):
    """How long a reader was given, in one line."""


def read_in_fork(work: Callable[[At], T], stalled: float = STALLED, longest: float = math.inf) -> T:
    """What `work` returns or raises; Stalled where it waits for a file, TookTooLong after `longest` seconds.

    `work` says which path it is at.
    """
    with mmap.mmap(-1, _PATH) as place:
        ours, theirs = os.pipe()
        pid = os.fork()
        if pid == 0:
            _answer_and_end(work, theirs, place)
        os.close(theirs)
        try:
            data = _await_answer(ours, pid, place, stalled, time.monotonic() + longest)
        finally:
            os.close(ours)
            status = _end_reader(pid)
    if not data:
        raise Crashed(f"the reader ended without an answer (exit status {status})")
    value, error = pickle.loads(data)
    if error is not None:
        raise error
    return value  # type: ignore[no-any-return]


def _await_answer(pipe: int, pid: int, place: mmap.mmap, stalled: float, ends: float) -> bytes:
    data, busy, alive = bytearray(), -1, time.monotonic()
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    while True:
        if poll.poll(_LOOK * 1000):
            if not (more := os.read(pipe, 1 << 18)):
                return bytes(data)
            data += more
            alive = time.monotonic()
        elif time.monotonic() > ends:
            raise TookTooLong("no answer in the time that was given")
        elif (ticks := _session_ticks(pid)) != busy:
            busy, alive = ticks, time.monotonic()
        elif time.monotonic() - alive > stalled:
            path = place[:_PATH].rstrip(b"\0").decode("utf-8", "replace") or "a file"
            state = kernel_state(slowest(pid))
            raise Stalled(f"{path}: no answer for {stalled:.0f} s ({state}): is its file system alive?")


def _session_ticks(session: int) -> int:
    """The processor time of a reader and of what it started."""
    total = 0
    with contextlib.suppress(OSError), os.scandir("/proc") as entries:
        for entry in entries:
            if entry.name.isdecimal():
                with contextlib.suppress(OSError, ValueError, IndexError):
                    with open(f"/proc/{entry.name}/stat", encoding="utf-8", errors="replace") as stat:
                        fields = stat.read().rpartition(")")[2].split()
                    total += int(fields[11]) + int(fields[12]) if fields[3] == str(session) else 0
    return total


def _answer_and_end(work: Callable[[At], object], pipe: int, place: mmap.mmap) -> NoReturn:
    def at(path: str) -> None:
        place[:] = os.fsencode(path)[:_PATH].ljust(_PATH, b"\0")

    try:
        os.setsid()
        value, error = None, None
        try:
            value = work(at)
        except NodeDoctorError as problem:
            error = problem
        with os.fdopen(pipe, "wb") as file:
            pickle.dump((value, error), file, pickle.HIGHEST_PROTOCOL)
        os._exit(0)
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        os._exit(70)


def _end_reader(pid: int) -> int | None:
    """End a reader and what it started; its exit status, None where it cannot be ended."""
    for _ in range(50):
        with contextlib.suppress(ChildProcessError):
            done, status = os.waitpid(pid, os.WNOHANG)
            if done:
                return os.waitstatus_to_exitcode(status)
        with contextlib.suppress(OSError):
            os.killpg(pid, signal.SIGKILL)
        time.sleep(0.01)
    return None
