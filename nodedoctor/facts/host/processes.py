"""The processes of this node and their part in training: ranks, Ray's daemons and workers, GPU services."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from nodedoctor.children.programs import child
from nodedoctor.declare.cache import once
from nodedoctor.declare.registry import Command, Lane, Options, fact, probe
from nodedoctor.facts.host.env import strings
from nodedoctor.facts.host.limits import Bound, parse_rlimits
from nodedoctor.json_shapes import answer, texts, whole_number
from nodedoctor.model import Evidence, Observation, Unseen, quoted_like, reading
from nodedoctor.record import as_dict, field, record, replace

SECONDS = 5
GIB = 1024**3

# Who a process is, by the name of its program (titles of Ray's workers are `ray::Class.method`).
_ROLES = (
    ("raylet", re.compile(r"raylet")),
    ("gcs-server", re.compile(r"gcs_server")),
    ("ray-worker", re.compile(r"ray::")),
    (
        "launcher",
        re.compile(r"torchrun|torch\.distributed\.(?:run|launch)|deepspeed|accelerate|mpirun|prted|orted"),
    ),
    ("persistenced", re.compile(r"nvidia-persiste")),
    ("fabricmanager", re.compile(r"nv-fabricmanage")),
    ("nvlsm", re.compile(r"nvlsm")),
    ("dcgm", re.compile(r"nv-hostengine|dcgm-exporter|dcgmi")),
    ("engine", re.compile(r"VLLM::|vllm|sglang", re.IGNORECASE)),
)
_PYTHON = re.compile(r"(?:python|pypy)[\d.]*t?|pt_main_thread|pt_elastic")
# Launchers number ranks differently: torchrun and Ray Train, Open MPI, Slurm's PMI.
_RANK = ("RANK", "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "SLURM_PROCID")
_LOCAL = ("LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_RANK", "SLURM_LOCALID")
_WORLD = ("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_NTASKS")


@probe("processes", timeout=SECONDS + 3, lane=Lane.FS)
def running_processes(options: Options) -> Command:
    """Every process, with limits, open files and environment of ranks, Ray and GPU services."""
    return Command(child("host/processes", "--root", options.root, "--seconds", str(SECONDS), packages=True))


@record
class Process:
    """One process; `program` and `script` are names only, `started` is in seconds since 1970.

    `role` is rank raylet gcs-server ray-worker launcher engine persistenced fabricmanager nvlsm dcgm,
    or empty.
    `state` is the kernel's in words: running sleeping disk-sleep zombie ... `job` is the Slurm job's number.
    `limits`, `descriptors`, `environment`, `libraries` (NCCL and CUDA, as mapped) and `nvidia` (GPU devices
    open) are read of processes that matter; `errors` says why one is missing, `stuck_at` which reading hung.
    With `may_lock_memory` the limit on locked memory does not bind.
    """

    pid: int
    ppid: int = 0
    program: str = ""
    script: str = ""
    role: str = ""
    uid: int | None = None
    user: str = ""
    state: str = ""
    started: float | None = None
    rss_gib: float | None = None
    threads: int | None = None
    rank: int | None = None
    local_rank: int | None = None
    world_size: int | None = None
    master: str | None = None
    job: str | None = None
    exe: str | None = None
    cgroup: str | None = None
    descriptors: int | None = None
    limits: Mapping[str, Bound] = field(default_factory=dict)
    nvidia: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    may_lock_memory: bool = False
    wchan: str | None = None
    stuck_at: str | None = None
    errors: Mapping[str, str] = field(default_factory=dict)

    @property
    def blocked(self) -> bool:
        """True in uninterruptible sleep (state D)."""
        return self.state == "disk-sleep"

    def said(self, *names: str) -> list[Evidence]:
        """What was read of it, by the names of the row: state, wchan, ppid, descriptors, user ..."""
        return [reading("processes", f"processes[pid={self.pid}].{name}") for name in names]

    def limit_said(self, name: str) -> Evidence:
        """The line of its limits that begins so: Max open files."""
        return quoted_like("processes", rf"^{name} .*", f"processes[pid={self.pid}].limits")

    @property
    def label(self) -> str:
        """How a finding calls it: `rank 3 (train.py, pid 4242)`; a name once."""
        name = self.script.removeprefix("-m ") if self.script not in ("", "-c") else self.program
        who = f"rank {self.rank}" if self.role == "rank" else self.role
        if who and name.replace("-", "_") in ("", who.replace("-", "_")):  # raylet, gcs_server
            return f"{who} (pid {self.pid})"
        if who:
            return f"{who} ({name}, pid {self.pid})"
        return f"{name} (pid {self.pid})" if name else f"pid {self.pid}"


@fact("processes")
@record
class Processes:
    """All processes that could be seen. `unread` counts those whose details were not reached in time."""

    all: tuple[Process, ...]
    unread: int = 0
    left_out: int = 0

    @classmethod
    @once
    def parse(cls, observation: Observation) -> Processes | Unseen:
        """Read the child's document and find out who is a rank; rows of a wrong shape are left out."""
        if not observation.answered:
            return Unseen.of(observation)
        try:
            document = answer(observation.text)
        except ValueError:
            return Unseen.of(observation)
        rows = document.get("processes") if isinstance(document, dict) else None
        if not isinstance(rows, list):
            return Unseen.of(observation)
        read = [
            _read_process(row)
            for row in rows
            if isinstance(row, dict) and whole_number(row, "pid") is not None
        ]
        by_pid = {process.pid: process for process in read}
        ranked = tuple(_with_role(process, by_pid.get(process.ppid)) for process in by_pid.values())
        return cls(ranked, whole_number(document, "unread") or 0, whole_number(document, "left_out") or 0)

    def of(self, *roles: str) -> tuple[Process, ...]:
        """The processes of some roles."""
        return tuple(process for process in self.all if process.role in roles)

    @property
    def ranks(self) -> tuple[Process, ...]:
        """Processes that train, in order of job and rank; their data loaders do not count."""
        return tuple(sorted(self.of("rank"), key=lambda process: (process.job or "", process.rank or 0)))

    @property
    def ray(self) -> bool:
        """True when a Ray node runs here."""
        return bool(self.of("raylet", "gcs-server"))

    @property
    def training(self) -> tuple[Process, ...]:
        """Those that need generous limits: raylets and their workers, ranks, inference engines."""
        return self.of("raylet", "gcs-server", "ray-worker", "rank", "engine")

    @property
    def stuck(self) -> tuple[Process, ...]:
        """Processes of which a reading did not return: their memory map stays locked."""
        return tuple(process for process in self.all if process.stuck_at is not None)

    @property
    def holding_gpus(self) -> tuple[Process, ...]:
        """Processes with a GPU device open."""
        return tuple(process for process in self.all if process.nvidia)

    def public(self) -> dict[str, Any]:
        """Those with a part in training or in trouble; the others only counted."""
        shown = [
            p for p in self.all if p.role or p.nvidia or p.stuck_at or p.state in ("disk-sleep", "zombie")
        ]
        return {"processes": [as_dict(p) for p in shown], "count": len(self.all), "unread": self.unread}


