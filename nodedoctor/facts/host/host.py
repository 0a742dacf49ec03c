"""Settings of the host that training feels: processor frequency, huge pages, how containers get devices."""

from __future__ import annotations

import re
from collections.abc import Mapping

from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command, Lane, Options, fact, probe, skipped
from nodedoctor.facts.files import Files
from nodedoctor.model import Observation, Unseen
from nodedoctor.record import field, record

CPUS = "/sys/devices/system/cpu"
THP = "/sys/kernel/mm/transparent_hugepage"
DOCKER, CONTAINERD = "/etc/docker/daemon.json", "/etc/containerd/config.toml"
_TOOLKIT = "/etc/nvidia-container-runtime/config.toml"
_GPU_MAJOR = "195"  # of /dev/nvidia*: linux, Documentation/admin-guide/devices.txt


@probe("host", timeout=5, lane=Lane.FS)
def host_files(options: Options) -> Command:
    """Frequency governors, huge pages, RDMA device nodes, and the configuration of container runtimes."""
    words = [f"read:{CPUS}/cpu[0-9]*/cpufreq/scaling_governor", f"read:{CPUS}/cpu0/cpufreq/scaling_driver"]
    words += [f"read:{THP}/enabled", "read:/proc/sys/vm/nr_hugepages", "read:/proc/meminfo"]
    words += ["stat:/dev/infiniband/uverbs[0-9]*", "list:/dev/infiniband", "list:/dev/char"]
    words += [f"read:{path}" for path in (DOCKER, CONTAINERD, _TOOLKIT)]
    words += ["list:/etc/cdi", "list:/var/run/cdi", "stat:/usr/bin/nvidia-ctk", "stat:/usr/bin/docker"]
    return Command(child("host/files", "--root", options.root, *words))


@probe("container-toolkit", timeout=4, after=("host",))
def container_toolkit(options: Options, host: Observation) -> Command | Observation:
    """The version of nvidia-container-toolkit, where it is installed."""
    files = Files.parse_json(host)
    if isinstance(files, Files) and "/usr/bin/nvidia-ctk" not in files.stats:
        return skipped("container-toolkit", "nvidia-ctk is not installed")
    if options.root not in ("", "/"):
        return skipped("container-toolkit", "it is installed below another root")
    return Command(("nvidia-ctk", "--version"))


@fact("host", "container-toolkit")
@record
class Host:
    """What the host is set to.

    `governors` counts processors by governor; empty in virtual machines, which have none, and where
    `processors_hidden` says that sysfs could not be seen. `thp` is always,
    madvise or never. `uverbs` are the RDMA device nodes, by name, with our access to them. `char_links` says
    whether /dev/char has links for NVIDIA's devices, None when it was not listed. `docker` and `containerd`
    are their configuration files' texts, None when they are not there.
    """

    governors: Mapping[str, int] = field(default_factory=dict)
    processors_hidden: bool = False
    frequency_driver: str | None = None
    thp: str | None = None
    hugepages: int | None = None
    hugepages_free: int | None = None
    hugepage_kib: int | None = None
    uverbs: Mapping[str, str] = field(default_factory=dict)
    infiniband_nodes: bool = False
    char_links: bool | None = None
    docker_installed: bool = False
    docker: str | None = None
    containerd: str | None = None
    cdi: bool = False
    toolkit: str | None = None
    toolkit_installed: bool = False

    @classmethod
    def parse(cls, observation: Observation, toolkit: Observation) -> Host | Unseen:
        """Read the files; what is not there stays None or empty."""
        files = Files.parse_json(observation)
        if isinstance(files, Unseen):
            return files
        version = (
            re.search(r"version (\d{1,4}\.\d{1,4}(?:\.\d{1,4})?)", toolkit.text) if toolkit.answered else None
        )
        meminfo = files.meminfo()
        links = files.names("/dev/char")
        return cls(
            governors=_count_governors(files),
            processors_hidden=files.error(CPUS) is not None,
            frequency_driver=files.text(f"{CPUS}/cpu0/cpufreq/scaling_driver"),
            thp=_chosen_option(files.text(f"{THP}/enabled")),
            hugepages=files.number("/proc/sys/vm/nr_hugepages"),
            hugepages_free=meminfo.get("HugePages_Free"),
            hugepage_kib=meminfo.get("Hugepagesize"),
            uverbs=_uverbs_access(files),
            infiniband_nodes=files.names("/dev/infiniband") is not None,
            char_links=None if links is None else any(name.startswith(f"{_GPU_MAJOR}:") for name in links),
            docker_installed="/usr/bin/docker" in files.stats,
            docker=files.text(DOCKER),
            containerd=files.text(CONTAINERD),
            cdi=any(files.names(folder) for folder in ("/etc/cdi", "/var/run/cdi")),
            toolkit=version.group(1) if version else None,
            toolkit_installed="/usr/bin/nvidia-ctk" in files.stats,
        )


def _count_governors(files: Files) -> dict[str, int]:
    counts: dict[str, int] = {}
    for path, text in files.files.items():
        if path.endswith("/cpufreq/scaling_governor"):
            counts[text.strip()[:32]] = counts.get(text.strip()[:32], 0) + 1
    return counts


def _chosen_option(text: str | None) -> str | None:
    """`always [madvise] never` is madvise."""
    match = re.search(r"\[(\w{1,16})\]", text or "")
    return match.group(1) if match else None


def _uverbs_access(files: Files) -> dict[str, str]:
    names = (
        (path.rpartition("/")[2], stat) for path, stat in files.stats.items() if "/infiniband/uverbs" in path
    )
    return {name: str(stat.get("access", "?")) for name, stat in sorted(names)}
