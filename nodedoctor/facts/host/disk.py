"""The file systems a job depends on: do they answer, can they be written, is there room?

A dead network mount hangs whatever touches it, forever. Each path is asked by its own process, so that the
dead one is named and the others are still known.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command, Lane, Options, fact, probe
from nodedoctor.facts.files import Files
from nodedoctor.facts.host.env import Env
from nodedoctor.facts.host.mounts import (
    MOUNTINFOS,
    Mount,
    mount_of,
    mountinfo_below,
    mountinfo_of,
    parse_mountinfo,
)
from nodedoctor.json_shapes import number, whole_number
from nodedoctor.model import Observation, Unseen
from nodedoctor.record import record, replace

EACH_SECONDS = 3
MOST_MOUNTS = 24
GIB = 1024**3
_ALWAYS = {
    "/": "/",
    "/tmp": "/tmp",
    "/var": "/var",
    "/dev/shm": "/dev/shm",
    "/tmp/ray": "Ray's temporary files",
}

# Variables that name a folder a job writes to, and what for.
_FOLDERS = {
    "HOME": "HOME",
    "PWD": "the working directory",
    "TMPDIR": "TMPDIR",
    "RAY_TMPDIR": "Ray's temporary files",
    "HF_HOME": "HF_HOME",
    "HF_HUB_CACHE": "HF_HUB_CACHE",
    "HF_DATASETS_CACHE": "HF_DATASETS_CACHE",
    "TRANSFORMERS_CACHE": "TRANSFORMERS_CACHE",
    "TORCH_HOME": "TORCH_HOME",
    "TORCHINDUCTOR_CACHE_DIR": "TORCHINDUCTOR_CACHE_DIR",
    "TRITON_CACHE_DIR": "TRITON_CACHE_DIR",
    "CUDA_CACHE_PATH": "CUDA_CACHE_PATH",
    "VLLM_CACHE_ROOT": "VLLM_CACHE_ROOT",
    "XDG_CACHE_HOME": "XDG_CACHE_HOME",
    "UV_CACHE_DIR": "UV_CACHE_DIR",
    "PIP_CACHE_DIR": "PIP_CACHE_DIR",
}
# Real file systems; everything else (proc, cgroup, overlay of other containers, ...) holds no job's data.
_DISKS = re.compile(r"ext[234]|xfs|btrfs|zfs|f2fs|bcachefs|ntfs3?|vfat|overlay|fuse\.fuse-overlayfs")


@probe("disk", timeout=EACH_SECONDS + 3, lane=Lane.FS, after=("env", "container"))
def disk_space(options: Options, env: Observation, container: Observation) -> Command:
    """Space and inodes of the file systems of HOME, caches, Ray's files, and of real mounts."""
    environment, files = Env.parse(env), Files.parse_json(container)
    paths = {*_path_uses(environment.variables if isinstance(environment, Env) else {})}
    if isinstance(files, Files) and options.root == "/":  # below another root they are the container's
        mounts = parse_mountinfo(mountinfo_of(files) or "")
        paths |= {mount.point for mount in worth_asking(mounts)}
    words = [f"statvfs:{path}" for path in sorted(paths) if not re.search(r"[*?\[\0]", path)]
    limit, table = ("--each", str(EACH_SECONDS)), f"read:{mountinfo_below(options.root)}"
    return Command(child("host/files", "--root", options.root, *limit, table, "read:/etc/fstab", *words))


@record
class Volume:
    """One mounted file system. `uses` are the purposes that lie on it, empty when nothing known does.

    `error` is TIMEOUT when it did not answer in 3 s, ESTALE, EACCES, EIO, ...; sizes are None then.
    `asked` is the path that was asked about. `free_gib` and `inodes_free` are what ordinary users can have;
    `inodes` is 0 where the type has no limit.
    """

    point: str
    uses: tuple[str, ...] = ()
    fstype: str | None = None
    source: str | None = None
    network: bool = False
    read_only: bool = False
    stopped_writing: bool = False
    size_gib: float | None = None
    free_gib: float | None = None
    used: float | None = None
    inodes: int | None = None
    inodes_free: int | None = None
    seconds: float | None = None
    error: str | None = None
    asked: str = ""

    @property
    def answered(self) -> bool:
        """True when it said how full it is: its space or, as `df -i` does, its inodes alone."""
        return self.size_gib is not None or self.inodes is not None


