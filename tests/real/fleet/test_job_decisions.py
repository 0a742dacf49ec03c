"""The recipes that act on a job's decision in a real Slurm: what runs where afterwards, without a hand."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts import BIN
from slurm_cluster import PATIENCE, Cluster, running, until

pytestmark = pytest.mark.real

RECIPES = Path(__file__).parents[3] / "docs" / "recipes" / "slurm"
MORE = """\
PreemptType=preempt/partition_prio
PreemptMode=CANCEL
PartitionName=urgent Nodes=gpu-node-[1-4] PriorityTier=100 State=UP
"""
XID = "NVRM: Xid (PCI:0000:9b:00): 79, pid=4003, name=python, GPU has fallen off the bus."
SICK = f"""\
if [ "$SLURMD_NODENAME" = gpu-node-1 ]; then
    echo "Nov 26 10:20:29 gpu-node-1 kernel: {XID}"
    exit 1
fi
"""
BROKEN = """\
echo 'Traceback (most recent call last):'
echo '  File "train.py", line 7, in <module>'
echo 'ValueError: no such column'
exit 1
"""
OOM = """\
echo 'slurmstepd: error: Detected 1 oom_kill event in StepId=7.batch. Some of the tasks were OOM Killed.'
exit 137
"""


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, nvml_folder: Path) -> Iterator[Cluster]:
    folder = tmp_path_factory.mktemp("decisions")
    folder.chmod(0o755)
    with running(folder, nvml_folder, more=MORE) as made:
        for name in ("retry.sh", "vetted.sh"):
            script = (RECIPES / name).read_text()
            assert "nodedoctor=/usr/local/bin/nodedoctor\n" in script
            (folder / name).write_text(script.replace("/usr/local/bin/nodedoctor", str(BIN / "nodedoctor")))
            (folder / name).chmod(0o755)
        yield made


class Job:
    """A batch job that notes where it ran, under retry.sh."""

    def __init__(self, cluster: Cluster, name: str, body: str, *words: str) -> None:
        self.folder = cluster.hosts.folder / name
        self.folder.mkdir()
        self.script = self.folder / "train.sbatch"
        note = f'echo "$SLURM_JOB_NODELIST" >> {self.folder}/ran\n'
        done = 'for n in 1 2 3; do echo "step $n loss: 2.$n"; done\necho "Training completed"\n'
        self.script.write_text(f"#!/bin/sh\n{note}{body}{done}")
        env = [f"SLURM_CONF={cluster.conf}", f"LOGS={self.folder}/logs", "TRIES=3"]
        argv = ("env", *env, str(cluster.hosts.folder / "retry.sh"), *words, str(self.script))
        self.process = subprocess.Popen(
            cluster.hosts[0].argv(*argv), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )

    @property
    def ran(self) -> list[str]:
        """The nodes of each try."""
        path = self.folder / "ran"
        return path.read_text().split() if path.exists() else []

    def end(self) -> tuple[int, str]:
        out, _ = self.process.communicate(timeout=2 * PATIENCE)
        return self.process.returncode, out


def test_a_job_goes_on_without_the_node_whose_gpu_is_lost(cluster: Cluster) -> None:
    job = Job(cluster, "sick", SICK, "--nodes=2")
    code, out = job.end()
    assert (code, job.ran) == (0, ["gpu-node-[1-2]", "gpu-node-[2-3]"]), out
    assert (job.folder / "logs" / "bad-nodes.txt").read_text() == "gpu-node-1\n"
    assert "restart-without gpu-node-1: gpu_hardware_xid/fell_off_bus" in out


def test_an_error_of_the_code_runs_once(cluster: Cluster) -> None:
    job = Job(cluster, "broken", BROKEN)
    code, out = job.end()
    assert (code, len(job.ran)) == (12, 1), out
    assert "stop: user_code_exception" in out


def test_a_job_without_enough_memory_runs_once(cluster: Cluster) -> None:
    job = Job(cluster, "memory", OOM)
    code, out = job.end()
    assert (code, len(job.ran)) == (12, 1), out
    assert "stop: peer_host_oom" in out


def test_a_job_that_slurm_preempts_starts_again_and_ends_well(cluster: Cluster) -> None:
    # exec: where Slurm's signal reaches a child of the script first, the script would go on to its good end.
    job = Job(cluster, "preempted", f"[ -e {cluster.hosts.folder}/freed ] || exec sleep 300\n", "--exclusive")
    until(lambda: job.ran)
    urgent = ("srun", "-p", "urgent", "--exclusive", "--nodes=4", "touch", f"{cluster.hosts.folder}/freed")
    cluster.slurm(*urgent, timeout=PATIENCE)
    code, out = job.end()
    assert code == 0 and len(job.ran) == 2, out
    assert "restart: none/preempted" in out
    assert not (job.folder / "logs" / "bad-nodes.txt").read_text()


def test_the_tries_are_counted(cluster: Cluster) -> None:
    taken = "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network"
    line = f"{taken} address. port: 29500, useIpv6: false, code: -98, name: EADDRINUSE"
    job = Job(cluster, "port", f"echo '{line}'\nexit 1\n")
    code, out = job.end()
    assert (code, len(job.ran)) == (10, 3), out
    assert "3 tries are used up" in out


def test_a_job_with_spare_nodes_runs_on_the_good_ones(cluster: Cluster) -> None:
    cluster.hosts[2].tell({"gpu3.link4": "down"})
    folder = cluster.hosts.folder
    words = ("sbatch", "--wait", "--nodes=4", f"--output={folder}/vetted.log", str(folder / "vetted.sh"))
    began = time.monotonic()
    cluster.slurm(*words, "2", "sh", "-c", "echo ran on $SLURMD_NODENAME", timeout=PATIENCE)
    log = (folder / "vetted.log").read_text()
    assert time.monotonic() - began < PATIENCE
    assert sorted(line.split()[-1] for line in log.splitlines() if "ran on" in line)[:1] != ["gpu-node-2"]
    ran = {line.split()[-1] for line in log.splitlines() if line.startswith("ran on ")}
    assert len(ran) == 2 and "gpu-node-2" not in ran, log
