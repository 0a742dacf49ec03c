"""Does shared memory (/dev/shm) suffice for NCCL, data loaders and Ray's object store?"""

from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.driver.driver import Driver
from nodedoctor.facts.driver.nvidia_presence import looked, signs
from nodedoctor.facts.host.container import Container
from nodedoctor.facts.host.limits import SHM, Limits, Memory, Shm, memory_line, shm_said
from nodedoctor.facts.host.processes import Processes
from nodedoctor.facts.pci.pci import Pci
from nodedoctor.knowledge.fixes.limits import more_shm
from nodedoctor.knowledge.limits import limit
from nodedoctor.model import Finding, Fix
from nodedoctor.record import replace
from nodedoctor.steps import look

GIB = 1024**3
_SHM_SUBJECT = f"mount:{SHM}"
_NEARLY_FULL_GIB = 0.25  # an NCCL channel's buffer is some 10 MB, a loader's batch some 100: a handful fits


@check("limits.shm", "Shared memory (/dev/shm)", tags={"fast"}, without=(Container, Pci, Driver))
def shm(
    limits: Limits,
    container: Container | None,
    processes: Processes | None,
    pci: Pci | None,
    driver: Driver | None,
) -> Iterator[Finding]:
    """Size and free space of /dev/shm, and Ray's object store against it.

    Why: NCCL, data loaders and Ray exchange data there; when it is full, NCCL fails to extend its file, data
    loaders die with SIGBUS, and Ray's object store falls back to disk.
    Fix disturbs: the container (it must be recreated); on the host, nothing.
    Judges: FAIL when there is no /dev/shm, or it is too small for NCCL on a node that trains; WARN below what
    loaders and Ray take.
    Fix: Start the container with a larger --shm-size, or remount /dev/shm.
    Threshold: NVIDIA/nccl troubleshooting: 1 GiB; 8 GiB is what training guides set.
    False positives: Jobs with one process and no loader workers.
    Error texts:
    - DataLoader worker is killed by signal: Bus error
    """
    mount = limits.shm
    in_docker = container is None and mount is not None and _is_dockers_default(mount)
    fix = more_shm("docker" if in_docker else container.runtime if container else None)
    if mount is None:
        yield _no_shm(limits.errors.get(SHM), fix)
        return
    yield _judge_shm(mount, fix, trains_here(processes, pci, driver))
    ray = _ray_store(mount, limits, processes, fix)
    if ray is not None:
        yield ray


def _no_shm(error: str | None, fix: Fix) -> Finding:
    if error == "ENOENT":
        return Finding.fail("it does not exist", subject=_SHM_SUBJECT, fix=fix)
    if error == "TIMEOUT":
        return Finding.unknown("timeout", "it did not respond", subject=_SHM_SUBJECT)
    why = error or "size not recorded"
    return Finding.unknown("not-visible-here", f"/dev/shm: {why}", subject=_SHM_SUBJECT)


def _is_dockers_default(shm: Shm) -> bool:
    return shm.size_gib * 1024 <= limit("shm_docker_default").number


def _judge_shm(shm: Shm, fix: Fix, trains: bool) -> Finding:
    least, usual = limit("shm_nccl_min"), limit("shm_training")
    evidence = shm_said("size_bytes", "free_bytes")
    bad = Finding.fail if trains else Finding.warn
    size, free = size_text(shm.size_gib), size_text(shm.free_gib)
    if _is_dockers_default(shm):
        summary = f"{size}, Docker's default; NCCL needs {least.number:g} GiB ({least.source})"
        return bad(summary, subject=_SHM_SUBJECT, evidence=evidence, fix=fix)
    if shm.free_gib < min(_NEARLY_FULL_GIB, shm.size_gib / 4):
        return bad(
            f"{free} of {size} free, too little for the next job",
            subject=_SHM_SUBJECT,
            evidence=evidence,
            fix=_leftover_fix(fix),
        )
    if shm.size_gib < least.number:
        summary = f"{size}; NCCL needs {least.number:g} GiB ({least.source})"
        return Finding.warn(summary, subject=_SHM_SUBJECT, evidence=evidence, fix=fix)
    if not shm.own_mount:
        summary = f"a directory on {shm.fstype or 'the root file system'}, not in memory: slow"
        return Finding.warn(summary, subject=_SHM_SUBJECT, evidence=evidence, fix=fix)
    if shm.size_gib < usual.number:
        summary = f"{size}; training recipes use at least {usual.number:g} GiB ({usual.source})"
        return Finding.info(summary, subject=_SHM_SUBJECT, evidence=evidence, fix=fix)
    summary = f"{size}, {free} free"
    return Finding.ok(summary, subject=_SHM_SUBJECT, evidence=evidence)


def _leftover_fix(fix: Fix) -> Fix:
    """A full one is usually full of what killed jobs left behind."""
    text = (
        "Killed jobs leave files there: with no job running, remove the nccl-*, torch_* and plasma* files "
        f"of their user. If a running job needs all of it: {fix.text[0].lower()}{fix.text[1:]}"
    )
    return replace(fix, text=text, steps=(look("ls -lSh /dev/shm | head -20"), *fix.steps))


def _ray_store(shm: Shm, limits: Limits, processes: Processes | None, fix: Fix) -> Finding | None:
    """Ray takes 30 % of the memory it may have for its store, at most 200 GB, unless configured otherwise."""
    memory = _memory_gib(limits.memory, limits.cgroup.memory_max_gib)
    if processes is None or not processes.ray or memory is None:
        return None
    share, most = limit("ray_object_store_fraction"), limit("ray_object_store_max_bytes")
    store = min(memory * share.number, most.number / GIB)
    evidence = [*shm_said("size_bytes"), memory_line("MemTotal"), *limits.cgroup.said("memory_max_gib")]
    if shm.size_gib >= store * 0.95:
        summary = f"holds Ray's object store ({store:.0f} GiB by default)"
        return Finding.ok(summary, subject="ray", evidence=evidence)
    return Finding.warn(
        f"smaller than Ray's default object store ({store:.0f} GiB, {share.source}): Ray uses /tmp, "
        "which is slow, unless started with a smaller --object-store-memory",
        subject="ray",
        evidence=evidence,
        fix=fix,
    )


def _memory_gib(memory: Memory | None, cgroup_gib: float | None) -> float | None:
    sizes = [size for size in (memory.total_gib if memory else None, cgroup_gib) if size is not None]
    return min(sizes, default=None)


def trains_here(processes: Processes | None, pci: Pci | None, driver: Driver | None) -> bool:
    """False on a machine where no GPU is and nothing trains: what is short there breaks nothing."""
    return bool(processes and processes.training) or not looked(pci, driver) or bool(signs(pci, driver))


def size_text(gib: float) -> str:
    """A size in the unit that reads best."""
    for unit in ("GiB", "MiB", "KiB"):
        if gib >= 1 or unit == "KiB":
            break
        gib *= 1024
    return f"{gib:.0f} {unit}" if gib >= 10 else f"{gib:.3g} {unit}"
