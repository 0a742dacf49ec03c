"""Is there room on this node: memory, and file systems that answer, can be written and are not full?"""

import math
from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.host.container import Container
from nodedoctor.facts.host.disk import Disk, Volume
from nodedoctor.facts.host.limits import Limits, Memory, memory_line
from nodedoctor.facts.host.mounts import line_of
from nodedoctor.facts.host.processes import Processes
from nodedoctor.knowledge.limits import limit
from nodedoctor.model import Evidence, Finding, Fix, quoted_like, reading
from nodedoctor.record import replace
from nodedoctor.steps import look, repair
from nodedoctor.wording import comma_list, count_with_noun

from .shm import size_text

_SWAPPED_GIB = 0.25  # below it only pages that were not used since boot were moved
_WAITED = 0.1  # percent of five minutes: below it no job notices (chosen by us, no external source)
_HUGE_SHARE = 0.3  # of memory reserved as huge pages: PyTorch and NCCL use none of it
_ROOM_GIB = 50.0  # 5 % of a 1 TB disk: larger ones may be fuller without alarm
_LAST_GIB = 1.0
_LAST_INODES = 0.01
_FULL = 0.95  # imbue-ai/cluster-health: health_checks.py fails a disk there; Ray stops at the same share

_DEAD = ("TIMEOUT", "ESTALE", "ENOTCONN", "EIO", "EREMOTEIO", "EHOSTDOWN", "ESHUTDOWN")
_TEMPORARY = ("/tmp", "TMPDIR", "Ray's temporary files")
_RAY = "Ray's temporary files"


@check("limits.memory", "Host memory and swap", tags={"fast"}, without=(Processes,))
def memory(limits: Limits, processes: Processes | None) -> Iterator[Finding]:
    """Memory of the host and of our cgroup without page cache, swap, and huge page reservations.

    Why: out of memory, the kernel (or Ray before it) kills a rank, and all others wait for it until the
    watchdog fires; a rank that swaps is late in every step.
    Fix disturbs: the job whose memory use is reduced; disabling swap needs free memory for the swapped pages.
    Judges: FAIL when memory is nearly used up, WARN when it is high or much is swapped out.
    Fix: Stop what holds the memory, or raise the control group's limit.
    Threshold: Ray's own limits of 90 and 95 % (ray_config_def.h).
    False positives: Page cache is not counted, but large pinned buffers are. Swapped pages for which nothing
    waits are a note.
    """
    if limits.memory is None:
        yield Finding.unknown("not-visible-here", "/proc/meminfo could not be read", subject="host")
        yield from _judge_group(limits, ray=False)
        return
    ray = processes is not None and processes.ray
    yield _judge_host(limits.memory, ray)
    yield from _judge_group(limits, ray)
    yield _judge_swap(limits.memory, _nobody_waits(limits))
    huge = limits.memory.hugepages_gib
    if huge > limits.memory.total_gib * _HUGE_SHARE:
        summary = f"{huge:.0f} of {limits.memory.total_gib:.0f} GiB reserved as huge pages"
        fix = Fix(
            "Release the huge pages: PyTorch and NCCL need none.",
            (repair("sudo sysctl -w vm.nr_hugepages=0"),),
            "config",
            "programs that use them",
        )
        yield Finding.info(summary, subject="hugepages", fix=fix)


def _judge_host(memory: Memory, ray: bool) -> Finding:
    if memory.available_gib is None:
        return Finding.unknown("unparsable", "/proc/meminfo has no MemAvailable", subject="host")
    used = 1 - memory.available_gib / memory.total_gib if memory.total_gib else 1.0
    summary = f"{memory.available_gib:.0f} of {memory.total_gib:.0f} GiB available on the host"
    return _judge_memory("host", used, summary, [memory_line("MemTotal"), memory_line("MemAvailable")], ray)


