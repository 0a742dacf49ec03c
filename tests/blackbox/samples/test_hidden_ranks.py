"""Ranks whose environment the sampler may not read: they are there, and known where they have registered."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import ranks
from ranks import as_an_ordinary_user

from nodedoctor.blackbox.job_environment import HOOK

SAMPLER = Path(__file__).parents[3] / "nodedoctor/probes/job/sampler.py"


@contextmanager
def a_job(folder: Path, hidden: tuple[int, ...], user: tuple[str, ...], **variables: str) -> Iterator[int]:
    """The pid of a job of three ranks, some of which have hidden themselves by now."""
    command = [*user, *ranks.job(folder, "load_shard()", undumpable=hidden)]
    with (folder / "log").open("wb") as log:
        job = subprocess.Popen(
            command, stdout=log, stderr=log, start_new_session=True, env={**os.environ, **variables}
        )
    try:
        until = time.monotonic() + 60
        while b"step 5" not in (folder / "log").read_bytes():  # rank 0 says it a while after all have hidden
            assert time.monotonic() < until
            time.sleep(0.05)
        time.sleep(1)
        yield job.pid
    finally:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()


def seen(user: tuple[str, ...], wanted: dict[str, Any]) -> list[dict[str, Any]]:
    """The members of the job at the sampler's first look."""
    argv = [*user, sys.executable, "-I", "-S", str(SAMPLER), json.dumps(wanted)]
    done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=60)
    told: dict[str, Any] = json.loads(done.stdout.split("\n")[0])
    return list(told["ranks"])


@pytest.mark.skipif(os.geteuid() != 0, reason="to be another user takes root")
@pytest.mark.slow
@pytest.mark.parametrize("hidden", [(1,), (2,), (1, 2), (0, 2), (0, 1, 2)])
@pytest.mark.parametrize("registered", [True, False])
def test_hidden_ranks_are_members_of_the_job(
    hidden: tuple[int, ...], registered: bool, tmp_path: Path
) -> None:
    user = as_an_ordinary_user(tmp_path)
    stacks = tmp_path / "stacks"
    variables = {"NODEDOCTOR_STACKS": str(stacks), "PYTHONPATH": str(HOOK)} if registered else {}
    with a_job(tmp_path, hidden, user, **variables) as pid:
        found = seen(user, {"pids": [pid], "stacks": str(stacks)})
    known = [None if rank in hidden and not registered else rank for rank in range(3)]
    assert sorted((one.get("rank") for one in found), key=str) == sorted(known, key=str)


@pytest.mark.slow
def test_what_somebody_else_marked_is_not_read(tmp_path: Path) -> None:
    """A folder that is not ours may hold anything, a pipe that never ends among it."""
    user = as_an_ordinary_user(tmp_path)
    if not user:
        pytest.skip("to be another user takes root")
    theirs = tmp_path / "stacks"
    theirs.mkdir(mode=0o755)
    with a_job(tmp_path, (1,), user) as pid:
        for process in range(pid, pid + 32):
            os.mkfifo(theirs / f"{process}.json")
        found = seen(user, {"pids": [pid], "stacks": str(theirs)})
    assert [one.get("rank") for one in found].count(None) == 1
