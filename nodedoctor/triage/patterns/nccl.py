"""NCCL's WARN lines and results: faults, and echoes of a peer's end."""

from __future__ import annotations

import re
from typing import Any

from nodedoctor.record import record
from nodedoctor.triage.model import Event, Line
from nodedoctor.triage.patterns.log_pattern import bounded_integer, world_size
from nodedoctor.triage.patterns.rows import read_rows
from nodedoctor.triage.patterns.store import PeerGone


@record
class NcclError:
    """A result code of NCCL: `ncclRemoteError` points at a peer, `ncclSystemError` at this node.

    `last_warning` is the line behind `Last error:`, where no pattern reads it.
    """

    result: str
    last_warning: str = ""


@record
class DuplicateGpu:
    """Two ranks were given the same GPU."""

    ranks: tuple[int, ...]


@record
class IbFlush:
    """A work request was flushed (status 5) after its queue pair was down."""

    peer: str


@record
class Communicator:
    """A communicator's start or end, from NCCL_DEBUG=INFO: rank, size and GPU of a process."""

    ranks: int
    rank: int
    step: str
    bus: int = 0
    """PCI bus number, 0 when the line has none."""

    @property
    def is_complete(self) -> bool:
        """True where the process says that its communicator works."""
        return self.step == "Init COMPLETE"

    @property
    def is_aborted(self) -> bool:
        """True where the process says that it gave its communicator up."""
        return self.step == "Abort COMPLETE"


@record
class VirtualInterface:
    """NCCL talks over an interface that reaches no other node: a loopback or a bridge of containers."""

    interface: str
    address: str


@record
class BusBandwidth:
    """What a test of NCCL reached between GPUs on average, in GB/s."""

    gigabytes: float


class LastErrors:
    """The line behind `Last error:` (torch's getNcclErrorDetailStr): whatever it is, NCCL means it."""

    def __init__(self) -> None:
        self._key: str | None = None

    def read(self, line: Line, events: list[Event[Any]]) -> list[Event[Any]]:
        """The events of a line, or NCCL's last warning where no pattern reads it."""
        expected, self._key = self._key == line.key, None
        _, separator, rest = line.text.partition("Last error:")
        if separator and not rest.strip():
            self._key = line.key
        elif expected and not events and line.text.strip():
            what = NcclError("Last error", line.text.strip()[:300])
            return [Event.at(line, what)]
        return events


def _make_communicator(match: re.Match[str]) -> Communicator:
    bus = int(match["bus"], 16) >> 12 & 0xFF if match["bus"] else 0  # busId 1b000 is 00:1b:00.0
    return Communicator(world_size(match["size"]), bounded_integer(match["inner"]), match["step"], bus)


PLUGIN_FAILED = "network-plugin-failed"
"""The symptom of a network plug-in that does not work; NCCL may do without it."""

