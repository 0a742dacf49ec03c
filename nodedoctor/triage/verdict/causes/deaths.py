"""A process or node went away and nothing better explains it."""

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
from nodedoctor.triage.model import Candidate, Cause, Confidence, Event, Ground, Identity, Owner
from nodedoctor.triage.patterns.exits import (
    FAULT_SIGNALS,
    OF_SRUN,
    LauncherSignalled,
    LeftFirst,
    PeersTerminated,
    ProcessExit,
)
from nodedoctor.triage.patterns.job_stopped import CancelledByUser
from nodedoctor.triage.patterns.log_pattern import SIGNALS
from nodedoctor.triage.patterns.machine import HostAddress, NodeLost
from nodedoctor.triage.patterns.nccl import Communicator, NcclError
from nodedoctor.triage.patterns.ray import ActorDied
from nodedoctor.triage.patterns.store import BarrierMissed, PeerGone, StoreWait
from nodedoctor.triage.patterns.watchdog import CollectiveFailed, ProcessAborting, WatchdogStuck
from nodedoctor.triage.timeline.model import Timeline, follows_timeout, is_trouble, offsets_by_source
from nodedoctor.triage.verdict.causes.culprits import ranks_by_node, sole_failure
from nodedoctor.triage.verdict.causes.first_exits import (
    all_reported,
    before_stop,
    first_end,
    is_during_abort,
    people_of,
    self_reported,
)

_ACTOR_BLOCK = 200
"""Bytes from the pid of a dead actor to its name, the next line of Ray's list (python/ray/exceptions.py), in
front of which launchers may put a prefix."""

_SIGNALS = {number: name for name, number in SIGNALS.items() if name.startswith("SIG")}


def killed_by_signal(timeline: Timeline) -> Iterator[Candidate]:
    """The first process that a signal ended, other than a launcher's or a watchdog's."""
    forced = {event.who.pid for event in timeline.marked(Mark.FORCE_KILLED)}
    given_up = _steps_given_up(timeline)
    aborts = offsets_by_source(e for e in timeline.of_kind(ProcessExit) if e.what.ends_all)
    began = min((event.what.at for event in timeline.of_kind(ProcessExit) if event.what.at), default="")
    deaths = [
        e
        for e in timeline.of_kind(ProcessExit)
        if e.what.at <= began
        and _is_own_signal(timeline, e, forced)
        and not _killed_for_another(e, aborts)
        and not _ended_with_step(e, given_up)
    ]
    if not deaths:
        return
    first = _first_look(deaths) or _before_stop(timeline, deaths)
    if not first:
        return
    hard = [event for event in first if event.what.signal != 6]
    chosen = hard or first
    signal = chosen[0].what.signal
    has_names = any(
        event.who != Identity() or event.what.tasks for event in chosen
    )  # else all came behind the stop
    if signal in FAULT_SIGNALS and has_names and not any(event.what.first for event in deaths):
        ids = {id(event) for event in chosen}
        chosen = [*chosen, *(event for event in deaths if id(event) not in ids)]  # no launcher sends one
    chosen = [event for event in chosen if event.what.signal == signal]
    people = tuple(distinct_ranks(who for e in chosen for who in people_of(e)))
    people = people or sole_failure(timeline) or blameable_identities(*(e.who for e in chosen if e.who.pid))
    ordered = len(people) == 1 or any(event.what.first for event in chosen) or all_reported(chosen)
    helper = chosen[0].what.helper if all(event.what.helper for event in chosen) else ""
    # victims abort too, often before the guilty rank
    culprits = people if ordered and (signal != 6 or helper) else ()
    name = _SIGNALS.get(signal or 0, f"signal {signal}")
    who = describe_identities(people) or ("" if helper else "a process")
    if helper:
        who = f"a {helper}" + (f" of {who}" if who else "")
    were = "were" if not helper and len(people) > 1 else "was"
    unknown = not people and not helper and bool(timeline.waits)  # a launcher that somebody killed, or a rank
    ground: Ground = "hint" if unknown else "death" if signal != 6 or helper else "echo"
    sure: Confidence = "high" if culprits else "medium"
    headline, parties = f"{who} {were} killed by {name}", () if culprits else people
    yield Candidate("peer_died", ground, sure, headline, tuple(chosen[:4]), culprits, parties=parties)


def ray_deaths(timeline: Timeline) -> Iterator[Candidate]:
    """Ray noticed a dead worker. Its list of possible reasons is constant text.

    A worker that gave up waiting ends itself, and Ray then finds it dead: what Ray says of it, or says only
    after the first timeout, follows from the timeout and is no cause. Where these logs do not go back to the
    timeout, the dead worker may be such a one: so the confidence is low.
    """
    died = [event for event in timeline.of_kind(ActorDied) if not follows_timeout(timeline, event)]
    if not died:
        return
    reports: list[Event[Any]] = [*died, *timeline.marked(Mark.ACTOR_PID)]
    processes = [
        e for e in reports if e.who.pid is not None or (e.what is Mark.ACTOR_PID and e.who.rank is not None)
    ]
    processes = [event for event in processes if not follows_timeout(timeline, event)]
    culprits = blameable_identities(*(_add_pid(event, processes) for event in processes))
    worker = f"Ray's worker {describe_identities(culprits)}".rstrip()
    headline, evidence = f"{worker} exited, and Ray does not know why", tuple([*died, *processes][:4])
    yield Candidate("peer_died", "death", "low", headline, evidence, culprits[:1])


