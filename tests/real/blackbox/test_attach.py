"""Real jobs that hang, watched from outside: the guilty rank is named before the job's own limit ends it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest

pytestmark = pytest.mark.real

TORCH_JOB = Path(__file__).parents[1] / "triage" / "triage_job.py"
RAY_JOB = Path(__file__).with_name("ray_job.py")
WATCH = (sys.executable, "-m", "nodedoctor", "watch", "--hang-after", "8")


def watched(*options: str, folder: Path, env: dict[str, str]) -> dict[str, object]:
    """The verdict that a watch keeps as soon as it has seen a hang."""
    argv = [*WATCH, "--dir", str(folder), *options]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True, env=env) as watch:
        assert watch.stdout is not None
        for line in watch.stdout:
            if "kept in" in line:
                break
        watch.send_signal(signal.SIGINT)
        assert watch.wait(60) == 2
    (kept,) = folder.iterdir()
    found = json.loads((kept / "triage.json").read_text())
    assert isinstance(found, dict)
    return found


@contextmanager
def torchrun(python: str, folder: Path, fault: str) -> Iterator[int]:
    """The pid of a launcher whose rank 2 misbehaves after a few steps."""
    argv = [python, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "4"]
    with (folder / "train.log").open("wb") as log:
        job = subprocess.Popen(
            [*argv, str(TORCH_JOB), fault, "2"], stdout=log, stderr=log, env={**os.environ, "TIMEOUT": "120"},
            start_new_session=True,
        )  # fmt: skip
    try:
        yield job.pid
        assert job.poll() is None  # it was looked at, and still runs
    finally:
        ranks = psutil.Process(job.pid).children(recursive=True)
        job.kill()
        for rank in ranks:
            with suppress(psutil.NoSuchProcess):
                rank.kill()
        job.wait()


@pytest.mark.parametrize(
    ("fault", "shown"), [("sleep", "misbehave"), ("stop", "is stopped"), ("loader", "misbehave")]
)
def test_torchrun(python: str, fault: str, shown: str, tmp_path: Path) -> None:
    path = f"{Path(python).parent}{os.pathsep}{os.environ['PATH']}"
    with torchrun(python, tmp_path, fault) as pid:
        found = watched("--job", str(pid), folder=tmp_path / "jobs", env={**os.environ, "PATH": path})
    assert [who["rank"] for who in found["culprits"]] == [2]  # type: ignore[attr-defined]
    assert shown in str(found["headline"])


@pytest.mark.parametrize("armed", [False, True])
def test_ray(armed: bool, tmp_path: Path) -> None:
    """The raylet was started before us, the driver passes its own runtime_env or ours, one actor sleeps."""
    python = os.environ.get("NODEDOCTOR_RAY_PYTHON", "")
    if not python:
        pytest.skip("no Ray: set NODEDOCTOR_RAY_PYTHON to a Python that has it")
    env = {**os.environ, "HOME": str(tmp_path), "RAY_AUTH_MODE": "disabled", "RAY_USAGE_STATS_ENABLED": "0"}
    env.pop("RAY_ADDRESS", None)
    if armed:
        block = subprocess.run(
            [sys.executable, "-m", "nodedoctor", "arm", "--ray", "--dir", str(tmp_path / "armed")],
            capture_output=True, text=True, check=True, env=env,
        )  # fmt: skip
        env["ARMED"] = block.stdout
    env["PATH"] = f"{Path(python).parent}{os.pathsep}{env['PATH']}"
    ray = str(Path(python).with_name("ray"))
    head = [
        ray,
        "start",
        "--head",
        "--num-cpus",
        "4",
        "--include-dashboard=false",
        "--temp-dir",
        "/tmp/nd-ray",
    ]
    subprocess.run(head, env=env, capture_output=True, check=True, timeout=120)
    try:
        with (tmp_path / "driver.log").open("wb") as log:
            driver = subprocess.Popen([python, str(RAY_JOB)], stdout=log, stderr=log, env=env)
        found = watched("--ray", folder=tmp_path / "jobs", env=env)
        words = ("triage", "--live", "--ray", "--json", "--python", python)
        asked = subprocess.run(
            [sys.executable, "-m", "nodedoctor", *words], capture_output=True, text=True, env=env, timeout=120
        )
        assert driver.poll() is None
        driver.kill()
        driver.wait()
    finally:
        subprocess.run([ray, "stop", "--force"], env=env, capture_output=True, timeout=60, check=False)
    for one in (found, json.loads(asked.stdout)):
        assert [who["rank"] for who in one["culprits"]] == [2], asked.stderr
        assert "load_batch" in str(one["headline"])
    stacks = "".join(path.read_text() for path in (tmp_path / "jobs").glob("*/stacks/rank-2-*.txt"))
    assert stacks and ("Thread 0x0000000000000000" in stacks) != armed  # py-spy's threads have numbers
