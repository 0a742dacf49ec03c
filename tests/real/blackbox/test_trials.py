"""Real jobs through `run -- torchrun`: who hangs is named, and who works for long is left alone.

`make trial` repeats each and prints the table (tests/support/trial_table.py).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from trial_table import OUTCOME, TRIED, outcome_of_hang

pytestmark = [pytest.mark.real, pytest.mark.race]

JOB = Path(__file__).with_name("trial_job.py")
RUN = (sys.executable, "-m", "nodedoctor", "run", "--hang-after", "6", "--kill-after", "1")
ENDS = 150  # seconds; a hang guard
Note = Callable[[str, Any], None]


def tried(kind: str, python: str, folder: Path, note: Note, **env: str) -> tuple[Path, str]:
    """The folder that a job leaves, and what was said of it."""
    note(TRIED, kind)
    argv = [*RUN, "--dir", str(folder / "jobs"), "--", python, "-m", "torch.distributed.run", "--standalone"]
    job = [*argv, "--nproc-per-node", "3", str(JOB), kind]
    with (folder / "train.log").open("wb") as log:
        done = subprocess.run(
            job, stdout=log, stderr=subprocess.PIPE, text=True, timeout=ENDS,
            env={**os.environ, "SCRATCH": str(folder), **env},
        )  # fmt: skip
    (kept,) = (folder / "jobs").iterdir()
    return kept, done.stderr


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
    ],
)
def test_the_rank_that_holds_the_job_up_is_named(
    kind: str, shown: str, python: str, tmp_path: Path, record_property: Note
) -> None:
    kept, said = tried(kind, python, tmp_path, record_property)
    assert shown in named(kept, record_property)["headline"]
    assert "HANG" in said


def test_the_rank_that_was_killed_is_named(python: str, tmp_path: Path, record_property: Note) -> None:
    """Its launcher notices and ends the others: the verdict is on what that says."""
    kept, _ = tried("SIGKILL", python, tmp_path, record_property)
    named(kept, record_property)


def test_the_rank_that_ran_out_of_memory_is_named(
    python: str, memory_cgroup: Path, tmp_path: Path, record_property: Note
) -> None:
    kept, _ = tried("OOM", python, tmp_path, record_property, MEMORY_CGROUP=str(memory_cgroup))
    named(kept, record_property)


@pytest.mark.parametrize("kind", ["saving", "compiling", "computing", "RL phases", "slow steps"])
def test_long_work_is_no_hang(kind: str, python: str, tmp_path: Path, record_property: Note) -> None:
    kept, said = tried(kind, python, tmp_path, record_property)
    record_property(OUTCOME, "false alarm" if "HANG" in said else "right")
    assert "HANG" not in said
    assert json.loads((kept / "run.json").read_text())["exit_code"] == 0