def _add_pid(event: Event[Any], processes: Sequence[Event[Any]]) -> Identity:
    """The identity of a dead actor, with the pid that Ray lists right above it."""
    above = [
        process.who.pid
        for process in processes
        if process.place.source == event.place.source
        and process.who.pid is not None
        and 0 < event.place.offset - process.place.offset < _ACTOR_BLOCK
    ]
    return replace(event.who, pid=above[-1]) if event.who.pid is None and above else event.who


def launcher_signalled(timeline: Timeline) -> Iterator[Candidate]:
    """The launcher got a signal from outside: nothing in the job failed.

    Where a process had ended by itself before, in the same log, that is why a scheduler stopped the rest.
    A job that is stopped after its ranks had given up waiting hung before: somebody ended what was dead.
    """
    stops = timeline.of_kind(LauncherSignalled)
    late = {event.place.source for event in stops if timeline.late(event)}
    signals = [
        event
        for event in stops
        if not _stopped_for_an_end(timeline, event) and event.place.source not in late
    ]
    if not signals:
        return
    signal = signals[0].what.signal
    name = _SIGNALS.get(signal, f"signal {signal}")
    why = {
        1: "the terminal or the ssh session that it ran in was closed",
        15: "a scheduler, the kubelet or a person ended it",
        2: "somebody pressed Ctrl-C",
    }.get(signal, "somebody else sent it")
    target = signals[0].what.what
    headline = f"{'the' if target == 'launcher' else 'a'} {target} was stopped by {name}: {why}"
    owner: Owner | None = "CONFIG" if signal == 1 else None
    yield Candidate("peer_died", "death", "medium", headline, tuple(signals[:3]), owner=owner)


def _stopped_for_an_end(timeline: Timeline, event: Event[LauncherSignalled]) -> bool:
    return event.what.signal == 15 and any(
        exited.place.source == event.place.source
        and exited.place.offset < event.place.offset
        and exited.what.code
        and exited.what.signal is None
        and not exited.what.helper
        for exited in timeline.of_kind(ProcessExit)
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


def _is_own_signal(timeline: Timeline, event: Event[ProcessExit], forced: set[int | None]) -> bool:
    """True for an end by a signal that no launcher or watchdog sent."""
    signal = event.what.signal
    if signal is None or signal in (1, 2, 3, 13, 15):
        return False
    if signal == 9 and event.who.pid is not None and event.who.pid in forced:
        return False
    if signal == 9 and any(stop.what.by_kill for stop in timeline.of_kind(PeersTerminated)):
        return False
    if is_during_abort(timeline, event):
        return False
    return not (signal == 6 and not event.what.helper and _watchdog_aborts(timeline))


def _steps_given_up(timeline: Timeline) -> dict[str, int]:
    """Where srun first saw a task abort that gave up waiting, by log: then it ends the rest of its step."""
    return offsets_by_source(
        exited
        for exited in timeline.of_kind(ProcessExit)
        if exited.what.signal == 6
        and OF_SRUN.search(exited.text)
        and not timeline.waiting_ranks.isdisjoint(who.rank for who in people_of(exited))
    )


def _ended_with_step(event: Event[ProcessExit], given_up: dict[str, int]) -> bool:
    """True for a task that srun reports killed behind one that gave up."""
    begin = given_up.get(event.place.source, event.place.offset)
    return event.what.signal == 9 and begin < event.place.offset and OF_SRUN.search(event.text) is not None


def _killed_for_another(event: Event[ProcessExit], aborts: dict[str, int]) -> bool:
    """True behind a process that ended the whole job; `aborts`: their offsets by source."""
    abort_offset = aborts.get(event.place.source)
    return event.what.signal in (6, 9) and abort_offset is not None and abort_offset < event.place.offset


def _watchdog_aborts(timeline: Timeline) -> bool:
    """True when watchdogs took processes down: then SIGABRT is how victims end."""
    return bool(timeline.waits) or any(
        timeline.of_kind(kind)
        for kind in (ProcessAborting, CollectiveFailed, NcclError, PeerGone, WatchdogStuck)
    )


def _first_look(deaths: list[Event[ProcessExit]]) -> list[Event[ProcessExit]]:
    """The death that its launcher saw first, and others like it at that moment."""
    first = [event for event in deaths if event.what.first]
    looks = {(event.what.at, event.what.signal) for event in first if event.what.at}
    return first and [
        *first,
        *(e for e in deaths if not e.what.first and (e.what.at, e.what.signal) in looks),
    ]


def _before_stop(timeline: Timeline, deaths: list[Event[ProcessExit]]) -> list[Event[ProcessExit]]:
    """Deaths before the launcher stopped the others; all when it never says so.

    Behind the stop no rank is named, and a SIGKILL is the stop's own where a process had exited before it.
    """
    stops: list[Event[Any]] = [
        *(stop for stop in timeline.of_kind(PeersTerminated) if not stop.what.one_by_one),
        *timeline.of_kind(CancelledByUser),
    ]
    early = before_stop(deaths, stops)
    early_ids = {id(event) for event in early}
    early += [event for event in self_reported(deaths, early) if id(event) not in early_ids]
    if early:
        return early
    exits = [
        exited for exited in timeline.of_kind(ProcessExit) if exited.what.code and not exited.what.signal
    ]
    late = [event for event in deaths if event.what.signal != 9] if before_stop(exits, stops) else deaths
    return [replace(event, what=replace(event.what, tasks=()), who=Identity()) for event in late]
