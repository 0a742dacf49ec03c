"""Can anybody but root write this? The one question before root runs code that it did not bring along.

A path is root's alone when every folder from / down to it, every link on the way, and the file itself belong
to root, and neither its group nor everybody may write there. A tree is root's alone when everything in it
is. What cannot be looked at, or is too large to look at, is not trusted.

- A group's right to write does not count while the group has no member but root: Debian's
  /usr/local/lib/python3.*/dist-packages belongs to root:staff with mode 2775, and staff is empty unless an
  administrator fills it. Only groups of the system (gid below 1000) are judged so, from /etc/group and
  /etc/passwd: directories of accounts on the network are slow, can hang, and put people into other groups.
- In a folder with the sticky bit, as /tmp, only root can remove or replace what belongs to root (chmod(2)),
  so that does not count against an entry of root's. It does against a name that is not there yet.
- An access control list shows in the mode as a right of the group: such a right with a list is not trusted.
- Not judged is what root's own environment has already done to our own process.

Used by the programs in `probes` too: standard library only, and none of it that takes long to import, because
every run as root waits for one of them before it starts anything else. Measured on a virtual machine of two
busy cores: 12 microseconds an entry; 18 to 35 ms for a bare start of the distribution's Python, less
without module `site`; 0.1 to 0.6 s for an interpreter with its 7000 files of packages.
"""

from __future__ import annotations

import os
import stat
import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Collection

MOST_ENTRIES = 500_000  # the largest training environments have some 200 000 files
MOST_SECONDS = 10.0  # an import from the same disk takes longer than to list it
MOST_LINKS = 40  # as many as the kernel follows (path_resolution(7))
SYSTEM_GROUPS = 1000  # login.defs(5): SYS_GID_MAX is 999


class Writer:
    """A path that others than root can write, the user it belongs to, and how in words."""

    def __init__(self, path: str, uid: int, how: str) -> None:
        self.path = path
        self.uid = uid
        self.how = how

    def __str__(self) -> str:
        """As a clause: PATH belongs to uid 1000."""
        return f"{self.path} {self.how}"


def is_root() -> bool:
    """Whether we can do more than one user can: the root of a namespace that holds one user cannot."""
    if os.geteuid() != 0:
        return False
    try:
        with open("/proc/self/uid_map", encoding="ascii") as file:
            mapped = file.read().split()
    except OSError:
        return True  # not known to be confined: the stricter answer
    return sum(map(int, mapped[2::3])) > 1


class Writers:
    """Collects, in the order of looking, what others than root can write; each thing is looked at once."""

    def __init__(self, entries: int = MOST_ENTRIES, seconds: float = MOST_SECONDS) -> None:
        self.found: list[Writer] = []
        self._left = entries
        self._ends = time.monotonic() + seconds
        self._seen: dict[str, os.stat_result] = {}  # folders and links
        self._walked: set[str] = set()
        self._mounted = mounted_by_users(_read_text("/proc/self/mountinfo"))

    def path(self, path: str) -> str:
        """Look at a path and all that leads to it, links included; the real path, "" where there is none."""
        rest, here, links = path.split("/")[::-1], "/", 0
        if not os.path.isabs(path):
            self._add_writer(path, 0, "is not an absolute path")
            return ""
        self._check_path("/")
        while rest:
            name = rest.pop()
            if name in ("", "."):
                continue
            if name == "..":
                here = os.path.dirname(here)
                continue
            there = os.path.join(here, name)
            about = self._check_path(there)
            if about is None:
                return ""
            if stat.S_ISLNK(about.st_mode):
                links += 1
                try:
                    target = os.readlink(there)
                except OSError:
                    target = ""
                if links > MOST_LINKS or not target:
                    self._add_writer(there, 0, "is a link that leads nowhere")
                    return ""
                rest += target.split("/")[::-1]
                here = "/" if target.startswith("/") else here
                continue
            here = there
            if not stat.S_ISDIR(about.st_mode) and rest:
                return here  # an archive; what is in it is as safe as the file
        return here

    def tree(self, folder: str, *, enter: Collection[str] = (), leave_out: Collection[str] = ()) -> None:
        """Look at a folder and everything below it, and at what links in it lead to.

        With `enter` only folders of these names are entered below it, never one of a name in `leave_out`, nor
        one of somebody else: that is found already.
        """
        folders = [self.path(folder)]
        while folders:
            here = folders.pop()
            about = self._seen.get(here)
            if here in self._walked or about is None or not stat.S_ISDIR(about.st_mode) or about.st_uid != 0:
                continue
            self._walked.add(here)
            try:
                with os.scandir(here) as entries:
                    names = [entry.name for entry in entries if entry.name not in leave_out]
            except OSError as error:
                self._add_writer(here, 0, f"cannot be looked at: {error.strerror}")
                continue
            for name in names:
                there = os.path.join(here, name)
                status = self._check_path(there)
                if status is not None and stat.S_ISLNK(status.st_mode):
                    there = self.path(there)
                    status = self._seen.get(there)
                if status is not None and stat.S_ISDIR(status.st_mode) and (not enter or name in enter):
                    folders.append(there)
            self._left -= len(names)
            if self._left < 0 or time.monotonic() > self._ends:
                self._add_writer(folder, 0, "has more files than can be looked at")
                return

    def _check_path(self, path: str) -> os.stat_result | None:
        """What is at a path, not following it; None for nothing. Notes who else can write it."""
        if path in self._seen:
            return self._seen[path]
        try:
            about = os.lstat(path)
        except FileNotFoundError:
            above = self._seen.get(os.path.dirname(path))
            if above is not None and _write_right(os.path.dirname(path), above):
                self._add_writer(path, 0, "is not there, and others may make it")
            return None
        except (OSError, ValueError) as error:
            self._add_writer(path, 0, f"cannot be looked at: {getattr(error, 'strerror', error)}")
            return None
        if stat.S_ISDIR(about.st_mode) or stat.S_ISLNK(about.st_mode):
            self._seen[path] = about
        uid = about.st_uid or self._mounted.get(about.st_dev, 0)
        if uid:
            self._add_writer(path, uid, f"belongs to uid {uid}")
        elif not stat.S_ISLNK(about.st_mode) and not _is_sticky(about) and (how := _write_right(path, about)):
            self._add_writer(path, 0, how)
        return about

    def _add_writer(self, path: str, uid: int, how: str) -> None:
        self.found.append(Writer(path, uid, how))


