"""What the kernel reported of processes: killed when memory ran out, hung, crashed in a library."""

from __future__ import annotations

import re
from collections.abc import Iterator

from nodedoctor.declare.registry import check
from nodedoctor.facts.kernel.events import OomKill, Stall, evidence_of, times
from nodedoctor.facts.kernel.kernel_log import KernelLog
from nodedoctor.grouping import group_by
from nodedoctor.model import Finding, Fix, Moment
from nodedoctor.patterns import regex
from nodedoctor.steps import look
from nodedoctor.wording import comma_list, short_name

_TRAINING = re.compile(
    r"python|pt_main_thread|pt_data_worker|ray::|raylet|torchrun|deepspeed|accelerate|nccl|vllm|trainer|mpirun|all_reduce"
)
_LIBRARY = re.compile(
    r"libnccl|libcuda|libcudart|libcublas|libcudnn|libtorch|libnvidia|libibverbs|libmlx5|_C\."
)
_DRIVERS = regex(r"nvidia|nv_peer|gdrdrv|mlx|ib_|rdma")


@check("kernel.oom", "OOM kills", tags={"fast"})
def oom(log: KernelLog, moment: Moment) -> Iterator[Finding]:
    """Processes killed by the OOM killer since boot or --since, with their size and the cgroup limit.

    Why: an OOM kill explains a rank that died without a message; the other ranks wait until their timeout.
    Fix disturbs: the job (restart with lower memory use or a higher limit).
    Judges: FAIL when the node was out of memory and the kernel killed a process that trains, by its name;
    WARN for any other process then, and for one that trains when the limit of its own control group was
    reached; else a note, also when the kernel found no free block of memory for itself ("page allocation
    failure").
    Fix: Give the job more memory or lower its loaders and caches.
    Threshold: No threshold: the kernel's own reports (mm/oom_kill.c, mm/page_alloc.c). A failed allocation
    is only a note: its caller often tries a smaller one, or drops one packet.
    False positives: Kills that a test or another user provoked in a control group of their own.
    Error texts:
    - Out of memory: Killed process
    - Memory cgroup out of memory: Killed process
    - page allocation failure
    """
    calls = log.since(log.oom, moment)
    killed = [kill for kill in calls if kill.is_victim]
    for name, victims in group_by(killed, lambda kill: kill.name).items():
        yield _killed_program(name, victims)
    if not killed and calls:
        yield _unknown_victim(calls)
    elif not killed:
        yield Finding.ok(f"no OOM kill in {log.span}")
    unmet = [stall for stall in log.since(log.stalls, moment) if stall.kind == "no-block"]
    if unmet:
        yield _unmet_requests(unmet)


def _unknown_victim(calls: list[OomKill]) -> Finding:
    """The OOM killer ran, and the lines with what it ended are not there."""
    summary = f"the OOM killer ran, called by {short_name(calls[-1].name)}; what it killed is not shown"
    steps = (look("sudo dmesg -T | grep -iE 'oom|killed process'"), look("free -g"))
    fix = Fix("Read the rest of that report: it names the process and its size.", steps, "config", "the job")
    return Finding.warn(summary, subject="kernel:oom", evidence=evidence_of(calls), fix=fix)


def _unmet_requests(unmet: list[Stall]) -> Finding:
    """Requests of the kernel's own for memory: mostly of blocks too large for memory in many pieces."""
    drivers = sorted({stall.where for stall in unmet if stall.where})
    inside = f" for {comma_list(drivers)}" if drivers else ""
    summary = f"page allocation failure{inside}{times(unmet)}"
    return Finding.info(summary, subject="kernel:pages", evidence=evidence_of(unmet))


def _killed_program(name: str, victims: list[OomKill]) -> Finding:
    """One finding per program: FAIL for one that trains on a node without memory, else WARN or a note.

    A kill for the limit of a control group costs only that group: its memory is free again.
    """
    victims = [kill for kill in victims if not kill.limited] or victims
    last = victims[-1]
    size = f" with {last.rss_gib:g} GiB" if last.rss_gib is not None else ""
    why = "cgroup limit" if last.limited else "node out of memory"
    often = f", the last of {len(victims)}" if len(victims) > 1 else ""
    when = f" at {last.when.short}" if last.when.short else ""
    summary = f"OOM kill of {short_name(name)} (pid {last.pid}{often}){size}, {why}{when}"
    text = (
        f"Raise the memory limit of {last.cgroup or 'the cgroup'}, or reduce the job's memory use: "
        "fewer data-loader workers, less pinned memory."
        if last.limited
        else "Reduce the job's host memory use: fewer data-loader workers, a smaller object store or offload."
    )
    trains = bool(_TRAINING.search(name))
    if last.limited and not trains:
        return Finding.info(summary, subject=f"process:{name}", evidence=evidence_of(victims))
    build = Finding.fail if trains and not last.limited else Finding.warn
    steps = (look("sudo dmesg -T | grep -iE 'oom|killed process'"), look("free -g"))
    fix = Fix(text, steps, "config", "the job", "nodedoctor limits.memory")
    return build(summary, subject=f"process:{name}", evidence=evidence_of(victims), fix=fix)


