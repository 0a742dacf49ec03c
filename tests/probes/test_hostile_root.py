"""A tree given with --root: no link in it leads out, and no file in it costs more memory than a real one."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from fakes.tree import nvidia_tree, write

SECRET = "root:x:0:0:SECRET-OF-THIS-MACHINE:/root:/bin/bash"
LINKS = (
    *("etc/hosts", "etc/resolv.conf", "etc/ufw/ufw.conf", "etc/nccl.conf", "etc/passwd", "etc/os-release"),
    *(
        "proc/sys/kernel/hostname",
        "proc/sys/kernel/osrelease",
        "proc/1/comm",
        "proc/1/cgroup",
        "proc/1/cmdline",
    ),
    *("proc/1/environ", "proc/1/status", "proc/1/limits", "proc/1/net/route", "proc/1/net/if_inet6"),
    *(
        "proc/stat",
        "proc/uptime",
        "proc/meminfo",
        "proc/modules",
        "proc/cmdline",
        "proc/driver/nvidia/version",
    ),
    *("sys/class/net/eth0/operstate", "sys/class/dmi/id/sys_vendor", "var/log/kern.log", "var/log/messages"),
    *(
        "sys/class/infiniband/mlx5_0/ports/1/state",
        "sys/class/infiniband/mlx5_0/ports/1/hw_counters/out_of_sequence",
    ),
    *("tmp/ray/session_latest/logs/raylet.out", "tmp/ray/ray_current_cluster", "var/lib/dpkg/status"),
    *("sys/devices/system/node/has_memory", "sys/bus/pci/devices/0000:18:00.0/numa_node"),
)
FOLDERS = ("proc/1", "proc/1/net", "sys/class/net/eth1", "var/log/journal", "var/lib/dpkg", "etc/ufw")
MOST_BYTES = 400 * 1024 * 1024
"""Our choice: nodedoctor itself takes a tenth of it; a link to /dev/zero took 4.4 GB."""


def tree(folder: Path) -> Path:
    """A tree with a GPU, a process and packages; what links replace is removed first."""
    root = nvidia_tree(folder / "tree", gpus=1)
    write(root / "proc/1/stat", "1 (init) S 0 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 1 1 1 0 0 0 0 0 0 0 0 0\n")
    write(root / "var/lib/dpkg/status", "Package: nothing\nStatus: install ok installed\nVersion: 1.0\n")
    return root


def link(place: Path, target: Path | str) -> None:
    place.parent.mkdir(parents=True, exist_ok=True)
    place.unlink(missing_ok=True)
    place.symlink_to(target)


MEASURED = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=subprocess.PIPE)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, flush=True)
sys.stdout.buffer.write(done.stdout)
"""


def report(root: Path, *words: str) -> tuple[str, int]:
    """Everything that a run with this root says or records, and the memory of its largest process."""
    recording = root.parent / "node.zip"
    argv = [sys.executable, "-m", "nodedoctor", "--root", root, "--json", "--record", recording, *words]
    env = {**os.environ, "PATH": "/usr/bin:/bin"}
    measured = [sys.executable, "-c", MEASURED, *argv]
    done = subprocess.run(measured, env=env, capture_output=True, text=True, timeout=150)
    memory, _, said = done.stdout.partition("\n")
    assert '"schema"' in said, done.stderr
    with zipfile.ZipFile(recording) as kept:
        said += "".join(kept.read(name).decode("utf-8", "replace") for name in kept.namelist())
    return said, int(memory) * 1024


def test_no_link_leads_out_of_the_root(tmp_path: Path) -> None:
    root = tree(tmp_path)
    outside = tmp_path / "outside"
    for name in LINKS:
        link(root / name, outside)
    outside.write_text(SECRET + "\n")
    said, _ = report(root)
    assert "SECRET-OF-THIS-MACHINE" not in said


@pytest.mark.sampled(1)
@pytest.mark.parametrize("folder", FOLDERS)
def test_no_linked_folder_leads_out_of_the_root(tmp_path: Path, folder: str) -> None:
    root, outside = tree(tmp_path), tmp_path / "outside"
    for name in ("comm", "cgroup", "status", "route", "operstate", "ufw.conf", "stat", "cmdline"):
        write(outside / name, SECRET + "\n")
    place = root / folder
    if place.exists():
        subprocess.run(["rm", "-r", str(place)], check=True)
    link(place, outside)
    said, _ = report(root)
    assert "SECRET-OF-THIS-MACHINE" not in said


@pytest.mark.slow
def test_endless_and_sparse_files_take_little_memory(tmp_path: Path) -> None:
    root = tree(tmp_path)
    for name in LINKS:
        if name != "var/lib/dpkg/status":
            link(root / name, "/dev/zero")
    with (root / "var/lib/dpkg/status").open("r+b") as status:
        status.truncate(9 << 30)
    _, memory = report(root)
    assert memory < MOST_BYTES


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", ["proc/stat", "proc/1/stat", "proc/1/status", "proc/1/cmdline", "var/log/kern.log"]
)
def test_a_sparse_file_takes_little_memory(tmp_path: Path, name: str) -> None:
    root = tree(tmp_path)
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    with (root / name).open("ab") as file:
        file.truncate(9 << 30)
    _, memory = report(root, "host", "kernel", "driver")
    assert memory < MOST_BYTES
