"""Do shared memory, locked memory and open files suffice for training?"""

from collections.abc import Iterator, Sequence

from nodedoctor.declare.registry import check
from nodedoctor.facts.driver.driver import Driver
from nodedoctor.facts.driver.nvidia_presence import looked, signs
from nodedoctor.facts.host.container import Container
from nodedoctor.facts.host.env import Env
from nodedoctor.facts.host.host import Host
from nodedoctor.facts.host.limits import SHM, Bound, Limits, Memory, Shm, memory_line, own_limit, shm_said
from nodedoctor.facts.host.processes import Process, Processes
from nodedoctor.facts.pci.pci import Pci
from nodedoctor.facts.rdma.ports import Rails
from nodedoctor.grouping import group_by
from nodedoctor.knowledge.fixes.limits import more_shm, raise_limit
from nodedoctor.knowledge.limits import limit
from nodedoctor.model import Evidence, Finding, Fix, Status, file_reading
from nodedoctor.record import replace
from nodedoctor.steps import look, repair
from nodedoctor.wording import fitting

GIB = 1024**3
_SHM_SUBJECT = f"mount:{SHM}"
_NEARLY_FULL_GIB = 0.25  # an NCCL channel's buffer is some 10 MB, a loader's batch some 100: a handful fits
_RAY = ("raylet", "ray-worker", "gcs-server")
_NEAR_THE_LIMIT = 0.8  # of the open files allowed; sockets of one more communicator come in hundreds


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
    found = limits.shm
    fix = more_shm(container.runtime if container else None)
    if found is None:
        yield _no_shm(limits.errors.get(SHM), fix)
        return
    yield _judge_shm(found, fix, _trains(processes, pci, driver))
    ray = _ray_store(found, limits, processes, fix)
    if ray is not None:
        yield ray


def _trains(processes: Processes | None, pci: Pci | None, driver: Driver | None) -> bool:
    """False on a machine where no GPU is and nothing trains: what is short there breaks nothing."""
    return bool(processes and processes.training) or not looked(pci, driver) or bool(signs(pci, driver))


def _no_shm(error: str | None, fix: Fix) -> Finding:
    if error == "ENOENT":
        return Finding.fail("it does not exist", subject=_SHM_SUBJECT, fix=fix)
    if error == "TIMEOUT":
        return Finding.unknown("timeout", "it did not respond", subject=_SHM_SUBJECT)
    why = error or "size not recorded"
    return Finding.unknown("not-visible-here", f"/dev/shm: {why}", subject=_SHM_SUBJECT)


def _judge_shm(shm: Shm, fix: Fix, trains: bool) -> Finding:
    docker, least, usual = (limit(key) for key in ("shm_docker_default", "shm_nccl_min", "shm_training"))
    evidence = shm_said("size_bytes", "free_bytes")
    bad = Finding.fail if trains else Finding.warn
    if shm.size_gib * 1024 <= docker.number:
        summary = f"{_size(shm.size_gib)}, Docker's default; NCCL needs {least.number:g} GiB ({least.source})"
        return bad(summary, subject=_SHM_SUBJECT, evidence=evidence, fix=fix)
    if shm.free_gib < min(_NEARLY_FULL_GIB, shm.size_gib / 4):
        return bad(
            f"{_size(shm.free_gib)} of {_size(shm.size_gib)} free, too little for the next job",
            subject=_SHM_SUBJECT,
            evidence=evidence,
            fix=_leftovers(fix),
        )
    if shm.size_gib < least.number:
        summary = f"{_size(shm.size_gib)}; NCCL needs {least.number:g} GiB ({least.source})"
        return Finding.warn(summary, subject=_SHM_SUBJECT, evidence=evidence, fix=fix)
    if not shm.own_mount:
        summary = f"a directory on {shm.fstype or 'the root file system'}, not in memory: slow"
        return Finding.warn(summary, subject=_SHM_SUBJECT, evidence=evidence, fix=fix)
    if shm.size_gib < usual.number:
        summary = (
            f"{_size(shm.size_gib)}; training recipes use at least {usual.number:g} GiB ({usual.source})"
        )
        return Finding.info(summary, subject=_SHM_SUBJECT, evidence=evidence, fix=fix)
    summary = f"{_size(shm.size_gib)}, {_size(shm.free_gib)} free"
    return Finding.ok(summary, subject=_SHM_SUBJECT, evidence=evidence)


