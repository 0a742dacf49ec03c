"""The control group of a process: how much memory, processors and tasks it may have, on all levels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from nodedoctor.facts.files import Files, whole_number
from nodedoctor.facts.host.numa import cpu_list, cpu_text
from nodedoctor.model import Evidence, file_reading
from nodedoctor.record import field, record

ROOT = "/sys/fs/cgroup"
GIB = 1024**3
_UNLIMITED = 1 << 60  # cgroup v1 says "no limit" as the largest multiple of a page below 2^63
_V2 = (
    "memory.max memory.high memory.current memory.swap.max memory.swap.current memory.stat memory.events "
    "cpu.max cpu.stat cpuset.cpus.effective pids.max pids.current"
)
_V1 = {
    "memory": "memory.limit_in_bytes memory.usage_in_bytes memory.stat memory.oom_control",
    "cpu": "cpu.cfs_quota_us cpu.cfs_period_us cpu.stat",
    "cpuset": "cpuset.effective_cpus cpuset.cpus",
    "pids": "pids.max pids.current",
}


@record
class Groups:
    """Where a process is in the tree: `paths` by controller; in v2 the one path has the key ""."""

    version: int | None = None
    paths: tuple[tuple[str, str], ...] = ()

    def path(self, controller: str) -> str | None:
        """The group of a controller."""
        groups = dict(self.paths)
        return groups.get(controller, groups.get(""))


@record
class Cgroup:
    """What the control group allows: of every limit the tightest on the way to the root.

    `controllers` are those that could be read; for these None means no limit, for others it means not known.
    `memory_used_gib` is without the page cache, which the kernel gives back before it kills.
    """

    version: int | None = None
    path: str | None = None
    controllers: tuple[str, ...] = ()
    memory_max_gib: float | None = None
    memory_high_gib: float | None = None
    memory_used_gib: float | None = None
    swap_max_gib: float | None = None
    oom_kills: int | None = None
    cpu_cores: float | None = None
    cpu_periods: int | None = None
    cpu_throttled: int | None = None
    cpus: str | None = None
    pids_max: int | None = None
    pids_current: int | None = None
    files: Mapping[str, str] = field(default_factory=dict)

    def said(self, *names: str) -> list[Evidence]:
        """The files that these fields were read from."""
        return [file_reading("limits", self.files[name]) for name in names if name in self.files]


def own_cgroup(text: str) -> Groups:
    """Read /proc/PID/cgroup: `0::/path` alone is v2; numbered lines with controllers are v1."""
    rows = [line.split(":", 2) for line in text.splitlines() if line.count(":") >= 2]
    v1 = {name: path for _, names, path in rows for name in names.split(",") if name in _V1}
    if v1:
        return Groups(1, tuple(v1.items()))
    unified = [path for number, names, path in rows if number == "0" and not names]
    return Groups(2, (("", unified[0]),)) if unified else Groups()


def cgroup_words(text: str) -> list[str]:
    """What to read for a process's /proc/PID/cgroup: its groups' files, level by level up to the mount.

    In a container the mount's top is the container's own group and the levels below it are not there.
    """
    groups = own_cgroup(text)
    if groups.version is None:
        return []
    return [
        f"read:{folder}/{name}"
        for controller in (_V1 if groups.version == 1 else ("",))
        for folder, name in _limit_files(groups, controller)
    ]


def parse_cgroup(files: Files, groups: Groups) -> Cgroup:
    """What was read of a process's control groups."""
    tree = _Tree(files, groups)
    quotas = [quota for quota in map(tree.cpu_quota, tree.levels("cpu")) if quota is not None]
    cpus = tree.first("cpuset", "cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus")
    memory = [
        (limit, level) for level in tree.levels("memory") if (limit := tree.memory_limit(level)) is not None
    ]
    own = next(iter(tree.levels("cpu")), None)
    limit, level = min(memory, default=(None, next(iter(tree.levels("memory")), None)))
    return Cgroup(
        version=groups.version,
        path=groups.path("memory"),
        controllers=tuple(
            name for name in _V1 if any(tree.seen(folder, name) for folder in tree.levels(name))
        ),
        memory_max_gib=_to_gib(limit),
        memory_high_gib=_to_gib(tree.least("memory", "memory.high")),
        memory_used_gib=_to_gib(tree.memory_used(level)),
        swap_max_gib=_to_gib(tree.least("memory", "memory.swap.max")),
        oom_kills=tree.oom_kills(level),
        cpu_cores=min(quotas, default=None),
        cpu_periods=tree.pair(own, "cpu.stat", "nr_periods"),
        cpu_throttled=tree.pair(own, "cpu.stat", "nr_throttled"),
        cpus=cpu_text(cpu_list(cpus)) if cpus else None,
        pids_max=tree.least("pids", "pids.max"),
        pids_current=whole_number(tree.first("pids", "pids.current")),
        files=tree.places(level),
    )


