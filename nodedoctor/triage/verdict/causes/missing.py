"""Ranks that were silent, behind or late while the others waited, and their work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from nodedoctor.grouping import group_by
from nodedoctor.triage.describe import describe_identities, distinct_ranks, identities_of
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import Candidate, Confidence, Event, Ground, Identity
from nodedoctor.triage.patterns.exits import ProcessExit
from nodedoctor.triage.patterns.log_pattern import Symptom
from nodedoctor.triage.patterns.progress import LongWork
from nodedoctor.triage.patterns.store import (
    BarrierMissed,
    ClientsMissing,
    CollectiveMismatch,
    GlooTimeout,
    PeerGone,
    StoreWait,
)
from nodedoctor.triage.patterns.trace import ExceptionRaised
from nodedoctor.triage.patterns.watchdog import CollectiveFailed, CollectiveStatus
from nodedoctor.triage.timeline.counters import names_of_group
from nodedoctor.triage.timeline.model import Timeline
from nodedoctor.triage.timeline.pace import RankCount, count_steps
from nodedoctor.triage.verdict.causes.absent import (
    absent_rank,
    collective_name,
    last_long_work,
    ranks_without_timeout,
    save_waits,
)
from nodedoctor.triage.verdict.causes.first_exits import never_joined
from nodedoctor.wording import decimal

LATE_SHARE = 0.1
"""A rank counts as late when it enqueued the work later than the others by this share of the timeout."""
FEWEST_RANKS = 3
"""Ranks that count steps, at least: of two that differ it is unknown which is wrong."""
STEADY_RISES = 3
"""Rises that show that a rank logs its steps: most frameworks let one rank do so. Ours."""
FAR_BEHIND = 3
"""Lines that a rank is behind by: no order of output between processes makes as many. Ours."""


def barrier_report(timeline: Timeline) -> Iterator[Candidate]:
    """A monitored barrier, or JAX's coordination service, names the ranks that did not come."""
    missed = timeline.of_kind(BarrierMissed)
    if any(event.what.passing for event in timeline.of_kind(CollectiveMismatch)):
        return  # each waits for the other
    report = missed[0].what
    culprits = identities_of(sorted({r for event in missed for r in event.what.ranks}))
    lost_heartbeats = timeline.marked(Mark.HEARTBEAT_LOST)
    if lost_heartbeats:
        headline = (
            f"{describe_identities(culprits)} stopped sending heartbeats: its process ended, or its node"
        )
        evidence = (*lost_heartbeats[:1], *missed[:4])
        ranks = {who.rank for who in culprits}
        # a fault in its own lines tells why it ended
        fault = any(e.what.decisive and e.who.rank in ranks for e in timeline.of_kind(Symptom))
        yield Candidate("peer_died", "echo" if fault else "named", "medium", headline, evidence, culprits)
    elif init := [event for event in timeline.of_kind(Symptom) if event.what.name == "rendezvous-failed"]:
        headline = f"{describe_identities(culprits)} never joined the rendezvous"
        evidence = (*init[:1], *missed[:4])
        yield Candidate("network_socket_interface", "named", "medium", headline, evidence, culprits)
    elif broken := _closed_at_barrier(timeline, missed):
        headline = f"{describe_identities(culprits)} closed its connection in the barrier: its process ended"
        yield Candidate("peer_died", "named", "medium", headline, (*missed[:3], *broken[:1]), culprits)
    else:
        did = f"did not reach {report.where}"
        then = "the others wait for {it}" if report.passing else ""
        yield absent_rank(timeline, culprits, tuple(missed[:4]), did, "named", "high", then)


def silent_at_barrier(timeline: Timeline) -> Iterator[Candidate]:
    """The only rank that speaks, and did not say that it reached a barrier in which rank 0 ended.

    Rank 0 asks all others, and ends where one does not answer: those that had come name it.
    """
    arrived = timeline.marked(Mark.BARRIER_VICTIM)
    if timeline.of_kind(BarrierMissed):
        return
    last = max((rank for rank in timeline.ranks_seen), default=0)
    absent = set(range(1, max(timeline.expected or 0, last + 1))) - {event.who.rank for event in arrived}
    if len(absent) == 1 < len(arrived) and absent <= timeline.ranks_seen:
        did = "did not say that it reached the barrier"
        yield absent_rank(timeline, identities_of(absent), tuple(arrived[:4]), did, "absence", "medium")


