"""A process lives until the kernel says that it has ended, whatever /proc or a later pid looks like."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from nodedoctor.probes.job import alive

LEADERLESS = """
import ctypes, threading, time
threading.Thread(target=time.sleep, args=(60,)).start()
print("up", flush=True)
ctypes.CDLL(None).syscall(60, 0)  # exit(2) of this thread alone
"""
WAYS = [alive.lives, alive._lives_by_signal]


@pytest.mark.parametrize("lives", WAYS, ids=["pidfd", "signal"])
def test_until_it_has_ended(lives: Callable[[int, int | None], bool]) -> None:
    child = subprocess.Popen(["sleep", "60"])
    start = alive.start_of(child.pid)
    assert start is not None
    assert lives(child.pid, start) and lives(child.pid, None)
    assert not lives(child.pid, start - 1)  # another process had this pid
    os.kill(child.pid, signal.SIGSTOP)
    assert lives(child.pid, start)
    child.kill()
    until(lambda: alive.fields(child.pid)[:1] == ["Z"])
    assert not lives(child.pid, start)
    child.wait()
    assert not lives(child.pid, start) and not lives(child.pid, None)


def test_it_lives_when_only_its_first_thread_has_ended() -> None:
    child = subprocess.Popen([sys.executable, "-c", LEADERLESS], stdout=subprocess.PIPE)
    try:
        assert child.stdout is not None and child.stdout.readline() == b"up\n"
        until(lambda: alive.fields(child.pid)[:1] == ["Z"])
        assert alive.lives(child.pid, alive.start_of(child.pid))
    finally:
        child.kill()
        child.communicate()


def test_another_users_process_lives() -> None:
    assert alive.lives(1) and alive._lives_by_signal(1, alive.start_of(1))


def test_without_a_descriptor_left() -> None:
    """It is asked by a signal that is not sent: a limit of open files makes nobody dead."""
    code = "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (0, 0)); print(lives(os.getppid()))"
    words = [sys.executable, "-c", f"import os; from nodedoctor.probes.job.alive import lives; {code}"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    assert done.stdout == "True\n", done.stderr


def until(true: Callable[[], bool]) -> None:
    ends = time.monotonic() + 30
    while not true():
        assert time.monotonic() < ends
        time.sleep(0.02)