def _judge_group(limits: Limits, ray: bool) -> Iterator[Finding]:
    """The control group's limit, where there is one below the host's memory."""
    group, total = limits.cgroup, limits.memory.total_gib if limits.memory else math.inf
    if group.memory_max_gib is not None and group.memory_max_gib < total:
        if group.memory_used_gib is None:
            yield Finding.unknown("denied", "memory use of our cgroup could not be read", subject="cgroup")
        else:
            readings = group.said("memory_max_gib", "memory_used_gib")
            used = group.memory_used_gib / group.memory_max_gib if group.memory_max_gib else 1.0
            summary = f"{group.memory_used_gib:.1f} of {group.memory_max_gib:.1f} GiB of our cgroup used"
            yield _judge_memory("cgroup", used, summary, readings, ray)
    if group.oom_kills:
        summary = f"{count_with_noun(group.oom_kills, 'OOM kill')} in our cgroup"
        evidence = group.said("oom_kills")
        yield Finding.warn(summary, subject="cgroup:oom", evidence=evidence, fix=_LESS_MEMORY)


_LESS_MEMORY = Fix(
    "Find what uses it. Data loaders (num_workers times prefetch_factor batches, per rank), a dataset read "
    "into every rank and pinned buffers are common causes; else raise the job's limit "
    "(docker --memory, the pod's "
    "resources.limits.memory, srun --mem).",
    (look("ps -eo pid,rss,user,comm --sort=-rss | head -20"),),
    action="config",
    disturbs="the job (restart with lower memory use)",
    verify="nodedoctor limits.memory",
)


def _judge_memory(subject: str, used: float, summary: str, evidence: list[Evidence], ray: bool) -> Finding:
    """Ray kills its newest worker at the threshold; without Ray the kernel kills somebody not much later."""
    high, kill = limit("ray_memory_warn"), limit("ray_memory_fail")
    if used >= kill.number:
        who = (
            f"Ray kills workers above {kill.number:.0%}"
            if ray
            else "the next allocation may trigger an OOM kill"
        )
        return Finding.fail(f"{summary}: {who}", subject=subject, evidence=evidence, fix=_LESS_MEMORY)
    if used >= high.number:
        return Finding.warn(
            f"{summary}: {used:.0%} used", subject=subject, evidence=evidence, fix=_LESS_MEMORY
        )
    return Finding.ok(summary, subject=subject, evidence=evidence)


def _nobody_waits(limits: Limits) -> bool:
    """Whether the kernel saw, within five minutes, no task wait for memory: what is swapped out lies cold.

    PSI counts the time that tasks wait for pages to come back (linux, Documentation/accounting/psi.rst).
    """
    waited = limits.pressure.get("memory", {}).get("some_avg300")
    return waited is not None and waited < _WAITED


def _judge_swap(memory: Memory, cold: bool) -> Finding:
    swap = limit("swap")
    if not memory.swap_total_gib:
        return Finding.ok("no swap", subject="swap")
    used = memory.swap_total_gib - memory.swap_free_gib
    evidence = [memory_line("SwapTotal"), memory_line("SwapFree")]
    slow = "programs with swapped pages"
    fix = Fix(swap.text, (repair("sudo swapoff -a"),), "config", slow, "nodedoctor limits.memory")
    if used > _SWAPPED_GIB and cold:
        summary = f"{used:.1f} GiB swapped out, nothing waits for it; training nodes need no swap"
        return Finding.info(summary, subject="swap", evidence=evidence, fix=fix)
    if used > _SWAPPED_GIB:
        return Finding.warn(f"{used:.1f} GiB swapped out", subject="swap", evidence=evidence, fix=fix)
    summary = f"{memory.swap_total_gib:.0f} GiB of swap configured, not used; training nodes need none"
    return Finding.info(summary, subject="swap", evidence=evidence, fix=fix)


