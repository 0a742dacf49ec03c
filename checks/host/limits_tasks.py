"""Do tasks, stacks and processors suffice, and does shared memory survive the end of a login?"""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.gpu.gpus import Gpus
from nodedoctor.facts.host.cgroup import Cgroup
from nodedoctor.facts.host.container import Container
from nodedoctor.facts.host.limits import LOGIND, Limits, own_limit
from nodedoctor.facts.host.machine import Machine
from nodedoctor.facts.host.numa import cpu_list
from nodedoctor.facts.host.processes import Process, Processes
from nodedoctor.facts.stack.interpreter import TargetPython
from nodedoctor.facts.stack.packages import numbers
from nodedoctor.knowledge.limits import limit
from nodedoctor.model import Evidence, Finding, Fix, reading
from nodedoctor.steps import last_resort, look, repair
from nodedoctor.wording import count_with_noun

_NEARLY = 0.9
_CPUS_PER_GPU = 2
"""A rank has its Python thread and NCCL's proxy; with fewer processors they take turns."""
_MANY_CPUS = 256
_PERIODS, _THROTTLED = 1000, 0.5
"""Periods of a CPU quota, each of 0.1 s, and the share of them in which it was used up; ours."""


@check("limits.processes", "Process and thread limits", tags={"fast"}, without=(Machine,))
def tasks(limits: Limits, processes: Processes | None, machine: Machine | None) -> Iterator[Finding]:
    """The pids limit of our cgroup and its use, the process limit of running ranks, and kernel.pid_max.

    Why: every rank starts hundreds of threads; at the limit fork and pthread_create fail, mostly in a data
    loader or in Ray, with a misleading message.
    Fix disturbs: the container or job (it must be restarted).
    Judges: FAIL when a control group is at its limit of tasks, WARN when the limit is low.
    Fix: Raise pids.max of the container or TasksMax of the service.
    Threshold: 8192 tasks: operational experience.
    False positives: Jobs with a single process.
    Error texts:
    - can't start new thread
    - Resource temporarily unavailable
    """
    group = limits.cgroup
    low = limit("pids_warn")
    findings: list[Finding] = []
    if group.pids_max is not None:
        findings.append(_group_tasks(group, group.pids_max, bool(processes and processes.training)))
    for process in processes.training if processes else ():
        bound = process.limits.get("nproc")
        if bound and bound.soft is not None and bound.soft < low.number and process.uid != 0:
            findings.append(_judge_nproc(process, bound.soft))
            break
    highest = limits.sysctl.get("kernel.pid_max")
    cpus = machine.cpus if machine else None
    if highest is not None and highest <= limit("pid_max_low").number and cpus and cpus >= _MANY_CPUS:
        findings.append(
            Finding.info(
                f"kernel.pid_max is {highest} with {count_with_noun(cpus, 'CPU')}", subject="kernel.pid_max"
            )
        )
    if not (findings or group.controllers or limits.sysctl):
        yield Finding.unknown("not-visible-here", "no control group and no kernel setting were read")
        return
    yield from findings or [
        Finding.ok("no limit on tasks" if "pids" in group.controllers else "no limit on tasks seen")
    ]


def _group_tasks(group: Cgroup, most: int, trains: bool) -> Finding:
    used, low = group.pids_current, limit("pids_warn")
    summary = f"{most} tasks in our cgroup" + (f", {used} in use" if used is not None else "")
    fix = Fix(
        "Raise the limit: docker's --pids-limit=-1, TasksMax= in the unit, podPidsLimit of the kubelet.",
        (look("cat /proc/self/cgroup"), look("ulimit -u")),
        "config",
        "the container or job (it must be restarted)",
        "nodedoctor limits.processes",
    )
    evidence = group.said("pids_max", "pids_current")
    if used is not None and used >= most * _NEARLY:
        return Finding.fail(
            f"{summary}: new threads fail soon", subject="cgroup:pids", evidence=evidence, fix=fix
        )
    if most >= low.number:
        return Finding.ok(summary, subject="cgroup:pids", evidence=evidence)
    build = Finding.warn if trains else Finding.info
    return build(
        f"{summary}, training needs {low.number:g}", subject="cgroup:pids", evidence=evidence, fix=fix
    )


