"""Gloo, the TCP store, monitored barriers, DETAIL's collective checks: who waits for whom at start."""

from __future__ import annotations

import re

from nodedoctor.record import record
from nodedoctor.triage.events.log_pattern import (
    LogPattern,
    bounded_integer,
    log_pattern,
    optional_integer,
    rank_number,
    ranks_in,
    symptom_pattern,
    world_size,
)
from nodedoctor.triage.model import Cause


@record
class GlooTimeout:
    """A gloo operation of the process waited in vain: it says nothing about the culprit."""

    milliseconds: int | None


@record
class PeerGone:
    """A connection to a peer broke: that peer's process ended, or the way to it did."""

    peer: str
    timed_out: bool = False


@record
class PeerHost:
    """Open MPI's name of the node whose process it lost; the line stands below what it says of the loss."""


@record
class BarrierMissed:
    """A monitored barrier, or who counts who came, names the ranks that did not come."""

    ranks: tuple[int, ...]
    where: str = "the barrier"
    passing: bool = False
    """They may still come: the others went on waiting."""


@record
class HeartbeatLost:
    """A coordinator hears nothing of some tasks any more; lines behind it name them."""


@record
class BarrierVictim:
    """This rank reached the monitored barrier and was let down."""


@record
class SizeMismatch:
    """Gloo got more bytes than its buffer holds; the rank with the smaller buffer prints it."""

    received: int
    expected: int


@record
class CollectiveFingerprint:
    """What one rank was running, as DETAIL compared it."""

    rank: int
    shown: str

    @property
    def kind(self) -> str:
        """The collective's name, as `ALLREDUCE`."""
        found = re.search(r"OpType=(\w+)|^(_?[A-Z][A-Z_]{3,})", self.shown)
        return found[1] or found[2] if found else ""

    @property
    def tensors(self) -> str:
        """Shape and type of its tensors, as `[4, 128] Float`."""
        shape = re.search(r"TensorShape=(\[[\d,]*\])", self.shown)
        kind = re.search(r"TensorDtypes=(\w+)", self.shown)
        return " ".join(found[1].replace(",", ", ") for found in (shape, kind) if found)


CALLED_DIFFERENT = "the ranks called different collectives at the same time"


@record
class CollectiveMismatch:
    """Ranks were compared and differ: in DETAIL's collectives or in DDP's parameters.

    Fingerprints may follow on their own lines.
    """

    fingerprints: tuple[CollectiveFingerprint, ...]
    about: str = CALLED_DIFFERENT


@record
class StoreWait:
    """A rank waited for a key that `rank` had to publish."""

    rank: int | None
    dead: bool


@record
class ClientsMissing:
    """The store counted who came."""

    joined: int
    expected: int


_RUNNING = re.compile(
    r"Rank (\d{1,6})(?: is running (?:inconsistent )?collective)?: (?:CollectiveFingerPrint\()?"
    r"((?:SequenceNumber=\d+(?:,? ?OpType=\w+)?|_?[A-Z][A-Z_]{3,}|OpType=\w+)(?:, ?TensorShape=\[[\d, ]*\])?"
    r"(?:, ?TensorDtypes=\w+)?)"
)
_CUT = re.compile(r"Connection reset|Broken pipe|closed|refused|[Ff]ailed to recv|remote server")
_WAITED = re.compile(r"[Tt]ime(?:d )?[ -]?[Oo]ut|^\W*$")
"""Other errors are of the store's connection itself, and nobody was waited for."""
UNHEARD = "agent-unheard"
"""The symptom of an agent whose rendezvous is gone: it is, too, when the node that holds it is done."""
_SOCKET: Cause = "network_socket_interface"


_NAMED = re.compile(r"Rank (\d{1,6}) is running\b|\bbut Rank (\d{1,6})\b")


def parse_fingerprints(text: str) -> tuple[CollectiveFingerprint, ...]:
    """Every `Rank N is running collective: ...` in a text, without its collective where the line ends."""
    shown = {int(rank): re.sub(r"\s", "", what) for rank, what in _RUNNING.findall(text)[:64]}
    for one, other in _NAMED.findall(text)[:64]:
        shown.setdefault(int(one or other), "")
    return tuple(CollectiveFingerprint(rank, what) for rank, what in shown.items())