def _leftovers(fix: Fix) -> Fix:
    """A full one is usually full of what killed jobs left behind."""
    text = (
        "Killed jobs leave files there: with no job running, remove the nccl-*, torch_* and plasma* files "
        f"of their user. If a running job needs all of it: {fix.text[0].lower()}{fix.text[1:]}"
    )
    return replace(fix, text=text, steps=(look("ls -lSh /dev/shm | head -20"), *fix.steps))


def _ray_store(shm: Shm, limits: Limits, processes: Processes | None, fix: Fix) -> Finding | None:
    """Ray takes 30 % of the memory it may have for its store, at most 200 GB, unless told otherwise."""
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


@check(
    "limits.memlock", "Locked memory (RLIMIT_MEMLOCK)", tags={"fast", "ib"}, without=(Container, Env, Host)
)
def memlock(
    limits: Limits,
    rails: Rails | None,
    container: Container | None,
    processes: Processes | None,
    env: Env | None,
    host: Host | None,
) -> Iterator[Finding]:
    """The locked-memory limit (RLIMIT_MEMLOCK) of running ranks and raylets, else of this shell or container.

    A shell on the host is only a note: slurmd, container runtimes and units set their own limits. Processes
    of a container or a Slurm job step get the limits seen there. A container without /dev/infiniband/uverbs*
    can use no RDMA, so nothing is needed for it. Where RDMA ports were not looked at, a low limit is unknown.

    Why: RDMA registers the buffers of every connection; with a low limit, ibv_reg_mr and ibv_create_qp fail,
    and with them ncclCommInit or the first collective between nodes.
    Fix disturbs: jobs (restart to get the new limit).
    Judges: FAIL when running ranks may lock too little memory for RDMA, WARN for less than unlimited; the
    limit of a shell alone is a note.
    Fix: Set memlock to unlimited in the service, container or limits.conf, and start the job again.
    Threshold: NVIDIA/nccl troubleshooting: unlimited; 16 GiB at least (AWS, Primus).
    False positives: A shell whose launcher raises the limit for the job.
    Error texts:
    - Call to ibv_reg_mr failed
    """
    needed = None if rails is None else not rails.off and any(port.active for port in rails.ports)
    if container is not None and container.inside and host is not None and not host.uverbs:
        needed = False
    runtime = container.runtime if container else None
    for role, group in group_by(
        processes.training if processes else (), lambda process: process.role
    ).items():
        process = min(group, key=lambda one: _soft(one, "memlock_bytes"))
        bound = process.limits.get("memlock_bytes")
        fix = raise_limit("memlock", runtime, ray=role in _RAY)
        evidence = process.limit_said("Max locked memory")
        names = (process.label, f"{role} (pid {process.pid})")
        judged = _judge_memlock(bound, needed, process.may_lock_memory, role, names, evidence, fix)
        yield judged.explained_by(*_started_by(process, "limits.memlock"))
    if not (processes and processes.training):
        own = limits.rlimits.get("memlock_bytes")
        exempt = container is not None and container.may_lock_memory
        evidence = own_limit("Max locked memory")
        given = (container is not None and container.inside) or bool(env and env.get("SLURM_STEP_ID"))
        matters = needed if given else needed is not False
        fix = raise_limit("memlock", runtime)
        judged = _judge_memlock(own, matters, exempt, "shell", ("shell",), evidence, fix)
        yield judged if given else _only_noted(judged)


def _only_noted(judged: Finding) -> Finding:
    """What a shell's limit is worth on a host where no job runs: jobs rarely get it from there."""
    if judged.status not in (Status.WARN, Status.FAIL):
        return judged
    summary = f"{judged.summary}; launchers set theirs"
    return Finding.info(summary, subject=judged.subject, evidence=judged.evidence, fix=judged.fix)