def _closed_at_barrier(timeline: Timeline, missed: Sequence[Event[BarrierMissed]]) -> list[Event[PeerGone]]:
    """The broken connections with which a barrier's reports give their reason, right behind them."""
    return [
        closed
        for closed in timeline.of_kind(PeerGone)
        for event in missed
        if event.who.rank == closed.who.rank
        and event.place.source == closed.place.source
        and 0 < closed.place.offset - event.place.offset - len(event.text) < REASON
    ]


REASON = 200
"""Bytes from a report to its reason, in the lines behind it: `Original exception:` with labels. Ours."""


def lagging_by_status(timeline: Timeline) -> Iterator[Candidate]:
    """A rank's own status says that it had not enqueued what the others waited in.

    Where the lines that name the collective are missing, the others' own statuses say which one it was.
    """
    statuses = timeline.of_kind(CollectiveStatus)
    group_names = {e.what.group.name for e in statuses}
    calls = [(wait.work.group.name, wait.work.seq, wait.who.rank) for wait in timeline.waits]
    if not calls:
        calls = [(event.what.group.name, event.what.stuck, event.who.rank) for event in statuses]
    reports = [(group, seq, rank) for group, seq, rank in calls if seq is not None]
    waiting = {rank for _, _, rank in reports} | timeline.waiting_ranks
    for group, waits in group_by(reports, lambda report: report[0]).items():
        seq = Counter(seq for _, seq, _ in waits).most_common(1)[0][0]
        names = names_of_group(group, group_names)
        slow = [
            e
            for e in statuses
            if e.what.group.name in names and e.what.enqueued is not None and 0 <= e.what.enqueued < seq
        ]
        culprits = tuple(distinct_ranks(e.who for e in slow))
        if not culprits or any(who.rank in waiting for who in culprits):
            continue
        did = f"had not enqueued collective {seq}"
        inside = _gloo_waits_of(timeline, culprits)
        if inside and timeline.waits:
            headline = (
                f"{describe_identities(culprits)} {did} and waited in a collective of another group, while"
                f" the others waited in {timeline.waits[0].work.op or 'this one'}"
            )
            evidence = (*slow[:2], *inside[:2], *(wait.event for wait in timeline.waits[:2]))
            yield Candidate("collective_mismatch", "different", "high", headline, evidence, culprits)
        yield absent_rank(timeline, culprits, tuple(slow[:3]), did, "different", "high")


def _gloo_waits_of(timeline: Timeline, people: Sequence[Identity]) -> list[Event[Any]]:
    """The gloo waits of ranks; empty unless every one of them waited itself."""
    waits = [event for kind in (PeerGone, GlooTimeout) for event in timeline.of_kind(kind)]
    by_rank = {who.rank: [event for event in waits if event.who.rank == who.rank] for who in people}
    return [event for events in by_rank.values() for event in events] if all(by_rank.values()) else []


def late_rank(timeline: Timeline) -> Iterator[Candidate]:
    """A rank that enqueued the same collective much later than the others.

    One that came while they still waited is no reason where another one never came.
    """
    began = [
        (wait.began, wait.who, wait.event, wait.work) for wait in timeline.waits if wait.began is not None
    ]
    if not began:
        return
    start = min(moment for moment, *_ in began if moment is not None)
    first = min(began, key=lambda row: row[0] or 0.0)
    timeout = (first[3].timeout_ms or 0) / 1000
    latecomers: list[tuple[float, Identity, Event[Any]]] = [
        ((moment or 0) - start, who, event) for moment, who, event, work in began
        if work.signature[:2] == first[3].signature[:2]
        and (moment or 0) - start > max(5.0, timeout * LATE_SHARE)
    ]  # fmt: skip
    for event in timeline.of_kind(CollectiveFailed):
        limit = event.what.work.timeout_ms
        same = event.what.work.signature[:2] == first[3].signature[:2]
        if (
            limit
            and same
            and event.time is not None
            and event.time - limit / 1000 - start > max(1.0, timeout * LATE_SHARE)
        ):
            latecomers.append((event.time - limit / 1000 - start, event.who, event))
    if ranks_without_timeout(timeline):
        latecomers = [row for row in latecomers if row[0] >= timeout]
    culprits = tuple(distinct_ranks(who for _, who, _ in latecomers))
    if culprits and len(culprits) <= max(1, len(timeline.waits)):
        evidence = (first[2], *(event for *_, event in latecomers[:3]))
        delay = decimal(min(delay for delay, *_ in latecomers), 3)
        did = f"entered {collective_name(timeline)}, {delay} s after the others"
        yield absent_rank(timeline, culprits, evidence, did, "different", "high")


