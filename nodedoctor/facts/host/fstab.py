"""File systems that /etc/fstab says are mounted at boot, against those that are."""

from __future__ import annotations

import re

from nodedoctor.declare.registry import fact
from nodedoctor.facts.files import Files
from nodedoctor.facts.host.mounts import mountinfo_of, parse_mountinfo
from nodedoctor.model import Observation, Unseen
from nodedoctor.record import record

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
    def parse(cls, seen: Observation) -> Fstab | Unseen:
        """Compare with the mounts of this mount namespace; without the list of mounts nothing is known."""
        files = Files.parse_json(seen)
        if isinstance(files, Unseen):
            return files
        mounts, text = mountinfo_of(files), files.text(FSTAB)
        if text is None and files.error(FSTAB) == "ENOENT":
            return cls(None)
        if mounts is None or text is None:
            return Unseen("not-visible-here", "/etc/fstab or the mounts were not read", probe=seen.probe)
        entries = tuple(entry for line in text.splitlines() if (entry := _entry(line)))
        points = {mount.point for mount in parse_mountinfo(mounts)}
        return cls(entries, tuple(entry for entry in entries if entry.point not in points))


def _entry(line: str) -> FstabEntry | None:
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
