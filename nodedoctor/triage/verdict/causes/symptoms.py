"""Causes that one process reports about itself or its node: hardware, memory, versions, limits."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

from nodedoctor.grouping import group_by
from nodedoctor.nodeset import fold
from nodedoctor.triage.describe import (
    blameable_identities,
    describe_briefly,
    describe_identities,
    distinct_ranks,
    identities_of,
    nodes_of,
)
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import Candidate, Cause, Confidence, Event, Ground, Identity, Owner
from nodedoctor.triage.patterns.cuda import GpuFull
from nodedoctor.triage.patterns.exits import ProcessExit
from nodedoctor.triage.patterns.frameworks import CollectiveShape
from nodedoctor.triage.patterns.host_limits import HostOom, MemoryUser
from nodedoctor.triage.patterns.kubernetes import NEVER_STARTED
from nodedoctor.triage.patterns.log_pattern import Symptom
from nodedoctor.triage.patterns.nccl import DuplicateGpu
from nodedoctor.triage.patterns.progress import SettingMentioned
from nodedoctor.triage.patterns.store import BarrierMissed, ClientsMissing, StoreWait
from nodedoctor.triage.timeline.model import Timeline
from nodedoctor.triage.verdict.causes.culprits import (
    find_culprits,
    independent_failures,
    nodes_with_ranks,
)
from nodedoctor.triage.verdict.causes.first_exits import people_of
from nodedoctor.wording import decimal

_GROUND: dict[Cause, Ground] = {
    "gpu_hardware_xid": "fault",
    "driver_problem": "fault",
    "version_mismatch": "fault",
    "nvlink_fabric": "fault",
    "shm_or_limits": "fault",
    "network_socket_interface": "fault",
    "network_ib": "path",
    "p2p_pcie_acs_iommu": "path",
    "user_code_exception": "own error",
    "collective_mismatch": "compared",
    "peer_died": "death",
    "peer_host_oom": "fault",
    "peer_cuda_oom": "own error",
    "cpu_stuck_or_slow_rank": "absence",
}
_CONSEQUENCES = {
    "cannot-map": {"open-files"},
    "cannot-listen": {"port-in-use"},
    "no-interface": {"nvshmem-no-interface"},
    "disk-full": {"dev-shm"},
    "cuda-unknown": {"driver-mismatch"},
    "driver-missing": {"driver-mismatch"},
    "fabric-in-progress": {"fabric-of-host"},
    "fabric-not-ready": {"fabric-of-host", "fabric-in-progress"},
    "diag-p2p": {"diag-pair"},
    "diag-pair": {"diag-nvlink"},
}
"""Symptoms that are only what another one looks like from elsewhere: a shared segment is an open file."""
_ONLY_WITH = {"fabric-of-host": {"fabric-in-progress", "fabric-not-ready"}}
"""Details of a fault that another line must report: servers without NVSwitches print them, too."""
_HOG = 0.1
"""Share of the memory in use that a process must hold to be the one that filled it. Ours."""
_NEAR = 0.9
"""Share of what the largest process holds, from which another one is about as large. Ours."""
_HELPER_ENDS = frozenset(("loader-ended", "pool-broken", "dask-workers-died"))
"""Symptoms of a helper that ended: a line with the signal that ended it says more."""

COLOCATED = frozenset(("vllm", "skyrl", "verl", "openrlhf"))
"""RL frameworks put an inference engine beside the trainers, on the same GPUs."""


def symptom_candidates(timeline: Timeline) -> Iterator[Candidate]:
    """Lines that point to a cause by themselves, grouped by that cause."""
    by_name = group_by(timeline.of_kind(Symptom), lambda event: (event.what.cause, event.what.name))
    names = {name for _, name in by_name}
    compared = bool(timeline.of_kind(CollectiveShape))
    signalled = any(event.what.helper for event in timeline.of_kind(ProcessExit))
    for (cause, name), events in by_name.items():
        if names & _CONSEQUENCES.get(name, set()) or not names & _ONLY_WITH.get(name, names):
            continue
        if name in _HELPER_ENDS and signalled:
            continue
        if name == "declared-mismatch" and compared:  # `collectives.declared` says more
            continue
        if name == NEVER_STARTED and (names & _NOT_MET or timeline.has_any(_NOT_MET_EVENTS)):
            yield _missing_member(cause, events)
            continue
        first = min(events, key=timeline.moment)
        what = first.what
        ground = _symptom_ground(what)
        culprits = nodes_with_ranks(timeline, [e.who for e in events]) if what.of_node else ()
        if what.personal:
            culprits = find_culprits(timeline, independent_failures(timeline, events))
        sure: Confidence = (
            "low" if ground == "hint" else "medium" if ground in ("path", "named") else what.sure
        )
        blamed = nodes_of(culprits) if what.of_node else culprits
        who = f"{describe_briefly(blamed)}: " if culprits else ""
        headline = f"{who}{_symptom_message(timeline, first, events)}"
        yield Candidate(cause, ground, sure, headline, tuple(events[:4]), culprits)


_NOT_MET = frozenset(("rendezvous-failed", "agent-unheard", "coordinator-unreachable"))
_NOT_MET_EVENTS = (ClientsMissing, StoreWait, BarrierMissed)
"""What members of a job print that wait for one which does not come."""


def _missing_member(cause: Cause, events: Sequence[Event[Symptom]]) -> Candidate:
    """A member of a job that never started: its fault explains why the others did not meet."""
    hosts = sorted({event.who.host for event in events if event.who.host})
    who = f"{fold(hosts)}: " if hosts else ""
    headline = f"{who}{events[0].what.sentence}, and the others waited for it"
    culprits = tuple(Identity(host=host) for host in hosts)
    return Candidate(cause, "fault", "medium", headline, tuple(events[:4]), culprits)


def _symptom_ground(what: Symptom) -> Ground:
    return what.ground or (_GROUND[what.cause] if what.decisive else "hint")


def _symptom_message(timeline: Timeline, event: Event[Symptom], events: Sequence[Event[Symptom]]) -> str:
    what = event.what
    peers = {match[1] for reported in events if (match := _PEER.match(reported.what.sentence))}
    if len(peers) >= FEW_PEERS:
        what_stopped = _PEER.sub(f"{len(peers)} peers", what.sentence).partition(": ")[0]
        return f"{what_stopped}: rather a switch or a fabric that they share than one of them"
    if what.name == "no-interface" and (name := _interface_in(timeline, event.place.source)):
        return f"{_INTERFACE}={name} matches no network interface"
    return f"{what.sentence} ({what.words})" if what.words else what.sentence


_PEER = re.compile(r"peer (\S+)(?= )")
FEW_PEERS = 4
"""Peers that were lost, of which hardly one is at fault: NCCL gives one address of each node. Ours."""
_INTERFACE = "NCCL_SOCKET_IFNAME"


def _interface_in(timeline: Timeline, source: str) -> str:
    """What a log gives as the interface of NCCL; '' where it gives none, or several."""
    settings = (e for e in timeline.of_kind(SettingMentioned) if e.place.source == source)
    values = {event.what.value for event in settings if event.what.name == _INTERFACE}
    return values.pop() if len(values) == 1 else ""


def host_memory(timeline: Timeline) -> Iterator[Candidate]:
    """Out of host memory, by a line of the kernel, Slurm, Kubernetes or Ray."""
    ooms = timeline.of_kind(HostOom)
    hog = _largest_process(timeline, ooms)
    by = ooms[0].what.said_by
    culprits = _memory_culprits(ooms, by, hog)
    # the kernel counts the host's processes, and a launcher in a container its own
    by_rank = any(who.rank is not None for who in culprits)
    killed = _only_killed(timeline) if by != "Ray" and not by_rank else None
    if killed is not None and (not culprits or killed.who.rank is not None):
        culprits = blameable_identities(*people_of(killed))
    what = "the host's memory"
    if any(event.what.limited for event in ooms):
        what = "the memory that its control group may use"
    headline = f"{describe_identities(culprits) or 'a process'} used up {what} (reported by {by})"
    if not culprits:
        hosts = {event.who.host for event in ooms if event.who.host}
        culprits = (Identity(rank=_sole_missing(timeline), host=hosts.pop()),) if len(hosts) == 1 else ()
        has_rank = any(who.rank is not None for who in culprits)
        who = describe_identities(culprits)
        headline = (
            f"{who} used up {what} (reported by {by})"
            if has_rank
            else _describe_memory(ooms, culprits) or headline
        )
    besides = [event for event in (hog, killed) if event is not None]
    evidence: tuple[Event[Any], ...] = (*ooms[:4], *besides)
    yield Candidate("peer_host_oom", "fault", "high", headline, evidence, culprits)


def _sole_missing(timeline: Timeline) -> int | None:
    """The only rank that a barrier or a coordinator misses."""
    ranks = {rank for event in timeline.of_kind(BarrierMissed) for rank in event.what.ranks}
    return ranks.pop() if len(ranks) == 1 else None


def _largest_process(timeline: Timeline, ooms: list[Event[HostOom]]) -> Event[MemoryUser] | None:
    """The largest process of Ray's table, if it explains how full the node was and none is about as large."""
    users = sorted(timeline.of_kind(MemoryUser), key=lambda event: -event.what.gigabytes)
    used = max(event.what.gigabytes for event in ooms)
    if not users or users[0].what.gigabytes < _HOG * used:
        return None
    largest, least = users[0], _NEAR * users[0].what.gigabytes
    rivals = (event for event in users if event.who != largest.who and event.what.gigabytes >= least)
    return None if any(rivals) else largest