@check("limits.disk", "File systems", tags={"fast"}, without=(Processes, Container))
def disk(disk: Disk, processes: Processes | None, container: Container | None) -> Iterator[Finding]:
    """The file systems behind /, /tmp, HOME, caches and Ray's files, and every network mount.

    Why: a dead mount hangs every program that touches it, a full or read-only one kills the job at its next
    checkpoint or spill, and Ray stops creating objects at 95 %.
    Fix disturbs: remounting ends programs that use the mount; freeing space, nothing.
    Judges: FAIL when a file system that jobs write to is read-only, full or does not answer; WARN when it is
    nearly full, or one of unknown use has no inode left.
    Fix: Free space, or point the job at another folder.
    Threshold: Ray's own limits of 90 and 95 % (ray_config_def.h).
    False positives: Image layers and snaps are read-only by design and left out.
    Error texts:
    - OSError: [Errno 28] No space left on device
    """
    ray = processes is not None and processes.ray
    inside = container is not None and container.inside
    findings = [finding for volume in disk.volumes for finding in _judge_volume(volume, ray, inside)]
    yield from findings
    if not findings:
        yield Finding.unknown("not-visible-here", "no relevant file system seen")


def _judge_volume(volume: Volume, ray: bool, inside: bool) -> Iterator[Finding]:
    """The first thing that is wrong with one file system, else that nothing is."""
    if volume.point == "/dev/shm":
        return  # limits.shm judges it
    subject, evidence = f"mount:{volume.point}", _volume_evidence(volume)
    if volume.error in _DEAD:
        yield _dead_volume(volume, subject, evidence)
    elif not volume.answered:
        if volume.uses:
            yield Finding.unknown(
                "denied", f"{_volume_name(volume)}: {volume.error}", subject=subject, evidence=evidence
            )
    elif volume.stopped_writing:
        yield _stopped_volume(volume, subject, evidence)
    elif volume.read_only:
        yield from _read_only(volume, inside, subject, evidence)
    else:
        yield from _judge_room(volume, ray, subject, evidence)


def _dead_volume(volume: Volume, subject: str, evidence: list[Evidence]) -> Finding:
    what = "did not answer in 3 s" if volume.error == "TIMEOUT" else f"answers {volume.error}"
    fix = Fix(
        "Restore its server or network. If that is impossible, detach the mount; processes that already wait "
        "in it (state D) end only when the server responds or the node reboots.",
        (
            look("grep -F {} /proc/mounts", volume.point),
            look("ps -eo pid,stat,wchan:30,comm | awk '$2 ~ /D/'"),
        ),
        action="investigate",
        disturbs="programs that use the mount, when it is detached",
        verify="nodedoctor limits.disk",
    )
    if volume.uses:
        return Finding.fail(f"{_volume_name(volume)} {what}", subject=subject, evidence=evidence, fix=fix)
    summary = f"{_volume_name(volume)} {what}: programs that touch it hang, also df and ls"
    return Finding.warn(summary, subject=subject, evidence=evidence, fix=fix)


def _stopped_volume(volume: Volume, subject: str, evidence: list[Evidence]) -> Finding:
    fix = Fix(
        "The kernel stopped writing after a device error: read its log, then drain the node, check "
        "the file system unmounted, and replace the disk if it reports errors.",
        (look("sudo dmesg | grep -iE 'ext4|xfs|nvme|I/O error' | tail"), look("findmnt {}", volume.point)),
        action="drain",
        disturbs="every job on this node",
        verify="nodedoctor limits.disk",
    )
    summary = f"{_volume_name(volume)} became read-only after an error"
    bad = Finding.fail if volume.uses else Finding.warn
    return bad(summary, subject=subject, evidence=evidence, fix=fix)


def _read_only(volume: Volume, inside: bool, subject: str, evidence: list[Evidence]) -> Iterator[Finding]:
    """Container images and diskless nodes are read-only by design; where jobs must write it is a fault."""
    writes = [use for use in volume.uses if use not in ("/", "/var", "the working directory")]
    temporary = [use for use in writes if use in _TEMPORARY]
    where = "Mount a writable volume there in the container." if inside else "Mount it read-write."
    fix = Fix(where, (look("findmnt {}", volume.point),), "config", "nothing", "nodedoctor limits.disk")
    if temporary:
        yield Finding.fail(
            f"{_volume_name(volume)} is read-only", subject=subject, evidence=evidence, fix=fix
        )
    elif writes:
        summary = f"{comma_list(writes)} not writable: caches and checkpoints there fail"
        yield Finding.warn(summary, subject=subject, evidence=evidence, fix=fix)
    elif volume.uses:
        yield Finding.info(f"{_volume_name(volume)} is read-only", subject=subject, evidence=evidence)