SIGNS = read_rows(
    r"""
# NVIDIA/nccl, src/init.cc and src/transport
SET_UP
    ^NCCL version \d|NCCL INFO (?:NCCL version|Bootstrap|NET/|Using network)
VirtualInterface
    NCCL INFO (?:Bootstrap|NET/Socket) ?: ?Using (?:\[0\])?
    (?P<interface>lo|(?:docker|virbr|veth|cni|cbr|flannel|lxcbr)[\w.-]*|br-[0-9a-f]{12}):
    (?P<address>\d[\d.]{6,14})<
DuplicateGpu
    Duplicate GPU detected : rank (?=(?P<rank>\d+) )(?P<ranks>\d+ and rank \d+)
# NCCL, nccl-tests (src/common.h) and torch
NcclError
    \b(?P<result>nccl(?:Remote|System|Internal|UnhandledCuda|InvalidUsage|InvalidArgument)(?:Error)?)\b
    |Test NCCL failure \w{1,40}\.\w{1,4}:\d{1,6} '(?P<result2>[^'/]{0,119}[^'/\s])
    |(?P<result3>unhandled (?:cuda|system) error)
_make_communicator
    rank (?P<inner>\d+) nranks (?P<size>\d+) cudaDev (?P<gpu>\d+).{0,90}?
    (?:busId (?P<bus>[0-9a-f]{1,9})\b.{0,90}?)?(?P<step>Init START|Init COMPLETE|Abort COMPLETE
    |Destroy COMPLETE)
[network_socket_interface]
no-interface  personal
  NCCL found no network interface that NCCL_SOCKET_IFNAME allows
    [Nn]o (?:socket )?interface found|connecting to address .{0,80}\bfamily \d{1,6} is neither AF_INET
# NVSHMEM (modules/bootstrap/uid/bootstrap_uid.cpp)
nvshmem-no-interface  personal
  NVSHMEM found no network interface that NVSHMEM_BOOTSTRAP_UID_SOCK_IFNAME allows
    \bbootstrap_net_init:\d+: No socket interface found
# NCCL (misc/socket.cc), where the other side introduces itself in another way
stranger-answered  quoted  ground=path
  something else than this job's NCCL answered on its port: another job, program or version of NCCL
    \bsocketFinalize(?:Accept|Connect): wrong (?:type|magic) \S+ != \S+
connect-failed  quoted  ground=path
  NCCL could not connect to a peer's address
    (?:socketStartConnect|Net|ncclSocketConnect\w*|socketPollConnect
    |\w{0,40}[sS]ocket\w{0,40}) ?: [Cc]onnect to \S+ (?:failed|returned .*exceeded error retry count)
    |WARN (?:Connect to \S+|Call to connect) failed :[ ]
no-route  ground=path
  no route to the peer's address
    ^(?!(?:[a-z]\w*\.)*(?:OSError|\w*(?:URL|Connection|Connector|Connect|Proxy)Error)\b)
    (?:.*\W)?(?:No route to host|Network is unreachable|Software caused connection abort)
PeerGone  timed_out
    Call to \w+ (?:from|to) (?P<peer>\S+) failed : Connection timed out
IbFlush
    Got completion from peer (?P<peer>\S+) with (?:error|status)[ =](?:5\b|IBV_WC_WR_FLUSH_ERR)
[network_ib]
ib-memory-refused  quoted
  the InfiniBand adapter was refused the memory of a transfer: GPUDirect RDMA, the IOMMU, or a process that
  had freed it
    Got completion (?:from peer \S+ )?with (?:error|status)[ =](?:(?:4|10)\b
    |IBV_WC_(?:LOC_PROT|REM_ACCESS)_ERR)|(?:Remote access|Local protection) (?:error )?on \w+:\d+/(?:IB|RoCE)
# libmlx5, not of flushed entries; NCCL; UCX's words for the same statuses (src/uct/ib/mlx5/ib_mlx5_log.c)
ib-completion-error
  {peer:a peer} stopped answering over InfiniBand (error {error:12}, retries used up): the path, different
  fabrics, or its process exited
    Got completion (?:from (?P<peer>peer [^\s<]+)(?:<\S*)? )?with (?:error|status)[ =](?P<error>1[23]\b
    |IBV_WC_R(?:NR_R)?ETRY_EXC_ERR)|(?:[Tt]ransport|RNR) retry (?:count|counter) exceeded
ib-completion-error  quoted
  a transfer over InfiniBand ended with an error
    mlx\d+: \S{1,64}: got completion with error:
    |Got completion (?:from peer \S+ )?with (?:error|status)[ =](?:(?!(?:4|5|10|12|13)\b)\d+
    |IBV_WC_(?!WR_FLUSH|LOC_PROT|REM_ACCESS|R(?:NR_R)?ETRY_EXC)\w+)
    |(?:Remote (?:operation|invalid request)|Local (?:length|QP operation)) (?:error )?on \w+:\d+/(?:IB|RoCE)
# NVSHMEM (host/transport/transport.cpp, host/topo/topo.cpp)
nvshmem-no-transport  quoted  personal
  NVSHMEM could not connect the GPUs: no InfiniBand transport and no peer access works between them
    \bnvshmemi_transport_init:\d+: Unable to initialize any transports
    |\[GPU \d+\] Peer GPU \d+ is not accessible
    |^\W*(?:transport create connect failed|connect EPS failed)
# ibv_event_type_str(3): the other events are notices
ib-event  of_node
  the InfiniBand adapter reported a fault
    NET/IB ?: .*(?:async fatal event|Got async event\b.{0,60}?[ ]error\b|port error)
# NCCL, and other users of libibverbs: perftest, UCX, UCCL, NVSHMEM, Mooncake
ib-setup
  an InfiniBand queue pair could not be set up
    (?:Call to )?ibv_(?:modify_qp|poll_cq)\w* failed
    |(?:[Ff]ailed|[Uu]nable|[Ee]rror) to (?:modify|create|transition) (?:the )?(?:QP|[Qq]ueue [Pp]air)\b
# NCCL before 2.20 does not tell the error's number; no peer has a part in what fails here
ib-own-side  quoted  personal  ground=own error
  a process could not set up or use its own side of InfiniBand
    ibv_(?:create_(?:cq|qp)|alloc_pd|reg_\w{1,20}|query_gid
    |post_(?:send|recv))\w{0,20}(?:\([^()]{0,120}\))? failed(?!.*(?:Cannot allocate memory|error 12))
# ncclIbInit (transport/net_ib.cc) goes on with the adapters that it can open, or without any
ib-left-out  hint  of_node
  NCCL left out an InfiniBand adapter that it could not open
    Call to ibv_(?:open_device|query_device|query_port)\w* failed
# aws-ofi-nccl, in libfabric's words (prov/efa/src/efa_errno.h); who reports it only lost the other one
network-peer-silent
  a peer did not answer NCCL's network plug-in any more: it ended, or the way to it failed
    NCCL WARN NET/OFI .{0,200}?\bcompleted with error\b.{0,80}\b(?:[Uu]nresponsive r|[Rr]emote .{0,40}unreach
    |[Ii]nvalid peer|[Pp]eer.{0,40}(?:dropped|gone|closed))
network-plugin-failed  personal
  NCCL's network plug-in reports that its adapter does not work
    NCCL WARN (?!NET/OFI .{0,500}\bPeer )NET/(?!IB\b|Socket\b|Plugin\b)[\w-]+[ ]
    .{0,200}?(?:[Ff]ailed|[Ee]rror|[Cc]ould(?:n't| not)|[Uu]nable)
# no peer has a part in it either
network-plugin-missing  personal  ground=own error
  the network that NCCL_NET asks for is not available
    NCCL WARN Error: network \S.{0,60} not found
[shm_or_limits]
memlock  personal
  memory could not be pinned for InfiniBand: the memlock limit
    ibv_(?:reg_\w|create_cq)\w{0,40}(?:\([^()]{0,120}\))? failed.*(?:Cannot allocate memory|error 12)
# the last is NCCL's, whose next line has the path
dev-shm  personal
  /dev/shm is full or not shared: a container gets 64 MB of it by default
    (?:failed to extend|Error: failed|[Ee]rror while (?:creating|attaching)|No space left|open of|could not
    |posix_fallocate|unable to).*(?:/dev/shm|shared memory segment)|/dev/shm.*(?:No space left|failed)
    |\bshm(?:utils)?\.(?:h|cc):\d+.{0,80} No space left
[version_mismatch]
nccl-versions-differ
  ranks run different NCCL versions
    [Mm]ismatched NCCL version
[nvlink_fabric]
nvls
  NVLink SHARP (NVLS) could not be set up: Fabric Manager, NVSwitches, or a VM without them
    (?:[Ff]ailed to (?:bind|create|allocate|map).{0,200}(?:NVLS|NVLink SHARP|[Mm]ulticast)
    |(?:bind|creat|allocat)\w{0,9} .{0,200}NVLS.{0,200}(?:CUDA|fail|error)
    |nvls\.cc:\d{1,5}\b.{0,200}(?:[Cc]uda failure|CUDA (?:error )?\d+|fail))
imex  hint
  the multi-node NVLink service (IMEX) does not work
    (?:IMEX|MNNVL).*(?:fail|error|not (?:running|ready|available)|WARN)|WARN.*(?:IMEX|MNNVL)
p2p-off-on-nvlink  hint
  P2P is off between GPUs that NVLink connects
    P2P is disabled between NVLINK connected GPUs
[p2p_pcie_acs_iommu]
acs-hint
  the PCIe path between the GPUs is redirected or blocked (ACS, IOMMU)
    HINT:.{1,200}\bACS\b|IO_PAGE_FAULT|DMAR: \[DMA
p2p-broken  of_node
  the GPUs cannot reach each other's memory
    peer access is not supported between these two devices|simpleP2P.*[Vv]erification (?:error|failed)
# what people write of a job that hangs
works-without-p2p  ground=path
  the job works without peer-to-peer copies, as a note beside it says
    (?<!not )(?<!n't )\b(?:[Ww]ork(?:s|ed)?|[Rr]uns|[Tt]rains|[Ff]ine|[Ff]ixed|[Ss]olved)(?: \w{1,12}){0,4}
    [ ]NCCL_P2P_DISABLE ?= ?1\b
    |\b(?:[Ww]ith|[Ss]etting|[Ss]et|[Aa]fter|[Ee]xport(?:ing)?) NCCL_P2P_DISABLE ?= ?1
    (?:[`'"]*,? (?:it|the|this|that|then|run|job|training|everything|now|all)){0,4}
    [ ](?:work(?:s|ed)|run(?:s|ning)? fine|trains|fixe[sd]|solve[sd]|help(?:s|ed)|finishe[sd]|complete[sd])
# nccl-tests (src/common.cu)
wrong-values
  a test of NCCL read wrong values: what one GPU sends is not what another one gets
    ^#? ?Out of bounds values : [1-9]\d* FAILED
BusBandwidth
    ^#? ?Avg bus bandwidth {1,9}: (?P<gigabytes>\d{1,6}\.\d{1,6})
[collective_mismatch]
declared-mismatch
  a comparison shows that the ranks do different things
    Mismatched collective detected|DistributedOperationException
    |collective mismatch error,? local size \d+ remote
# graph/tuning.cc, enqueue.cc: what NCCL_ALGO and NCCL_PROTO leave has no way to do it
[user_code_exception]
nccl-no-algorithm  quoted  personal
  NCCL_ALGO, NCCL_PROTO or a tuner leaves NCCL no algorithm for a collective
    no algorithm/protocol available for function \S+
rank-given-twice
  two processes were started with the same rank
    rank \d+ of \d+ ranks has already checked in
worlds-differ
  processes that meet were started with different numbers of ranks
    \bmismatch in rank count from procs \d+ : \d+
[collective_mismatch]
# its transports (transport/net_socket.cc), which name both reasons themselves
sizes-differ  ground=path
  a peer sent more than this rank expected: the ranks called one collective with different sizes, or their
  settings of NCCL differ (NCCL_PROTO, NCCL_ALGO)
    \bNET/\w{1,40} ?:.{0,120}\bmessage truncated : receiving \d+ bytes instead of \d+
# its start (bootstrap.cc), where a connection of another run or version does it, too
message-truncated  hint
  a peer sent more than this rank expected
    Message truncated : received \d+ bytes instead of \d+
""",
    BusBandwidth, VirtualInterface, DuplicateGpu, NcclError, PeerGone, IbFlush, _make_communicator,
)  # fmt: skip
