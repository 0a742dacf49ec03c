"""A real local Ray against what is said of it: another version in the target, GPUs that are not there."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_python import add_package, make_env

pytestmark = pytest.mark.real

PORT = "6399"
START = ["--head", "--num-cpus=1", "--num-gpus=4", "--include-dashboard=false", f"--port={PORT}"]


@pytest.fixture(scope="module", params=["no token", "token"])
def ray(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The `ray` command of NODEDOCTOR_RAY_PYTHON's environment, ours or PATH's, with a head node started.

    Its user has a token, which an earlier `ray.init` has left there and a cluster then asks for, or none.
    """
    python = os.environ.get("NODEDOCTOR_RAY_PYTHON", sys.executable)
    beside = Path(python).parent / "ray"
    command = str(beside) if beside.exists() else shutil.which("ray") or ""
    if not command:
        pytest.skip("no Ray: set NODEDOCTOR_RAY_PYTHON to a Python that has it")
    ends = time.monotonic() + 60  # that of a test before may take a moment to go
    while subprocess.run(["pgrep", "-x", "raylet"], capture_output=True).returncode == 0:
        if time.monotonic() > ends:
            pytest.skip("a Ray runs here already, which is not ours to stop")
        time.sleep(1)
    home = tmp_path_factory.mktemp("home")
    told = {"HOME": str(home), "RAY_USAGE_STATS_ENABLED": "0"}
    if request.param == "token":
        (home / ".ray").mkdir()
        (home / ".ray" / "auth_token").write_text("5f" * 32)
        mode = {"RAY_AUTH_MODE": "token"}  # `ray status` itself needs it, the doctor does not
    else:
        mode = {}
    start = [command, "start", *START, "--object-store-memory=100000000"]
    with pytest.MonkeyPatch.context() as patch:
        for name, value in told.items():
            patch.setenv(name, value)
        subprocess.run(start, check=True, capture_output=True, timeout=60)
        for _ in range(30):  # the cluster knows its own status only some seconds later
            asked = subprocess.run(
                [command, "status"], env={**os.environ, **mode}, capture_output=True, timeout=60
            )
            if b"Node status" in asked.stdout:
                break
            time.sleep(1)
        yield command
        subprocess.run([command, "stop", "--force"], capture_output=True, timeout=60)


def diagnose(*words: str, **env: str) -> dict[str, list[dict[str, str]]]:
    """The findings of each check."""
    argv = [sys.executable, "-m", "nodedoctor", "--json", *words]
    done = subprocess.run(argv, capture_output=True, text=True, env={**os.environ, **env}, timeout=120)
    return {result["check"]: result["findings"] for result in json.loads(done.stdout)["results"]}


def test_more_gpus_than_the_driver_shows(ray: str):
    if Path("/dev/nvidiactl").exists():
        pytest.skip("this node has GPUs, so four may be right")
    found = {finding["subject"]: finding for finding in diagnose("ray.resources")["ray.resources"]}
    assert found["ray:gpus"]["status"] == "fail"
    assert "reports 4 GPUs" in found["ray:gpus"]["summary"]
    assert "ray:status" not in found  # the cluster answered


def test_another_ray_in_the_target_is_named(ray: str, tmp_path: Path):
    site = make_env(tmp_path / "venv")
    add_package(site, "ray", "2.6.0")
    words = ("--python", str(tmp_path / "venv/bin/python"), "ray.version")
    found = diagnose(*words)["ray.version"]
    assert found[0]["status"] == "fail"
    assert "Ray 2.6.0, the running" in found[0]["summary"]


def test_a_dead_address_costs_its_deadline(ray: str):
    began = time.monotonic()
    found = diagnose("ray.resources", RAY_ADDRESS="127.0.0.1:6555")["ray.resources"]
    assert time.monotonic() - began < 30
    silent = next(finding for finding in found if finding["subject"] == "ray:status")
    assert silent["status"] == "unknown"
    assert silent["reason"] == "timeout"
