"""Faults of the machine: Xids and hung tasks, host memory, limits and disks, lost nodes.

A -9 alone says nothing of memory: the kernel, a cgroup, a scheduler, Kubernetes or Ray has to say so.
"""

from __future__ import annotations

import re

from nodedoctor.record import record
from nodedoctor.triage.patterns.log_pattern import Symptom, bounded_integer
from nodedoctor.triage.patterns.rows import read_rows


@record
class XidReported:
    """The driver reported a GPU's Xid, or an NVSwitch's SXid (`switch`)."""

    code: int
    pci: str
    switch: bool = False

    @property
    def bus(self) -> int:
        """PCI bus number, 0 when the address cannot be read."""
        parts = self.pci.split(":")
        digits = parts[-2] if len(parts) > 1 else ""
        return int(digits, 16) & 0xFF if digits and set(digits) <= set("0123456789abcdef") else 0


@record
class GpuOnBus:
    """A GPU's PCI bus, by nvidia-smi or a program; the event's identity has its number, or the rank on it."""

    bus: int


@record
class KernelTaskHung:
    """A task hung in the kernel, usually in storage; `of_storage`: a file system or its server says so."""

    text: str
    of_storage: bool = False


def is_of_kernel(what: object) -> bool:
    """True for what the kernel says of a node: who prints it, or has it in a log, only read it."""
    reports = isinstance(what, (XidReported, KernelTaskHung))
    return reports or (isinstance(what, HostOom) and what.said_by == "the kernel")


def is_of_node(what: object, text: str) -> bool:
    """True for a line of the kernel or its driver: its reader's rank is none of it."""
    return is_of_kernel(what) or _DRIVER.search(text) is not None


_DRIVER = re.compile(r"\bNVRM: |\bnvidia-nvswitch\d|^(?:[\w.-]{1,64} )?kernel: ")


@record
class DriveError:
    """The kernel could not read or write a drive: mostly one that the job does not use."""

    drive: str


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


@record
class HostAddress:
    """The address of the host on which a process says that it runs."""

    address: str


@record
class TasksPlaced:
    """The tasks that a scheduler starts on a node."""

    tasks: tuple[int, ...]


@record
class NodeLost:
    """A scheduler lost a node; `unstarted` is why its task did not start."""

    unstarted: str = ""


_SCHEDULERS = ("Slurm", "PBS", "LSF", "HTCondor")
_WHOLE_JOB = "DUE TO NODE FAILURE"
"""What slurmstepd prints where it cancels a job for the loss of one of its nodes."""


def ends_allocation(what: object, text: str) -> bool:
    """True for what a scheduler ends all processes of a job for, which it may then start again."""
    return (isinstance(what, NodeLost) and _WHOLE_JOB in text) or (
        isinstance(what, HostOom) and what.said_by in _SCHEDULERS
    )


_DISK_FULL = Symptom("shm_or_limits", "disk-full", "a file system (or /dev/shm) is full", personal=True)


def _disk_full(match: re.Match[str]) -> Symptom | None:
    return None if match["watch"] else _DISK_FULL


def _xid_reported(match: re.Match[str]) -> XidReported:
    code = bounded_integer(match["previous"] or match["code"])
    return XidReported(code, match["pci"].lower(), match["kind"] == "SXid")


def _gpu_on_bus(match: re.Match[str]) -> GpuOnBus:
    return GpuOnBus(int(match["bus"], 16))


def _kernel_task_hung(match: re.Match[str]) -> KernelTaskHung:
    return KernelTaskHung(match[0][:120], of_storage=match["pid"] is None)


MEMORY = r"""
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
    |OOM Killed|cgroup out-of-memory handler|\bOUT_OF_MEMORY\b|\boom_kill [1-9]
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

LIMITS = r"""
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

