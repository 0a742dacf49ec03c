"""A real Slurm on hosts of namespaces: slurmctld on the first, slurmd on the four others."""

from __future__ import annotations

import json
import os
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from fakes import CONFIG
from hosts import BIN, Host, Hosts, need

PATIENCE = 180  # seconds; a hang guard, for machines with far more to do
SLURM_CONF = """\
ClusterName=lab
SlurmctldHost=gpu-node-0
AuthType=auth/munge
AuthInfo=socket=/run/munge/socket
CryptoType=crypto/munge
SlurmUser=root
SlurmdUser=root
StateSaveLocation=/run/slurmctld
SlurmdSpoolDir=/run/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
SlurmctldLogFile=/run/slurmctld.log
SlurmdLogFile=/run/slurmd.log
ProctrackType=proctrack/{tracking}
KillWait=5
TaskPlugin=task/none
TaskProlog={prolog}
MpiDefault=none
ReturnToService=2
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdTimeout=300
NodeName=gpu-node-[1-4] CPUs=2 State=UNKNOWN
PartitionName=all Nodes=gpu-node-[1-4] Default=YES MaxTime=INFINITE State=UP
PartitionName=few Nodes=gpu-node-[1-2] State=UP
"""
CGROUP_CONF = """\
CgroupPlugin=cgroup/v1
CgroupMountpoint=/sys/fs/cgroup
CgroupAutomount=yes
"""
# A greeting before every task's output, and each node's own NVML in place of the one of whoever asks.
PROLOG = """#!/bin/sh
echo "print Welcome to $SLURMD_NODENAME"
echo "export {config}={folder}/$SLURMD_NODENAME/nvml.conf"
"""


class Cluster:
    """slurmctld on host 0, slurmd on the others, munge on all."""

    def __init__(self, hosts: Hosts, tracking: str) -> None:
        self.hosts = hosts
        self.tracking = tracking
        self.conf = hosts.folder / "slurm.conf"
        self._daemons: list[subprocess.Popen[bytes]] = []
        prolog = hosts.folder / "prolog"
        prolog.write_text(PROLOG.format(config=CONFIG, folder=hosts.folder))
        prolog.chmod(0o755)
        self.conf.write_text(SLURM_CONF.format(prolog=prolog, tracking=tracking))
        (hosts.folder / "cgroup.conf").write_text(CGROUP_CONF)
        (hosts.folder / "munge.key").write_bytes(os.urandom(128))
        (hosts.folder / "munge.key").chmod(0o400)

    def start(self) -> None:
        for host in self.hosts:
            for name in ("munge", "slurmctld", "slurmd"):
                host.run("mkdir", "-m", "755", f"/run/{name}", check=True)
            files = [f"--{name}-file=/run/munge/{name}" for name in ("pid", "seed", "log")]
            key = f"--key-file={self.hosts.folder / 'munge.key'}"
            self._daemon(host, "munged", "--foreground", "--force", "--socket=/run/munge/socket", key, *files)
            until(lambda host=host: host.run("test", "-S", "/run/munge/socket").returncode == 0)
        self._daemon(self.hosts[0], "slurmctld", "-D", "-f", str(self.conf))
        for host in list(self.hosts)[1:]:
            self._daemon(host, "slurmd", "-D", "-f", str(self.conf))
        until(lambda: self.slurm("sinfo", "-h", "-o", "%D|%t|%R").count("4|idle|all"))

    def slurm(self, *words: str, check: bool = True, **more: Any) -> str:
        done = self.hosts[0].run("env", f"SLURM_CONF={self.conf}", *words, **more)
        assert done.returncode == 0 or not check, done.stderr
        return done.stdout

    def queue(self) -> str:
        return self.slurm("squeue", "-h", "-o", "%i %j %T", check=False)

    def fleet(self, *words: str, inside: str = "") -> tuple[dict[str, Any], int]:
        """The fleet document as somebody on host 0 sees it, or inside a job of the given id on all nodes."""
        job = [f"SLURM_JOB_ID={inside}", "SLURM_JOB_NODELIST=gpu-node-[1-4]"] if inside else []
        argv = ("env", f"SLURM_CONF={self.conf}", *job, str(BIN / "nodedoctor"), "fleet", "--json", *words)
        done = self.hosts[0].run(*argv, timeout=3 * PATIENCE)
        assert done.stdout, done.stderr
        return json.loads(done.stdout), done.returncode

    def _daemon(self, host: Host, name: str, *argv: str) -> None:
        out = self.hosts.folder / f"{host.name}.{name}"
        found = host.run("sh", "-c", f"command -v {name}", check=True).stdout.strip()
        with out.open("wb") as log:
            self._daemons.append(
                subprocess.Popen(host.argv(found, *argv), stdin=subprocess.DEVNULL, stdout=log, stderr=log)
            )

    def end(self) -> None:
        for daemon in self._daemons:
            daemon.kill()
            daemon.wait()


def until(holds: Callable[[], object]) -> None:
    ends = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < ends, "it did not come to that in time"
        time.sleep(0.2)


@contextmanager
def running(folder: Path, nvml: Path, tracking: str = "linuxproc", more: str = "") -> Iterator[Cluster]:
    """A cluster that is up, and down again afterwards; `tracking` is how it knows a job's processes.

    `more` are further lines of its configuration.
    """
    need("munged", "slurmctld", "slurmd", "srun", "nft")
    with Hosts(folder, count=5, nvml=nvml) as hosts:
        made = Cluster(hosts, tracking)
        with made.conf.open("a") as conf:
            conf.write(more)
        try:
            made.start()
            yield made
        finally:
            made.end()
