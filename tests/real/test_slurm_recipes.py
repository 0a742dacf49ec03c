"""The recipes for Slurm in a real Slurm: a sick node is drained with its finding, a healed one comes back."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from nodedoctor.demo import folder as demo

NODES = Path(__file__).parent.parent / "nodes"
MEMORY = Path("/sys/fs/cgroup/memory")
RECIPES = Path(__file__).parent.parent.parent / "docs" / "recipes" / "slurm"
RECOMMENDED = [
    line for line in (RECIPES / "slurm.conf").read_text().splitlines() if line and "nodedoctor" not in line
]
DAEMONS = ("munged", "slurmctld", "slurmd")
OFTEN = [re.sub(r"(HealthCheckInterval=).*", r"\g<1>2", line) for line in RECOMMENDED]
PATIENCE = 60  # seconds; a hang guard

pytestmark = pytest.mark.real

SLURM_CONF = """\
ClusterName=one
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmdPort={node}
AuthType=auth/munge
AuthInfo=socket={folder}/munge/socket
CryptoType=crypto/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=1 RealMemory=100 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=5 State=UP
"""
CGROUP_CONF = """\
CgroupPlugin=cgroup/v1
CgroupMountpoint=/sys/fs/cgroup
ConstrainRAMSpace=yes
ConstrainSwapSpace=yes
AllowedSwapSpace=0
"""
BY_MEMORY = ("SelectType=select/cons_tres", "SelectTypeParameters=CR_Core_Memory")
"""By default a job's --mem is no limit."""


class Cluster:
    """One node under Slurm, beside any other Slurm: own ports, own keys, no configuration of the machine."""

    def __init__(self, folder: Path, health: str) -> None:
        self.folder = folder
        self.host = socket.gethostname().split(".")[0]
        self.running: list[subprocess.Popen[bytes]] = []
        self.health(health)
        (folder / "cgroup.conf").write_text(CGROUP_CONF)
        self.conf = folder / "slurm.conf"
        for name in ("healthcheck", "prolog"):
            script = (RECIPES / f"{name}.sh").read_text()
            assert "nodedoctor=/usr/local/bin/nodedoctor\n" in script
            script = script.replace("/usr/local/bin/nodedoctor", str(folder / "nodedoctor"))
            script = script.replace("/run/nodedoctor/refused", str(folder / "refused"))
            # A health check has no SLURM_CONF: scontrol looks where a configuration is by default.
            self._script(name, script.replace("#!/bin/sh\n", f"#!/bin/sh\nexport SLURM_CONF={self.conf}\n"))
        self.conf.write_text(
            SLURM_CONF.format(folder=folder, host=self.host, controller=_free_port(), node=_free_port())
        )
        for name in ("state", "spool", "munge"):
            (folder / name).mkdir(mode=0o755)

    def health(self, node: str) -> None:
        """What nodedoctor says of this node from now on: it judges that recording, with all options."""
        own = NODES / node
        self._answer_by("--replay", str(own if own.is_dir() else demo(node)))

    def health_of_this_machine(self) -> None:
        """What nodedoctor says of this node is what it sees on this machine."""
        self._answer_by()

    def _answer_by(self, *words: str) -> None:
        command = shlex.join([sys.executable, "-m", "nodedoctor", *words])
        self._script("nodedoctor.new", f'#!/bin/sh\nexec {command} "$@"\n')
        (self.folder / "nodedoctor.new").rename(self.folder / "nodedoctor")

    def configure(self, *lines: str) -> None:
        with self.conf.open("a") as conf:
            conf.write("".join(f"{line.format(folder=self.folder)}\n" for line in lines))

    def start(self) -> None:
        munge = self.folder / "munge"
        (munge / "key").write_bytes(os.urandom(128))
        (munge / "key").chmod(0o400)
        files = [f"--{option}-file={munge}/{option}" for option in ("key", "pid", "seed", "log")]
        self._run("munged", "--foreground", "--force", f"--socket={munge}/socket", *files)
        self.until(lambda: (munge / "socket").exists())
        self._run("slurmctld", "-D", "-f", str(self.conf))
        self._run("slurmd", "-D", "-f", str(self.conf), "-N", self.host)

    def ask(self, *argv: str) -> str:
        env = {**os.environ, "SLURM_CONF": str(self.conf)}
        return subprocess.run(argv, capture_output=True, text=True, env=env, timeout=PATIENCE).stdout

    def node(self) -> tuple[str, str]:
        """The state of the node and the reason for it."""
        shown = self.ask("scontrol", "-o", "show", "node", self.host)
        state = shown.partition(" State=")[2].partition(" ")[0]
        return state, shown.partition(" Reason=")[2].strip()

    def job(self, number: str) -> str:
        """All that Slurm says of a job, in one line."""
        return self.ask("scontrol", "-o", "show", "job", number)

    def submit(self, *words: str) -> str:
        """The number of a new job."""
        return self.ask("sbatch", "--parsable", "-o", "/dev/null", *words).strip()

    def findings(self, check: str) -> str:
        """What nodedoctor finds now by one check, as JSON."""
        report = json.loads(self.ask(str(self.folder / "nodedoctor"), "--json"))
        return json.dumps([one["findings"] for one in report["results"] if one["check"] == check])

    def until(self, holds: Callable[[], bool]) -> None:
        ends = time.monotonic() + PATIENCE
        while not holds():
            assert time.monotonic() < ends, f"{self.node()}\n{self.logs()}"
            time.sleep(0.2)

    def logs(self) -> str:
        paths = [self.folder / name for name in ("slurmctld.log", "slurmd.log")]
        return "\n".join(path.read_text()[-4000:] for path in paths if path.exists())

    def end(self) -> None:
        for daemon in reversed(self.running):
            daemon.terminate()
        for daemon in reversed(self.running):
            try:
                daemon.wait(10)
            except subprocess.TimeoutExpired:
                daemon.kill()
                daemon.wait()

    def _run(self, name: str, *argv: str) -> None:
        with (self.folder / f"{name}.out").open("wb") as out:
            found = shutil.which(name)
            assert found
            env = {**os.environ, "SLURM_CONF": str(self.conf)}
            self.running.append(subprocess.Popen([found, *argv], stdout=out, stderr=out, env=env))

    def _script(self, name: str, text: str) -> None:
        (self.folder / name).write_text(text)
        (self.folder / name).chmod(0o755)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    missing = [name for name in DAEMONS if shutil.which(name) is None]
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    if os.geteuid() != 0:
        pytest.skip("slurmd needs root")
    with tempfile.TemporaryDirectory(prefix="slurm-") as folder:  # any pytest closes its own to other users
        Path(folder).chmod(0o755)
        made = Cluster(Path(folder), "healthy")
        yield made
        made.end()