def _parameter_mismatch(found: re.Match[str]) -> CollectiveMismatch:
    """DDP's comparison of a model's parameters with those of another rank (torch, c10d/reducer.cpp)."""
    if found["one"]:
        told = [
            (found["one"], f"{found['count']} of them"),
            (found["other"], f"{found['other_count']} of them"),
        ]
    else:
        its = f"sizes {found['other_sizes']}" if found["other_sizes"] else "other sizes"
        told = [(found["mine"], f"sizes {found['sizes']}"), (found["process"], its)]
    shown = tuple(CollectiveFingerprint(rank_number(rank), what) for rank, what in told if rank)
    return CollectiveMismatch(shown, "their models do not have the same parameters")


def _store_wait(found: re.Match[str]) -> StoreWait:
    error = found["error"] or found["bare"] or ""
    dead = _CUT.search(error) is not None
    waited = dead or _WAITED.search(error) is not None
    return StoreWait(optional_integer(found["root"] or "0") if waited else None, dead)


def _unjoined_ranks(found: re.Match[str]) -> ClientsMissing | None:
    came, expected = bounded_integer(found["came"]), world_size(found["all"])
    return ClientsMissing(came, expected) if came < expected else None


SIGNS: tuple[LogPattern, ...] = (
    log_pattern(  # nvidia-resiliency-ext, fault_tolerance/rank_monitor_server.py
        r"rank=(?P<rank>\d{1,7})\b.{0,20}(?:Section '(?P<section>[\w.-]{1,60})' has been open for"
        r"|Did not get (?:initial|subsequent) heartbeat)",
        lambda found: BarrierMissed(
            ranks_in(found["rank"]),
            f"the end of its section {found['section']}" if found["section"] else "its next heartbeat",
        ),
    ),
    log_pattern(
        # gloo, transport/*/unbound_buffer.cc and buffer.cc: of the process that waited, not of its peer
        r"Timed out waiting (\d+)ms for (?:recv|send) operation to complete"
        r"|Application timeout caused pair closure|\bgloo/transport/\S{1,80}\] (?:Read|Write|Send) timeout\b",
        lambda found: GlooTimeout(optional_integer(found[1])),
    ),
    log_pattern(
        r"^(?:(?:Connection closed by (?:remote )?peer|Read error|Call to \w+ (?:from|to)|Write error) "
        r"\[?(?P<peer>[\w.:-]{1,255})\]?)?"
        r".*(?:losed by (?:remote )?peer|Connection reset by peer|Broken pipe)",
        lambda found: PeerGone(found["peer"] or ""),
    ),
    log_pattern(
        r"communication peer process has unexpectedly disconnected|ORTE has lost communication with",
        lambda _: PeerGone(""),
    ),
    log_pattern(r"^\W*Peer host:\s+(?P<host>[\w.-]{1,255})\s*$", lambda _: PeerHost()),
    log_pattern(
        r"Ranks? ([\d, ]+) failed to pass monitoredBarrier",
        lambda found: BarrierMissed(ranks_in(found[1])),
    ),
    log_pattern(  # JAX's coordination service: a task that did not come, or that it hears nothing of
        r"^\W*/job:\w+/replica:\d+/task:(?P<task>\d+)\W*$",
        lambda found: BarrierMissed((rank_number(found["task"]),)),
    ),
    log_pattern(
        r"(?:tasks? (?:are|is) unhealthy|stopped sending heartbeats)",
        lambda _: HeartbeatLost(),
    ),
    log_pattern(
        r"Rank (?P<rank>\d+) successfully reached monitoredBarrier",
        lambda _: BarrierVictim(),
    ),
    log_pattern(
        r"op\.preamble\.length <= op\.nbytes\.? (\d+) vs (\d+)",
        lambda found: SizeMismatch(bounded_integer(found[1]), bounded_integer(found[2])),
    ),
    log_pattern(
        r"Detected mismatch between collectives|Rank \d+(?: is running (?:inconsistent )?collective)?: "
        r"|\bbut Rank \d+(?: is running\b|$)",
        lambda found: (
            CollectiveMismatch(parse_fingerprints(found.string))
            if "Detected mismatch" in found.string or parse_fingerprints(found.string)
            else None
        ),
    ),
    log_pattern(  # of DeepSpeed, which compares each rank with rank 0
        r"disagree(?:ment|d|s)? (?:error )?between rank ?(?P<mine>\d+) and rank ?(?P<other>\d+)",
        lambda found: CollectiveMismatch(
            tuple(CollectiveFingerprint(rank_number(found[name]), "") for name in ("mine", "other")),
            "DeepSpeed compared what they were about to do",
        ),
    ),
    log_pattern(
        r"but Rank (?P<one>\d+) has (?P<count>\d+) params, while rank (?P<other>\d+) has inconsistent"
        r" (?P<other_count>\d+)"
        r"|(?:\[Rank (?P<mine>\d+)\].{0,20})?in this process with (?:sizes|strides) (?P<sizes>.{0,80}?)"
        r" appears not to match (?:sizes|strides) (?:(?P<other_sizes>\[.{0,80}?) )?"
        r"of the same param in process (?P<process>\d+)",
        _parameter_mismatch,
    ),
    log_pattern(
        # a bare number counts communicators, and rank 0 publishes the id of each (broadcastUniqueNCCLID)
        r"retr\w{1,9}ing ncclUniqueId from \[(?P<root>\d+)\].{1,200}store->get\([^)]{0,99}\)"
        r" got error: (?P<error>.*)"
        r"|store->get\(['\"]?\d+['\"]?\) got error: (?P<bare>.*)",
        _store_wait,
    ),
    log_pattern(
        r"waiting for clients\. (\d+)/(\d+) clients joined",
        lambda found: ClientsMissing(bounded_integer(found[1]), bounded_integer(found[2])),
    ),
    log_pattern(  # _store_based_barrier of torch.distributed; a store of an earlier run counts too many
        r"Timed out initializing process group in store based barrier on rank:? (?P<rank>\d+), .{1,200}?"
        r"\(world_size=(?P<all>\d+), (?:worker_count|num_workers_joined)=(?P<came>\d+)",
        _unjoined_ranks,
    ),
    log_pattern(  # torch's store and gloo's own, rendezvous/*_store.cc
        r"wait timeout after \d+ ?ms|\bWait timeout for key\(s\): ",
        lambda _: StoreWait(None, False),
    ),
    symptom_pattern(
        _SOCKET,
        "interface-missing",
        r"Unable to find (?:address|interface) for: ?\S+",
        "the network interface that gloo is set to use does not exist here",
        personal=True,
    ),
    symptom_pattern(
        _SOCKET,
        "store-unreachable",
        r"client socket has (?:timed out after \d+ ?m?s while trying to connect|failed to connect)"
        r"|\bconnect\(\) timed out\. Original timeout was \d+ ?ms",  # torch's TCPStore until 1.10
        "the rendezvous store could not be reached",
    ),
    symptom_pattern(
        _SOCKET,
        "mesh-failed",
        r"connectFullMesh failed|\[Gloo\] Rank \d+ is NOT connected to: |/pair\.cc:\d+\] [Cc]onnect timeout",
        "gloo could not connect the ranks with each other",
    ),
    symptom_pattern(
        _SOCKET,
        "port-in-use",
        # NCCL's RAS answers questions on a port of its own, and a job goes on without (ras/client_support.cc)
        r"^(?!.*\bras/\w+\.cc:\d+).*(?:EADDRINUSE"
        r"|(?:errno: 98|listen|bind|socket|store|port|\[Errno 98\]).*Address already in use)",
        "the port of the rendezvous store is taken by another process",
        personal=True,
    ),
    symptom_pattern(
        _SOCKET,
        "port-taken",
        r"\b\w{1,40}(?:Error|Exception): [Pp]ort \d{1,5} is (?:already )?in use"
        r"|\bOFI EP enable failed \([^()]{1,120}:Address already in use\)",  # MPICH on libfabric
        "a port that the program wants is taken by another process",
        quoted=True,
        personal=True,
    ),
    symptom_pattern(
        _SOCKET,
        "cannot-listen",
        r"server socket has failed to listen on any",
        "the rendezvous store could not listen on its port",
        personal=True,
    ),
    symptom_pattern(
        _SOCKET,
        "rendezvous-failed",
        r"^(?!.*(?:keep-alive heartbeat|to shutdown the rendezvous)).*Rendezvous(?:Timeout|Connection)Error",
        "the nodes did not all meet at the rendezvous",
        as_warning=True,
    ),
    symptom_pattern(  # torch/distributed/elastic/rendezvous/dynamic_rendezvous.py
        _SOCKET,
        UNHEARD,
        r"has failed to (?:send a keep-alive heartbeat to|shutdown) the rendezvous",
        "an agent of torchrun could not reach the rendezvous any more",
        as_warning=True,
    ),
    symptom_pattern(
        _SOCKET,
        "host-not-found",
        r"\bhost not found: ",  # of torch's store; elsewhere a name may be that of any server
        "the name of the master could not be resolved",
    ),
    symptom_pattern(
        _SOCKET,
        "name-unresolved",
        r"Name or service not known|in name resolution|Name does not resolve|cannot be resolved"
        r"|No address associated with hostname",
        "a host name could not be resolved",
        decisive=False,
    ),
)