def _read_process(row: Mapping[str, Any]) -> Process:
    text = strings(row)
    rss, started = whole_number(row, "rss_bytes"), row.get("started")
    environment = strings(row.get("environment"))
    return Process(
        pid=whole_number(row, "pid") or 0,
        ppid=whole_number(row, "ppid") or 0,
        program=text.get("program", ""),
        script=text.get("script", ""),
        uid=whole_number(row, "uid"),
        user=text.get("user", ""),
        state=text.get("state", ""),
        started=float(started) if isinstance(started, (int, float)) and 0 <= started < 1e12 else None,
        rss_gib=round(rss / GIB, 3) if rss is not None else None,
        threads=whole_number(row, "threads"),
        job=environment.get("SLURM_JOB_ID") or _slurm_job(text.get("cgroup", "")),
        exe=text.get("exe"),
        cgroup=text.get("cgroup"),
        descriptors=whole_number(row, "descriptors"),
        limits=parse_rlimits(text.get("limits", "")),
        nvidia=texts(row, "nvidia"),
        libraries=texts(row, "libraries"),
        environment=environment,
        may_lock_memory=row.get("uid") == 0 and _has_ipc_lock(text.get("capabilities", "")),
        wchan=text.get("wchan"),
        stuck_at=text.get("stuck_at"),
        errors=strings(row.get("errors")),
    )


def _with_role(process: Process, parent: Process | None) -> Process:
    """A rank is a Python process that was given one and whose parent, if Python too, was not given the same.

    Data loaders and compile workers inherit the rank's environment; a launcher may carry its node's rank.
    Slurm numbers every task, so its number alone makes a rank only of a process that uses GPUs.
    """
    name = f"{process.program} {process.script}"
    role = next((role for role, pattern in _ROLES if pattern.search(name)), "")
    numbers = _rank_numbers(process)
    has_rank = "RANK" in process.environment or "OMPI_COMM_WORLD_RANK" in process.environment
    inherits = parent is not None and _is_python(parent) and _rank_numbers(parent) == numbers
    trains = (
        _is_python(process) and numbers[0] is not None and (has_rank or process.nvidia or process.libraries)
    )
    if role not in ("", "engine") or not trains or inherits:
        return replace(process, role=role) if role else process
    rank, local_rank, world_size = numbers
    address, port = (process.environment.get(f"MASTER_{name}") for name in ("ADDR", "PORT"))
    master = f"{address}:{port or '?'}" if address else None
    return replace(
        process, role="rank", rank=rank, local_rank=local_rank, world_size=world_size, master=master
    )


def _is_python(process: Process) -> bool:
    base = (process.exe or "").rpartition("/")[2]
    return bool(_PYTHON.fullmatch(process.program) or _PYTHON.fullmatch(base))


def _rank_numbers(process: Process) -> tuple[int | None, int | None, int | None]:
    """Rank, local rank and world size as the environment gives them."""
    if not process.environment:
        return None, None, None
    texts = ([process.environment.get(name, "") for name in names] for names in (_RANK, _LOCAL, _WORLD))
    rank, local, world = (
        next((int(t) for t in values if re.fullmatch(r"\d{1,7}", t)), None) for values in texts
    )
    return rank, local, world


def _slurm_job(cgroup: str) -> str | None:
    """Slurm's job number in a control group's path."""
    match = re.search(r"/job_(\d{1,12})(?:/|$)", cgroup, re.MULTILINE)
    return match.group(1) if match else None


def _has_ipc_lock(mask: str) -> bool:
    """Bit 14 (linux, include/uapi/linux/capability.h); in a user namespace it counts for nothing."""
    return bool(re.fullmatch(r"[0-9a-f]{1,16}", mask)) and bool(int(mask, 16) >> 14 & 1)