def _judge_memlock(
    bound: Bound | None,
    needed: bool | None,
    exempt: bool,
    who: str,
    names: Sequence[str],
    evidence: Evidence,
    fix: Fix,
) -> Finding:
    """`needed` tells whether jobs here use RDMA; None where its ports were not looked at.

    `names` are what to call it, the longest first.
    """
    best, least = limit("memlock"), limit("memlock_min")
    if bound is None:
        return Finding.unknown("denied", f"the limit of {who} could not be read", subject=who)
    if bound.soft is None:
        return Finding.ok("unlimited", subject=who, evidence=[evidence])
    limited = f"has a locked-memory limit of {_amount(bound)}"
    if exempt:
        summary = f"locked-memory limit of {_amount(bound)}, not enforced (capability IPC_LOCK)"
        return Finding.info(summary, subject=who, evidence=[evidence])
    if needed is None:
        summary = (
            f"locked-memory limit of {_amount(bound)}, RDMA needs {best.value}; its ports were not looked at"
        )
        return Finding.unknown("not-visible-here", summary, subject=who, evidence=[evidence])
    if not needed:
        summary = f"locked-memory limit of {_amount(bound)}, no active RDMA port that needs more"
        return Finding.info(summary, subject=who, evidence=[evidence], fix=fix)
    if bound.soft < least.number * GIB:
        summary = fitting(*(f"{name} {limited}, RDMA needs {best.value}" for name in names))
        return Finding.fail(summary, subject=who, evidence=[evidence], fix=fix)
    summary = fitting(*(f"{name} {limited} (recommended: {best.value})" for name in names))
    return Finding.warn(summary, subject=who, evidence=[evidence], fix=fix)


@check("limits.nofile", "Open files (RLIMIT_NOFILE)", tags={"fast"}, without=(Container, Pci, Driver))
def nofile(
    limits: Limits,
    processes: Processes | None,
    container: Container | None,
    pci: Pci | None,
    driver: Driver | None,
) -> Iterator[Finding]:
    """The real limit on open files of running raylets and ranks, and how many they have open.

    Why: every connection to every peer uses a file descriptor; without free ones Ray and NCCL fail or hang,
    often late and with a misleading message.
    Fix disturbs: jobs (restart); prlimit raises the limit of a running process.
    Judges: FAIL at 1024 open files or fewer for a raylet, server or rank, WARN below 65536.
    Fix: Raise the limit of the service or container that starts the process.
    Threshold: NVIDIA/nccl troubleshooting names 131072; 65536 and 1024 are operational.
    False positives: Small jobs run with less.
    Error texts:
    - OSError: [Errno 24] Too many open files
    """
    runtime = container.runtime if container else None
    training = processes.training if processes else ()
    for group in group_by(training, lambda process: process.role).values():
        process = min(group, key=_room)
        finding = _judge_nofile(process, process.limits.get("nofile"), len(group), runtime)
        yield finding.explained_by(*_started_by(process, "limits.nofile"))
    if not training:
        yield _judge_shell(limits.rlimits.get("nofile"), runtime, _trains(processes, pci, driver))
    yield from _whole_system(limits)


def _started_by(process: Process, check: str) -> tuple[str, ...]:
    """Whose limit this one is: workers inherit the raylet's, and `ray start` gives both daemons its own."""
    return (f"{check}@raylet",) if process.role in _RAY and process.role != "raylet" else ()