def test_the_health_check_drains_a_sick_node_and_gives_it_back(cluster: Cluster):
    cluster.configure("HealthCheckProgram={folder}/healthcheck", *OFTEN)
    cluster.start()
    cluster.until(lambda: cluster.node()[0] == "IDLE")

    cluster.health("nvlinks-down")
    cluster.until(lambda: cluster.node()[0] == "IDLE+DRAIN")
    assert cluster.node()[1].startswith("nodedoctor: provider: GPU 3 lost 2 NVLinks")

    cluster.health("healthy")
    cluster.until(lambda: cluster.node() == ("IDLE", ""))

    time.sleep(5)  # a health check may be about to give the node back once more
    cluster.ask("scontrol", "update", f"NodeName={cluster.host}", "State=DRAIN", "Reason=the door is open")
    for health in ("nvlinks-down", "healthy"):
        cluster.health(health)
        time.sleep(5)  # more than one health check
        state, reason = cluster.node()
        assert state == "IDLE+DRAIN" and reason.startswith("the door is open")


def test_a_node_that_is_sick_when_slurmd_starts_is_drained(cluster: Cluster):
    cluster.health("driver-mismatch")
    cluster.configure("HealthCheckProgram={folder}/healthcheck", *OFTEN)
    cluster.start()
    cluster.until(lambda: cluster.node()[0] == "IDLE+DRAIN")
    assert cluster.node()[1].startswith("nodedoctor: administrator: driver mismatch")