NODES = r"""
# slurmctld (src/slurmctld/{ping_nodes,job_mgr}.c)
NodeLost
    DUE TO NODE FAILURE|Node failure on (?P<host>\S+)|\bNODE_FAIL\b
NodeLost
    \bJobId=\S+ (?:on failed node|due to failure of node|missing from batch node) (?P<host>[\w.-]+)
NodeLost
    ^(?:slurmctld: )?(?:\W*error: )?Nodes? (?P<host>[\w.-]+) not responding(?:, setting DOWN)?$
# Ray's control store (src/ray/gcs/gcs_server), and the error of a task
NodeLost
    [Tt]he node with (?:node|client) id:? \w+ and (?:ip|address): (?P<host>[\w.:-]+\w).{0,80}marked dead
NodeLost
    \bThe node IP: (?P<host>[\w.:-]+\w), node ID:[ ]
# Open MPI and PRRTE, behind `has lost communication with a remote daemon`
NodeLost
    ^\W*Remote daemon: \S+ on node (?P<host>[\w.-]+)
# MPICH's hydra (pm/pmiserv), Torque's mother superior
NodeLost
    connection to proxy \d+ at host (?P<host>[\w.-]+) failed
NodeLost
    job killed: node \d+ \((?P<host>[\w.-]+)\) requested job (?:terminate|die), 'EOF'
# torchelastic (rendezvous/dynamic_rendezvous.py): a node is its address, a process id and a number
NodeLost
    the node\(s\) '(?P<host>[\w.-]+?)(?:_\d+_\d+)?'.{0,400} removed from the rendezvous\b.{0,200}no heartb
# Kubernetes (pkg/controller/nodelifecycle)
NodeLost
    \b[Nn]ode (?P<host>[\w.-]+) (?:status is now: NodeNotReady|which was running pod \S+ is unresponsive)
# the same of its pods, which are not nodes
NodeLost
    \bNodeNotReady\b.{0,120}\bNode is not ready\b
# ssh's client, of launchers that start the ranks of a node through it, and put the node in front
NodeLost
    ^(?:[\w.-]+: )?Timeout, server (?P<host>[\w.-]+) not responding\.
NodeLost
    ^[\w.-]+: Connection to (?P<host>[\w.-]+) closed by remote host\.
# the same of a person's session (clientloop.c, packet.c), whose end need not be that of the job
SESSION_CUT
    ^Connection to [\w.-]+ closed by remote host\.|^client_loop: send disconnect:[ ]
    |^packet_write_wait: Connection to .{1,80}: Broken pipe|^Shared connection to [\w.-]+ closed\.$
    |\bremote command exited without exit status\b
# srun (src/api/step_launch.c), the second with -v
NodeLost
    Task launch for \S+ failed on node (?P<host>[\w.-]+): (?P<unstarted>.{0,79}\S)
TasksPlaced
    \blaunching \S{1,40} on host (?P<host>[\w.-]+), \d{1,6} tasks: \[?(?P<tasks>\d[\d,-]*)
# Ray
NodeLost
    \bmiss(?:ed|ing) too many heartbeats|node was terminated unexpectedly|Node is dead|NodeDiedError
    |\b(?:raylet|node).{0,80}\bhealth check failed(?! for)
"""

