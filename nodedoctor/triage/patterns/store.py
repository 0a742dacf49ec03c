"""Gloo, the TCP store, monitored barriers, DETAIL's collective checks: waits for peers at start."""

from __future__ import annotations

import re

from nodedoctor.record import record
from nodedoctor.triage.patterns.log_pattern import (
    bounded_integer,
    rank_number,
    world_size,
)
from nodedoctor.triage.patterns.rows import read_rows
from nodedoctor.whole_numbers import signed


@record
class GlooTimeout:
    """A gloo operation of the process timed out: it says nothing about the culprit."""

    milliseconds: int | None = None


@record
class PeerGone:
    """A connection to a peer broke: its process ended, or the network did."""

    peer: str = ""
    timed_out: bool = False


@record
class BarrierMissed:
    """A monitored barrier, or a service that counts ranks, names those that did not come."""

    ranks: tuple[int, ...]
    where: str = "the barrier"
    passing: bool = False
    """They may still come: the others went on waiting."""


@record
class SizeMismatch:
    """Gloo got more bytes than the buffer of the rank that prints it."""

    received: int
    expected: int


@record
class CollectiveFingerprint:
    """What one rank was running, as DETAIL compared it."""

    rank: int
    shown: str

    @property
    def number(self) -> str:
        """Its number in the sequence of its group, or ''."""
        match = re.search(r"SequenceNumber=(\d+)", self.shown)
        return match[1] if match else ""

    @property
    def kind(self) -> str:
        """The collective's name, as `ALLREDUCE`."""
        match = re.search(r"OpType=(\w+)|^(_?[A-Z][A-Z_]{3,})", self.shown)
        return match[1] or match[2] if match else ""

    @property
    def tensors(self) -> str:
        """Shape and type of its tensors, as `[4, 128] Float`."""
        shape = re.search(r"TensorShape=(\[[\d,]*\])", self.shown)
        kind = re.search(r"TensorDtypes=(\w+)", self.shown)
        return " ".join(match[1].replace(",", ", ") for match in (shape, kind) if match)


CALLED_DIFFERENT = "called different collectives at the same time"


@record
class CollectiveMismatch:
    """Ranks were compared and differ: in DETAIL's collectives or in DDP's parameters.

    Fingerprints may follow on their own lines.
    """

    fingerprints: tuple[CollectiveFingerprint, ...]
    about: str = CALLED_DIFFERENT
    passing: bool = False
    """They may still come to the same: all went on waiting."""


@record
class StoreWait:
    """A rank waited for a key that `rank` had to publish."""

    rank: int | None = None
    dead: bool = False


@record
class ClientsMissing:
    """The store counted who came."""

    arrivals: int
    expected: int


_RUNNING = re.compile(
    r"Rank (\d{1,6})(?: is running (?:inconsistent )?collective)?: (?:CollectiveFingerPrint\()?"
    r"((?:SequenceNumber=\d+(?:,? ?OpType=\w+)?|_?[A-Z][A-Z_]{3,}|OpType=\w+)(?:, ?TensorShape=\[[\d, ]*\])?"
    r"(?:, ?TensorDtypes=\w+)?)"
)
_CONNECTION_BROKEN = re.compile(
    r"Connection reset|Broken pipe|closed|refused|[Ff]ailed to recv|remote server"
)
_WAITED = re.compile(r"[Tt]ime(?:d )?[ -]?[Oo]ut|^\W*$")
"""Other errors are of the store's connection itself: no rank was waited for."""
UNHEARD = "agent-unheard"
"""The symptom of an agent whose rendezvous is gone: it is, too, when the node that holds it is done."""


_RUNNING_RANK = re.compile(r"Rank (\d{1,6}) is running\b|\bbut Rank (\d{1,6})\b")


def parse_fingerprints(text: str) -> tuple[CollectiveFingerprint, ...]:
    """Every `Rank N is running collective: ...` in a text, also cut ones."""
    shown = {int(rank): re.sub(r"\s", "", what) for rank, what in _RUNNING.findall(text)[:64]}
    for rank_running, rank_differing in _RUNNING_RANK.findall(text)[:64]:
        shown.setdefault(int(rank_running or rank_differing), "")
    return tuple(CollectiveFingerprint(rank, what) for rank, what in shown.items())


def _parameter_mismatch(match: re.Match[str]) -> CollectiveMismatch:
    """DDP's comparison of a model's parameters with those of another rank (torch, c10d/reducer.cpp)."""
    if match["one"]:
        sides = [
            (match["one"], f"{match['count']} of them"),
            (match["other"], f"{match['other_count']} of them"),
        ]
    else:
        its = f"sizes {match['other_sizes']}" if match["other_sizes"] else "other sizes"
        sides = [(match["mine"], f"sizes {match['sizes']}"), (match["process"], its)]
    shown = tuple(CollectiveFingerprint(rank_number(rank), what) for rank, what in sides if rank)
    return CollectiveMismatch(shown, "have models with different parameters")


