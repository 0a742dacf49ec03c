"""Real Ray jobs that fail on purpose: what Ray's driver prints names the cause and the process."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nodedoctor.triage.job import examine_job
from nodedoctor.triage.model import Verdict

pytestmark = pytest.mark.real

JOB = Path(__file__).with_name("triage_ray_job.py")


@pytest.fixture(scope="module")
def python() -> str:
    """An interpreter that has Ray: NODEDOCTOR_RAY_PYTHON or ours."""
    for name in (os.environ.get("NODEDOCTOR_RAY_PYTHON"), sys.executable):
        if name and subprocess.run([name, "-c", "import ray"], capture_output=True).returncode == 0:
            return name
    pytest.skip("no Ray: set NODEDOCTOR_RAY_PYTHON to a Python that has it")


def run(python: str, folder: Path, fault: str) -> tuple[Verdict, int]:
    """The verdict on a job's log, and the pid of its guilty process. The job has its own Ray and home."""
    env = {**os.environ, "HOME": str(folder), "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    env.pop("RAY_ADDRESS", None)
    log = folder / "ray.log"
    with log.open("wb") as out:
        subprocess.run([python, str(JOB), fault], stdout=out, stderr=out, env=env, timeout=120)
    guilty = next(line for line in log.read_text().splitlines() if line.startswith("guilty: "))
    return examine_job([str(log)]).verdict, int(guilty.split()[1])


def test_a_killed_worker(python: str, tmp_path: Path) -> None:
    """Ray lists the out-of-memory killer among its guesses: that is no evidence."""
    verdict, guilty = run(python, tmp_path, "kill")
    assert verdict.cause == "peer_died"
    assert [who.pid for who in verdict.culprits] == [guilty]


def test_an_exception_in_a_worker(python: str, tmp_path: Path) -> None:
    verdict, guilty = run(python, tmp_path, "exception")
    assert verdict.cause == "user_code_exception"
    assert "shard 17 has no tokens" in verdict.headline
    assert {who.pid for who in verdict.culprits} <= {guilty}


def test_a_job_that_ends_well(python: str, tmp_path: Path) -> None:
    assert run(python, tmp_path, "none")[0].outcome == "clean"
