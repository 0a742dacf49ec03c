"""Do the limits on locked memory and open files suffice for training?"""

from collections.abc import Iterator, Sequence

from nodedoctor.declare.registry import check
from nodedoctor.facts.driver.driver import Driver
from nodedoctor.facts.host.container import Container
from nodedoctor.facts.host.env import Env
from nodedoctor.facts.host.host import Host
from nodedoctor.facts.host.limits import Bound, Limits, own_limit
from nodedoctor.facts.host.processes import Process, Processes
from nodedoctor.facts.pci.pci import Pci
from nodedoctor.facts.rdma.ports import Rails
from nodedoctor.grouping import group_by
from nodedoctor.knowledge.fixes.limits import raise_limit
from nodedoctor.knowledge.limits import limit
from nodedoctor.model import Evidence, Finding, Fix, Status, file_reading
from nodedoctor.record import replace
from nodedoctor.steps import repair
from nodedoctor.wording import fitting

from .shm import GIB, size_text, trains_here

_RAY = ("raylet", "ray-worker", "gcs-server")
_NEAR_THE_LIMIT = 0.8  # of the open files allowed; sockets of one more communicator come in hundreds


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
    limit of a shell alone is a note, and a WARN in a paste that does not show whose it is.
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
        process = min(group, key=lambda member: _soft_limit(member, "memlock_bytes"))
        bound = process.limits.get("memlock_bytes")
        fix = raise_limit("memlock", runtime, ray=role in _RAY)
        evidence = process.limit_said("Max locked memory")
        names = (process.label, f"{role} (pid {process.pid})")
        finding = _judge_memlock(bound, needed, process.may_lock_memory, role, names, evidence, fix)
        yield finding.explained_by(*_started_by(process, "limits.memlock"))
    if not (processes and processes.training):
        own = limits.rlimits.get("memlock_bytes")
        exempt = container is not None and container.may_lock_memory
        evidence = own_limit("Max locked memory")
        inherited = (container is not None and container.inside) or bool(env and env.get("SLURM_STEP_ID"))
        pasted = container is None and processes is None
        matters = needed if inherited or pasted else needed is not False
        fix = raise_limit("memlock", runtime)
        finding = _judge_memlock(own, matters, exempt, "shell", ("shell",), evidence, fix)
        if pasted:
            yield _of_unknown_shell(finding)
        else:
            yield finding if inherited else _only_noted(finding)


def _of_unknown_shell(finding: Finding) -> Finding:
    """What a limit is worth that somebody pasted: it may be a job's, and whose is not shown."""
    if finding.status is not Status.FAIL:
        return finding
    summary = f"{finding.summary}, unless the job's launcher sets its own"
    return Finding.warn(summary, subject=finding.subject, evidence=finding.evidence, fix=finding.fix)


def _only_noted(finding: Finding) -> Finding:
    """What a shell's limit is worth on a host where no job runs: jobs rarely get it from there."""
    if finding.status not in (Status.WARN, Status.FAIL):
        return finding
    summary = f"{finding.summary}; launchers set theirs"
    return Finding.info(summary, subject=finding.subject, evidence=finding.evidence, fix=finding.fix)


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
        return Finding.ok("locked memory is unlimited", subject=who, evidence=[evidence])
    limited = f"has a locked-memory limit of {_bound_text(bound)}"
    if exempt:
        summary = f"locked-memory limit of {_bound_text(bound)}, not enforced (capability IPC_LOCK)"
        return Finding.info(summary, subject=who, evidence=[evidence])
    if needed is None:
        bounds = f"locked-memory limit of {_bound_text(bound)}, RDMA needs {best.value}"
        summary = f"{bounds}; whether this node has RDMA ports was not shown"
        return Finding.unknown("not-visible-here", summary, subject=who, evidence=[evidence])
    if not needed:
        summary = f"locked-memory limit of {_bound_text(bound)}, no active RDMA port that needs more"
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
        process = min(group, key=_descriptor_room)
        finding = _judge_nofile(process, process.limits.get("nofile"), len(group), runtime)
        yield finding.explained_by(*_started_by(process, "limits.nofile"))
    if not training:
        yield _judge_shell(limits.rlimits.get("nofile"), runtime, trains_here(processes, pci, driver))
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
    return Finding.ok(f"{role}: {_file_count(bound.soft)} allowed, {use}", subject=role, evidence=evidence)


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
        summary = f"limit {bound.soft} in this shell, up to {_file_count(bound.hard)} possible"
        return Finding.info(summary, subject="shell", evidence=evidence, fix=fix)
    return Finding.ok(f"{_file_count(bound.soft)} in this shell", subject="shell", evidence=evidence)


def _whole_system(limits: Limits) -> Iterator[Finding]:
    most, opened = limits.sysctl.get("fs.file-max"), limits.open_files
    if most and opened is not None and opened > most * _NEAR_THE_LIMIT:
        steps = (repair("sudo sysctl -w fs.file-max={}", f"{limit('file_max').number:.0f}"),)
        fix = Fix("Raise fs.file-max.", steps, "config", "nothing", "nodedoctor limits.nofile")
        evidence = [file_reading("limits", f"/proc/sys/fs/{name}") for name in ("file-nr", "file-max")]
        summary = f"{opened} of {most} open files used on the whole node"
        yield Finding.fail(summary, subject="node", evidence=evidence, fix=fix)


def _soft_limit(process: Process, name: str) -> tuple[bool, float]:
    """For finding the lowest limit: unlimited is above every number, and not known above that."""
    bound = process.limits.get(name)
    return bound is None, float("inf") if bound is None or bound.soft is None else bound.soft


def _descriptor_room(process: Process) -> tuple[bool, float]:
    unknown, soft = _soft_limit(process, "nofile")
    return unknown, soft - (process.descriptors or 0)


def _file_count(count: int | None) -> str:
    return "unlimited" if count is None else str(count)


def _bound_text(bound: Bound | None) -> str:
    if bound is None:
        return "not known"
    return "unlimited" if bound.soft is None else size_text(bound.soft / GIB)
