"""An nvidia-smi in uninterruptible sleep: SIGKILL has no effect, and the run still ends, naming it."""

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import pytest
from test_hang import nodedoctor

from nodedoctor.cli.headless import WRITE_TIMEOUT_S

pytestmark = [pytest.mark.real, pytest.mark.alone]

REPOSITORY = Path(__file__).parents[2]
FREEZER = Path("/sys/fs/cgroup/freezer")

NVIDIA_SMI = """#!/bin/sh
echo $$ > {group}/cgroup.procs
echo FROZEN > {group}/freezer.state
while :; do sleep 1; done
"""


@pytest.fixture
def freezer():
    """A control group that freezes its members where no signal reaches them."""
    if not (os.geteuid() == 0 and FREEZER.is_dir()):
        pytest.skip("needs root and the freezer of cgroup v1")
    group = FREEZER / "nodedoctor-test"
    group.mkdir()
    yield group
    (group / "freezer.state").write_text("THAWED")
    for _ in range(100):
        if not (group / "cgroup.procs").read_text():
            break
        time.sleep(0.05)
    group.rmdir()


def test_a_child_that_cannot_be_killed(tmp_path, fake_nvml, freezer):
    tool = tmp_path / "bin" / "nvidia-smi"
    tool.parent.mkdir()
    tool.write_text(NVIDIA_SMI.format(group=freezer))
    tool.chmod(0o755)
    env = {**fake_nvml({"init_error": 999}), "PATH": f"{tool.parent}:{os.environ['PATH']}"}
    code, results, report, took = nodedoctor(tmp_path, "--deadline", "6", env=env)
    assert took < 6 + 1 + 2
    asked = {probe["name"]: probe for probe in report["probes"]}
    smi = asked["nvidia-smi-xml"]
    assert smi["outcome"] == "stuck"
    assert "SIGKILL had no effect" in smi["note"] and "state D" in smi["note"]
    assert smi["note"].split("pid ")[1].split()[0] in (freezer / "cgroup.procs").read_text().split()
    assert results["driver.answers"]["status"] == "fail"
    assert code == 2
    later = asked.get("nvidia-smi-topo")
    assert later is None or later["outcome"] == "skipped"


@pytest.fixture
def frozen(tmp_path):
    """A folder on a file system whose writers never return."""
    tools = ("fsfreeze", "mkfs.ext4", "mount")
    if os.geteuid() != 0 or not all(map(shutil.which, tools)):
        pytest.skip("needs root, fsfreeze and mkfs.ext4")
    image, folder = tmp_path / "disk.img", tmp_path / "frozen"
    folder.mkdir()
    with open(image, "wb") as file:
        file.truncate(16 << 20)
    subprocess.run(["mkfs.ext4", "-q", str(image)], check=True)
    if subprocess.run(["mount", "-o", "loop", str(image), str(folder)], capture_output=True).returncode:
        pytest.skip("cannot mount a loop device here")
    subprocess.run(["fsfreeze", "-f", str(folder)], check=True)
    yield folder
    subprocess.run(["fsfreeze", "-u", str(folder)], check=False)
    for _ in range(50):
        if subprocess.run(["umount", str(folder)], capture_output=True).returncode == 0:
            break
        time.sleep(0.1)


def test_a_recording_on_a_dead_file_system_costs_seconds_and_not_the_report(frozen):
    argv = [sys.executable, "-m", "nodedoctor", "--json", "--record", str(frozen / "node.zip"), "doctor"]
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY)}
    began = time.monotonic()
    done = subprocess.run(argv, env=environment, cwd="/", capture_output=True, text=True, timeout=60)
    assert time.monotonic() - began < WRITE_TIMEOUT_S + 10
    assert json.loads(done.stdout)["counts"]["pass"] >= 1
    assert done.returncode == 74
    assert "node.zip: no answer in" in done.stderr