def _memory_culprits(
    ooms: list[Event[HostOom]], by: str, hog: Event[MemoryUser] | None
) -> tuple[Identity, ...]:
    """The processes that the lines name; with Ray the largest in its table."""
    if by == "Ray" and hog is not None:
        hosts = {event.who.host for event in ooms if event.who.host}
        full_host = hosts.pop() if len(hosts) == 1 else None
        return blameable_identities(hog.who.fill_from(Identity(host=full_host)))
    personal = [e for e in ooms if e.what.said_by != "Ray" or hog is None]
    ranks = tuple(distinct_ranks(who for e in personal for who in people_of(e) if who.rank is not None))
    return ranks or (blameable_identities(*(e.who for e in ooms if e.what.pid)) if by == "the kernel" else ())


def _describe_memory(ooms: list[Event[HostOom]], nodes: tuple[Identity, ...]) -> str:
    """The headline where no line names the process that filled the memory, or ''."""
    full = next((event for event in ooms if event.what.share), None)
    if full is not None:
        where = f" of {full.who.host}" if full.who.host else ""
        return (
            f"the memory{where} was full ({full.what.share}), and Ray killed process"
            f" {full.what.pid}, its newest, which need not be the one that filled it"
        )
    return f"the memory of {nodes[0].host} was used up (reported by {ooms[0].what.said_by})" if nodes else ""