KERNEL = r"""
# the NVIDIA driver (docs.nvidia.com, "Xid Errors")
_xid_reported
    (?P<kind>S?Xid) \((?:PCI:)?(?P<pci>[0-9a-fA-F:.]+)\): (?P<code>\d+)(?:, pid='?(?P<pid>\d+)'?)?
    (?:.*\bfrom GPU(?P<gpu>\d{1,3}) GSP|.*\bcaused by previous Xid (?P<previous>\d+))?
# nvidia-smi's table and the rows of its queries (docs.nvidia.com, "nvidia-smi")
_gpu_on_bus
    ^[| ]{0,4}(?P<gpu>\d{1,2}),? {1,2}(?:NVIDIA|Tesla) [^,|]{0,60}[,| ]{1,9}
    [0-9A-F]{8}:(?P<bus>[0-9A-Fa-f]{2}):[0-9A-F]{2}\.0\b
# programs that say where their ranks are
_gpu_on_bus
    \brank[ =:]{1,2}(?P<rank>\d{1,7})\b(?:.{0,80}?\bhost(?:name)?[ =:]{1,2}(?P<host>[\w.-]{1,64})\b)?
    .{0,80}?\b(?:pci|bus|pci_?bus_?id|bus_?id)[ =:]{1,2}
    (?:[0-9a-fA-F]{4,8}:)?(?P<bus>[0-9a-fA-F]{2}):[0-9a-fA-F]{2}\b
# the same of hosts, and NCCL (src/bootstrap.cc)
HostAddress
    \brank[ =:]{1,2}(?P<rank>\d{1,7})\b.{0,60}?\bhost(?:name)?[ =:]{1,2}(?P<host>[\w.-]{1,64})\b
    .{0,40}?\b(?:node_?)?(?:ip|addr|address|ip_?addr)[ =:]{1,2}(?P<address>\d{1,3}(?:\.\d{1,3}){3})\b
    |NCCL INFO Bootstrap ?: ?Using [\w.-]{1,20}:(?P<address2>\d{1,3}(?:\.\d{1,3}){3})<
# Linux, block/blk-core.c, fs/buffer.c, drivers/nvme/host, ext4 and XFS; no floppy and no optical disk
DriveError
    \b(?:I/O|critical (?:medium|target|nexus)) error, dev (?P<drive>(?!fd|sr)\w{3,20}),
    |\bBuffer I/O error on dev(?:ice)? (?P<drive2>(?!fd|sr)[\w-]{3,20}),
    |\bnvme (?P<drive3>nvme\d+): (?:I/O .{0,60}\btimeout, (?:abort|reset|disabl)|controller is down)
    |\b(?:EXT4-fs|XFS) (?:error )?\((?:device )?(?P<drive4>[\w-]{3,20})\):.{0,80}\bI/O error
[network_ib]
# Linux, drivers of adapters
link-down  of_node
  a network link went down
    (?:mlx\d|ib\d|hfi1|bnxt|irdma|port \d).*[Ll]ink (?:is )?(?:down|DOWN)
[gpu_hardware_xid]
# Linux, drivers/pci/pcie/aer.c
pcie-fatal  hint  of_node
  a PCIe device reported an uncorrectable error
    AER:.*Uncorrect\w{0,9} \((?:Fatal|Non-Fatal)\)|AER: .*[Ff]atal error
# Linux, kernel/hung_task.c, NFS and Lustre
_kernel_task_hung
    task \S+:(?P<pid>\d+) blocked for more than \d+ seconds|nfs: server \S+ not responding
    |Lustre(?:Error)?:.*(?:connection lost|was lost|evicted)
# the same stack dumps, in modules and functions of file systems and of drives
STORAGE_FRAME
    \+0x[0-9a-f]{1,9}/0x[0-9a-f]{1,9} \[(?:nfs\w*|sunrpc|lustre|obdclass|osc|lov|mdc|ptlrpc|lnet|\w*ceph
    |fuse|mmfs\w*|beegfs|wekafs\w*|cifs|xfs|ext4|btrfs|zfs)\]
    |\b(?:(?:nfs\d?|xfs|ext4|btrfs|fuse|ceph|jbd2)_\w{1,64}|io_schedule\w{0,16})\+0x[0-9a-f]{1,9}/
# Linux, drivers/gpu/drm/amd; ROCm's runtime (ROCR-Runtime, runtime.cpp)
amdgpu-reset  of_node
  the driver reset a GPU that hung: the GPU or its firmware, less often a kernel of the program
    amdgpu\S*:? .*(?:GPU reset begin|MODE[12] reset|GPU Recovery Failed)
[user_code_exception]
cuda-program-fault  quoted  personal
  a CUDA kernel of the program failed
    amdgpu\S*:? .*page fault \(src_id|HSA_STATUS_ERROR_MEMORY_APERTURE_VIOLATION
    |HSA_STATUS_ERROR_ILLEGAL_INSTRUCTION
[gpu_hardware_xid]
hsa-hardware  hint  personal
  the GPU ended a kernel with a hardware exception
    HSA_STATUS_ERROR_EXCEPTION: An HSAIL operation resulted in a hardware exception
"""

SIGNS = read_rows(
    MEMORY + LIMITS + NODES + KERNEL,
    DriveError, HostAddress, HostOom, MemoryUser, NodeLost, TasksPlaced, _disk_full, _gpu_on_bus,
    _kernel_task_hung, _xid_reported,
)  # fmt: skip