class _Tree:
    """The files of one process's groups, deepest level first."""

    def __init__(self, files: Files, groups: Groups) -> None:
        self.files, self.groups = files, groups

    def levels(self, controller: str) -> list[str]:
        return _group_levels(self.groups, controller)

    def seen(self, folder: str, controller: str) -> bool:
        return any(path.startswith(f"{controller}.") for path in self.files.under(folder))

    def places(self, level: str | None) -> dict[str, str]:
        """The files that decide: of limits the tightest one, where there is a limit at all."""
        choices = {
            "memory_max_gib": [f"{level}/{name}" for name in ("memory.max", "memory.limit_in_bytes")],
            "memory_used_gib": [f"{level}/{name}" for name in ("memory.current", "memory.usage_in_bytes")],
            "oom_kills": [f"{level}/{name}" for name in ("memory.events", "memory.oom_control")],
            "cpu_cores": self._level_paths("cpu", "cpu.max", "cpu.cfs_quota_us", least=True),
            "cpu_throttled": [f"{folder}/cpu.stat" for folder in self.levels("cpu")[:1]],
            "cpus": self._level_paths(
                "cpuset", "cpuset.cpus.effective", "cpuset.effective_cpus", "cpuset.cpus"
            ),
            "pids_max": self._level_paths("pids", "pids.max", least=True),
            "pids_current": self._level_paths("pids", "pids.current"),
        }
        chosen = {name: next((p for p in paths if self.files.text(p)), "") for name, paths in choices.items()}
        return {name: path for name, path in chosen.items() if path}

    def _level_paths(self, controller: str, *names: str, least: bool = False) -> list[str]:
        paths = [f"{folder}/{name}" for folder in self.levels(controller) for name in names]
        return sorted(paths, key=self._limit_amount) if least else paths

    def _limit_amount(self, path: str) -> int:
        """The number a limit begins with; none at all is above every number."""
        amount = whole_number((self.files.text(path) or "").partition(" ")[0])
        return _UNLIMITED if amount is None or amount < 0 else amount

    def first(self, controller: str, *names: str) -> str | None:
        texts = (self.files.text(f"{folder}/{name}") for folder in self.levels(controller) for name in names)
        return next((text for text in texts if text), None)

    def least(self, controller: str, name: str) -> int | None:
        numbers = (self.files.number(f"{folder}/{name}") for folder in self.levels(controller))
        return min((n for n in numbers if n is not None and 0 <= n < _UNLIMITED), default=None)

    def memory_limit(self, folder: str) -> int | None:
        numbers = (self.files.number(f"{folder}/{name}") for name in ("memory.max", "memory.limit_in_bytes"))
        return next((n for n in numbers if n is not None and 0 <= n < _UNLIMITED), None)

    def memory_used(self, folder: str | None) -> int | None:
        """Usage less the files in the page cache."""
        if folder is None:
            return None
        numbers = (
            self.files.number(f"{folder}/{name}") for name in ("memory.current", "memory.usage_in_bytes")
        )
        usage = next((number for number in numbers if number is not None), None)
        cache = [self.pair(folder, "memory.stat", f"{kind}_file") or 0 for kind in ("active", "inactive")]
        return None if usage is None else max(usage - sum(cache), 0)

    def oom_kills(self, folder: str | None) -> int | None:
        counts = (self.pair(folder, name, "oom_kill") for name in ("memory.events", "memory.oom_control"))
        return next((number for number in counts if number is not None), None)

    def cpu_quota(self, folder: str) -> float | None:
        quota, _, period = (self.files.text(f"{folder}/cpu.max") or "").partition(" ")
        quota = quota or self.files.text(f"{folder}/cpu.cfs_quota_us") or ""
        period = period or self.files.text(f"{folder}/cpu.cfs_period_us") or ""
        spent, period_us = whole_number(quota), whole_number(period)
        return round(spent / period_us, 2) if spent and period_us and spent > 0 and period_us > 0 else None

    def pair(self, folder: str | None, name: str, key: str) -> int | None:
        match = re.search(
            rf"^(?:total_)?{key} (\d{{1,19}})$", self.files.text(f"{folder}/{name}") or "", re.MULTILINE
        )
        return int(match.group(1)) if match else None


def _limit_files(groups: Groups, controller: str) -> Iterable[tuple[str, str]]:
    names = _V1[controller] if controller else _V2
    return ((folder, name) for folder in _group_levels(groups, controller) for name in names.split())


def _group_levels(groups: Groups, controller: str) -> list[str]:
    """The group's folder and those above it. Names with glob signs cannot be asked for and are left out."""
    path = groups.path(controller)
    if path is None:
        return []
    top = f"{ROOT}/{controller}" if groups.version == 1 else ROOT
    parts = [part for part in path.split("/") if part not in ("", "..")]
    folders = ["/".join([top, *parts[:count]]) for count in range(len(parts), -1, -1)]
    return [folder for folder in folders if not re.search(r"[*?\[\0]", folder)][-16:]


def _to_gib(count: int | None) -> float | None:
    return None if count is None else round(count / GIB, 3)
