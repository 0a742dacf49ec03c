"""Networks, storage, nodes, libraries: where no process is seen to end, or the logs do not say why."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from nodedoctor.grouping import group_by
from nodedoctor.triage.describe import (
    blameable_identities,
    describe_identities,
    distinct_ranks,
)
from nodedoctor.triage.identity.world import short_host
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import NOBODY, Candidate, Confidence, Event, Ground, Identity
from nodedoctor.triage.patterns.log_pattern import Symptom
from nodedoctor.triage.patterns.machine import DriveError, HostAddress, KernelTaskHung
from nodedoctor.triage.patterns.nccl import IbFlush, NcclError, VirtualInterface
from nodedoctor.triage.patterns.stacks import ThreadStack
from nodedoctor.triage.patterns.store import PeerGone
from nodedoctor.triage.patterns.trace import ExceptionRaised
from nodedoctor.triage.patterns.watchdog import WatchdogStuck
from nodedoctor.triage.timeline.model import Timeline, offsets_by_source
from nodedoctor.triage.timeline.node_reports import OWN_NAME, NodeFault, hosts_in_logs
from nodedoctor.triage.verdict.causes.absent import sole_silent_rank
from nodedoctor.wording import comma_list


def flushed_connection(timeline: Timeline) -> Iterator[Candidate]:
    """InfiniBand status 5 is secondary: the connection was down already, mostly because the peer ended."""
    events = timeline.of_kind(IbFlush)
    headline = f"the peer {events[0].what.peer} had already closed the InfiniBand connection"
    yield Candidate("peer_died", "echo", "low", headline, tuple(events[:3]))


def cut_connection(timeline: Timeline) -> Iterator[Candidate]:
    """A connection timed out instead of being closed: the way to the peer was cut."""
    events = [event for event in timeline.of_kind(PeerGone) if event.what.timed_out]
    if events:
        headline = f"the connection to {events[0].what.peer or 'a peer'} timed out without being closed"
        yield Candidate("network_socket_interface", "echo", "low", headline, tuple(events[:3]))


def virtual_interface(timeline: Timeline) -> Iterator[Candidate]:
    """Connections between nodes failed at a loopback or a bridge, of which each node has its own."""
    failures = group_by(_failed_connects(timeline), lambda failure: _network_of(failure[1]))
    for used in timeline.of_kind(VirtualInterface) if _is_of_several_nodes(timeline) else ():
        name, address = used.what.interface, used.what.address
        failed = [event for event, _ in failures.get(_network_of(address), ())]
        if failed:
            what = "the node's own loopback" if name == "lo" else "a network of containers"
            users = distinct_ranks(event.who for event in timeline.of_kind(VirtualInterface))
            others = {event.who.rank for event in timeline.of_kind(HostAddress)} - {None}
            culprits = tuple(users) if others > {who.rank for who in users} else ()
            who = describe_identities(culprits)
            headline = f"NCCL uses {name} ({address})" + (f" on {who}" if who else "")
            headline += f", {what}, and connections to it failed"
            ground: Ground = "compared" if culprits else "path"
            evidence = (used, *failed[:3])
            yield Candidate("network_socket_interface", ground, "medium", headline, evidence, culprits)
            return


def _failed_connects(timeline: Timeline) -> Iterator[tuple[Event[Any], str]]:
    """Errors of connections, each with the address that it was to go to."""
    for kind in (NcclError, Symptom, PeerGone):
        for event in timeline.of_kind(kind):
            if (match := _FAILED_CONNECT.search(event.text)) is not None:
                yield event, match[1]


_FAILED_CONNECT = re.compile(
    r"[cC]onnect to (\d[\d.]{6,14})(?:<\d+>)? (?:returned|failed)"
    r".{0,40}(?:[Cc]onnection refused|timed out|No route to host|unreachable)"
)


def _network_of(address: str) -> str:
    """The first three numbers of an address."""
    return address.rpartition(".")[0]


def _is_of_several_nodes(timeline: Timeline) -> bool:
    """True where a line shows a second node, or more lower ranks are elsewhere than are here."""
    ranks = timeline.ranks_seen
    lower = min(ranks, default=0) >= max(2, len(ranks))
    return lower or len(hosts_in_logs(timeline)) > 1 or timeline.has_any((Mark.SEVERAL_NODES,))


def failed_drive(timeline: Timeline) -> Iterator[Candidate]:
    """A rank could not read or write, and the kernel of its node reports a drive: not the program's error."""
    one_host = len(hosts_in_logs(timeline)) < 2
    drives = timeline.of_kind(DriveError)
    drives_by_host = group_by(drives, lambda drive: short_host(drive.who.host))
    for event in timeline.of_kind(ExceptionRaised):
        if _IO_ERROR.search(event.text) is None:
            continue
        host = short_host(event.who.host)
        own = drives if one_host else drives_by_host.get(host, []) if host else []
        if own:
            who = event.who.fill_from(Identity(host=own[-1].who.host))
            culprits = blameable_identities(who) or ((Identity(host=who.host),) if who.host else ())
            headline = f"{describe_identities(culprits) or 'a process'} could not read or write: "
            headline += f"the kernel reports errors of drive {own[-1].what.drive}"
            sure: Confidence = "high" if host and host == short_host(own[-1].who.host) else "medium"
            yield Candidate("shm_or_limits", "fault", sure, headline, (*own[-2:], event), culprits)
            return