def _only_killed(timeline: Timeline) -> Event[ProcessExit] | None:
    """The one process that a launcher or a shell saw end by SIGKILL."""
    killed = [e for e in timeline.of_kind(ProcessExit) if e.what.signal == 9 and not e.what.helper]
    people = blameable_identities(*(who for event in killed for who in people_of(event)))
    return killed[0] if len(people) == 1 else None


def gpu_memory(timeline: Timeline) -> Iterator[Candidate]:
    """One rank had no GPU memory left; the others only waited for it."""
    full = timeline.of_kind(GpuFull)
    early = independent_failures(timeline, full)
    culprits = find_culprits(timeline, early)
    crowded = [event for event in early if event.what.crowded and not _is_in_job(timeline, event.what.holder)]
    headline = f"{describe_identities(culprits) or 'a process'} ran out of GPU memory"
    if crowded:
        what = crowded[0].what
        headline += f": {_memory_holders(what)} held {what.others:.0f} of its {what.total:.0f} GiB"
    elif sizes := [
        (what.wanted, what.free, what.total)
        for what in (event.what for event in early)
        if what.wanted and what.free is not None
    ]:
        wanted, free, total = sizes[0]
        headline += f": {wanted} wanted, {decimal(free, 3)} of {decimal(total, 4)} GiB free"
    shared = not COLOCATED.isdisjoint(timeline.settings)
    owner: Owner | None = "NODE" if crowded and not shared and not _is_on_wrong_gpu(crowded[0].who) else None
    evidence = tuple([*crowded[:1], *(event for event in early if event not in crowded[:1])][:4])
    yield Candidate("peer_cuda_oom", "own error", "high", headline, evidence, culprits, owner=owner)


def _memory_holders(what: GpuFull) -> str:
    """Who else held memory; a process is named alone only if it was alone."""
    if what.holder is None:
        return "other processes"
    largest = f"process {what.holder}"
    return largest if what.holders == 1 else f"{what.holders} other processes, most of all {largest},"


def _is_on_wrong_gpu(who: Identity) -> bool:
    """True for a rank that used a GPU of another number.

    Then other ranks of the job may be on it, too.
    """
    return who.rank is not None and who.gpu is not None and who.gpu not in (who.rank, who.local_rank)


def _is_in_job(timeline: Timeline, pid: int | None) -> bool:
    """True for a process of which the logs show more than that it holds memory."""
    return pid is not None and pid in timeline.pids


def duplicate_gpu(timeline: Timeline) -> Iterator[Candidate]:
    """Two ranks on one GPU: more ranks than GPUs, or a wrong CUDA_VISIBLE_DEVICES."""
    events = timeline.of_kind(DuplicateGpu)
    ranks = sorted({rank for event in events for rank in event.what.ranks})
    culprits = identities_of(ranks)
    headline = f"{describe_identities(culprits)} were started on the same GPU"
    yield Candidate("user_code_exception", "own error", "high", headline, tuple(events[:4]), culprits)


def left_early(timeline: Timeline) -> Iterator[Candidate]:
    """A rank that took its communicators down before the others gave up waiting."""
    waiting = timeline.waiting_ranks
    teardowns = [
        e
        for e in timeline.marked(Mark.COMMUNICATOR_DESTROYED)
        if not timeline.late(e) and e.who.rank not in waiting and waiting
    ]
    culprits = tuple(distinct_ranks(event.who for event in teardowns))
    if culprits:
        headline = (
            f"{describe_identities(culprits)} ended its process groups and left while the others waited"
        )
        yield Candidate(
            "user_code_exception", "own error", "medium", headline, tuple(teardowns[:4]), culprits
        )
