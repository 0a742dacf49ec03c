"""`scancel` of a job that ignores SIGTERM leaves nothing of it nor of us, however Slurm tracks processes."""

from __future__ import annotations

import errno
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts import BIN
from slurm_cluster import Cluster, running, until

pytestmark = pytest.mark.real

FREEZER = Path("/sys/fs/cgroup/freezer")
RANK = """
import os, signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
for step in range(600):
    print(f"step {step} loss 1.0", flush=True)
    time.sleep(1)
"""
PROLOG = """#!/bin/sh
setsid {bin}/nodedoctor watch --slurm "$SLURM_JOB_ID" --dir {folder}/watched </dev/null >/dev/null 2>&1 &
sleep 1
"""
IN_BATCH = "exec {bin}/nodedoctor run --dir {folder}/ran -- srun --task-prolog={prolog} {python} {rank}"
IN_TASK = "srun --task-prolog={prolog} {bin}/nodedoctor run --dir {folder}/ran -- {python} {rank}"


@pytest.fixture(scope="module", params=["pgid", "linuxproc", "cgroup"])
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, nvml_folder: Path
) -> Iterator[Cluster]:
    if request.param == "cgroup" and not (FREEZER / "tasks").exists():
        pytest.skip("needs root and the freezer of cgroup v1")
    folder = tmp_path_factory.mktemp("slurm")
    for place in (folder, *folder.parents[:2]):
        place.chmod(0o755)
    with running(folder, nvml_folder, request.param) as made:
        yield made
    for group in sorted(FREEZER.glob("slurm_gpu-node-*/**/"), reverse=True):
        until(lambda group=group: gone(group))


@pytest.mark.parametrize("command", [IN_BATCH, IN_TASK], ids=["run around srun", "run in the task"])
def test_nothing_is_left(command: str, cluster: Cluster) -> None:
    folder = cluster.hosts.folder
    names = {"bin": BIN, "folder": folder, "prolog": folder / "prolog.sh", "rank": folder / "rank.py"}
    names["python"] = BIN / "python"
    names["prolog"].write_text(PROLOG.format(**names))
    names["prolog"].chmod(0o755)
    names["rank"].write_text(RANK)
    (folder / "job.sh").write_text("#!/bin/bash\n" + command.format(**names) + "\n")
    out = folder / f"out-{time.monotonic_ns()}"
    number = cluster.slurm("sbatch", "--parsable", "-N1", f"--output={out}", f"{folder}/job.sh").strip()
    until(lambda: out.exists() and "step 3" in out.read_text())
    assert left(cluster)
    assert bool(list(FREEZER.glob("slurm_gpu-node-*/uid_0/job_*"))) == (cluster.tracking == "cgroup")
    cluster.slurm("scancel", number)
    until(lambda: not left(cluster))
    subprocess.run(["rm", "-rf", f"{folder}/ran", f"{folder}/watched"], check=True)


def gone(group: Path) -> bool:
    """Whether a control group is gone: the kernel calls it busy until the last task in it is reaped."""
    try:
        group.rmdir()
    except FileNotFoundError:
        return True
    except OSError as refused:
        if refused.errno != errno.EBUSY:
            raise
        return False
    return True


def left(cluster: Cluster) -> list[str]:
    """What runs on the nodes of the job or of us."""
    words = ("nodedoctor ", "probes/job/", "rank.py", "srun ")
    found = [line for host in list(cluster.hosts)[1:] for line in host.processes()]
    return [line for line in found if any(word in line for word in words)]
