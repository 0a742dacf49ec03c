"""What is read is read in a process of its own, which is left behind where a file does not answer."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from nodedoctor.intake.inputs import At, Unreadable
from nodedoctor.intake.reader_process import Crashed, Stalled, TookTooLong, read_in_fork


def test_what_it_returns_and_what_it_raises_comes_back():
    assert read_in_fork(lambda at: (os.getpid() != parent, "x" * 3_000_000)) == (True, "x" * 3_000_000)

    def wrong(at: At) -> None:
        raise Unreadable("here: no such file")

    with pytest.raises(Unreadable, match="here: no such file"):
        read_in_fork(wrong)


parent = os.getpid()


@pytest.mark.slow
def test_a_file_that_does_not_answer_is_named_and_its_reader_ended(tmp_path: Path):
    pipe = tmp_path / "dead"
    os.mkfifo(pipe)

    def work(at: At) -> bytes:
        (tmp_path / "pid").write_text(str(os.getpid()))
        at(str(pipe))
        return pipe.read_bytes()  # nobody writes to it: opening it waits for ever

    begun = time.monotonic()
    with pytest.raises(Stalled, match=f"^{pipe}: no answer for 1 s"):
        read_in_fork(work, stalled=1.0)
    assert time.monotonic() - begun < 10
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


@pytest.mark.slow
def test_a_reader_that_computes_is_waited_for():
    def work(at: At) -> int:
        ends, rounds = time.process_time() + 1.5, 0
        while time.process_time() < ends:
            rounds += 1
        return rounds

    assert read_in_fork(work, stalled=1.2) > 0


@pytest.mark.slow
def test_a_reader_that_computes_has_an_end_where_one_is_given():
    def work(at: At) -> None:
        while True:
            pass

    begun = time.monotonic()
    with pytest.raises(TookTooLong):
        read_in_fork(work, longest=1.0)
    assert time.monotonic() - begun < 10


def test_a_reader_that_is_killed_is_no_answer():
    with pytest.raises(Crashed, match="-9"):
        read_in_fork(lambda at: os.kill(os.getpid(), signal.SIGKILL))


@pytest.mark.slow
def test_a_pipe_that_nobody_writes_to_does_not_hang_the_command(tmp_path: Path):
    os.mkfifo(tmp_path / "pipe")
    argv = [sys.executable, "-m", "nodedoctor", "read", str(tmp_path / "pipe")]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 64
    assert "nothing came in 15 s" in done.stderr