def test_the_prolog_lets_jobs_onto_a_healthy_node_only(cluster: Cluster):
    cluster.configure("Prolog={folder}/prolog", *RECOMMENDED)
    cluster.start()
    cluster.until(lambda: cluster.node()[0] == "IDLE")
    ran = cluster.folder / "ran"
    assert "Submitted" in cluster.ask("sbatch", "-o", "/dev/null", "--wrap", f"touch {ran}")
    cluster.until(ran.exists)
    ran.unlink()

    cluster.health("nvlinks-down")
    job = cluster.ask("sbatch", "--parsable", "-o", "/dev/null", "--wrap", f"touch {ran}").strip()
    cluster.until(lambda: "DRAIN" in cluster.node()[0])
    assert cluster.node()[1].startswith("Prolog error")
    waiting = ("squeue", "-h", "-j", job, "-o", "%T %r")
    cluster.until(lambda: cluster.ask(*waiting).startswith("PENDING"))
    assert "held" not in cluster.ask(*waiting)
    assert not ran.exists()

    cluster.configure("HealthCheckProgram={folder}/healthcheck", "HealthCheckInterval=2")
    cluster.ask("scontrol", "reconfigure")
    cluster.until(lambda: cluster.node()[1].startswith("nodedoctor: provider: GPU 3 lost 2 NVLinks"))
    cluster.health("healthy")
    cluster.until(lambda: "DRAIN" not in cluster.node()[0])


def test_what_one_job_did_to_itself_keeps_no_next_job_away(cluster: Cluster):
    """An OOM kill, a wrong NCCL variable or Xids of the job before: the next one starts. A lost GPU: not."""
    cluster.configure("Prolog={folder}/prolog", *RECOMMENDED)
    cluster.start()
    cluster.until(lambda: cluster.node()[0] == "IDLE")
    ran = cluster.folder / "ran"
    for past in (
        "net-wrong-interface-name",
        "environment-of-six-mistakes",
        "h100-one-gpu-fails-three-programs",
    ):
        cluster.health(past)
        end_as_nobody(cluster)
    cluster.health("h100-off-the-bus")
    cluster.ask("sbatch", "-o", "/dev/null", "--wrap", f"touch {ran}")
    cluster.until(lambda: "DRAIN" in cluster.node()[0])
    assert not ran.exists()


@pytest.fixture
def this_machine(cluster: Cluster) -> Cluster:
    """The cluster, up, with a prolog that judges this machine, which can take jobs."""
    cluster.health_of_this_machine()
    before = subprocess.run([cluster.folder / "nodedoctor", "--gate"], capture_output=True, text=True)
    if before.returncode:
        pytest.skip(f"this machine itself is refused or not judged: {before.stdout.strip()}")
    cluster.configure("Prolog={folder}/prolog", *RECOMMENDED)
    return cluster


def test_the_next_user_starts_after_an_oom_kill_by_slurm(this_machine: Cluster):
    """The kernel kills a job of root for the limit that Slurm gave it; that refuses nobody."""
    if not os.access(MEMORY / "cgroup.procs", os.W_OK):
        pytest.skip("no memory controller of cgroup v1; a recorded log of such a kill stands in above")
    cluster = this_machine
    cluster.configure("TaskPlugin=task/cgroup", "ProctrackType=proctrack/cgroup", *BY_MEMORY)
    cluster.start()
    cluster.until(lambda: cluster.node()[0] == "IDLE")
    greedy = f"exec {sys.executable} -c 'kept = [bytes([1]) * (1 << 20) for _ in range(200)]'"
    number = cluster.submit("--mem=40", f"--wrap={greedy}")
    cluster.until(lambda: "JobState=OUT_OF_MEMORY" in cluster.job(number))
    assert f"/job_{number}" in cluster.findings("kernel.oom")
    end_as_nobody(cluster)


def test_the_next_user_starts_after_a_job_with_a_wrong_variable(this_machine: Cluster):
    """A process of root's job lives on; NCCL_SOCKET_IFNAME names an interface that is not there."""
    cluster = this_machine
    cluster.start()
    cluster.until(lambda: cluster.node()[0] == "IDLE")
    wrong = "RANK=0 WORLD_SIZE=2 NCCL_SOCKET_IFNAME=no-such0 setsid sleep 300 & echo $! > left; wait 0"
    number = cluster.submit(f"--chdir={cluster.folder}", f"--wrap={wrong}")
    cluster.until(lambda: "JobState=" in cluster.job(number) and "RUNNING" not in cluster.job(number))
    end_as_nobody(cluster)


def end_as_nobody(cluster: Cluster) -> None:
    """A job of another user comes to its end, on the same node."""
    number = cluster.submit("--uid=nobody", "--chdir=/", "--wrap=exit 0")
    cluster.until(lambda: "JobState=COMPLETED" in cluster.job(number))
    job = cluster.job(number)
    assert "UserId=nobody" in job and "ExitCode=0:0" in job and f"NodeList={cluster.host} " in job
    assert "DRAIN" not in cluster.node()[0]
