"""NCCL's own WARN lines and results: which of them name a fault, and which only echo a peer's end."""

from __future__ import annotations

import re
from typing import Any

from nodedoctor.record import record
from nodedoctor.triage.events.log_pattern import (
    LogPattern,
    bounded_integer,
    log_pattern,
    rank_number,
    symptom_pattern,
    world_size,
)
from nodedoctor.triage.events.store import PeerGone
from nodedoctor.triage.model import Cause, Event, Line


@record
class NcclError:
    """A result code of NCCL: `ncclRemoteError` points at a peer, `ncclSystemError` at this node.

    `told` is the line behind `Last error:`, NCCL's last warning of this process, where nothing else reads it.
    """

    result: str
    told: str = ""


@record
class SetUp:
    """NCCL is being set up in a process: its first lines."""


@record
class DuplicateGpu:
    """Two ranks were given the same GPU."""

    ranks: tuple[int, ...]


@record
class IbFlush:
    """A work request was flushed (status 5): the queue pair was already down, the reason is elsewhere."""

    peer: str


@record
class Communicator:
    """A communicator's start or end, from NCCL_DEBUG=INFO: rank, size and GPU of a process."""

    ranks: int
    rank: int
    step: str
    bus: int = 0
    """PCI bus number, 0 when it is not told."""


class LastErrors:
    """The line behind `Last error:` (torch's getNcclErrorDetailStr): whatever it is, NCCL means it."""

    def __init__(self) -> None:
        self._key: str | None = None

    def told(self, line: Line, events: list[Event[Any]]) -> list[Event[Any]]:
        """The events of a line, and what NCCL said in it if nothing was read from it."""
        expected, self._key = self._key == line.key, None
        _, found, rest = line.text.partition("Last error:")
        if found and not rest.strip():
            self._key = line.key
        elif expected and not events and line.text.strip():
            what = NcclError("Last error", line.text.strip()[:300])
            return [Event(what, line.place, line.who, line.time, line.text, line.repeated, line.origin)]
        return events


_SOCKET: Cause = "network_socket_interface"
_IB: Cause = "network_ib"


def _make_communicator(found: re.Match[str]) -> Communicator:
    bus = int(found["bus"], 16) >> 12 & 0xFF if found["bus"] else 0  # busId 1b000 is 00:1b:00.0
    return Communicator(world_size(found["size"]), bounded_integer(found["inner"]), found["step"], bus)


