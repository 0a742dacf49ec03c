"""Where the single file lies unpacked: a private folder, looked for and checked at every start.

Code is loaded from this folder, so nobody else may be able to change it: it is ours, closed to others, and so
is (or is sticky, as /tmp) every folder above it. A home directory on a network is tried last: it may hang, it
is slow, and a thousand nodes would unpack there at once. Nothing on a network is even looked at before that.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import stat
from collections.abc import Callable, Iterator
from typing import Any

from nodedoctor_contents import NoPlace, intact, manifest

OVERRIDE = "NODEDOCTOR_UNPACK"
SHARED = ("/var/tmp", "/tmp", "/dev/shm")
MOUNTS = "/proc/self/mountinfo"
MOST_LINKS = 40  # symbolic links followed in one path, as the kernel
LOCAL = frozenset(
    ("bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "overlay", "ramfs", "rootfs", "tmpfs", "xfs", "zfs")
)
"""File systems that wait for nobody else. What is not known is taken for a network."""


class Unsuited(Exception):
    """A folder for when there is no better one: it is far away, or libraries cannot be loaded from it."""


def place(loader: Any) -> str:
    """The folder with the unpacked contents of the archive that `loader` reads; unpacks them if need be."""
    name, files = manifest(loader.get_data(os.path.join(loader.archive, "manifest")).decode())
    is_local = locality(mounts(mounted()))
    reasons: list[str] = []
    left = list(candidates())
    for far, noexec in ((False, False), (True, False), (True, True)):
        tried, left = left, []
        for parent, own in tried:
            try:
                real = walk(parent, None if far else is_local, make=parent not in SHARED)
                base = private(real, own)
                if not noexec and os.statvfs(base).f_flag & os.ST_NOEXEC:
                    raise Unsuited  # psutil's library cannot be mapped from there
                folder = os.path.join(base, name)
                if not intact(folder, files):
                    import nodedoctor_unpack

                    nodedoctor_unpack.unpack(loader.archive, folder, files)
                return folder
            except Unsuited:
                left.append((parent, own))
            except OSError as error:
                reasons.append(f"{parent}: {error.strerror or error}")
    raise NoPlace(f"no private folder to unpack into ({'; '.join(reasons)}); name one with {OVERRIDE}=DIR")


def candidates() -> Iterator[tuple[str, str]]:
    """Folders to try, and the name of ours in each. Not asked is the name service, which may hang."""
    ours = f"nodedoctor-{os.geteuid()}"
    told, cache, home = (os.environ.get(name, "") for name in (OVERRIDE, "XDG_CACHE_HOME", "HOME"))
    if told:
        yield os.path.abspath(told), ours
        return
    if os.path.isabs(cache):
        yield cache, "nodedoctor"
    if os.path.isabs(home):
        yield os.path.join(home, ".cache"), "nodedoctor"
    for folder in SHARED:
        yield folder, ours


def walk(path: str, is_local: Callable[[str], bool] | None, make: bool) -> str:
    """The real path of a folder that nobody else can replace; OSError says what is wrong with it.

    Before a step is taken its file system is asked for, by name: Unsuited when `is_local` denies it. The last
    folder is made if it is missing and `make` says so.
    """
    trusted = _trusted()
    at, links = "/", 0
    rest = path.rstrip("/").split("/")[::-1]
    while rest:
        part = rest.pop()
        if part in ("", ".", ".."):
            at = os.path.dirname(at) if part == ".." else at
            continue
        here = os.path.join(at, part)
        if is_local and not is_local(here):
            raise Unsuited
        try:
            about = os.lstat(here)
        except FileNotFoundError:
            if rest or not make:
                raise
            with contextlib.suppress(FileExistsError):  # somebody was faster
                os.mkdir(here, 0o700)
            about = os.lstat(here)
        if about.st_uid not in trusted:
            raise PermissionError(errno.EPERM, f"{here} belongs to user {about.st_uid}")
        if stat.S_ISLNK(about.st_mode):
            links += 1
            if links > MOST_LINKS:
                raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
            target = os.readlink(here)
            at = "/" if target.startswith("/") else at
            rest += target.split("/")[::-1]
            continue
        if not stat.S_ISDIR(about.st_mode):
            raise NotADirectoryError(errno.ENOTDIR, f"{here} is no folder")
        if about.st_mode & 0o022 and not about.st_mode & stat.S_ISVTX:
            raise PermissionError(errno.EPERM, f"others can write to {here}")
        at = here
    return at


def private(parent: str, name: str) -> str:
    """Our own folder in a folder, made if need be; OSError when somebody else has a hand in it."""
    path = os.path.join(parent, name)
    try:
        about = os.lstat(path)
    except FileNotFoundError:
        with contextlib.suppress(FileExistsError):  # as above
            os.mkdir(path, 0o700)
        about = os.lstat(path)
    if not stat.S_ISDIR(about.st_mode):
        raise NotADirectoryError(errno.ENOTDIR, f"{path} is no folder")
    if about.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, f"{path} belongs to user {about.st_uid}")
    if about.st_mode & 0o022:
        raise PermissionError(errno.EPERM, f"others can write to {path}")
    if about.st_mode & 0o077:
        os.chmod(path, 0o700)
    return path


def _trusted() -> tuple[int, ...]:
    """Whose folders may stand above ours. Who owns "/" is root as seen from here, in a user namespace too."""
    return (0, os.geteuid(), os.stat("/").st_uid)


def locality(known: dict[str, str]) -> Callable[[str], bool]:
    """Whether a path lies on a file system of this machine, as its text says: nothing is looked at."""

    def is_local(path: str) -> bool:
        while path not in known and os.path.dirname(path) != path:
            path = os.path.dirname(path)
        return known.get(path, "rootfs") in LOCAL

    return is_local


def mounted() -> str:
    """What is mounted; nothing when that cannot be read."""
    try:
        with open(MOUNTS, encoding="utf-8", errors="surrogateescape") as file:
            return file.read()
    except OSError:
        return ""


def mounts(text: str) -> dict[str, str]:
    """The type of the file system at each mount point, the topmost, as proc(5) lists them."""
    found = {}
    for line in text.split("\n"):
        before, _, after = line.partition(" - ")
        fields = before.split(" ")
        if after and len(fields) > 4:
            point = re.sub(r"\\([0-7]{3})", lambda code: chr(int(code[1], 8)), fields[4])
            found[point] = after.split(" ")[0]
    return found