def mounted_by_users(mountinfo: str) -> dict[int, int]:
    """Device numbers of the FUSE file systems of ordinary users, and whose each is (fuse(4): user_id).

    Such a file system may say of any file that it is root's.
    """
    if " - fuse" not in mountinfo:
        return {}
    import re  # takes as long as all else together

    rows = re.findall(r"^\d+ \d+ (\d+):(\d+) .* - fuse\S* .*\buser_id=([1-9]\d*)", mountinfo, re.M)
    return {os.makedev(int(major), int(minor)): int(uid) for major, minor, uid in rows}


def _is_sticky(about: os.stat_result) -> bool:
    return stat.S_ISDIR(about.st_mode) and about.st_mode & stat.S_ISVTX != 0


def _write_right(path: str, about: os.stat_result) -> str:
    """By which right others than the owner may write; empty for none."""
    if about.st_mode & stat.S_IWOTH:
        return "can be written by everybody"
    if about.st_mode & stat.S_IWGRP:
        if _has_wider_acl(path):
            return "can be written by others, by its access control list"
        if not _is_empty_group(about.st_gid):
            return f"can be written by others, those of group {_writer_name(about.st_gid)}"
    return ""


def _has_wider_acl(path: str) -> bool:
    """Whether an access control list says more than the mode does."""
    try:
        return "system.posix_acl_access" in os.listxattr(path)
    except OSError:
        return False  # a file system without them


def _is_empty_group(gid: int) -> bool:
    """Whether a group of the system has no member but root; looked up once."""
    if gid not in _known_empty:
        _known_empty[gid] = _has_only_root(gid)
    return _known_empty[gid]


_known_empty: dict[int, bool] = {}


def _has_only_root(gid: int) -> bool:
    rows, users = _account_rows("/etc/group", 2, gid), _account_rows("/etc/passwd", 3, gid)
    members = {name for row in rows for name in row[3].split(",") if name}
    members |= {user[0] for user in users}
    return (
        gid < SYSTEM_GROUPS
        and bool(rows)
        and members <= {user[0] for user in _account_rows("/etc/passwd", 2, 0)}
    )


def _writer_name(gid: int) -> str:
    return next((row[0] for row in _account_rows("/etc/group", 2, gid)), str(gid))


def _account_rows(file: str, field: int, number: int) -> list[list[str]]:
    """The lines of an account file with this number in a field."""
    rows = [line.split(":") for line in _read_text(file).splitlines()]
    return [row for row in rows if len(row) > 3 and row[field] == str(number)]


def _read_text(file: str) -> str:
    try:
        with open(file, encoding="utf-8", errors="replace") as opened:
            return opened.read()
    except OSError:
        return ""  # no member is known then, and a group that is not known to be empty counts as others
