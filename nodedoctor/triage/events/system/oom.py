"""Host memory ran out: the kernel, a cgroup, Slurm, Kubernetes or Ray says so. A -9 alone says nothing."""

from __future__ import annotations

from nodedoctor.record import record
from nodedoctor.triage.events.log_pattern import (
    LogPattern,
    bounded_integer,
    log_pattern,
    optional_integer,
    symptom_pattern,
)
from nodedoctor.triage.events.system.exits import tasks_of


@record
class HostOom:
    """Something was killed because host memory ran out; `said_by` is who says so."""

    said_by: str
    killed_pid: int | None = None
    tasks: tuple[int, ...] = ()
    share: str = ""
    """How full the node's memory was, as `212.88GB / 224.00GB`."""

    @property
    def gigabytes(self) -> float:
        """What of the node's memory was in use; 0 where that is not told."""
        return float(self.share.partition("GB")[0] or 0)


@record
class MemoryUser:
    """A row of Ray's table of memory users: the first one may be the hog, not the worker that was killed."""

    pid: int
    gigabytes: float
    command: str


def _killed_process(said_by: str) -> object:
    return lambda found: HostOom(said_by, optional_integer(found.groupdict().get("pid")))


SIGNS: tuple[LogPattern, ...] = (
    log_pattern(
        r"(?:[Oo]ut of memory: )?Killed process (?P<pid>\d+)|oom-kill:.*\bpid=(?P<pid2>\d+)",
        lambda found: HostOom("the kernel", optional_integer(found["pid"] or found["pid2"])),
    ),
    log_pattern(
        r"[Ee]xceeded (?:job |step |virtual )?memory limit(?! at some point)"
        r"|invoked oom-killer|[Dd]etected \d+ oom[_-]kill event|OOM Killed|cgroup out-of-memory handler"
        r"|\bOUT_OF_MEMORY\b|\boom_kill [1-9]",
        lambda found: HostOom("the kernel" if "invoked" in found[0] else "Slurm"),
    ),
    log_pattern(
        r"error: (?P<host>[\w.-]+): tasks? (?P<rank>\d+): Out Of Memory",
        lambda _: HostOom("Slurm"),
    ),
    log_pattern(
        r"error: (?P<host>[\w.-]+): tasks (?P<tasks>\d+[-,][\d,-]*): Out Of Memory",
        lambda found: HostOom("Slurm", tasks=tasks_of(found["tasks"])),
    ),
    symptom_pattern(  # slurmstepd before 21.08 counts the page cache, too, and kills nobody
        "peer_host_oom",
        "memory-limit-touched",
        r"Exceeded (?:job |step )?memory limit at some point",
        "the step reached its memory limit at some point, which by itself ends nothing",
        decisive=False,
    ),
    log_pattern(
        r"process of this unit has been killed by the OOM killer|Failed with result 'oom-kill'",
        lambda _: HostOom("systemd"),
    ),
    log_pattern(
        r"OOMKilled|low on resource: memory",
        lambda _: HostOom("Kubernetes"),
    ),
    log_pattern(
        r"(?:[Ss]ystem memory (?:is )?low(?: at node with IP (?P<host>[\w.:-]{1,64}?)\.? )?.{0,300}?killing"
        r"|killed due to the node running low on memory|NODE_OUT_OF_MEMORY|killed due to memory pressure"
        r"|RayOutOfMemoryError)",
        lambda _: HostOom("Ray"),
    ),
    log_pattern(
        r"(?:\(IP: (?P<host>[\w.:-]{1,64}), .{0,400}?)?pid=(?P<pid>\d+), memory used=(?P<used>[\d.]+)GB\)"
        r" was running(?: was (?P<share>[\d.]+GB / [\d.]+GB))?",
        lambda found: HostOom("Ray", bounded_integer(found["pid"]), share=found["share"] or ""),
    ),
    log_pattern(  # the same where it names no process, or is cut off in front of it
        r"Memory on the node \(IP: (?P<host>[\w.:-]{1,64}), (?!.*\bmemory used=)",
        lambda _: HostOom("Ray"),
    ),
    symptom_pattern(  # distributed (worker_memory.py); Dask starts the worker again, and the job may go on
        "peer_host_oom",
        "dask-memory",
        r"\bWorker (?:\w+://(?P<host>[\w.-]+):\d+ \(pid=(?P<pid>\d+)\) )?exceeded \d+% memory budget",
        "Dask killed a worker that had nearly used up its share of the host's memory",
        personal=True,
        as_warning=True,
    ),
    log_pattern(
        r"^\s*(?P<pid>\d+)\s+(?P<gb>\d+\.\d+)\s+(?P<command>ray::\S+|(?:\S*/)?python[\d.]* .*)",
        lambda found: MemoryUser(bounded_integer(found["pid"]), float(found["gb"]), found["command"]),
    ),
    log_pattern(
        r"std::bad_alloc|DefaultCPUAllocator: (?:can't allocate memory|not enough memory)"
        r"|(?:^|\s)(?:numpy\S*ArrayMemoryError|MemoryError)\b",
        lambda _: HostOom("the program"),
    ),
)
