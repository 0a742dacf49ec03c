"""Run code that somebody else wrote in a process of its own: whatever it does costs its answer alone."""

from __future__ import annotations

import contextlib
import math
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import NoReturn, TypeVar

from nodedoctor.errors import NodeDoctorError

T = TypeVar("T")

_ends = math.inf
"""When the run is to end, by time.monotonic()."""

GRACE = 1.0
"""Seconds after which code that does not heed its own limit is killed; ours."""
REAP = 0.5
"""Seconds a killed process has to be gone before it is left behind; as long as any child of ours has."""
AT_ITS_END = 0.1
"""Seconds between the end of what a process says and its own; ours."""
SHARE = 0.25
"""Of the time left until the deadline, for one call: several that hang leave some to our own checks; ours."""
AT_LEAST_S = 0.1
"""Seconds for a call after the deadline: what a report asks of others' facts takes a millisecond; ours."""
AFTER_DEADLINE_S = 0.3
"""Seconds for all of them together, of the one by which the deadline may be exceeded; ours."""
LARGEST = 64 << 20
"""Bytes of an answer; ours: ten times the longest report of a recorded node."""


class ChildCrashed(NodeDoctorError):
    """What code does to the process it runs in, in one clause."""


def end_by(moment: float) -> None:
    """Let no code of others run for long after this moment of time.monotonic()."""
    global _ends
    _ends = moment


def run_in_fork(work: Callable[[], T], seconds: float, doing: str = "it", *, quiet: bool = False) -> T:
    """What `work` returns, called in a fork that is ended afterwards with all that it started.

    ChildCrashed, whose message begins with `doing`, for code that ends or crashes it, or returns what
    cannot be handed over; TimeoutError a second after its `seconds`, sooner when the run is to end soon;
    OSError when no process is to be had. What the code writes goes to stderr, with `quiet` nowhere.
    """
    import pickle  # for the fork, too, which would import it each time

    now = time.monotonic()
    if now > _ends + AFTER_DEADLINE_S:
        raise TimeoutError(f"{doing} was not begun before the deadline")
    most = min(seconds + GRACE, max((_ends - now) * SHARE, AT_LEAST_S))
    ours, theirs = os.pipe()
    try:
        pid = os.fork()
    except OSError:
        os.close(ours)
        os.close(theirs)
        raise
    if pid == 0:
        _work_and_end(work, theirs, seconds, quiet)
    os.close(theirs)
    answer, by_itself = None, False
    try:
        answer = _read_answer(ours, now + most)
        by_itself = answer is None and _is_over(pid)
    except TimeoutError:
        raise TimeoutError(f"{doing} took longer than {min(most, seconds):.3g} s") from None
    finally:
        os.close(ours)
        status = _kill_fork(pid)
    if answer is None:
        how = _describe_exit(status) if by_itself else "closes descriptors that are not its own"
        raise ChildCrashed(f"{doing} {how}")
    value: T
    value, wrong = pickle.loads(answer)
    if wrong:
        raise ChildCrashed(f"{doing} {wrong}")
    return value


def _read_answer(pipe: int, ends: float) -> bytes | None:
    """All that was handed over; None where the process ended first."""
    data, wanted = bytearray(), 8
    poll = select.poll()
    poll.register(pipe, select.POLLIN)
    while len(data) < wanted:
        if not poll.poll(max(ends - time.monotonic(), 0) * 1000):
            raise TimeoutError
        more = os.read(pipe, 1 << 18)
        if not more:
            return None
        data += more
        if len(data) >= 8:
            wanted = 8 + int.from_bytes(data[:8], "little")
    return bytes(data[8:])


def _is_over(pid: int) -> bool:
    """Whether a fork whose pipe is closed has ended, or does so at once; it stays there to be killed."""
    ends = time.monotonic() + AT_ITS_END
    with contextlib.suppress(ChildProcessError):  # it is gone without a trace
        while os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            if time.monotonic() > ends:
                return False
            time.sleep(0.001)
    return True


def _kill_fork(pid: int) -> int | None:
    """Kill a fork and what it started; how it ended, None where it does not."""
    with contextlib.suppress(OSError):  # it has no session of its own yet, or is gone
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)
    ends = time.monotonic() + REAP
    with contextlib.suppress(ChildProcessError):  # we were started with SIGCHLD ignored
        while time.monotonic() < ends:
            reaped, status = os.waitpid(pid, os.WNOHANG)
            if reaped:
                return os.waitstatus_to_exitcode(status)
            time.sleep(0.001)
    return None


def _describe_exit(code: int | None) -> str:
    if code is None:
        return "does not end when it is killed"
    how = f"with {signal.Signals(-code).name}" if code < 0 else f"with exit code {code}"
    return f"ends the process {how}"


def _work_and_end(work: Callable[[], object], pipe: int, seconds: float, quiet: bool) -> NoReturn:
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)  # an event loop's, which would hear our signals
        nowhere = os.open(os.devnull, os.O_RDWR)
        os.dup2(nowhere, 0)
        os.dup2(nowhere if quiet else 2, 1)
        if quiet:
            os.dup2(nowhere, 2)
            _end_in(seconds + GRACE)
        answer = _pickle_answer(work)
        with contextlib.suppress(Exception):
            sys.stderr.flush()
        _end_in(seconds + GRACE)
        with contextlib.suppress(OSError):  # closed by the work
            answer = len(answer).to_bytes(8, "little") + answer
            while answer:
                answer = answer[os.write(pipe, answer) :]
        signal.pause()  # so that what it started is still of our group when that is ended
    finally:
        os._exit(0)


def _end_in(seconds: float) -> None:
    """Should our parent be killed meanwhile, this process ends all the same."""
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.setitimer(signal.ITIMER_REAL, seconds)


def _pickle_answer(work: Callable[[], object]) -> bytes:
    """What the work returns, or why it cannot be handed over."""
    import pickle

    try:
        answer = pickle.dumps((work(), ""))
        if len(answer) > LARGEST:
            raise OverflowError(f"returned {len(answer) >> 20} MiB")
    except BaseException as error:
        answer = pickle.dumps((None, f"could not answer: {type(error).__name__}: {str(error)[:200]}"))
    return answer
