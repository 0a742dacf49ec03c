"""Is everything mounted that this node mounts at boot?"""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.host.container import Container
from nodedoctor.facts.host.mounts import Fstab, FstabEntry
from nodedoctor.model import Evidence, Finding, Fix
from nodedoctor.steps import look, repair
from nodedoctor.wording import first_few


@check("host.mounts", "File systems of /etc/fstab", tags={"fast"}, without=(Container,), stage="preview")
def mounts(fstab: Fstab, container: Container | None) -> Iterator[Finding]:
    """File systems with data that /etc/fstab has for boot, against what is mounted; noauto ones are left out.

    Why: a job writes its checkpoints and caches to the empty folder below, which is the root disk: it fills
    up, and the data set is missing on this node alone.
    Fix disturbs: what has been written below the mount point is hidden by the mount.
    Judges: WARN for each file system with data that /etc/fstab mounts at boot and that is not mounted.
    Fix: Look why it was not mounted (server, network, disk), and mount it when no job writes below it.
    Threshold: No threshold: fstab(5) against the kernel's list of mounts.
    False positives: Entries with noauto, automounts, and disks that cloud images name in case they exist.
    Error texts:
    - OSError: [Errno 116] Stale file handle
    - Transport endpoint is not connected
    """
    if container is not None and container.inside:
        yield Finding.skip("a container's /etc/fstab says nothing about what is mounted into it")
    elif fstab.entries is None:
        yield Finding.skip("there is no /etc/fstab")
    elif not fstab.entries:
        yield Finding.skip("/etc/fstab has no file system with data beside that of the system")
    else:
        yield from map(_missing_mount, fstab.missing)
        if not fstab.missing:
            points = first_few([entry.point for entry in fstab.entries], 6)
            yield Finding.ok(f"mounted as /etc/fstab has it: {points}")


def _missing_mount(entry: FstabEntry) -> Finding:
    fix = Fix(
        "Find out why it was not mounted at boot (server, network, disk), and mount it when no job runs.",
        (
            look("findmnt --fstab {}", entry.point),
            look("systemctl --failed --type=mount"),
            look("sudo dmesg | grep -iE 'nfs|lustre|ceph|mount' | tail -20"),
            repair("sudo mount {}", entry.point, when="no job writes below it"),
        ),
        "config",
        "what has been written below the mount point",
        "nodedoctor host.mounts",
    )
    summary = f"{entry.point} is in /etc/fstab ({entry.fstype}) and is not mounted"
    return Finding.warn(
        summary, subject=f"mount:{entry.point}", evidence=[Evidence("disk", entry.line)], fix=fix
    )