def _judge_nproc(process: Process, soft: int) -> Finding:
    fix = Fix(
        "Raise the limit where the job is started.",
        (repair("ulimit -u unlimited"),),
        "config",
        "the job",
        "nodedoctor limits.processes",
    )
    evidence = [process.limit_said("Max processes")]
    return Finding.warn(
        f"{process.label}: limit of {soft} tasks per user", subject="rlimit:nproc", evidence=evidence, fix=fix
    )


@check("limits.stack", "Stack size limit", tags={"fast"})
def stack(limits: Limits, processes: Processes | None, target: TargetPython | None) -> Iterator[Finding]:
    """The stack limit of running ranks, else of this shell: unlimited is the problem.

    Why: with an unlimited stack, glibc gives threads 2 MiB; NCCL before 2.28 overflows it and crashes.
    Fix disturbs: the job (it must be restarted).
    Judges: WARN when the stack is unlimited and this NCCL is older than the fix for it.
    Fix: Set the stack limit to 8192 KiB, or upgrade NCCL.
    Threshold: NVIDIA/nccl troubleshooting: safe since 2.28.
    False positives: None known.
    """
    ranks = processes.training if processes else ()
    bounds = [(process.label, process.limits.get("stack_bytes")) for process in ranks]
    who, bound = next(
        ((w, b) for w, b in bounds if b and b.soft is None), ("this shell", limits.rlimits.get("stack_bytes"))
    )
    rank = next((process for process in ranks if process.label == who), None)
    quote = rank.limit_said("Max stack size") if rank else own_limit("Max stack size")
    if ranks and who == "this shell":
        bound = next((b for _, b in bounds if b), bound)
    if bound is None:
        yield Finding.unknown("not-visible-here", "the stack limit could not be read")
        return
    if bound.soft is not None:
        yield Finding.ok(f"{bound.soft // 1024} KiB")
        return
    yield _judge_unlimited(who, _nccl_version(target), quote)


def _judge_unlimited(who: str, nccl: str, quote: Evidence) -> Finding:
    since, usual = limit("stack_unlimited_safe_since"), limit("stack_kib")
    if nccl and numbers(nccl) >= numbers(str(since.value)):
        return Finding.ok(f"unlimited for {who}; NCCL {nccl} sets its own thread stacks")
    fix = Fix(
        "Use the default stack limit.",
        (repair("ulimit -s {}", f"{usual.number:g}"),),
        "config",
        "the job",
        "nodedoctor limits.stack",
    )
    evidence = [quote]
    if not nccl:
        return Finding.info(
            f"unlimited for {who}: crashes NCCL before {since.value}", evidence=evidence, fix=fix
        )
    return Finding.warn(f"unlimited for {who} with NCCL {nccl} ({usual.source})", evidence=evidence, fix=fix)


def _nccl_version(target: TargetPython | None) -> str:
    packages = target.packages if target else ()
    return next((package.version for package in packages if package.name.startswith("nvidia-nccl-cu")), "")


@check("limits.cpu", "CPUs per GPU")
def cpu(limits: Limits, gpus: Gpus | None, machine: Machine | None) -> Iterator[Finding]:
    """The CPU quota and cpuset of our cgroup against the number of visible GPUs.

    Why: ranks that share a CPU take turns; the slowest one sets the pace, or looks hung.
    Fix disturbs: the container or job (it must be restarted).
    Judges: WARN when a control group has fewer than two processors for each GPU, or its quota was used up in
    half of its periods.
    Fix: Ask the scheduler for more processors per GPU.
    Threshold: Two per GPU is our threshold: a rank has its Python thread and NCCL's proxy; so is the half.
    False positives: Inference jobs that need fewer.
    """
    group, online = limits.cgroup, machine.cpus if machine else None
    yield from _judge_throttling(group)
    own = len(cpu_list(group.cpus)) if group.cpus else online
    allowed = min((n for n in (group.cpu_cores, own) if n), default=None)
    if allowed is None:
        yield Finding.unknown("not-visible-here", "CPU quota and cpuset could not be read")
        return
    count = len(gpus.gpus) if gpus else 0
    processors = f"{allowed:g} processors" + (f" of {online}" if online and allowed < online else "")
    evidence = group.said("cpu_cores", "cpus")
    least = _CPUS_PER_GPU * count
    if not count:
        yield Finding.ok(processors, evidence=evidence)
    elif allowed < least and (group.cpu_cores is not None or (online and allowed < online)):
        fix = Fix(
            f"Request more CPUs: srun's --cpus-per-gpu={4 * _CPUS_PER_GPU}, docker run's --cpus.",
            (look("nproc"),),
            "config",
            "the job",
            "nodedoctor limits.cpu",
        )
        yield Finding.warn(
            f"{processors} for {count_with_noun(count, 'GPU')}, at least {_CPUS_PER_GPU} per GPU needed",
            evidence=evidence,
            fix=fix,
        )
    else:
        yield Finding.ok(f"{processors} for {count_with_noun(count, 'GPU')}", evidence=evidence)