_MANY_FILES = (
    "Remove or pack small files (caches, unpacked data sets, logs of ranks): there is space, but no room for "
    "one more name."
)


def _judge_room(volume: Volume, ray: bool, subject: str, evidence: list[Evidence]) -> Iterator[Finding]:
    free, used = volume.free_gib or 0.0, volume.used or 0.0
    fix = Fix(
        "Free space: old checkpoints, Ray's session folders, package caches, core dumps.",
        (look("sudo du -xh --max-depth=2 {} | sort -h | tail -20", volume.point),),
        action="config",
        disturbs="programs whose open files are deleted",
        verify="nodedoctor limits.disk",
    )
    summary = f"{_volume_name(volume)}: {size_text(free)} free, {used:.0%} used"
    if volume.size_gib is None:
        summary = f"{_volume_name(volume)}: {volume.inodes_free} of {volume.inodes} inodes free"
    spills = ray and _RAY in volume.uses
    short = used >= _FULL and free < _ROOM_GIB
    if spills and used >= limit("ray_disk_fail").number:
        summary += f" (Ray stores no objects above {limit('ray_disk_fail').number:.0%})"
        yield Finding.fail(summary, subject=subject, evidence=evidence, fix=fix)
    elif volume.uses and short and free < _LAST_GIB:
        yield Finding.fail(summary, subject=subject, evidence=evidence, fix=fix)
    elif (lack := _few_inodes(volume)) and (volume.uses or not volume.inodes_free):
        judge = Finding.warn if volume.inodes_free or not volume.uses else Finding.fail
        step = look("sudo du --inodes -x --max-depth=2 {} | sort -n | tail -20", volume.point)
        fix = replace(fix, text=_MANY_FILES, steps=(step,))
        yield judge(lack, subject=subject, evidence=evidence, fix=fix)
    elif (spills and used >= limit("ray_disk_warn").number) or (volume.uses and short):
        yield Finding.warn(summary, subject=subject, evidence=evidence, fix=fix)
    elif short:
        yield Finding.info(summary, subject=subject, evidence=evidence, fix=fix)
    else:
        yield Finding.ok(summary, subject=subject, evidence=evidence)


def _few_inodes(volume: Volume) -> str:
    """What to say when the file system can hold hardly any more files; some types have no such limit."""
    if not volume.inodes or volume.inodes_free is None or volume.inodes_free >= volume.inodes * _LAST_INODES:
        return ""
    return f"{_volume_name(volume)}: {volume.inodes_free} of {volume.inodes} inodes free"


def _volume_name(volume: Volume) -> str:
    """The mount with what it is used for, like `/home (HOME; nfs4)`."""
    uses = [use for use in volume.uses if use != volume.point]
    kind = [volume.fstype] if volume.network and volume.fstype else []
    about = "; ".join([*uses, *kind])
    return f"{volume.point} ({about})" if about else volume.point


def _volume_evidence(volume: Volume) -> list[Evidence]:
    """What it answered; where it cannot be written or does not answer, its line among the mounts first."""
    mount = [quoted_like("disk", line_of(volume.point))]
    if volume.error:
        return [*mount, reading("disk", f'errors["{volume.asked}"]')]
    inodes = _few_inodes(volume) or volume.size_gib is None
    space = ("inodes", "inodes_free") if inodes else ("free_bytes",)
    answered = [reading("disk", f'statvfs["{volume.asked}"].{name}') for name in space]
    return [*mount, *answered] if volume.read_only or volume.stopped_writing else answered