def silent_ranks(timeline: Timeline) -> Iterator[Candidate]:
    """Nearly all ranks printed a timeout: they waited for the ones that did not.

    A line may be missing from a log: only a rank with lines after the others gave up is known to be silent.
    """
    silent = ranks_without_timeout(timeline)
    if silent:
        ranks = {who.rank for who in silent}
        later_ranks = {
            e.who.rank
            for e in timeline.events
            if timeline.late(e) and e.kind not in (ProcessExit, Mark.FORCE_KILLED)
        }
        kills = [e for e in timeline.of_kind(ProcessExit) if e.who.rank in ranks and e.what.signal in (9, 15)]
        waited = [*(wait.event for wait in timeline.waits), *timeline.of_kind(GlooTimeout)]
        evidence: tuple[Event[Any], ...] = (*waited[:3], *kills[:1])
        certain = ranks <= later_ranks or len(ranks) == 1
        ground: Ground = "absence" if certain else "hint"  # of several, some may have waited for the others
        confidence: Confidence = "medium" if ranks <= later_ranks else "low"
        yield absent_rank(
            timeline, silent, evidence, f"never entered {collective_name(timeline)}", ground, confidence
        )


def frozen_process(timeline: Timeline) -> Iterator[Candidate]:
    """A process that ignored SIGTERM for half a minute was stopped or stuck."""
    forced = timeline.marked(Mark.FORCE_KILLED)
    pids = {event.who.pid for event in forced}
    killed_ranks = distinct_ranks(
        [e.who for e in forced] + [e.who for e in timeline.of_kind(ProcessExit) if e.who.pid in pids]
    )
    culprits = [who for who in killed_ranks if who.rank not in timeline.waiting_ranks]
    if culprits and len(culprits) <= max(1, len(timeline.ranks_seen) // 3):
        yield absent_rank(
            timeline, tuple(culprits), tuple(forced[:3]), "did not react to SIGTERM", "absence", "medium"
        )


def gil_held(timeline: Timeline) -> Iterator[Candidate]:
    """One rank's Python lock was held inside a call."""
    locks = timeline.marked(Mark.GIL_HELD)
    holders = distinct_ranks(event.who for event in locks)
    culprits = tuple(who for who in holders if who.rank not in timeline.waiting_ranks)
    if culprits and len(culprits) < max(2, len(timeline.ranks_seen)):
        did = "held Python's lock inside a call"
        yield absent_rank(timeline, culprits, tuple(locks[:3]), did, "absence", "medium")


def unpublished_id(timeline: Timeline) -> Iterator[Candidate]:
    """A rank whose communicator id was missing when the others gave up waiting for it."""
    waits = [
        event for event in timeline.of_kind(StoreWait) if not event.what.dead and event.what.rank is not None
    ]
    culprits = tuple(distinct_ranks(Identity(rank=event.what.rank) for event in waits))
    if culprits:
        doing = "did not publish what the others need to start, and no line shows it alive"
        yield absent_rank(timeline, culprits, tuple(waits[:3]), doing, "absence", "low")


def legitimate_work(timeline: Timeline) -> Iterator[Candidate]:
    """Ranks waited while another did long work that has to be done."""
    work = last_long_work(timeline, None)
    waited = list(timeline.waits) or timeline.of_kind(GlooTimeout)
    if work is not None and waited and not ranks_without_timeout(timeline):
        people = distinct_ranks([work.who])
        culprits = tuple(who for who in people if who.rank not in timeline.waiting_ranks)
        who = describe_identities(culprits) or "another rank"
        headline = f"{who} was {work.what.kind} while the others waited, longer than their timeout"
        evidence = (work, *(wait.event for wait in timeline.waits[:2]))
        sure: Confidence = "medium" if culprits else "low"
        yield Candidate("timeout_too_short_legit_work", "absence", sure, headline, evidence, culprits)


def waits_in_a_save(timeline: Timeline) -> Iterator[Candidate]:
    """Ranks waited where a checkpoint is saved, by a rank that was slow or stuck."""
    waited = save_waits(timeline)
    if waited:
        saving = [event for event in timeline.of_kind(LongWork) if "sav" in event.what.kind]
        people = distinct_ranks(event.who for event in waited)
        headline = (
            f"{describe_identities(people) or 'ranks'} waited until the timeout while a checkpoint was saved"
        )
        sure: Confidence = "medium" if saving or len(people) > 1 else "low"
        evidence, victims = (*waited[:3], *saving[-1:]), tuple(people)
        yield Candidate("timeout_too_short_legit_work", "absence", sure, headline, evidence, (), victims)


def unjoined_ranks(timeline: Timeline) -> Iterator[Candidate]:
    """Processes that never joined the rendezvous, by the store's own count."""
    reports = timeline.of_kind(ClientsMissing)
    joins, expected = max((event.what.arrivals, event.what.expected) for event in reports)
    absent = expected - joins
    culprits = never_joined(timeline)
    names = f" ({describe_identities(culprits)})" if culprits else ""
    headline = f"{absent} of {expected} processes never joined the rendezvous{names}"
    yield Candidate("network_socket_interface", "path", "medium", headline, tuple(reports[:4]), culprits)


def lagging_rank(timeline: Timeline) -> Iterator[Candidate]:
    """A rank whose steps end before the step in which the others timed out."""
    if timeline.folded or not timeline.waits:
        return
    silent = {who.rank for who in ranks_without_timeout(timeline)}
    for ranks in count_steps(timeline.events).values():
        steady = {rank: count for rank, count in ranks.items() if count.rises >= STEADY_RISES}
        slow = _slow_ranks(timeline, steady)
        if not slow or (silent and not silent & set(slow)):
            continue
        events = [steady[rank].event for rank in slow]
        front = max(count.last for count in steady.values())
        lines = min((front[-1] - steady[rank].last[-1]) / steady[rank].stride for rank in slow)
        confidence: Confidence = "medium" if lines >= FAR_BEHIND else "low"
        did = f"was last heard at step {steady[slow[0]].last[-1]:g}, the others came to {front[-1]:g}"
        culprits = tuple(event.who for event in events)
        evidence = (*events[:3], *(wait.event for wait in timeline.waits[:2]))
        yield absent_rank(timeline, culprits, evidence, did, "absence", confidence)


def _slow_ranks(timeline: Timeline, steady: Mapping[int, RankCount]) -> list[int]:
    """Ranks behind the front line of all others; none where more than a third are."""
    if len(steady) < FEWEST_RANKS:
        return []
    front = max(count.last for count in steady.values())
    behind = {rank: _lines_behind(count, front) for rank, count in steady.items()}
    slow = sorted(rank for rank, lines in behind.items() if lines is None or lines >= 1)
    gave_up = {event.who.rank for event in timeline.timeout_events} | {
        event.who.rank for event in timeline.of_kind(ExceptionRaised)
    }
    if None in behind.values() or len(slow) > max(1, len(steady) // 3) or gave_up & set(slow):
        return []
    return slow


def _lines_behind(count: RankCount, front: tuple[float, ...]) -> float | None:
    """How many of its own lines a rank is behind; None in another epoch."""
    if count.last[:-1] != front[:-1] or len(count.last) != len(front):
        return None
    return (front[-1] - count.last[-1]) / count.stride
