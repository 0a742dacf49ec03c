"""Real jobs that hang now: what stands still is found by state and stack, and nobody is harmed."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from test_triage_torch import JOB

from nodedoctor.blackbox.live import Where, look_here
from nodedoctor.triage.live.examine import judge_live

pytestmark = pytest.mark.real


@contextmanager
def hanging(python: str, log: Path, fault: str, rank: int) -> Iterator[list[int]]:
    """The pids of a job's ranks, from its last step until its own timeout would end it."""
    argv = [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]
    argv += [str(JOB), fault, str(rank)]
    env = {**os.environ, "TIMEOUT": "120"}
    with log.open("wb") as out:
        job = subprocess.Popen(argv, stdout=out, stderr=subprocess.STDOUT, env=env)
    children: list[int] = []
    try:
        end = time.monotonic() + 100
        while "step 4" not in log.read_text():
            assert time.monotonic() < end, log.read_text()
            time.sleep(0.2)
        words = Path(f"/proc/{job.pid}/task/{job.pid}/children").read_text().split()
        children += [int(word) for word in words]
        while not misbehaves(guilty(children, rank), fault):
            assert time.monotonic() < end
            time.sleep(0.2)
        time.sleep(2)  # the others come to where they wait for it
        yield children
        assert job.poll() is None  # looking did not end it
    finally:
        job.terminate()
        for pid in children:
            awake(pid)
        job.wait(timeout=60)


def guilty(pids: list[int], rank: int) -> psutil.Process:
    """The process of a rank."""
    return next(one for one in map(psutil.Process, pids) if one.environ().get("RANK") == str(rank))


def misbehaves(process: psutil.Process, fault: str) -> bool:
    """Whether it has come to its fault: it is stopped, or waits for two loaders that have no data."""
    if fault == "stop":
        return process.status() == psutil.STATUS_STOPPED
    waits = process.status() == psutil.STATUS_SLEEPING
    return waits and (fault != "loader" or len(process.children()) >= 2)


def awake(pid: int) -> None:
    """Let a stopped process receive what its launcher sends."""
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)


@pytest.mark.parametrize(
    ("fault", "rank", "shown"),
    [("sleep", 2, "misbehave"), ("stop", 3, "is stopped"), ("loader", 1, "read_from_dead_storage")],
)
def test_live(
    python: str,
    fault: str,
    rank: int,
    shown: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PATH", str(Path(python).parent), prepend=os.pathsep)
    if shutil.which("py-spy") is None:
        pytest.skip("no py-spy on PATH or beside the Python that has torch")
    with hanging(python, tmp_path / "train.log", fault, rank) as pids:
        verdict = judge_live(asyncio.run(look_here(Where(tuple(pids))))).verdict
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("cpu_stuck_or_slow_rank", [rank])
    assert shown in verdict.headline
