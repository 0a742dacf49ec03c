"""However a run is ended, nothing that it started outlives it, and the exit code names the signal."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

NODEDOCTOR = (sys.executable, "-m", "nodedoctor")
PATIENCE = 60.0


def sleepers(word: str) -> int:
    """How many processes have a word among their arguments."""
    count = 0
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                count += word.encode() in (entry / "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue
    return count


def until(wanted: bool, word: str) -> bool:
    """Wait until there are such processes, or none."""
    ends = time.monotonic() + PATIENCE
    while bool(sleepers(word)) != wanted and time.monotonic() < ends:
        time.sleep(0.05)
    return bool(sleepers(word)) == wanted


@pytest.fixture
def hanging(tmp_path: Path) -> tuple[dict[str, str], str]:
    """An environment in which tools hang, each with a child, and the word by which they are known."""
    word = f"98{os.getpid()}{time.monotonic_ns() % 1000}"
    for name in ("journalctl", "systemctl", "scontrol", "dmesg", "ssh", "sinfo", "kubectl"):
        tool = tmp_path / name
        tool.write_text(f"#!/bin/sh\nsleep {word} & sleep {word}\n")
        tool.chmod(0o755)
    return {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}, word


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "code"),
    [
        (signal.SIGTERM, 143),
        (signal.SIGHUP, 129),
        (signal.SIGQUIT, 131),
        (signal.SIGINT, 130),
        (signal.SIGKILL, -9),
    ],
)
def test_no_child_outlives_us(hanging: tuple[dict[str, str], str], number: int, code: int):
    env, word = hanging
    argv = (*NODEDOCTOR, "--json", "--passive")
    with subprocess.Popen(argv, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as running:
        assert until(True, word)
        time.sleep(0.5)  # what is being started at this moment nobody can know of after SIGKILL
        running.send_signal(number)
        _, errors = running.communicate(timeout=PATIENCE)
    assert (running.returncode, errors) == (code, b"")
    assert until(False, word)


@pytest.mark.race
@pytest.mark.parametrize("after", [0.2, 0.3, 0.4, 0.5, 0.7, 0.9])
def test_ctrl_c_is_answered_at_any_moment(hanging: tuple[dict[str, str], str], after: float):
    """In imports, before the event loop, while children are started and while they are waited for."""
    env, word = hanging
    argv, pipe = (*NODEDOCTOR, "--json", "--passive"), subprocess.PIPE
    with subprocess.Popen(argv, env=env, stdout=pipe, stderr=pipe) as running:
        time.sleep(after + random.uniform(-0.05, 0.05))
        running.send_signal(signal.SIGINT)
        _, errors = running.communicate(timeout=PATIENCE)
    assert (running.returncode, errors) == (130, b"")
    assert until(False, word)


@pytest.mark.slow
def test_nohup_is_obeyed(hanging: tuple[dict[str, str], str]):
    env, word = hanging
    argv = (*NODEDOCTOR, "--json", "--passive", "--deadline", "6")
    ignore = lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)  # noqa: E731
    pipe = subprocess.PIPE
    with subprocess.Popen(argv, env=env, stdout=pipe, stderr=pipe, preexec_fn=ignore) as running:
        assert until(True, word)
        running.send_signal(signal.SIGHUP)
        document, _ = running.communicate(timeout=PATIENCE)
    assert running.returncode in (0, 2, 3) and document.endswith(b"}\n")


@pytest.mark.sampled(1)
@pytest.mark.parametrize(
    "words",
    [
        "fleet --slurm --json",
        "fleet --ssh n[1-3] --json",
        "fleet --ssh n[1-3] --pairs",
        "fleet --kube train/app=x --json",
        "triage --live --ssh n[1-3]",
        "expect",
    ],
)
def test_a_signal_while_the_first_question_is_open(hanging: tuple[dict[str, str], str], words: str):
    env, word = hanging
    with subprocess.Popen(
        (*NODEDOCTOR, *words.split()), env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as running:
        assert until(True, word)
        time.sleep(0.2)
        running.send_signal(signal.SIGTERM)
        _, errors = running.communicate(timeout=PATIENCE)
    assert (running.returncode, errors) == (143, b"")
    assert until(False, word)


ADOPTS = """
import ctypes, os, subprocess, sys, time
ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER: what a run leaves behind comes to us
run = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
run.wait()
time.sleep(0.3)
try:
    print("left", os.waitpid(-1, os.WNOHANG))
except ChildProcessError:
    print("nothing left")
"""


def test_nothing_is_left_to_who_waits_for_nobody(tmp_path: Path):
    """PID 1 of a container is often the job itself, which reaps no orphans: they would stay as zombies."""
    (tmp_path / "job.env").write_text("NCCL_DEBUG=WARN\n")
    words = ("--json", "--passive", "env", "limits", "host", "--env-file", str(tmp_path / "job.env"))
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    argv = (sys.executable, "-c", ADOPTS, *NODEDOCTOR, *words)
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, env=env)
    assert (done.stdout, done.stderr) == ("nothing left\n", "")


@pytest.mark.slow
def test_a_deleted_working_directory_is_no_excuse(tmp_path: Path):
    gone = tmp_path / "gone"
    gone.mkdir()
    script = f'cd {gone} && rmdir {gone} && exec "$@"'
    argv = ("sh", "-c", script, "sh", *NODEDOCTOR, "--json", "--passive", "host", "limits", "env")
    env = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    there = subprocess.run(argv[4:], capture_output=True, text=True, timeout=PATIENCE, env=env)
    here = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, env=env)
    assert (here.returncode, here.stderr) == (there.returncode, "")
    assert here.stdout.count('"unknown"') == there.stdout.count('"unknown"')
