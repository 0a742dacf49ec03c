"""Real jobs by launchers besides torchrun, under `run --kill-after`: nobody is called dead."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.real

JOB = Path(__file__).with_name("launched_job.py")
RUN = (sys.executable, "-m", "nodedoctor", "run", "--hang-after", "8", "--kill-after", "4")
LAUNCHERS = ("ray", "lightning", "spawn", "accelerate")
RANKS = {"lightning": [0, 1], "accelerate": [0, 1, 2]}
"""Of launchers that tell their ranks which they are."""
LONG = 24
"""Seconds; three times what a hang takes to be seen."""


def ran(launcher: str, kind: str, seconds: int, python: str, folder: Path) -> tuple[int, str, Path]:
    """The job's exit code, what was said of it, and what is kept."""
    python = os.environ.get("NODEDOCTOR_RAY_PYTHON", python) if launcher == "ray" else python
    if (
        subprocess.run([python, "-c", f"import {launcher}"], capture_output=True).returncode
        and launcher != "spawn"
    ):
        pytest.skip(f"no {launcher} beside {python}")
    env = {**os.environ, "HOME": str(folder), "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    env["RAY_raylet_start_wait_time_s"] = "200"  # 30 are too few on a machine with other work
    argv = [*RUN, "--dir", str(folder / "jobs"), "--", python, str(JOB), launcher, kind, str(seconds)]
    done = subprocess.run(argv, capture_output=True, text=True, timeout=240, env=env)
    (kept,) = (folder / "jobs").iterdir()
    return done.returncode, done.stderr, kept


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_work_for_long_is_left_alone(launcher: str, python: str, tmp_path: Path) -> None:
    code, told, kept = ran(launcher, "healthy", LONG, python, tmp_path)
    assert code == 0, told
    assert "HANG" not in told and "is deprecated; use TORCH_FR" not in told
    document = json.loads((kept / "run.json").read_text())
    assert document["hangs"] == []
    assert document["ranks"] == RANKS.get(launcher, [])


@pytest.mark.parametrize("launcher", LAUNCHERS)
def test_who_holds_the_job_up_is_named_and_nobody_is_called_dead(
    launcher: str, python: str, tmp_path: Path
) -> None:
    code, told, kept = ran(launcher, "sick", 3600, python, tmp_path)
    assert code != 0 and "ending the job" in told
    assert "peer_died" not in told and "no process any more" not in told
    found = json.loads((kept / "triage.json").read_text())
    assert "load_batch" in found["headline"]
    assert len(found["culprits"]) == 1
