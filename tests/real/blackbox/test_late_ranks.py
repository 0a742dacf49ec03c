"""A rank that comes late to every step of a job with real collectives, beside a healthy twin."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = [pytest.mark.real, pytest.mark.alone]

JOB = Path(__file__).with_name("late_job.py")
NODEDOCTOR = (sys.executable, "-m", "nodedoctor")
STEPS = 90


@pytest.mark.parametrize("late", [2, -1])
def test_the_late_rank_is_named_while_the_job_runs(late: int, python: str, tmp_path: Path) -> None:
    torchrun = (python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4")
    with open(tmp_path / "out.log", "wb") as out:
        job = subprocess.Popen([*torchrun, str(JOB), str(late), str(STEPS)], stdout=out, stderr=out)
    watching = [*NODEDOCTOR, "watch", "--job", str(job.pid), "--dir", str(tmp_path / "jobs")]
    try:
        watch = subprocess.Popen(watching, stdout=subprocess.PIPE, text=True)
        looking = [*NODEDOCTOR, "triage", "--json", "--live", str(job.pid)]
        while "step 5 " not in (tmp_path / "out.log").read_text():
            assert job.poll() is None
        look = subprocess.run(looking, capture_output=True, text=True, timeout=100)
        said, _ = watch.communicate(timeout=150)
    finally:
        job.kill()
        job.wait()
    (kept,) = (tmp_path / "jobs").iterdir()
    told = json.loads((kept / "run.json").read_text())
    found = json.loads(look.stdout)
    assert told["hangs"] == [] and "HANG" not in said
    if late < 0:
        assert told["late_ranks"] == [] and " late " not in said
        assert (found["outcome"], look.returncode) == ("clean", 0)
    else:
        assert [one["rank"] for one in told["late_ranks"]] == [late]
        assert f"rank {late} arrives " in said
        assert [who["rank"] for who in found["culprits"]] == [late]
        assert f"rank {late}" in found["headline"] and " ms late in " in found["headline"]
