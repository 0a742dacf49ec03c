"""What the system lets us have: resource limits, shared memory, memory, control group, kernel settings."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command, Options, fact, probe
from nodedoctor.facts.files import Files
from nodedoctor.facts.host.cgroup import Cgroup, cgroup_words, own_cgroup, parse_cgroup
from nodedoctor.facts.host.mounts import mount_of, parse_mountinfo
from nodedoctor.model import Evidence, Observation, Unseen, quoted_like, reading
from nodedoctor.record import as_dict, field, record

GIB = 1024**3
SHM = "/dev/shm"
_SYSCTLS = (
    "fs/file-max",
    "fs/nr_open",
    "kernel/numa_balancing",
    "kernel/pid_max",
    "kernel/shmall",
    "kernel/shmmax",
    "kernel/threads-max",
    "vm/max_map_count",
    "vm/min_free_kbytes",
    "vm/overcommit_memory",
    "vm/overcommit_ratio",
    "vm/swappiness",
    "vm/zone_reclaim_mode",
)
LOGIND = "/etc/systemd/logind.conf"
_PORTS = "/proc/sys/net/ipv4/ip_local_port_range"

# The names in /proc/PID/limits (linux, fs/proc/base.c, lnames) and ours, with units.
_RLIMITS = {
    "Max open files": "nofile",
    "Max locked memory": "memlock_bytes",
    "Max processes": "nproc",
    "Max stack size": "stack_bytes",
    "Max address space": "address_space_bytes",
    "Max core file size": "core_bytes",
    "Max data size": "data_bytes",
    "Max file size": "file_bytes",
    "Max pending signals": "sigpending",
}


@probe("limits", timeout=5, after=("container",))
def limits_files(options: Options, container: Observation) -> Command:
    """Resource limits, /dev/shm, memory, our control group up to its root, kernel settings and pressure."""
    read = ["/proc/self/limits", "/proc/self/cgroup", "/proc/self/mountinfo", "/proc/meminfo", "/proc/vmstat"]
    read += ["/proc/loadavg", "/proc/sys/fs/file-nr", _PORTS, *(f"/proc/sys/{name}" for name in _SYSCTLS)]
    read += [f"/proc/pressure/{name}" for name in ("cpu", "memory", "io")]
    read += [
        LOGIND,
        "/etc/systemd/logind.conf.d/*.conf",
        "/usr/lib/systemd/logind.conf.d/*.conf",
    ]
    words = [f"read:{path}" for path in read]
    files = Files.parse_json(container)
    groups = files.text("/proc/self/cgroup") if isinstance(files, Files) else None
    words += cgroup_words(groups or "")
    return Command(child("host/files", "--root", options.root, *words, f"statvfs:{SHM}"))


@record
class Bound:
    """A resource limit; None is unlimited."""

    soft: int | None
    hard: int | None


@record
class Shm:
    """The file system at /dev/shm. `own_mount` is False where it is only a directory of the root."""

    size_gib: float
    free_gib: float
    fstype: str | None = None
    options: tuple[str, ...] = ()
    own_mount: bool = True


@record
class Memory:
    """The machine's memory (not the container's): what MemAvailable says can be had without swapping."""

    total_gib: float
    available_gib: float | None = None
    swap_total_gib: float = 0.0
    swap_free_gib: float = 0.0
    shmem_gib: float | None = None
    hugepages_gib: float = 0.0


@fact("limits")
@record
class Limits:
    """The limits of this process and of the machine. `rlimits` are our shell's, not those of running ranks.

    `pressure` is PSI by resource, like {"memory": {"some_avg10": 0.0}} in percent. A part that is None or
    absent could not be read; `errors` has the reason by path.
    """

    rlimits: Mapping[str, Bound] = field(default_factory=dict)
    shm: Shm | None = None
    memory: Memory | None = None
    cgroup: Cgroup = field(default_factory=Cgroup)
    sysctl: Mapping[str, int] = field(default_factory=dict)
    local_ports: tuple[int, int] | None = None
    open_files: int | None = None
    load: tuple[float, float, float] | None = None
    pressure: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    swapped_in_pages: int | None = None
    oom_kills: int | None = None
    remove_ipc: bool | None = None
    errors: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def parse(cls, observation: Observation) -> Limits | Unseen:
        """Read the files; a part that cannot be read stays empty."""
        files = Files.parse_json(observation)
        if isinstance(files, Unseen):
            return files
        settings = {name: files.number(f"/proc/sys/{name}") for name in _SYSCTLS}
        vmstat = _parse_pairs(files.text("/proc/vmstat") or "")
        return cls(
            rlimits=parse_rlimits(files.text("/proc/self/limits") or ""),
            shm=_read_shm(files),
            memory=_read_memory(files.meminfo()),
            cgroup=parse_cgroup(files, own_cgroup(files.text("/proc/self/cgroup") or "")),
            sysctl={name.replace("/", "."): value for name, value in settings.items() if value is not None},
            local_ports=_port_range(files.text(_PORTS)),
            open_files=_leading_number(files.text("/proc/sys/fs/file-nr")),
            load=_load_averages(files.text("/proc/loadavg") or ""),
            pressure={name: _parse_pressure(text) for name, text in files.under("/proc/pressure").items()},
            swapped_in_pages=vmstat.get("pswpin"),
            oom_kills=vmstat.get("oom_kill"),
            remove_ipc=_remove_ipc(files),
            errors={
                **({} if LOGIND in files.files else {LOGIND: "NOT_ASKED"}),
                **{path: why for path, why in files.errors.items() if not path.startswith("/sys/fs/cgroup")},
            },
        )

    def public(self) -> dict[str, Any]:
        """All fields, without the places that evidence is taken from."""
        shown = as_dict(self)
        del shown["cgroup"]["files"]
        return shown


def own_limit(name: str) -> Evidence:
    """The line of our own limits that begins so."""
    return quoted_like("limits", rf"^{name} .*", 'files["/proc/self/limits"]')


def memory_line(name: str) -> Evidence:
    """A line of the machine's memory: MemAvailable."""
    return quoted_like("limits", rf"^{name}:.*", 'files["/proc/meminfo"]')