SIGNS: tuple[LogPattern, ...] = (
    log_pattern(
        r"^NCCL version \d|NCCL INFO (?:NCCL version|Bootstrap|NET/|Using network)", lambda _: SetUp()
    ),
    log_pattern(
        r"Duplicate GPU detected : rank (\d+) and rank (\d+)",
        lambda found: DuplicateGpu((rank_number(found[1]), rank_number(found[2]))),
    ),
    log_pattern(
        r"\b(nccl(?:Remote|System|Internal|UnhandledCuda|InvalidUsage|InvalidArgument)(?:Error)?)\b"
        r"|Test NCCL failure \w{1,40}\.\w{1,4}:\d{1,6} '([^'/]{1,120})"  # nccl-tests (src/common.h)
        r"|(unhandled (?:cuda|system) error)",
        lambda found: NcclError((found[1] or found[2] or found[3]).strip()),
    ),
    log_pattern(
        r"rank (?P<inner>\d+) nranks (?P<size>\d+) cudaDev (?P<gpu>\d+).{0,90}?"
        r"(?:busId (?P<bus>[0-9a-f]{1,9})\b.{0,90}?)?"
        r"(?P<step>Init START|Init COMPLETE|Abort COMPLETE|Destroy COMPLETE)",
        _make_communicator,
    ),
    symptom_pattern(
        _SOCKET,
        "no-interface",
        r"[Nn]o (?:socket )?interface found|connecting to address .{0,80}\bfamily \d{1,6} is neither AF_INET",
        "NCCL found no network interface: NCCL_SOCKET_IFNAME, where it is set, matches none",
        personal=True,
    ),
    symptom_pattern(
        _SOCKET,
        "connect-failed",
        r"(?:socketStartConnect|Net|ncclSocketConnect\w*|socketPollConnect"
        r"|\w{0,40}[sS]ocket\w{0,40}) ?: [Cc]onnect to \S+ "
        r"(?:failed|returned .*exceeded error retry count)"
        r"|WARN (?:Connect to \S+|Call to connect) failed : ",
        "NCCL could not connect to a peer's address",
        quoted=True,
    ),
    symptom_pattern(
        _SOCKET,
        "no-route",
        r"No route to host|Network is unreachable|Software caused connection abort",
        "there is no way to the peer's address",
    ),
    log_pattern(
        r"Call to \w+ (?:from|to) (?P<peer>\S+) failed : Connection timed out",
        lambda found: PeerGone(found["peer"], timed_out=True),
    ),
    log_pattern(
        r"Got completion from peer (?P<peer>\S+) with (?:error|status)[ =](?:5\b|IBV_WC_WR_FLUSH_ERR)",
        lambda found: IbFlush(found["peer"]),
    ),
    symptom_pattern(
        _IB,
        "ib-memory-refused",
        r"Got completion (?:from peer \S+ )?with (?:error|status)[ =]"
        r"(?:(?:4|10)\b|IBV_WC_(?:LOC_PROT|REM_ACCESS)_ERR)"
        r"|(?:Remote access|Local protection) (?:error )?on \w+:\d+/(?:IB|RoCE)",
        "the InfiniBand adapter was refused the memory of a transfer: GPUDirect RDMA, the IOMMU, or a process"
        " that had freed it",
        quoted=True,
    ),
    symptom_pattern(
        _IB,
        "ib-completion-error",
        r"mlx\d+: \S{1,64}: got completion with error:"  # libmlx5, not of flushed entries
        r"|Got completion (?:from peer \S+ )?with (?:error|status)[ =]"
        r"(?:(?!(?:4|5|10)\b)\d+|IBV_WC_(?!WR_FLUSH|LOC_PROT|REM_ACCESS)\w+)"
        # UCX's words for the same statuses (openucx/ucx, src/uct/ib/mlx5/ib_mlx5_log.c)
        r"|(?:[Tt]ransport|RNR) retry (?:count|counter) exceeded"
        r"|(?:Remote (?:operation|invalid request)|Local (?:length|QP operation)) "
        r"(?:error )?on \w+:\d+/(?:IB|RoCE)",
        "InfiniBand gave up on a peer: the path to it, different fabrics, or its process ended",
        quoted=True,
    ),
    symptom_pattern(
        _IB,
        "ib-event",
        r"NET/IB ?: .*(?:async fatal event|Got async event|port error)",
        "the InfiniBand adapter reported a fault",
        of_node=True,
    ),
    symptom_pattern(
        _IB,
        "ib-setup",
        r"(?:Call to )?ibv_(?:modify_qp|poll_cq)\w* failed"
        # other users of libibverbs: perftest, UCX, UCCL, NVSHMEM, Mooncake
        r"|(?:[Ff]ailed|[Uu]nable|[Ee]rror) to (?:modify|create|transition) (?:the )?"
        r"(?:QP|[Qq]ueue [Pp]air)\b",
        "an InfiniBand queue pair could not be set up",
    ),
    symptom_pattern(  # NCCL before 2.20 does not tell the error's number
        _IB,
        "ib-own-side",
        r"ibv_(?:create_(?:cq|qp)|alloc_pd|reg_\w{1,20}|query_gid|post_(?:send|recv))\w{0,20}(?:\([^()]{0,120}\))?"
        r" failed"
        r"(?!.*(?:Cannot allocate memory|error 12))",
        "a process could not set up or use its own side of InfiniBand",
        quoted=True,
        personal=True,
    ),
    symptom_pattern(
        # ncclIbInit (transport/net_ib.cc) goes on with the adapters that it can open, or without any
        _IB,
        "ib-left-out",
        r"Call to ibv_(?:open_device|query_device|query_port)\w* failed",
        "NCCL left out an InfiniBand adapter that it could not open",
        decisive=False,
        of_node=True,
    ),
    symptom_pattern(
        _IB,
        "network-plugin-failed",
        r"NCCL WARN NET/(?!IB\b|Socket\b|Plugin\b)[\w-]+ .{0,200}?"
        r"(?:[Ff]ailed|[Ee]rror|[Cc]ould(?:n't| not)|[Uu]nable)",
        "NCCL's network plug-in reports that its adapter does not work",
        personal=True,
    ),
    symptom_pattern(
        _IB,
        "network-plugin-missing",
        r"NCCL WARN Error: network \S+ not found",
        "the network that NCCL_NET asks for is not available",
        personal=True,
    ),
    symptom_pattern(
        "shm_or_limits",
        "memlock",
        r"ibv_(?:reg_\w|create_cq)\w{0,40}(?:\([^()]{0,120}\))? failed.*(?:Cannot allocate memory|error 12)",
        "memory could not be pinned for InfiniBand: the memlock limit",
        personal=True,
    ),
    symptom_pattern(
        "shm_or_limits",
        "dev-shm",
        r"(?:failed to extend|Error: failed|[Ee]rror while (?:creating|attaching)|No space left"
        r"|open of|could not|"
        r"posix_fallocate|unable to).*(?:/dev/shm|shared memory segment)|/dev/shm.*(?:No space left|failed)"
        r"|\bshm(?:utils)?\.(?:h|cc):\d+.{0,80} No space left",  # NCCL's, whose next line has the path
        "/dev/shm is full or not shared: a container has 64 MB of it unless it is given more",
        personal=True,
        owner="CONFIG",
    ),
    symptom_pattern(
        "version_mismatch",
        "nccl-versions-differ",
        r"[Mm]ismatched NCCL version",
        "ranks run different NCCL versions",
    ),
    symptom_pattern(
        "nvlink_fabric",
        "nvls",
        r"(?:[Ff]ailed to (?:bind|create|allocate|map).{0,200}(?:NVLS|NVLink SHARP|[Mm]ulticast)"
        r"|(?:bind|creat|allocat)\w{0,9} .{0,200}NVLS.{0,200}(?:CUDA|fail|error)"
        r"|nvls\.cc:\d{1,5}\b.{0,200}(?:[Cc]uda failure|CUDA (?:error )?\d+|fail))",
        "NVLink SHARP (NVLS) could not be set up: Fabric Manager, NVSwitches, or a VM without them",
    ),
    symptom_pattern(
        "nvlink_fabric",
        "imex",
        r"(?:IMEX|MNNVL).*(?:fail|error|not (?:running|ready|available)|WARN)|WARN.*(?:IMEX|MNNVL)",
        "the multi-node NVLink service (IMEX) does not work",
        decisive=False,
    ),
    symptom_pattern(
        "nvlink_fabric",
        "p2p-off-on-nvlink",
        r"P2P is disabled between NVLINK connected GPUs",
        "P2P is off between GPUs that NVLink connects",
        decisive=False,
    ),
    symptom_pattern(
        "p2p_pcie_acs_iommu",
        "acs-hint",
        r"HINT:.{1,200}\bACS\b|IO_PAGE_FAULT|DMAR: \[DMA",
        "the way between the GPUs over PCIe is redirected or blocked (ACS, IOMMU)",
    ),
    symptom_pattern(
        "p2p_pcie_acs_iommu",
        "p2p-broken",
        r"peer access is not supported between these two devices|simpleP2P.*[Vv]erification (?:error|failed)",
        "the GPUs cannot reach each other's memory",
        of_node=True,
    ),
    symptom_pattern(
        "collective_mismatch",
        "declared-mismatch",
        r"Mismatched collective detected|DistributedOperationException",
        "the ranks were compared, and they do not do the same",
    ),
    symptom_pattern(  # graph/tuning.cc, enqueue.cc: what NCCL_ALGO and NCCL_PROTO leave has no way to do it
        "user_code_exception",
        "nccl-no-algorithm",
        r"no algorithm/protocol available for function \S+",
        "NCCL_ALGO, NCCL_PROTO or a tuner leaves NCCL no algorithm for a collective",
        quoted=True,
        personal=True,
        owner="CONFIG",
    ),
    symptom_pattern(
        "user_code_exception",
        "rank-given-twice",
        r"rank \d+ of \d+ ranks has already checked in",
        "two processes were started with the same rank",
    ),
    symptom_pattern(
        "collective_mismatch",
        "message-truncated",
        r"Message truncated : received \d+ bytes instead of \d+",
        "a peer sent more than this rank expected",
        decisive=False,
    ),
)