@fact("disk", Env)
@record
class Disk:
    """The file systems that matter, by mount point."""

    volumes: tuple[Volume, ...]

    @classmethod
    def parse(cls, observation: Observation, env: Env | Unseen) -> Disk | Unseen:
        """Join what each path answered with the mount it lies on."""
        files = Files.parse_json(observation)
        if isinstance(files, Unseen):
            return files
        if not files.statvfs and not files.errors:
            return Unseen.of(observation)
        mounts = parse_mountinfo(mountinfo_of(files) or "")
        uses = _path_uses(env.variables if isinstance(env, Env) else {})
        volumes: dict[str, Volume] = {}
        for path in sorted({*files.statvfs, *files.errors} - {*MOUNTINFOS, "/etc/fstab"}):
            mount = mount_of(path, mounts)
            volume = _read_volume(path, mount, files)
            if volume is not None:
                earlier = volumes.get(volume.point)
                volumes[volume.point] = _join_volumes(earlier, volume, uses.get(path))
        return cls(tuple(volumes.values()))

    def behind(self, use: str) -> Volume | None:
        """The file system a purpose lies on, such as "HOME" or "/tmp"."""
        return next((volume for volume in self.volumes if use in volume.uses), None)


def worth_asking(mounts: tuple[Mount, ...]) -> tuple[Mount, ...]:
    """Mounts that may hold data: network file systems first, then disks; one per file system, at most 24.

    Bind mounts of single files (containers have many) and the layers of other containers are left out.
    """
    first: dict[tuple[str, str], Mount] = {}
    for mount in mounts:
        foreign = mount.fstype == "overlay" and mount.point != "/"
        if (mount.network or _DISKS.fullmatch(mount.fstype)) and not foreign:
            earlier = first.get((mount.source, mount.fstype))
            if earlier is None or len(mount.point) < len(earlier.point):
                first[mount.source, mount.fstype] = mount
    return tuple(sorted(first.values(), key=lambda mount: not mount.network)[:MOST_MOUNTS])


def _path_uses(env: Mapping[str, str]) -> dict[str, str]:
    """Paths to ask for and what each is used for; only absolute ones of a sane length."""
    uses = {env[name]: use for name, use in _FOLDERS.items() if name in env}
    paths = {path.rstrip("/") or "/": use for path, use in uses.items()}
    usable = {p: use for p, use in paths.items() if p.startswith("/") and len(p) < 1024 and "\0" not in p}
    return {**usable, **_ALWAYS}


def _read_volume(path: str, mount: Mount | None, files: Files) -> Volume | None:
    """What is known of the file system under one path; None when the path is simply not there."""
    error = files.error(path)
    if error in ("ENOENT", "ENOTDIR"):
        return None
    volume = Volume(point=mount.point if mount else path, error=error, asked=path)
    if mount is not None:
        volume = replace(
            volume,
            fstype=mount.fstype,
            source=mount.source,
            network=mount.network,
            read_only=mount.read_only,
            stopped_writing=mount.stopped_writing,
        )
    return volume if error else _with_space(volume, files.statvfs.get(path, {}))


def _with_space(volume: Volume, space: Mapping[str, Any]) -> Volume:
    percent = whole_number(space, "used_percent")  # of `df`, whose sizes are rounded
    size, free, used = (whole_number(space, f"{name}_bytes") for name in ("size", "free", "used"))
    if size is None or free is None or used is None:
        inodes, inodes_free = whole_number(space, "inodes"), whole_number(space, "inodes_free")
        if inodes is None or inodes_free is None:
            return replace(volume, error="EINVAL")
        return replace(volume, inodes=inodes, inodes_free=inodes_free)
    # Below --root our own mount may be read-only while the node's is not: its table of mounts knows better.
    shown_read_only = not volume.fstype and space.get("read_only") is True
    return replace(
        volume,
        size_gib=round(size / GIB, 2),
        free_gib=round(free / GIB, 2),
        used=percent / 100
        if percent is not None
        else round(used / (used + free), 4)
        if used + free
        else None,
        inodes=whole_number(space, "inodes"),
        inodes_free=whole_number(space, "inodes_free"),
        read_only=volume.read_only or shown_read_only,
        seconds=number(space.get("seconds")),
    )


def _join_volumes(earlier: Volume | None, volume: Volume, use: str | None) -> Volume:
    """Two paths on one file system are one volume; an answer outweighs none, a hang outweighs both."""
    if earlier is None:
        return replace(volume, uses=(use,) if use else ())
    uses = earlier.uses if use is None or use in earlier.uses else (*earlier.uses, use)
    hangs = volume.error == "TIMEOUT" and earlier.error != "TIMEOUT"
    better = hangs or (volume.answered and not earlier.answered and earlier.error != "TIMEOUT")
    return replace(volume if better else earlier, uses=uses)
