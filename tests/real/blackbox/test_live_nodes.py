"""A real Slurm job that hangs on four nodes: found from outside, by every way to its nodes, and watched."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hosts import BIN
from slurm_cluster import Cluster, running, until

pytestmark = pytest.mark.real

JOB = Path(__file__).parents[1] / "triage" / "triage_job.py"
LEFT = re.compile(rf"nodedoctor watch|probes/job/|{JOB.name}")
SCRIPT = """#!/bin/bash
{arm}
export MASTER_ADDR=10.77.0.2 MASTER_PORT=29731 TIMEOUT=300 GLOO_SOCKET_IFNAME=eth0 PATH={path}:$PATH
srun --ntasks=4 --task-prolog={prolog} --output={out} --mpi=none bash -c \
    'RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS exec {python} {job} sleep 2'
"""

RECIPE = Path(__file__).parents[3] / "docs/recipes/blackbox/README.md"


def task_prolog(folder: Path) -> str:
    """The one of the recipe, with places of its own, and small limits."""
    (found,) = re.findall(r"```sh\n(#!/bin/sh\nif .*?)```", RECIPE.read_text(), re.DOTALL)
    places = {
        "nodedoctor watch": f"{BIN}/nodedoctor watch --hang-after 8",
        "/shared/nodedoctor-jobs": f"{folder}/watched",
    }
    for place, ours in places.items():
        assert found.count(place) == 1
        found = found.replace(place, ours)
    return str(found)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, nvml_folder: Path) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("slurm")
    for place in (folder, *folder.parents[:2]):
        place.chmod(0o755)
    with running(folder, nvml_folder) as made:
        yield made


@pytest.fixture(scope="module")
def job(cluster: Cluster, python: str) -> Iterator[str]:
    """The id of a job whose rank 2, on the third node, sleeps; it was armed in its batch script."""
    folder = cluster.hosts.folder
    arm = f'eval "$({BIN}/nodedoctor arm --sbatch --dir {folder}/armed)"'
    out = folder / "train.log"
    prolog, script = folder / "task-prolog", folder / "job.sh"
    prolog.write_text(task_prolog(folder))
    prolog.chmod(0o755)
    path = Path(python).parent
    script.write_text(SCRIPT.format(arm=arm, prolog=prolog, out=out, path=path, python=python, job=JOB))
    words = (
        "sbatch",
        "--parsable",
        "-N4",
        "--ntasks-per-node=1",
        f"--output={folder}/batch.log",
        str(script),
    )
    number = cluster.slurm(*words).strip()
    until(lambda: out.exists() and "step 4" in out.read_text())
    time.sleep(1)
    yield number
    cluster.slurm("scancel", number)


def live(cluster: Cluster, *words: str, **env: str) -> dict[str, Any]:
    """The verdict of `triage --live` as somebody on host 0 gets it."""
    set_ = [f"{name}={value}" for name, value in {"SLURM_CONF": str(cluster.conf), **env}.items()]
    done = cluster.hosts[0].run("env", *set_, str(BIN / "nodedoctor"), "triage", "--live", "--json", *words)
    assert done.returncode == 2, done.stdout + done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_by_slurm(cluster: Cluster, job: str) -> None:
    found = live(cluster, "--slurm", job)
    assert [(who["rank"], who["host"]) for who in found["culprits"]] == [(2, "gpu-node-3")]
    assert "misbehave" in found["headline"]
    assert found["coverage"]["ranks_seen"] == [0, 1, 2, 3]
    first = found["standings"][0]
    assert (first["ranks"], first["hosts"]) == ([[2, 2]], ["gpu-node-3"])


def test_watches_from_a_task_prolog(cluster: Cluster, job: str) -> None:
    """Each node sees its own rank only, the sleeping one waits for nobody: together they name it."""
    watched = cluster.hosts.folder / "watched"
    until(lambda: len(list(watched.glob("*/capture.json"))) == 4)
    done = cluster.hosts[0].run(str(BIN / "nodedoctor"), "triage", "--json", str(watched))
    found = json.loads(done.stdout)
    assert [(who["rank"], who["host"]) for who in found["culprits"]] == [(2, "gpu-node-3")]
    stacks = [path.read_text() for path in watched.glob("gpu-node-3-*/stacks/rank-2-*.txt")]
    assert stacks and "misbehave" in stacks[0]  # by the signal that the armed ranks have registered


def test_by_ssh_with_a_node_that_is_cut_off(cluster: Cluster, job: str) -> None:
    """The nodes that answer are judged, and the silent one is named."""
    hosts = cluster.hosts
    hosts[1].cut()
    argv = [
        str(BIN / "nodedoctor"),
        "triage",
        "--live",
        "--json",
        "--ssh",
        "gpu-node-[1-4]",
        "--deadline",
        "15",
    ]
    env = {**os.environ, "PATH": hosts.path}
    done = subprocess.run(argv, capture_output=True, text=True, env=env, timeout=60)
    assert done.returncode == 2, done.stdout + done.stderr
    found = json.loads(done.stdout)
    assert [who["rank"] for who in found["culprits"]] == [2]
    assert [silent["host"] for silent in found["coverage"]["silent"]] == ["gpu-node-1"]
    assert "gpu-node-1 gave no answer" in found["headline"]


def test_scancel_leaves_nothing(cluster: Cluster, job: str) -> None:
    cluster.slurm("scancel", job)
    for host in list(cluster.hosts)[2:]:  # the first of them has been cut off
        until(
            lambda host=host: not [one for one in host.processes() if "nodedoctor" in one or str(JOB) in one]
        )
