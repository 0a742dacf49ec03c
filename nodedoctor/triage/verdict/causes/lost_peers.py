"""A node or a peer went away, as those report it that lost it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from nodedoctor.record import replace
from nodedoctor.triage.describe import (
    blameable_identities,
    describe_identities,
    distinct_ranks,
    identities_of,
)
from nodedoctor.triage.identity.world import is_address, short_host
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import Candidate, Cause, Confidence, Event, Identity, Owner
from nodedoctor.triage.patterns.exits import (
    LeftFirst,
    ProcessExit,
)
from nodedoctor.triage.patterns.machine import HostAddress, NodeLost
from nodedoctor.triage.patterns.nccl import Communicator
from nodedoctor.triage.patterns.store import BarrierMissed, PeerGone, StoreWait
from nodedoctor.triage.timeline.model import Timeline, is_trouble
from nodedoctor.triage.verdict.causes.culprits import ranks_by_node
from nodedoctor.triage.verdict.causes.first_exits import (
    first_end,
)


def nodes_lost(timeline: Timeline) -> Iterator[Candidate]:
    """A scheduler reports a whole node as gone."""
    losses = timeline.of_kind(NodeLost)
    by_name = [event for event in losses if event.who.host and event.who.host in event.text]
    hosts = sorted({event.who.host for event in by_name or losses if event.who.host})
    headline = f"the node {', '.join(hosts)} was lost" if hosts else "a whole node was lost"
    if all(event.what.unstarted for event in losses):
        who, what = ("nodes", "their tasks") if hosts[1:] else ("the node", "its task")
        headline = f"{who} {', '.join(hosts)} did not start {what}: {losses[0].what.unstarted}"
    missed = {rank for event in timeline.of_kind(BarrierMissed) for rank in event.what.ranks}
    its_rank = missed.pop() if len(missed) == len(hosts) == 1 else None
    culprits = tuple(Identity(rank=its_rank, host=host) for host in hosts)
    by_node = ranks_by_node(timeline)
    if its_rank is None and all(short_host(host) in by_node for host in hosts):
        culprits = tuple(who for host in hosts for who in by_node[short_host(host)])
        culprits = culprits or next((candidate.culprits for candidate in node_silent(timeline)), ())
    refused = all(_REQUEST_ERRORS.search(event.what.unstarted) for event in losses)
    cause: Cause = "user_code_exception" if refused else "peer_died"
    owner: Owner = "CONFIG" if refused else "NODE"
    yield Candidate(cause, "death", "high", headline, tuple(losses[:4]), culprits, owner=owner)


_REQUEST_ERRORS = re.compile(
    r"\bbind|[Ii]nvalid|[Uu]nable to satisfy|not permitted|[Pp]ermission denied|No such file"
)
"""Reasons of srun not to start a task that lie in what was asked for."""


def store_host_gone(timeline: Timeline) -> Iterator[Candidate]:
    """A rank lost the connection while it waited for what another one had to publish."""
    waits = [
        event for event in timeline.of_kind(StoreWait) if event.what.dead and event.what.rank is not None
    ]
    if waits:
        culprits = tuple(distinct_ranks(Identity(rank=event.what.rank) for event in waits))
        headline = f"{describe_identities(culprits)} exited before it published what the others need to start"
        yield Candidate("peer_died", "death", "medium", headline, tuple(waits[:4]), culprits)


def connections_closed(timeline: Timeline) -> Iterator[Candidate]:
    """Only victims have lines: a peer closed its connections, as processes do when they end."""
    closed = [
        event for event in timeline.of_kind(PeerGone) if not event.what.timed_out and not timeline.late(event)
    ]
    if not closed or timeline.waits:
        return
    victims = {event.who.rank for event in closed if event.who.rank is not None}
    silent = _silent_ranks(timeline, victims)
    if silent == [0] and timeline.marked(Mark.BARRIER_VICTIM):
        silent = []  # it ends where another one does not answer it
    if not silent and (peers := _lost_peers(timeline, closed)):
        who, trace = describe_identities(peers), "no line of its own is here"
        if peers[0].rank is not None:
            trace = f"{'they' if peers[1:] else 'it'} left no line that says why"
        headline = f"{who} exited or was cut off, as its peers report; {trace}"
        proof = (*closed[:3], *timeline.marked(Mark.PEER_HOST)[:1])
        yield Candidate("peer_died", "echo", "low", headline, proof, peers)
        return
    certain = len(silent) == 1 or (bool(silent) and _cut_off(timeline, silent))
    culprits = identities_of(silent) if certain else ()
    parties = () if certain else identities_of(silent)
    ends = _ends_of(timeline, culprits) if len(culprits) == 1 else []
    if ends:
        code = ends[0].what.code
        headline = (
            f"{describe_identities(culprits)} ended with exit code {code}, and left no line that says why"
        )
        yield Candidate("peer_died", "death", "medium", headline, (*ends[:2], *closed[:2]), culprits)
        return
    suspects = f"a peer, at least one of {describe_identities(parties)}," if parties else "a peer"
    if culprits[1:]:
        headline = f"{describe_identities(culprits)} ended together without a message, as when a node is lost"
    elif culprits:
        headline = (
            f"{describe_identities(culprits)} closed its connections: its process ended, and it left "
            f"no line {'that says why' if timeline.ranks_seen.issuperset(silent) else 'of its own'}"
        )
    else:
        headline = f"{suspects} closed its connections: its process ended, and no line of its own is here"
    confidence: Confidence = "medium" if culprits and _cut_off(timeline, silent) else "low"
    yield Candidate("peer_died", "echo", confidence, headline, tuple(closed[:4]), culprits, parties=parties)


def left_first(timeline: Timeline) -> Iterator[Candidate]:
    """A rank ended by itself before all others; surer where these say that they lost a connection.

    Where how they ended is unknown, the job may have come to its end: only a lost connection tells that not.
    """
    leavers, lost_connections = timeline.of_kind(LeftFirst), timeline.of_kind(PeerGone)
    first: list[Event[Any]] = [*leavers, *(timeline.marked(Mark.ENDED_FIRST) if lost_connections else ())]
    if not first:
        return
    who = blameable_identities(first[0].who)
    how = leavers[0].what.how if leavers else ""
    headline = f"{describe_identities(who)} ended {how}before all others, and these failed"
    sure: Confidence = "medium" if leavers and lost_connections else "low"
    yield Candidate("peer_died", "death", sure, headline, (*first[:1], *lost_connections[:3]), who)


def _ends_of(timeline: Timeline, people: Sequence[Identity]) -> list[Event[ProcessExit]]:
    """The ends of these ranks with an exit code, where no launcher saw another end before."""
    end = first_end(timeline)
    ranks = {who.rank for who in people}
    return list(end.ends) if end is not None and {who.rank for who in end.people} == ranks else []


def _lost_peers(timeline: Timeline, closed: Sequence[Event[PeerGone]]) -> tuple[Identity, ...]:
    """The rank or node that all notices name, where it has no trouble of its own: no victim lost it first.

    Its ranks, where all others lost it.
    """
    notices = {event.who.host for event in timeline.marked(Mark.PEER_HOST)}
    at_address = {e.what.address: e.who.host for e in timeline.of_kind(HostAddress) if e.who.host}
    addresses = (event.what.peer.partition("<")[0] for event in closed if event.what.peer)
    peers = {short_host(at_address.get(address, address)) for address in addresses}
    hosts = notices or {host for host in peers if not is_address(host)}
    host = hosts.pop() if len(hosts) == 1 else None
    on_host = [
        event
        for event in timeline.events
        if event.what is not Mark.PEER_HOST and short_host(event.who.host) == short_host(host)
    ]
    if host is None or any(map(is_trouble, on_host)):
        return ()
    ranks = distinct_ranks(event.who for event in on_host)
    others = timeline.ranks_seen - {who.rank for who in ranks}
    if len(ranks) == 1 or (ranks and others and others <= {event.who.rank for event in timeline.trouble}):
        return tuple(replace(who, host=host) for who in ranks)
    return (Identity(host=host),)


def node_silent(timeline: Timeline) -> Iterator[Candidate]:
    """All ranks of the other nodes waited, and this node's log ends without trouble.

    For fewer ranks than a third of the world `missing.silent_ranks` decides, however they are spread.
    """
    waited = timeline.waiting_ranks
    silent = sorted(timeline.ranks_seen - waited)
    world = set(range(max(timeline.expected or 0, len(timeline.ranks_seen))))
    same_call = len({wait.work.signature for wait in timeline.waits}) == 1 and not timeline.folded
    many = 1 < len(silent) <= len(waited) < 3 * len(silent) and waited | set(silent) == world
    if same_call and many and _cut_off(timeline, silent):
        culprits = identities_of(silent)
        waits = tuple(wait.event for wait in timeline.waits[:4])
        headline = (
            f"{describe_identities(culprits)} stopped without a message, as when a node is lost; the "
            "others waited"
        )
        yield Candidate("peer_died", "absence", "low", headline, waits, culprits)


def _silent_ranks(timeline: Timeline, victims: set[int]) -> list[int]:
    """The ranks that saw no connection close, where enough others did."""
    if len(victims) < 2 or timeline.folded:
        return []
    ranks = timeline.ranks_seen | set(range(max(timeline.expected or 0, max(victims) + 1)))
    silent = sorted(ranks - victims)
    quiet = _quiet_in_own_files(timeline, silent)
    silent = quiet or silent
    return silent if len(silent) <= len(victims) else []


def _quiet_in_own_files(timeline: Timeline, ranks: Sequence[int]) -> list[int]:
    """Those of some ranks whose file ends without a complaint or an abort; each rank has one file."""
    files: dict[int, set[str]] = {}
    for event in (*timeline.events, *timeline.last_lines):
        if event.who.rank is not None:
            files.setdefault(event.who.rank, set()).add(event.place.source)
    sources = [source for of_rank in files.values() for source in of_rank]
    if len(sources) != len(files) or len(set(sources)) != len(files):
        return []
    complaining = {e.who.rank for e in (*timeline.trouble, *timeline.marked(Mark.STORE_LOST))}
    complaining |= {e.who.rank for e in timeline.of_kind(Communicator) if e.what.is_aborted}
    return [rank for rank in ranks if rank in files and rank not in complaining]


def _cut_off(timeline: Timeline, silent: list[int]) -> bool:
    """True when a log of these ranks only, a node's own, ends without trouble."""
    events = [event for event in timeline.events if event.who.rank in silent]
    sources = {event.place.source for event in events}
    ranks = {e.who.rank for e in timeline.events if e.place.source in sources and e.who.rank is not None}
    calm = not any(event.who.rank in silent or event.place.source in sources for event in timeline.trouble)
    return len(sources) == 1 and ranks == set(silent) and calm
