"""Hosts made of namespaces: own name, address, /tmp, /run, /sys, GPUs and sshd each, all gone when we are.

    with Hosts(folder, count=4, nvml=nvml_folder) as hosts:
        hosts[1].tell({"gpu3.link4": "down"})
        hosts[0].run("srun", "-N4", "hostname")

They stand in namespaces whose first process reads a pipe we hold: nothing of it outlives us, and
any number of them can stand side by side. Needs root.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from fakes import CONFIG, write_config
from fakes.tree import nvidia_tree

NAMESPACES = (
    "unshare",
    "--net",
    "--mount",
    "--uts",
    "--ipc",
    "--pid",
    "--fork",
    "--kill-child",
    "--mount-proc",
)
CHECKOUT = Path(__file__).parents[2]
"""What the hosts need of /tmp besides their folder, where the checkout is below it."""
BIN = Path(sys.executable).parent
"""Where nodedoctor is installed, on this machine and so on all hosts."""

DRIVER = "570.86.10"

# The first process of a namespace reaps the others, and ends all of them when the pipe from us ends.
WAIT = "echo up; while read -r _; do :; done"

LAB = f"""set -e
mount --make-rprivate /
mount --bind $FOLDER/hosts /etc/hosts
ip link set lo up
ip link add br0 type bridge
ip addr add 10.77.0.254/24 dev br0
ip link set br0 up
{WAIT}"""

BOOT = f"""set -e
hostname $NAME
mount --bind $FOLDER/$NAME/passwd /etc/passwd
mount --bind $FOLDER/$NAME/boot_id /proc/sys/kernel/random/boot_id
if [ -e /proc/modules ]; then mount --bind $FOLDER/$NAME/tree/proc/modules /proc/modules; fi
mount -t tmpfs driver /proc/driver
cp -r $FOLDER/$NAME/tree/proc/driver/. /proc/driver
mount --rbind /sys/fs/cgroup /mnt
mount -t sysfs sysfs /sys
mount -t overlay sys -o lowerdir=$FOLDER/$NAME/tree/sys:/sys /sys
mount --rbind /mnt /sys/fs/cgroup
umount -l /mnt
mount -t tmpfs run /run
mkdir /run/sshd
mount -t tmpfs shm /dev/shm
mount --bind $FOLDER /mnt
case $CHECKOUT in /tmp/*) mount --bind $CHECKOUT /media;; esac
mount -t tmpfs tmp /tmp
chmod 1777 /tmp /dev/shm
mkdir -p $FOLDER
mount --move /mnt $FOLDER
case $CHECKOUT in /tmp/*) mkdir -p $CHECKOUT; mount --move /media $CHECKOUT;; esac
ip link set lo up
{WAIT}"""

SSHD = """Port 22
HostKey {folder}/host_key
AuthorizedKeysFile {folder}/key.pub
PidFile /run/sshd.pid
StrictModes no
UsePAM no
UseDNS no
PermitRootLogin yes
PrintLastLog no
SetEnv {env}
"""

SSH = """#!/bin/sh
exec nsenter -t {pid} -n -m {ssh} -F {folder}/ssh_config "$@"
"""

SSH_CONFIG = """IdentityFile {folder}/key
IdentitiesOnly yes
UserKnownHostsFile {folder}/known_hosts
GlobalKnownHostsFile /dev/null
StrictHostKeyChecking yes
User root
"""


def link_devices(tree: Path) -> None:
    """Make the devices of a tree links, as those of sysfs are: the machine's own lie beside them."""
    for device in sorted((tree / "bus/pci/devices").iterdir()):
        home = tree / "devices" / f"pci{device.name[:7]}" / device.name
        home.parent.mkdir(parents=True, exist_ok=True)
        device.rename(home)
        device.symlink_to(Path("../../../devices", home.parent.name, device.name))


class Host:
    """One of them. `folder` is ours to write and the same inside; `home` is root's there."""

    def __init__(self, hosts: Hosts, index: int, driver: str) -> None:
        self.name = f"gpu-node-{index}"
        self.address = f"10.77.0.{index + 1}"
        self.folder = hosts.folder / self.name
        self.home = self.folder / "home"
        self.bin = self.folder / "bin"
        self.pid = 0
        self._hosts = hosts
        for folder in (self.home, self.bin):
            folder.mkdir(parents=True)
        nvidia_tree(self.folder / "tree", gpus=8, driver=driver)
        link_devices(self.folder / "tree/sys")
        (self.folder / "boot_id").write_text(f"{uuid.uuid4()}\n")
        self._driver = {"driver": driver, "nvml_version": f"12.{driver}"}
        self.tell({})
        self.shell("/bin/bash")

    @property
    def env(self) -> dict[str, str]:
        """What processes on the host find in their environment."""
        path = f"{self.bin}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
        nvml = {"LD_LIBRARY_PATH": str(self._hosts.nvml), CONFIG: str(self.folder / "nvml.conf")}
        return {"PATH": path, "HOME": str(self.home), **(nvml if self._hosts.nvml else {})}

    def tell(self, values: Mapping[str, object]) -> None:
        """Say what its NVML tells from now on (keys of fakes/nvml.c); healthy without any."""
        write_config(self.folder / "nvml.conf", {**self._driver, **values})

    def shell(self, path: str) -> None:
        """Give root another login shell."""
        (self.folder / "passwd").write_text(
            f"root:x:0:0:root:{self.home}:{path}\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n"
            "sshd:x:100:65534::/run/sshd:/usr/sbin/nologin\nslurm:x:64030:64030::/tmp:/usr/sbin/nologin\n"
            "munge:x:101:101::/nonexistent:/usr/sbin/nologin\n"
        )

    def boot(self) -> None:
        """Bring it up, plug it into the bridge, start sshd."""
        self.pid = self._hosts.start(BOOT, self._hosts.inside, NAME=self.name)
        wire = (
            "ip",
            "link",
            "add",
            f"v{self.pid}",
            "type",
            "veth",
            "peer",
            "name",
            "eth0",
            "netns",
            str(self.pid),
        )
        quietly(*self._hosts.in_lab, *wire)
        quietly(*self._hosts.in_lab, "ip", "link", "set", f"v{self.pid}", "master", "br0", "up")
        self.run("ip", "addr", "add", f"{self.address}/24", "dev", "eth0", check=True)
        self.run("ip", "link", "set", "eth0", "up", check=True)
        env = " ".join(f'"{name}={value}"' for name, value in self.env.items() if name != "HOME")
        (self.folder / "sshd_config").write_text(SSHD.format(folder=self._hosts.folder, env=env))
        self.run(shutil.which("sshd") or "/usr/sbin/sshd", "-f", str(self.folder / "sshd_config"), check=True)

    def argv(self, *words: str) -> tuple[str, ...]:
        """The command line that runs a command on the host."""
        env = (f"{name}={value}" for name, value in self.env.items())
        enter = ("nsenter", "-t", str(self.pid), "-m", "-u", "-i", "-n", "-p")
        return (*enter, "env", "-i", "-C", "/", *env, *words)

    def run(self, *words: str, check: bool = False, timeout: float = 60) -> subprocess.CompletedProcess[str]:
        """Run a command on the host to its end."""
        return subprocess.run(
            self.argv(*words),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=check,
            timeout=timeout,
        )

    def command(self, name: str, script: str) -> None:
        """Put a command in front of its PATH."""
        (self.bin / name).write_text(script)
        (self.bin / name).chmod(0o755)

    def hide(self, *paths: Path | str) -> None:
        """Put nothing in the place of files and folders."""
        for path in paths:
            with contextlib.suppress(FileNotFoundError):
                real = Path(path).resolve(strict=True)
                if real.is_dir():
                    self.run("mount", "-t", "tmpfs", "none", str(real), check=True)
                else:
                    self.run("mount", "--bind", str(self._hosts.folder / "nothing"), str(real), check=True)

    def cut(self) -> None:
        """Lose every packet from now on, without a word to anybody."""
        rules = (
            "add table inet cut; add chain inet cut in { type filter hook input priority 0; policy drop; }"
        )
        self.run("nft", rules, check=True)

    def processes(self) -> list[str]:
        """The command lines of everything that runs there, our own looking apart."""
        listed = self.run("ps", "-eo", "args=").stdout.splitlines()
        return [line for line in listed if not line.startswith(("ps ", "bash -c set -e"))]


class Hosts:
    """All of them, booted and reachable by `ssh` through `path`, the value for PATH on this machine.

    `drivers` are versions other than the usual one, by the host's number.
    """

    def __init__(
        self,
        folder: Path,
        *,
        count: int = 4,
        nvml: Path | None = None,
        drivers: Mapping[int, str] | None = None,
    ) -> None:
        self.folder = folder
        self.nvml = shutil.copytree(nvml, folder / "nvml") if nvml and nvml != folder / "nvml" else nvml
        self.pid = 0
        self._started: list[subprocess.Popen[str]] = []
        self._first: list[int] = []
        told = drivers or {}
        self._hosts = [Host(self, index, told.get(index, DRIVER)) for index in range(count)]

    def __enter__(self) -> Hosts:
        try:
            self._boot()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __getitem__(self, index: int) -> Host:
        return self._hosts[index]

    def __iter__(self) -> Iterator[Host]:
        return iter(self._hosts)

    @property
    def inside(self) -> tuple[str, ...]:
        """What a command line begins with to run where the hosts are, on none of them."""
        return ("nsenter", "-t", str(self.pid), "-m", "-u", "-i", "-n", "-p")

    @property
    def in_lab(self) -> tuple[str, ...]:
        """What a command line begins with to run in the network that joins the hosts."""
        return ("nsenter", "-t", str(self.pid), "-n")

    @property
    def path(self) -> str:
        """PATH with an ssh that reaches the hosts."""
        return f"{self.folder / 'bin'}:{os.environ['PATH']}"

    def start(self, script: str, prefix: tuple[str, ...] = (), **env: str) -> int:
        """Start namespaces with the script as first process; its pid, once it says that it is up."""
        process = subprocess.Popen(
            [*prefix, *NAMESPACES, "bash", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "FOLDER": str(self.folder), "CHECKOUT": str(CHECKOUT), **env},
        )
        self._started.append(process)
        assert process.stdout is not None and process.stderr is not None
        if process.stdout.readline() != "up\n":
            pytest.skip(f"no hosts out of namespaces here: {process.stderr.read().strip()}")
        self._first.append(first_process(process.pid))
        return self._first[-1]

    def close(self) -> None:
        """End every process of theirs and wait until they are gone; with those go mounts and networks."""
        for process in reversed(self._started):
            process.kill()
        for process in self._started:
            process.communicate()
        end = time.monotonic() + 30
        while any(map(lives, self._first)) and time.monotonic() < end:
            time.sleep(0.02)  # the kernel ends the first process of a namespace after all others of it

    def _boot(self) -> None:
        lines = [f"{host.address} {host.name}" for host in self]
        (self.folder / "hosts").write_text("\n".join(["127.0.0.1 localhost", *lines]) + "\n")
        (self.folder / "nothing").write_text("")
        self._make_keys()
        self.pid = self.start(LAB)
        ssh = self.folder / "bin/ssh"
        ssh.parent.mkdir()
        ssh.write_text(
            SSH.format(pid=self.pid, ssh=shutil.which("ssh"), folder=shlex.quote(str(self.folder)))
        )
        ssh.chmod(0o755)
        for host in self:
            host.boot()

    def _make_keys(self) -> None:
        for name in ("key", "host_key"):
            quietly("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(self.folder / name))
        (self.folder / "known_hosts").write_text(f"* {(self.folder / 'host_key.pub').read_text()}")
        (self.folder / "ssh_config").write_text(SSH_CONFIG.format(folder=self.folder))


def need(*commands: str) -> None:
    """Skip a test that cannot have its hosts: not root, or a command that is not installed."""
    if os.geteuid() != 0:
        pytest.skip("hosts of namespaces need root")
    if missing := [
        name for name in commands if shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin:/sbin") is None
    ]:
        pytest.skip(f"not installed: {', '.join(missing)}")


def quietly(*words: str) -> None:
    """Run a command that must succeed."""
    subprocess.run(words, check=True, stdin=subprocess.DEVNULL, capture_output=True)


def lives(pid: int) -> bool:
    """Whether a process is there, and not only its exit code."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def first_process(pid: int) -> int:
    """The descendant that is process 1 of the innermost namespace: nsenter and unshare fork before it."""
    for _ in range(200):
        names = Path(f"/proc/{pid}/status").read_text()
        inner = next(line for line in names.splitlines() if line.startswith("NSpid:")).split()
        if inner[-1] == "1":
            return pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        if children:
            pid = int(children[0])
        else:
            time.sleep(0.01)
    raise RuntimeError(f"{pid} has no namespace")


def is_blurred(finding: Mapping[str, object]) -> bool:
    """Whether the machine was too busy for rates to say anything, which the findings rightly say."""
    return str(finding["summary"]).startswith("rates scatter too much")