_IO_ERROR = re.compile(r"\[Errno 5\] Input/output error|\(os error 5\)")


def loopback_name(timeline: Timeline) -> Iterator[Candidate]:
    """Ranks do not reach each other, and the name of a node is that of its own loopback."""
    names = [event for event in timeline.of_kind(NodeFault) if event.what.check == OWN_NAME]
    failed = [event for event in timeline.of_kind(Symptom) if event.what.name in _UNREACHED]
    if names and failed:
        headline = f"{failed[0].what.sentence}: {names[0].what.summary.partition(',')[0]}"
        yield Candidate("network_socket_interface", "fault", "medium", headline, (names[0], *failed[:3]))


_UNREACHED = ("mesh-failed", "store-unreachable", "connect-failed", "no-route")
"""Symptoms of a connection between ranks that did not come about."""


def node_faults(timeline: Timeline) -> Iterator[Candidate]:
    """Failed checks by cause: only where nothing better explains it, so never sure."""
    faults = [event for event in timeline.of_kind(NodeFault) if event.what.check != OWN_NAME]
    by_cause = group_by(faults, lambda event: event.what.cause)
    for cause, events in by_cause.items():
        first = events[0]
        where = f" on {first.who.host}" if first.who.host else ""
        headline = f"the logs do not say why, but {first.what.check} fails{where}: {first.what.summary}"
        yield Candidate(cause, "node", "medium", headline, tuple(events[:4]))


def stuck_watchdog(timeline: Timeline) -> Iterator[Candidate]:
    """The watchdog stopped and no collective timed out: the process was stuck, not the network."""
    beats = timeline.of_kind(WatchdogStuck)
    stuck = distinct_ranks(event.who for event in beats)
    others = len(timeline.ranks_seen) - len(stuck)
    culprits = tuple(stuck) if 0 < len(stuck) <= others // 2 else ()
    ground: Ground = "absence" if culprits else "hint"
    who = describe_identities(culprits) or "the process"
    headline = f"{who} was stuck in a call that its watchdog could not pass (GIL, CUDA, storage)"
    sure: Confidence = "medium" if culprits else "low"
    yield Candidate("cpu_stuck_or_slow_rank", ground, sure, headline, tuple(beats[:3]), culprits)