def _judge_throttling(group: Cgroup) -> Iterator[Finding]:
    """How many of the quota's periods ended with processes that waited for the next one."""
    periods, throttled = group.cpu_periods or 0, group.cpu_throttled or 0
    if periods >= _PERIODS and throttled >= _THROTTLED * periods:
        cores = f" of {group.cpu_cores:g} processors" if group.cpu_cores else ""
        fix = Fix(
            "Request more CPUs: the pod's resources.limits.cpu, docker run's --cpus, srun's --cpus-per-gpu.",
            (look("cat /sys/fs/cgroup/cpu.max /sys/fs/cgroup/cpu.stat"),),
            "config",
            "the job",
            "nodedoctor limits.cpu",
        )
        yield Finding.warn(
            f"the CPU quota{cores} was used up in {throttled / periods:.0%} of {periods} periods",
            subject="cgroup:throttled",
            evidence=group.said("cpu_throttled", "cpu_cores"),
            fix=fix,
        )


@check("limits.removeipc", "logind RemoveIPC", tags={"fast"}, without=(Container,))
def removeipc(limits: Limits, processes: Processes | None, container: Container | None) -> Iterator[Finding]:
    """systemd-logind's RemoveIPC, and whether ranks of ordinary users run outside a service.

    Why: when a user's last session ends, logind deletes that user's files in /dev/shm, also NCCL's.
    Fix disturbs: nothing; logind reads it at its restart.
    Judges: WARN when logind removes shared memory of users who log out.
    Fix: Set RemoveIPC=no in logind.conf and restart systemd-logind.
    Threshold: NVIDIA/nccl troubleshooting and logind.conf(5).
    False positives: Jobs of system services are not affected.
    """
    if container is not None and container.inside:
        yield Finding.skip("in a container: logind is on the host")
        return
    if limits.remove_ipc is False:
        yield Finding.ok("RemoveIPC=no")
        return
    if limits.errors.get(LOGIND) == "NOT_ASKED":
        yield Finding.unknown("not-visible-here", f"{LOGIND} was not read")
        return
    setting = "RemoveIPC=yes" if limits.remove_ipc else "RemoveIPC is not set, the default is yes"
    fix = Fix(
        "Set RemoveIPC=no in /etc/systemd/logind.conf.",
        (
            last_resort(
                "sudo systemctl restart systemd-logind",
                when="no graphical session runs",
                disturbs="graphical sessions",
            ),
        ),
        "config",
        "nothing",
        "nodedoctor limits.removeipc",
    )
    loose = [
        rank
        for rank in (processes.ranks if processes else ())
        if rank.uid and "user.slice" in (rank.cgroup or "")
    ]
    evidence = [reading("limits", 'errors["/etc/systemd/logind.conf"]', like="^#?RemoveIPC=.*|^.Login.$")]
    if loose:
        summary = f"{setting}; {loose[0].label} of {loose[0].user or loose[0].uid} runs in a login session"
        yield Finding.warn(summary, evidence=evidence, fix=fix)
    else:
        yield Finding.info(f"{setting}; affects jobs whose login session ends", evidence=evidence, fix=fix)
