"""What ran out on a host: memory, shared memory, files and processes, disks.

A -9 alone says nothing of memory: the kernel, a cgroup, a scheduler, Kubernetes or Ray has to say so.
"""

from __future__ import annotations

import re

from nodedoctor.record import record
from nodedoctor.triage.patterns.log_pattern import Symptom
from nodedoctor.triage.patterns.rows import read_rows


@record
class HostOom:
    """A process was killed for host memory; `said_by` names the reporter, `pid` the process and
    `command` its program.

    `limited` where a control group's limit was reached, not the node's memory.
    """

    said_by: str
    pid: int | None = None
    command: str = ""
    tasks: tuple[int, ...] = ()
    limited: bool = False
    share: str = ""
    """How full the node's memory was, as `212.88GB / 224.00GB`."""

    @property
    def gigabytes(self) -> float:
        """How much of the node's memory was in use; 0 where no line says it."""
        return float(self.share.partition("GB")[0] or 0)


@record
class MemoryUser:
    """A row of Ray's table of memory users, the largest first."""

    gigabytes: float


_DISK_FULL = Symptom("shm_or_limits", "disk-full", "a file system (or /dev/shm) is full", personal=True)


def _disk_full(match: re.Match[str]) -> Symptom | None:
    return None if match["watch"] else _DISK_FULL


_MEMORY = r"""
# the kernel (mm/oom_kill.c)
HostOom  said_by=the kernel  limited
    emory cgroup out of memory: Kill(?:ed)? process (?P<pid>\d+)(?: \((?P<command>[^()]{1,64})\))?
    |oom-kill:constraint=CONSTRAINT_MEMCG(?:.{0,999}\btask=(?P<command2>[^,]{1,64}),
    |.{0,999}\b)pid=(?P<pid2>\d+)
HostOom  said_by=the kernel
    (?:[Oo]ut of memory: )?(?<!cgroup out of memory: )Killed process (?P<pid>\d+)
    (?: \((?P<command>[^()]{1,64})\))?
    |oom-kill:(?!constraint=CONSTRAINT_MEMCG)(?:.{0,999}\btask=(?P<command2>[^,]{1,64}),
    |.{0,999}\b)pid=(?P<pid2>\d+)
HostOom  said_by=the kernel
    invoked oom-killer
# our own black box, of a group's memory.events or memory.oom_control (blackbox/memory_groups.py)
HostOom  said_by=the kernel's counter  limited
    ^nodedoctor: control group \S+: oom_kill rose from \d+ to \d+, memory\.\w+ is \d+
# slurmstepd, srun, sacct
HostOom  said_by=Slurm
    [Ee]xceeded (?:job |step |virtual )?memory limit(?! at some point)|[Dd]etected \d+ oom[_-]kill event
    |OOM Killed|cgroup out-of-memory handler|\bOUT_OF_ME[MOR]{0,3}(?:Y\b|\+)|\boom_kill [1-9]
HostOom  said_by=Slurm
    error: (?P<host>[\w.-]+): tasks? (?P<rank>\d+): Out Of Memory
HostOom  said_by=Slurm
    error: (?P<host>[\w.-]+): tasks (?P<tasks>\d+[-,][\d,-]*): Out Of Memory
[peer_host_oom]
# slurmstepd before 21.08 counts the page cache, too, and kills nobody
memory-limit-touched  hint
  the step reached its memory limit at some point, which by itself ends nothing
    Exceeded (?:job |step )?memory limit at some point
HostOom  said_by=systemd
    process of this unit has been killed by the OOM killer|Failed with result 'oom-kill'
HostOom  said_by=systemd-oomd
    (?:^|\boomd\[\d{1,10}\]: )Killed \S{1,200} due to memory (?:used|pressure)\b
HostOom  said_by=earlyoom
    \bsending SIG(?:TERM|KILL) to process (?P<pid>\d+) uid \d+ "
HostOom  said_by=the notebook's host
    \bnotebook tried to allocate more memory than is available|\bcrashed after using all available RAM\b
HostOom  said_by=Kubernetes
    OOMKilled|low on resource: memory
    |\bSystem OOM encountered(?:, victim process: .{1,40}, pid: (?P<pid>\d+))?
# Ray (src/ray/common/memory_monitor, python/ray/_private/memory_monitor.py); the last, where it names no
# process, or is cut off in front of it
HostOom  said_by=Ray
    (?:[Ss]ystem memory (?:is )?low(?: at node with IP (?P<host>[\w.:-]{1,64}?)\.? )?.{0,300}?killing
    |killed due to the node running low on memory|NODE_OUT_OF_MEMORY|killed due to memory pressure
    |RayOutOfMemoryError)
HostOom  said_by=Ray
    (?:\(IP: (?P<host>[\w.:-]{1,64}), .{0,400}?)?pid=(?P<pid>\d+), memory used=[\d.]+GB\) was running
    (?: was (?P<share>[\d.]+GB / [\d.]+GB))?
HostOom  said_by=Ray
    Memory on the node \(IP: (?P<host>[\w.:-]{1,64}), (?!.*\bmemory used=)
# distributed (worker_memory.py); Dask starts the worker again, and the job may go on
dask-memory  personal  as_warning
  Dask killed a worker that had nearly used up its share of the host's memory
    \bWorker (?:\w+://(?P<host>[\w.-]+):\d+ \(pid=(?P<pid>\d+)\) )?exceeded \d+% memory budget
# Ray's table of memory users
MemoryUser
    ^\s*(?P<pid>\d+)\s+(?P<gigabytes>\d+\.\d+)\s+(?:ray::\S+|(?:\S*/)?python[\d.]* .*)
# C++, torch, Python and NumPy
HostOom  said_by=the program
    std::bad_alloc|DefaultCPUAllocator: (?:can't allocate memory|not enough memory)
    |(?:^|\s)(?:numpy\S*ArrayMemoryError|MemoryError)\b
# Windows' error 1455, ERROR_COMMITMENT_LIMIT (winerror.h)
HostOom  said_by=Windows
    \[WinError 1455\]|GetLastError\(\) = 1455\b|paging file is too small for this operation
# LSF ("LSF job termination reasons"), OpenPBS and Torque (src/resmom/mom_main.c), HTCondor
HostOom  said_by=LSF
    ^TERM_(?:MEMLIMIT|SWAP):[ ]
HostOom  said_by=PBS
    ^=>> PBS: job killed: (?:v?mem|pv?mem) \S+ exceeded limit
HostOom  said_by=HTCondor
    \bJob has gone over (?:cgroup )?memory limit of \d+
"""


