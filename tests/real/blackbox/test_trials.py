"""Real jobs through `run -- torchrun`: who hangs is named, and who works for long is left alone.

`make trial` repeats each and prints the table (tests/support/trial_table.py).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from memory import family, pss
from trial_table import MIB, OUTCOME, TRIED, outcome_of_hang

pytestmark = [pytest.mark.real, pytest.mark.race]

HERE = Path(__file__).parent
LIBRARY = ("accumulation", "group order", "FSDP forward", "unused parameter", "uneven data", "restarts")
"""Kinds of library_job.py; all others are of trial_job.py."""
RUN = (sys.executable, "-m", "nodedoctor", "run", "--hang-after", "6", "--kill-after", "1")
ENDS = 150  # seconds; a hang guard
MOST_MIB = 64
"""Of all our processes together, beside a job that needs its own. 60 are the aim and 58 were measured; more
of them overlap where the machine is loaded."""
Note = Callable[[str, Any], None]


def torchrun(kind: str, python: str) -> list[str]:
    """The command of a job."""
    job = HERE / ("library_job.py" if kind in LIBRARY else "trial_job.py")
    return [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "3", str(job), kind]


class Held(NamedTuple):
    """MiB of our processes together, and of each."""

    mib: float
    by: list[tuple[str, float]]


def held(pid: int) -> Held:
    """What `run` and its children hold beside the job's processes; nothing once these are gone."""
    commands = family(pid)
    ours = {one: command for one, command in commands.items() if one == pid or "_job.py" not in command}
    by = pss(ours) if len(ours) < len(commands) else []
    return Held(sum(size for _, size in by), by)


def tried(kind: str, python: str, folder: Path, note: Note, **env: str) -> tuple[Path, str]:
    """The folder that a job leaves, and what was said of it; little memory is taken from it."""
    note(TRIED, kind)
    job = [*RUN, "--dir", str(folder / "jobs"), "--", *torchrun(kind, python)]
    ends, most, before = time.monotonic() + ENDS, Held(0.0, []), Held(0.0, [])
    with (folder / "train.log").open("wb") as log, (folder / "said").open("wb") as said:
        all_env = {**os.environ, "SCRATCH": str(folder), **env}
        run = subprocess.Popen(job, stdout=log, stderr=said, env=all_env)
        while run.poll() is None:
            if time.monotonic() > ends:
                run.kill()
            now = held(run.pid)
            most, before = max(most, min(before, now)), now  # what is there for longer than a moment
            time.sleep(0.1)
    note(MIB, most.mib)
    assert most.mib <= MOST_MIB, most.by
    (kept,) = (folder / "jobs").iterdir()
    return kept, (folder / "said").read_text()


def named(kept: Path, note: Note) -> dict[str, Any]:
    """The verdict, which must name rank 1."""
    found: dict[str, Any] = json.loads((kept / "triage.json").read_text())
    note(OUTCOME, outcome_of_hang([who["rank"] for who in found["culprits"]], [1]))
    assert [who["rank"] for who in found["culprits"]] == [1], found["headline"]
    return found


@pytest.mark.parametrize(
    ("kind", "shown"),
    [
        ("asleep", "asleep"),
        ("locked", "locked"),
        ("pipe", "reads_a_pipe"),
        ("loader dead", "from_loader"),
        ("loader stuck", "from_loader"),
        ("SIGSTOP", "is stopped"),
        ("mismatch", "different collectives"),
        ("two groups", "of_its_group"),
        ("leaves early", "the backward pass"),
        ("file lock", "shared.lock that process"),
        ("FIFO", "upload, which process"),
        ("socket", "data from 127.0.0.1:"),
        ("worker's lock", "its data loader"),
        ("group order", "sum_norm"),
        ("uneven data", "barrier"),
    ],
)
def test_the_rank_that_holds_the_job_up_is_named(
    kind: str, shown: str, python: str, tmp_path: Path, record_property: Note
) -> None:
    kept, said = tried(kind, python, tmp_path, record_property)
    assert shown in named(kept, record_property)["headline"]
    assert "HANG" in said


@pytest.mark.parametrize("kind", ["SIGKILL", "exit 0", "unused parameter"])
def test_the_rank_that_ends_is_named(kind: str, python: str, tmp_path: Path, record_property: Note) -> None:
    """Its launcher notices and ends the others: the verdict is on what that says."""
    kept, _ = tried(kind, python, tmp_path, record_property)
    named(kept, record_property)


def test_the_rank_that_ran_out_of_memory_is_named(
    python: str, memory_cgroup: Path, tmp_path: Path, record_property: Note
) -> None:
    kept, _ = tried("OOM", python, tmp_path, record_property, MEMORY_CGROUP=str(memory_cgroup))
    found = named(kept, record_property)
    assert (found["cause"], "control group" in found["headline"]) == ("peer_host_oom", True)


def test_a_watch_of_a_job_that_ends_names_the_rank_that_ran_out_of_memory(
    python: str, memory_cgroup: Path, tmp_path: Path, record_property: Note
) -> None:
    """Nobody tells a watch the exit code: the ranks' output in files and the kernel do."""
    record_property(TRIED, "OOM, watched")
    env = {**os.environ, "SCRATCH": str(tmp_path), "MEMORY_CGROUP": str(memory_cgroup)}
    with (tmp_path / "train.log").open("wb") as log:
        job = subprocess.Popen(torchrun("OOM", python), stdout=log, stderr=log, env=env)
    words = ("watch", "--job", str(job.pid), "--dir", str(tmp_path / "jobs"))
    done = subprocess.run(
        [sys.executable, "-m", "nodedoctor", *words], capture_output=True, text=True, timeout=ENDS
    )
    assert job.wait(ENDS) != 0 and done.returncode == 2, done.stdout
    (kept,) = (tmp_path / "jobs").iterdir()
    assert named(kept, record_property)["cause"] == "peer_host_oom"


@pytest.mark.parametrize("kind", ["saving", "compiling", "computing", "RL phases", "slow steps"])
def test_long_work_is_no_hang(kind: str, python: str, tmp_path: Path, record_property: Note) -> None:
    kept, said = tried(kind, python, tmp_path, record_property)
    record_property(OUTCOME, "false alarm" if "HANG" in said else "right")
    assert "HANG" not in said
    assert json.loads((kept / "run.json").read_text())["exit_code"] == 0