def _store_wait(match: re.Match[str]) -> StoreWait:
    error = match["error"] or match["bare"] or ""
    dead = _CONNECTION_BROKEN.search(error) is not None
    waited = dead or _WAITED.search(error) is not None
    return StoreWait(signed(match["root"] or "0") if waited else None, dead)


def _unjoined_ranks(match: re.Match[str]) -> ClientsMissing | None:
    came, expected = bounded_integer(match["came"]), world_size(match["all"])
    return ClientsMissing(came, expected) if came < expected else None


def _task_missing(match: re.Match[str]) -> BarrierMissed:
    return BarrierMissed((rank_number(match[1]),))


def _fingerprints_differ(match: re.Match[str]) -> CollectiveMismatch | None:
    shown = parse_fingerprints(match.string)
    return CollectiveMismatch(shown) if shown or "Detected mismatch" in match.string else None


def _differs_from_rank_0(match: re.Match[str]) -> CollectiveMismatch:
    both = (CollectiveFingerprint(rank_number(match[name]), "") for name in ("mine", "other"))
    return CollectiveMismatch(tuple(both), "DeepSpeed compared what they were about to do")


_SENT = re.compile(
    r"(?:One rank|another rank) (?:sent|had|did|has|used|specified) (?:an? )?(?:[a-z]{1,12} ){0,5}?"
    r"(?P<shown>\[[\d, ]*\]|\S{1,40}) on rank (?P<rank>\d{1,6})\b"
)
"""What Horovod compared of one rank, where it names that; a `tensor of rank 2` has two dimensions."""


def _horovod_differs(match: re.Match[str]) -> CollectiveMismatch:
    sent = _SENT.finditer(match.string[: match.end() + 400])
    shown = tuple(CollectiveFingerprint(rank_number(side["rank"]), side["shown"]) for side in sent)
    return CollectiveMismatch(shown, f"gave Horovod mismatched {match['what']}")


