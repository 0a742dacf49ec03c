"""Faults of the machine: Xids, hung tasks, drives, lost nodes; and where processes are."""

from __future__ import annotations

import re

from nodedoctor.record import record
from nodedoctor.triage.patterns.host_limits import HostOom
from nodedoctor.triage.patterns.log_pattern import bounded_integer
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


def _xid_reported(match: re.Match[str]) -> XidReported:
    code = bounded_integer(match["previous"] or match["code"])
    return XidReported(code, match["pci"].lower(), match["kind"] == "SXid")


def _gpu_on_bus(match: re.Match[str]) -> GpuOnBus:
    return GpuOnBus(int(match["bus"], 16))


def _kernel_task_hung(match: re.Match[str]) -> KernelTaskHung:
    return KernelTaskHung(match[0][:120], of_storage=match["pid"] is None)


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
# Linux, kernel/panic.c: nothing runs on that node any more
NodeLost
    \bKernel panic - not syncing\b
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
    NODES + KERNEL,
    DriveError, HostAddress, NodeLost, TasksPlaced, _gpu_on_bus, _kernel_task_hung, _xid_reported,
)  # fmt: skip