def shm_said(*names: str) -> list[Evidence]:
    """Values of the file system at /dev/shm: size_bytes, free_bytes."""
    return [reading("limits", f'statvfs["{SHM}"].{name}') for name in names]


def parse_rlimits(text: str) -> dict[str, Bound]:
    """The limits of /proc/PID/limits that we know, by our names; lines of another shape are left out."""
    limits = {}
    for line in text.splitlines():
        match = re.match(r"(Max(?: [a-z]+)+)\s{2,}(\d{1,20}|unlimited)\s+(\d{1,20}|unlimited)\b", line)
        if match and match.group(1) in _RLIMITS:
            limits[_RLIMITS[match.group(1)]] = Bound(
                _parse_bound(match.group(2)), _parse_bound(match.group(3))
            )
    return limits


def _parse_bound(word: str) -> int | None:
    return None if word == "unlimited" else int(word)


def _read_shm(files: Files) -> Shm | None:
    space = files.statvfs.get(SHM, {})
    size, free = space.get("size_bytes"), space.get("free_bytes")
    if not isinstance(size, int) or not isinstance(free, int):
        return None
    mount = mount_of(SHM, parse_mountinfo(files.text("/proc/self/mountinfo") or ""))
    if mount is None:
        return Shm(_to_gib(size), _to_gib(free))
    return Shm(_to_gib(size), _to_gib(free), mount.fstype, mount.options, mount.point == SHM)


def _read_memory(values: Mapping[str, int]) -> Memory | None:
    if "MemTotal" not in values:
        return None
    gib = {name: round(number / 1024**2, 2) for name, number in values.items()}
    pages = values.get("HugePages_Total", 0) * values.get("Hugepagesize", 0)
    return Memory(
        total_gib=gib["MemTotal"],
        available_gib=gib.get("MemAvailable"),
        swap_total_gib=gib.get("SwapTotal", 0.0),
        swap_free_gib=gib.get("SwapFree", 0.0),
        shmem_gib=gib.get("Shmem"),
        hugepages_gib=round(pages / 1024**2, 2),
    )


def _parse_pairs(text: str) -> dict[str, int]:
    rows = re.findall(r"^(\w+) (\d{1,20})$", text, re.MULTILINE)
    return {name: int(number) for name, number in rows}


def _port_range(text: str | None) -> tuple[int, int] | None:
    match = re.fullmatch(r"(\d{1,5})\s+(\d{1,5})", text or "")
    return (int(match.group(1)), int(match.group(2))) if match else None


def _leading_number(text: str | None) -> int | None:
    match = re.match(r"(\d{1,18})\b", text or "")
    return int(match.group(1)) if match else None


def _load_averages(text: str) -> tuple[float, float, float] | None:
    match = re.match(r"(\d{1,9}\.\d+) (\d{1,9}\.\d+) (\d{1,9}\.\d+)", text)
    return (float(match.group(1)), float(match.group(2)), float(match.group(3))) if match else None


def _parse_pressure(text: str) -> dict[str, float]:
    """`some avg10=0.00 avg60=0.00 avg300=0.00 total=0` as some_avg10 and so on."""
    averages = {}
    for line in text.splitlines():
        kind, _, rest = line.partition(" ")
        for name, value in re.findall(r"(avg\d+)=(\d{1,3}\.\d+)", rest):
            averages[f"{kind}_{name}"] = float(value)
    return averages


def _remove_ipc(files: Files) -> bool | None:
    """systemd-logind's RemoveIPC: drop-ins come after the main file; None where nothing sets it."""
    texts = [files.text(LOGIND) or ""]
    texts += [text for path, text in sorted(files.files.items()) if "/logind.conf.d/" in path]
    settings = re.findall(r"^[ \t]*RemoveIPC[ \t]*=[ \t]*(\w+)", "\n".join(texts), re.MULTILINE)
    return settings[-1].lower() in ("yes", "true", "1", "on") if settings else None


def _to_gib(count: int) -> float:
    return round(count / GIB, 4)