@check("kernel.hung", "Hung tasks, lockups and crashes", tags={"fast"})
def hung(log: KernelLog, moment: Moment) -> Iterator[Finding]:
    """Tasks blocked for minutes, CPU lockups, kernel faults, and crashes inside NCCL or CUDA.

    Why: a rank that sleeps inside a driver cannot be killed and blocks all others; a segfault in a library
    kills its rank without a Python traceback.
    Fix disturbs: the job; every job on this node where the driver hangs.
    Judges: FAIL for tasks that hang in GPU, network or disk code and for lockups since boot, WARN for lesser
    ones and for crashes inside the libraries of training; notes for crashes of other programs.
    Fix: Read the stack in the log; reboot when a task never ends.
    Threshold: The kernel's own limit: hung_task_timeout_secs, 120 s by default.
    False positives: A slow network file system at boot, and crashes of programs that have nothing to do with
    training.
    Error texts:
    - blocked for more than 120 seconds
    - watchdog: BUG: soft lockup
    """
    stalls = [stall for stall in log.since(log.stalls, moment) if stall.kind != "no-block"]
    groups: dict[tuple[str, str | None], list[Stall]] = {}
    for stall in stalls:
        what = stall.where if stall.kind == "dead-mount" else stall.name
        groups.setdefault((stall.kind, what), []).append(stall)
    for events in groups.values():
        yield _judge_stalls(events, log)
    if not stalls:
        yield Finding.ok(f"no hung task or crash in {log.span}")


_STALLS = {
    "hung-task": "hung",
    "soft-lockup": "soft lockup (CPU held without yielding)",
    "hard-lockup": "hard lockup (CPU took no interrupts)",
    "rcu-stall": "RCU stall (CPU made no progress)",
    "crash": "crashed",
    "oops": "kernel fault",
    "dead-mount": "a file server does not respond",
}


_STALLED = {
    "hung-task": "A rank that sleeps inside a driver cannot be killed and blocks all others.",
    "soft-lockup": "The ranks on that CPU make no progress, and all others wait for them.",
    "hard-lockup": "The ranks on that CPU make no progress, and all others wait for them.",
    "rcu-stall": "A CPU that makes no progress delays every rank on it, and all others wait for them.",
    "oops": "The kernel ended what it was doing there; the node may hang at any time.",
    "dead-mount": "Ranks that read or write there wait until the server answers, and no signal ends them.",
}
"""What each does to training."""


_UNINTERRUPTIBLE = look("ps -eo pid,stat,wchan:32,comm | awk '$2 ~ /D/'")
_ASLEEP = (
    _UNINTERRUPTIBLE,
    look("sudo dmesg -T | grep -A20 -iE 'blocked for more|lockup|rcu.*stall|Oops|BUG:'"),
)
_MOUNTS = (look("findmnt -t nfs,nfs4,cifs,lustre,ceph"), _UNINTERRUPTIBLE)


def _judge_stalls(events: list[Stall], log: KernelLog) -> Finding:
    last = events[-1]
    where = next((event.where for event in reversed(events) if event.where), None)
    who = f"{last.name} (pid {last.pid}) " if last.name else ""
    seconds = f" for {last.seconds} s" if last.seconds else ""
    inside = f" in {where}" if where else ""
    what = _STALLS[last.kind]
    if last.kind == "dead-mount" and where:
        what, inside = f"file server {where} does not respond", ""
    summary = f"{who}{what}{seconds}{inside}{times(events)}"
    subject = f"process:{last.name}" if last.name else f"stall:{last.kind}"
    evidence = evidence_of(events)
    trains = bool(_TRAINING.search(last.name or ""))
    if last.kind == "crash":
        in_library = bool(_LIBRARY.search(where or ""))
        text = "Check the library's version and the job's log; a core dump shows the call."
        fix = Fix(text, (look("coredumpctl list"),), "investigate", "nothing", "nodedoctor stack")
        if not in_library:
            return Finding.info(summary, subject=subject, evidence=evidence)
        crashed = Finding.warn(summary, subject=subject, evidence=evidence, fix=fix)
        return crashed.matters_as("A crash in a library ends its rank without a Python traceback.")
    grave = last.kind in ("hard-lockup", "oops") or trains or bool(_DRIVERS.match(where or ""))
    text = (
        "Check for a lost GPU, a dead file system or an overloaded host at that time; only a "
        "reboot ends such a process."
    )
    steps = _MOUNTS if last.kind == "dead-mount" else _ASLEEP
    fix = Fix(text, steps, "investigate", "every job on this node", "nodedoctor kernel host driver")
    build = Finding.fail if grave and last.when.at >= log.booted else Finding.warn
    return build(summary, subject=subject, evidence=evidence, fix=fix).matters_as(_STALLED[last.kind])