def hung_storage(timeline: Timeline) -> Iterator[Candidate]:
    """The kernel reports a task or a file server that hangs."""
    stalls = timeline.of_kind(KernelTaskHung)
    culprits = tuple(distinct_ranks(event.who for event in stalls))
    silent = sole_silent_rank(timeline, stalls) if not culprits else None
    culprits = (silent,) if silent is not None else culprits
    of_storage = [event for event in stalls if event.what.of_storage]
    report = (of_storage or stalls)[0].what.text
    if not (of_storage or _hung_in_file_system(timeline, stalls, culprits)):
        headline = f"{describe_identities(culprits) or 'a process'} hung in the kernel: {report}"
    elif culprits or len(of_storage) < len(stalls):
        headline = f"{describe_identities(culprits) or 'a process'} waits for storage that hangs: {report}"
    else:
        headline = f"storage hangs: {report}"
    yield Candidate("cpu_stuck_or_slow_rank", "absence", "medium", headline, tuple(stalls[:3]), culprits)


def _hung_in_file_system(
    timeline: Timeline, stalls: Sequence[Event[KernelTaskHung]], culprits: Sequence[Identity]
) -> bool:
    """True where the kernel's stack of a task that hung, or Python's of its rank, is in a file system."""
    first = offsets_by_source(stalls)
    ranks = {who.rank for who in culprits}
    frames = timeline.marked(Mark.STORAGE_FRAME)
    return any(first.get(e.place.source, e.place.offset) < e.place.offset for e in frames) or any(
        event.what.in_storage for event in timeline.of_kind(ThreadStack) if event.who.rank in ranks
    )


def different_nccl(timeline: Timeline) -> Iterator[Candidate]:
    """Ranks, or nodes, whose errors of NCCL name different versions of it."""
    versions: dict[Identity, tuple[str, Event[Any]]] = {}
    for event in timeline.of_kind(ExceptionRaised):
        version = _NCCL_VERSION.search(event.what.message)
        who = Identity(rank=event.who.rank, host=event.who.host if event.who.rank is None else None)
        if version is not None and who != NOBODY:
            versions.setdefault(who, (version[1], event))
    speakers = group_by(versions, lambda who: versions[who][0])
    if len(speakers) < 2:
        yield from _versions_that_met(timeline)
        return
    rows = (
        f"{version} on {describe_identities(people).removeprefix('a process on ') or 'others'}"
        for version, people in sorted(speakers.items())
    )
    evidence = tuple(replace(versions[same[0]][1], what=_DIFFER) for same in speakers.values())
    headline = f"{_DIFFER.sentence}: {', '.join(rows)}"
    yield Candidate("version_mismatch", "compared", "high", headline, evidence[:4])


def _versions_that_met(timeline: Timeline) -> Iterator[Candidate]:
    """A peer sent more than was expected at the start, and processes name different versions of NCCL."""
    truncated = [event for event in timeline.of_kind(Symptom) if event.what.name == "message-truncated"]
    versions: dict[str, Event[Any]] = {}
    announced: Sequence[Event[Any]] = timeline.marked(Mark.SET_UP) if truncated else ()
    for event in announced:
        if (version := _NCCL_VERSION.search(event.text)) is not None:
            versions.setdefault(version[1], replace(event, what=_DIFFER))
    if len(versions) > 1:
        headline = f"{_DIFFER.sentence}: {comma_list(sorted(versions), 4)}"
        evidence = (*list(versions.values())[:2], *truncated[:2])
        yield Candidate("version_mismatch", "compared", "medium", headline, evidence)


_DIFFER = Symptom("version_mismatch", "nccl-versions-differ", "ranks run different versions of NCCL")
_NCCL_VERSION = re.compile(r"\bNCCL version (\d{1,3}\.\d{1,3}\.\d{1,3})\b")
"""How torch ends its errors of NCCL (torch/csrc/distributed/c10d/NCCLUtils.cpp), and NCCL says its own."""