SIGNS = read_rows(
    r"""
# gloo, transport/*/unbound_buffer.cc and buffer.cc: of the process that waited, not of its peer
GlooTimeout
    Timed out waiting (?P<milliseconds>\d+)ms for (?:recv|send) operation to complete
    |Application timeout caused pair closure|\bgloo/transport/\S{1,80}\] (?:Read|Write|Send) timeout\b
# gloo, transport/tcp/pair.cc; NCCL; strerror(3); what slurmstepd cannot write to is a task of its own
PeerGone
    ^(?!(?:slurmstepd\S{0,80}: error: )?write to unblock task )
    (?:.{0,80}\bConnection closed by (?:remote )?peer \[?(?P<peer>[\w.:-]{1,255})
    |(?:(?:Read error|Call to \w+ (?:from|to)|Write error) \[?(?P<peer2>[\w.:-]{1,255})\]?)?
    .*(?:losed by (?:remote )?peer|Connection reset by peer|Broken pipe))
# Open MPI
PeerGone
    communication peer process has unexpectedly disconnected|(?:ORTE|PRTE) has lost communication with
PEER_HOST
    ^\W*Peer host:\s+(?P<host>[\w.-]{1,255})\s*$
# torch, ProcessGroupWrapper.cpp and ProcessGroupGloo.cpp
BarrierMissed
    Ranks? (?P<ranks>[\d, ]+) failed to pass monitoredBarrier
# rank 0 asks all the others, and ends where one does not answer: who waited for it knows no culprit
BarrierMissed
    reached monitoredBarrier, but received errors while waiting for .{1,20} from rank (?P<ranks>[1-9]\d*)\b
# JAX's coordination service: a task that did not come, or that it hears nothing of
_task_missing
    ^\W*/job:\w+/replica:\d+/task:(\d+)\W*$
_task_missing
    ^/job:\w{1,64}/replica:\d+/task:(?P<rank>\d{1,7})$
HEARTBEAT_LOST
    (?:tasks? (?:are|is) unhealthy|stopped sending heartbeats)
BARRIER_VICTIM
    Rank (?P<rank>\d+) successfully reached monitoredBarrier
# gloo, transport/tcp/pair.cc
SizeMismatch
    op\.preamble\.length <= op\.nbytes\.? (?P<received>\d+) vs (?P<expected>\d+)
# torch, ProcessGroupWrapper.cpp
_fingerprints_differ
    Detected mismatch between collectives|Rank \d+(?: is running (?:inconsistent )?collective)?:[ ]
    |\bbut Rank \d+(?: is running\b|$)
# horovod/common/controller.cc: shapes, data types, operations, roots, devices and scales of one collective
_horovod_differs
    \bMismatched (?P<what>[A-Za-z][\w/ -]{2,60}): One rank (?:sent|had|did|has|used|specified)\b
    (?=.{1,300}\b[Aa]nother rank\b)
# DeepSpeed, which compares each rank with rank 0
_differs_from_rank_0
    disagree(?:ment|d|s)? (?:error )?between rank ?(?P<mine>\d+) and rank ?(?P<other>\d+)
# torch, c10d/reducer.cpp
_parameter_mismatch
    but Rank (?P<one>\d+) has (?P<count>\d+) params, while rank (?P<other>\d+) has inconsistent[ ]
    (?P<other_count>\d+)
    |(?:\[Rank (?P<mine>\d+)\].{0,20})?in this process with (?:sizes|strides) (?P<sizes>.{0,80}?)[ ]
    appears not to match (?:sizes|strides) (?:(?P<other_sizes>\[.{0,80}?) )?
    of the same param in process (?P<process>\d+)
# a bare number counts communicators, and rank 0 publishes the id of each (broadcastUniqueNCCLID)
_store_wait
    retr\w{1,9}ing ncclUniqueId from \[(?P<root>\d+)\].{1,200}store->get\([^)]{0,99}\)[ ]
    got error: (?P<error>.*)|store->get\(['"]?\d+['"]?\) got error: (?P<bare>.*)
# torch's TCPStore
ClientsMissing
    waiting for clients\. (?P<arrivals>\d+)/(?P<expected>\d+) clients joined
# _store_based_barrier of torch.distributed; a store of an earlier run counts too many
_unjoined_ranks
    Timed out initializing process group in store based barrier on rank:? (?P<rank>\d+), .{1,200}?
    \(world_size=(?P<all>\d+), (?:worker_count|num_workers_joined)=(?P<came>\d+)
# torch, c10d/TCPStore.cpp, Utils.hpp and ProcessGroupNCCL.cpp, of the connection to the store's server
STORE_LOST
    \b(?:recv\w{1,20}|send\w{1,20}) failed on SocketImpl\(|[Ff]ailed to recv, got 0 bytes
    |\bFailed to check the "should dump" flag on TCPStore
# torch's store and gloo's own, rendezvous/*_store.cc
StoreWait
    wait timeout after \d+ ?ms|\bWait timeout for key\(s\):[ ]
[network_socket_interface]
# Open MPI (help-oob-tcp.txt, help-mpi-btl-tcp.txt)
mpi-unreachable  ground=path
  Open MPI could not connect to another process: a firewall, or an address of another network
    process or daemon was unable to complete a TCP connection|Open MPI failed to TCP connect to a peer
# gloo, transport/tcp/device.cc
interface-missing  personal
  the network interface that gloo is set to use does not exist here
    Unable to find (?:address|interface) for: ?\S+
# torch, c10d/socket.cpp; the last, its TCPStore until 1.10
store-unreachable  ground=path
  the rendezvous store could not be reached
    client socket has (?:timed out after \d+ ?m?s while trying to connect|failed to connect)
    |\bconnect\(\) timed out\. Original timeout was \d+ ?ms
# gloo, rendezvous/context.cc and transport/tcp/pair.cc
mesh-failed  ground=path
  gloo could not connect the ranks with each other
    connectFullMesh failed|\[Gloo\] Rank \d+ is NOT connected to: |/pair\.cc:\d+\] [Cc]onnect timeout
# errno(3): EADDRINUSE
# NCCL's RAS answers questions on a port of its own, and a job goes on without (ras/client_support.cc)
port-in-use  personal
  the port of the rendezvous store is taken by another process
    ^(?!.*\bras/\w+\.cc:\d+).*(?:EADDRINUSE
    |(?:errno: 98|listen|bind|socket|store|port|\[Errno 98\]).*Address already in use)
# servers' own exceptions; MPICH on libfabric
port-taken  quoted  personal
  a port that the program wants is taken by another process
    \b\w{1,40}(?:Error|Exception): [Pp]ort \d{1,5} is (?:already )?in use
    |\bOFI EP enable failed \([^()]{1,120}:Address already in use\)
# torch, c10d/socket.cpp
cannot-listen  personal
  the rendezvous store could not listen on its port
    server socket has failed to listen on any
# torch/distributed/elastic/rendezvous/dynamic_rendezvous.py
rendezvous-failed  as_warning  ground=path
  the nodes did not all meet at the rendezvous
    ^(?!.*(?:keep-alive heartbeat|to shutdown the rendezvous)).*RendezvousTimeoutError
rendezvous-failed  as_warning  ground=path
  the store of the rendezvous could not be reached, or had ended
    ^(?!.*(?:keep-alive heartbeat|to shutdown the rendezvous)).*RendezvousConnectionError
agent-unheard  as_warning  ground=path
  a torchrun agent lost its connection to the rendezvous
    has failed to (?:send a keep-alive heartbeat to|shutdown) the rendezvous
# torch's store; elsewhere a name may be that of any server
host-not-found  ground=path
  the name of the master could not be resolved
    \bhost not found:[ ]
# gai_strerror(3)
name-unresolved  hint  ground=path
  a host name could not be resolved
    Name or service not known|in name resolution|Name does not resolve|cannot be resolved
    |No address associated with hostname
""",
    GlooTimeout, PeerGone, BarrierMissed, SizeMismatch,
    ClientsMissing, StoreWait, _task_missing,
    _fingerprints_differ, _horovod_differs, _differs_from_rank_0, _parameter_mismatch, _store_wait,
    _unjoined_ranks,
)  # fmt: skip