_LIMITS = r"""
[shm_or_limits]
# torch/utils/data, torch's csrc/DataLoader.cpp
loader-bus-error  personal
  a data-loader worker ran out of shared memory
    (?:DataLoader|worker).*killed by signal: Bus error|insufficient shared memory \(shm\)
    |Unexpected bus error encountered in worker
# errno(3): EMFILE; torch's sharing of descriptors
open-files  personal
  the limit of open files was reached
    Too many open files|received 0 items of ancdata|out of file descriptors
# errno(3): EAGAIN of clone(2)
threads  personal
  the limit of processes and threads was reached
    can't start new thread|Thread creation failed|pthread_create failed|fork: retry
    |BlockingIOError: \[Errno 11\] Resource temporarily unavailable
    |(?:\bthread|\bclone|\bfork(?:\(\))?|spawn\w*): (?:retry: )?Resource temporarily unavailable
# torch's MapAllocator; errno(3): ENOMEM
cannot-map  personal
  memory could not be mapped or shared
    unable to (?:mmap|allocate shared memory|open shared memory|write to file).*(?:/torch|shm|bytes)
    |OSError: \[Errno 12\] Cannot allocate memory
# inotify(7) calls its limit of watches so: the disk has room, and what watches goes on without
# errno(3): ENOSPC; datasets, huggingface_hub; Kubernetes; Ray
_disk_full
    (?P<watch>inotify_add_watch\([^()]{0,255}\) failed: )?No space left on device
    |Error: Not enough (?:free )?(?:disk )?space\b
    |low on resource: ephemeral-storage|\bOutOfDiskError\b
# torch, c10/cuda/CUDACachingAllocator.cpp: segments that can grow are shared by descriptors
pidfd-refused  personal
  the container does not let processes share GPU memory (pidfd_getfd is refused)
    \bpidfd_(?:getfd|open): (?:Operation not permitted|Permission denied|Function not implemented)
# errno(3): EDQUOT; the file system has room, for others
quota-full  personal
  the disk quota of this user or project is used up
    Disk quota exceeded
# torch's writer keeps no errno: a full file system, a quota or storage that went away
write-failed  personal
  a file could not be written to its end: its file system is full, over quota or no longer there
    PytorchStreamWriter failed (?:writing|closing)|unexpected pos \d+ vs \d+
    |(?:write|fwrite)\(\)?.{0,40}: (?:fd \d+ )?failed with[ ]
# errno(3): EIO, EREMOTEIO, ESTALE, EROFS, ENOTCONN, ESHUTDOWN
# where a shell's tool ends its line in it, a container was never writable there
storage-lost  quoted  personal
  a file system went away under the program
    \[Errno 5\] Input/output error: |Remote I/O error|Stale (?:NFS )?file handle
    |Read-only file system(?=: ['"/]| \(os error)|Transport endpoint is not connected
    |Cannot send after transport endpoint shutdown
"""

SIGNS = read_rows(_MEMORY + _LIMITS, HostOom, MemoryUser, _disk_full)