def _judge_nofile(process: Process, bound: Bound | None, count: int, runtime: str | None) -> Finding:
    role, low, recommended = process.role, limit("nofile_fail"), limit("nofile_warn")
    if bound is None:
        return Finding.unknown("denied", f"the limit of {process.label} could not be read", subject=role)
    opened = process.descriptors
    use = "use not visible" if opened is None else f"{opened} open"
    evidence = [
        process.limit_said("Max open files"),
        *(process.said("descriptors") if opened is not None else []),
    ]
    fix = _nofile_fix(process, bound, runtime)
    among = f", the lowest of {count}" if count > 1 else ""
    if bound.soft is not None and bound.soft <= low.number:
        limited = f"has an open-files limit of {bound.soft}, {use}{among}"
        summary = fitting(f"{process.label} {limited}", f"{role} (pid {process.pid}) {limited}")
        return Finding.fail(summary, subject=role, evidence=evidence, fix=fix)
    if bound.soft is not None and opened is not None and opened > bound.soft * _NEAR_THE_LIMIT:
        summary = f"{process.label}: {opened} of {bound.soft} open files used"
        return Finding.fail(summary, subject=role, evidence=evidence, fix=fix)
    if bound.soft is not None and bound.soft < recommended.number:
        summary = (
            f"{process.label}: limit {bound.soft} open files, {use}{among} (recommended: "
            f"{recommended.number:.0f})"
        )
        return Finding.warn(summary, subject=role, evidence=evidence, fix=fix)
    return Finding.ok(f"{role}: {_files(bound.soft)} allowed, {use}", subject=role, evidence=evidence)


def _nofile_fix(process: Process, bound: Bound, runtime: str | None) -> Fix:
    fix = raise_limit("nofile", runtime, ray=process.role in _RAY)
    most = "1048576" if bound.hard is None else str(bound.hard)
    if bound.hard is not None and bound.soft is not None and bound.hard <= bound.soft:
        return fix
    text = f"Raise it for this process until it exits. {fix.text}"
    at_once = repair("prlimit --pid {} --nofile={}", process.pid, most, disturbs="nothing")
    return replace(fix, text=text, steps=(at_once, *fix.steps))


def _judge_shell(bound: Bound | None, runtime: str | None, trains: bool) -> Finding:
    """A shell's soft limit is what its jobs start with; alone it is a note, because launchers raise it."""
    recommended = limit("nofile_warn")
    fix = raise_limit("nofile", runtime)
    if bound is None:
        return Finding.unknown("denied", "the limit of this shell could not be read", subject="shell")
    evidence = [own_limit("Max open files")]
    if bound.hard is not None and bound.hard < recommended.number:
        summary = f"hard limit {bound.hard} in this shell. {recommended.text}"
        judge = Finding.warn if trains else Finding.info
        return judge(summary, subject="shell", evidence=evidence, fix=fix)
    if bound.soft is not None and bound.soft < recommended.number:
        summary = f"limit {bound.soft} in this shell, up to {_files(bound.hard)} possible"
        return Finding.info(summary, subject="shell", evidence=evidence, fix=fix)
    return Finding.ok(f"{_files(bound.soft)} in this shell", subject="shell", evidence=evidence)


def _whole_system(limits: Limits) -> Iterator[Finding]:
    most, opened = limits.sysctl.get("fs.file-max"), limits.open_files
    if most and opened is not None and opened > most * _NEAR_THE_LIMIT:
        steps = (repair("sudo sysctl -w fs.file-max={}", f"{limit('file_max').number:.0f}"),)
        fix = Fix("Raise fs.file-max.", steps, "config", "nothing", "nodedoctor limits.nofile")
        evidence = [file_reading("limits", f"/proc/sys/fs/{name}") for name in ("file-nr", "file-max")]
        summary = f"{opened} of {most} open files used on the whole node"
        yield Finding.fail(summary, subject="node", evidence=evidence, fix=fix)


def _soft(process: Process, name: str) -> tuple[bool, float]:
    """For finding the lowest limit: unlimited is above every number, and not known above that."""
    bound = process.limits.get(name)
    return bound is None, float("inf") if bound is None or bound.soft is None else bound.soft


def _room(process: Process) -> tuple[bool, float]:
    unknown, soft = _soft(process, "nofile")
    return unknown, soft - (process.descriptors or 0)


def _files(count: int | None) -> str:
    return "unlimited" if count is None else str(count)


def _amount(bound: Bound | None) -> str:
    if bound is None:
        return "not known"
    return "unlimited" if bound.soft is None else _size(bound.soft / GIB)


def _size(gib: float) -> str:
    for unit in ("GiB", "MiB", "KiB"):
        if gib >= 1 or unit == "KiB":
            break
        gib *= 1024
    return f"{gib:.0f} {unit}" if gib >= 10 else f"{gib:.3g} {unit}"
