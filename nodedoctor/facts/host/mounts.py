"""What is mounted where: /proc/PID/mountinfo as values, and what needs a network to answer.

Beside it what /etc/fstab wants mounted at boot.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from nodedoctor.declare.registry import fact
from nodedoctor.facts.files import Files
from nodedoctor.model import Observation, Unseen
from nodedoctor.patterns import regex
from nodedoctor.record import record

# File systems whose server may be gone while the mount stays: every access then waits for it.
_NETWORK = re.compile(
    r"nfs\d?|cifs|smb3|lustre|gpfs|ceph|beegfs|wekafs|afs|orangefs|pvfs2|glusterfs|9p|virtiofs|fuse\..+|fuse"
)
# Local fuse file systems of containers: they answer as the local disk does.
_LOCAL_FUSE = regex(r"fuse\.(?:fuse-overlayfs|squashfuse(?:_ll)?|lxcfs|gvfsd-fuse|portal|snapfuse)")


MOUNTINFOS = ("/proc/self/mountinfo", "/proc/1/mountinfo")
"""Where the mounts of this process are, and those of the node's first process."""


def mountinfo_below(root: str) -> str:
    """Which table tells the mounts of the node whose / lies at `root`: our own is then the container's."""
    return MOUNTINFOS[root != "/"]


def mountinfo_of(files: Files) -> str | None:
    """The table that was read; None when none could be."""
    return next((text for path in MOUNTINFOS if (text := files.text(path)) is not None), None)


@record
class Mount:
    """One mount. `root` is the directory of the file system shown at `point`.

    `options` are the mount's, `super_options` the file system's: rw in the first and ro in the second means
    that the kernel stopped writing, as it does after an error.
    """

    point: str
    root: str
    fstype: str
    source: str
    options: tuple[str, ...] = ()
    super_options: tuple[str, ...] = ()

    @property
    def network(self) -> bool:
        """True when a server elsewhere has to answer."""
        return bool(_NETWORK.fullmatch(self.fstype)) and not _LOCAL_FUSE.fullmatch(self.fstype)

    @property
    def read_only(self) -> bool:
        """True when nothing can be written through this mount."""
        return "ro" in self.options or "ro" in self.super_options

    @property
    def stopped_writing(self) -> bool:
        """True when the file system turned read-only although it was mounted to be written."""
        return "rw" in self.options and "ro" in self.super_options


def parse_mountinfo(text: str) -> tuple[Mount, ...]:
    """The mounts in order, later ones covering earlier ones; lines of another shape are left out.

    Format: proc(5), /proc/pid/mountinfo: optional fields end with a single dash.
    """
    mounts = []
    for line in text.splitlines():
        before, dash, rest = line.partition(" - ")
        head, tail = before.split(" "), rest.split(" ")
        if dash and len(head) >= 6 and len(tail) >= 3 and head[4].startswith("/"):
            options, super_options = tuple(head[5].split(",")), tuple(tail[2].split(","))
            source = _undo_escapes(tail[1])
            mounts.append(
                Mount(_undo_escapes(head[4]), _undo_escapes(head[3]), tail[0], source, options, super_options)
            )
    return tuple(mounts)


def mount_of(path: str, mounts: Iterable[Mount]) -> Mount | None:
    """The mount a path lies on: the longest mount point above it, of equal ones the last."""
    above = [mount for mount in mounts if _contains_path(mount.point, path)]
    return max(enumerate(above), key=lambda row: (len(row[1].point), row[0]))[1] if above else None


def _contains_path(point: str, path: str) -> bool:
    return point == "/" or path == point or path.startswith(point.rstrip("/") + "/")


def line_of(point: str) -> str:
    """A pattern for the line of a mount point, with blanks in it as the kernel writes them."""
    written = re.sub(r"[ \t\n\\]", lambda match: f"\\{ord(match[0]):03o}", point)
    return rf"^\d+ \d+ \S+ \S+ {re.escape(written)} .*"


def _undo_escapes(field: str) -> str:
    """Undo the kernel's octal escapes of blanks, tabs, newlines, backslashes."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match.group(1), 8)), field)


FSTAB = "/etc/fstab"
_DATA = re.compile(
    r"nfs4?|cifs|smb3|lustre|gpfs|ceph|beegfs|wekafs|glusterfs|fuse\.\S+|ext[234]|xfs|btrfs|f2fs|bcachefs|zfs"
)
"""Types that hold data. `auto` is left out: cloud images name disks so that a machine may have or not."""
_SYSTEM = re.compile(r"/|/boot(?:/.*)?|/efi(?:/.*)?|/recovery(?:/.*)?")
_NOT_AT_BOOT = frozenset({"noauto", "x-systemd.automount", "comment=cloudconfig"})


@record
class FstabEntry:
    """A line of fstab that asks for a file system with data: what, where, of which type."""

    source: str
    point: str
    fstype: str
    line: str


@fact("disk", name="fstab")
@record
class Fstab:
    """Entries to be mounted at boot, and which of them are not; None where there is no fstab to read."""

    entries: tuple[FstabEntry, ...] | None
    missing: tuple[FstabEntry, ...] = ()

    @classmethod
    def parse(cls, observation: Observation) -> Fstab | Unseen:
        """Compare with the mounts of this mount namespace; without the list of mounts nothing is known."""
        files = Files.parse_json(observation)
        if isinstance(files, Unseen):
            return files
        mounts, text = mountinfo_of(files), files.text(FSTAB)
        if text is None and files.error(FSTAB) == "ENOENT":
            return cls(None)
        if mounts is None or text is None:
            return Unseen(
                "not-visible-here", "/etc/fstab or the mounts were not read", probe=observation.probe
            )
        entries = tuple(entry for line in text.splitlines() if (entry := _fstab_entry(line)))
        points = {mount.point for mount in parse_mountinfo(mounts)}
        return cls(entries, tuple(entry for entry in entries if entry.point not in points))


def _fstab_entry(line: str) -> FstabEntry | None:
    """fstab(5): source, mount point, type, options; blanks within a field are written \\040."""
    words = line.partition("#")[0].split() if not line.lstrip().startswith("#") else []
    if len(words) < 3:
        return None
    point, options = (
        words[1].replace("\\040", " ").rstrip("/") or "/",
        set((words[3:4] or [""])[0].split(",")),
    )
    wanted = _DATA.fullmatch(words[2]) and point.startswith("/") and not _SYSTEM.fullmatch(point)
    return (
        FstabEntry(words[0], point, words[2], line.strip()) if wanted and not options & _NOT_AT_BOOT else None
    )
