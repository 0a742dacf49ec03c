"""Ranks that were silent, behind or late while the others waited, and their work."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from nodedoctor.grouping import group_by
from nodedoctor.triage.describe import describe_identities, distinct_ranks, identities_of
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import Candidate, Cause, Confidence, Event, Ground, Identity
from nodedoctor.triage.patterns.exits import ProcessExit
from nodedoctor.triage.patterns.log_pattern import Symptom
from nodedoctor.triage.patterns.progress import LongWork
from nodedoctor.triage.patterns.store import BarrierMissed, ClientsMissing, GlooTimeout, PeerGone, StoreWait
from nodedoctor.triage.patterns.trace import ExceptionRaised
from nodedoctor.triage.patterns.watchdog import CollectiveFailed, CollectiveStatus
from nodedoctor.triage.timeline.model import Timeline
from nodedoctor.triage.verdict.causes import groups
from nodedoctor.triage.verdict.causes.first_exits import never_joined
from nodedoctor.triage.verdict.causes.long_work import last_long_work, save_waits
from nodedoctor.wording import count_with_noun, decimal, singular_or_plural

LATE_SHARE = 0.1
"""A rank counts as late when it enqueued the work later than the others by this share of the timeout."""


def barrier_report(timeline: Timeline) -> Iterator[Candidate]:
    """A monitored barrier, or JAX's coordination service, names the ranks that did not come."""
    missed = timeline.of_kind(BarrierMissed)
    report = missed[0].what
    culprits = identities_of(sorted({r for event in missed for r in event.what.ranks}))
    lost_heartbeats = timeline.marked(Mark.HEARTBEAT_LOST)
    if lost_heartbeats:
        headline = (
            f"{describe_identities(culprits)} stopped sending heartbeats: its process ended, or its node"
        )
        evidence = (*lost_heartbeats[:1], *missed[:4])
        yield Candidate("peer_died", "named", "medium", headline, evidence, culprits)
    elif init := [event for event in timeline.of_kind(Symptom) if event.what.name == "rendezvous-failed"]:
        headline = f"{describe_identities(culprits)} never joined the rendezvous"
        evidence = (*init[:1], *missed[:4])
        yield Candidate("network_socket_interface", "named", "medium", headline, evidence, culprits)
    else:
        did = f"did not reach {report.where}"
        then = "the others wait for {it}" if report.passing else ""
        yield absent_rank(timeline, culprits, tuple(missed[:4]), did, "named", "high", then)


def lagging_by_status(timeline: Timeline) -> Iterator[Candidate]:
    """A rank's own status says that it had not enqueued what the others waited in."""
    group_names = {e.what.group.name for e in timeline.of_kind(CollectiveStatus)}
    numbered = [wait for wait in timeline.waits if wait.work.seq is not None]
    for group, waits in group_by(numbered, lambda wait: wait.work.group.name).items():
        seq = Counter(wait.work.seq or 0 for wait in waits).most_common(1)[0][0]
        names = group_names if not group and len(group_names) == 1 else {group}  # many lines do not name it
        slow = [
            e
            for e in timeline.of_kind(CollectiveStatus)
            if e.what.group.name in names and e.what.enqueued is not None and 0 <= e.what.enqueued < seq
        ]
        culprits = tuple(distinct_ranks(e.who for e in slow))
        if not culprits or any(who.rank in timeline.waiting_ranks for who in culprits):
            continue
        did = f"had not enqueued collective {seq}"
        inside = _gloo_waits_of(timeline, culprits)
        if inside:
            yield Candidate(
                "collective_mismatch",
                "different",
                "high",
                f"{describe_identities(culprits)} {did} and waited in a collective of another "
                "group, while the others"
                f" waited in {timeline.waits[0].work.op or 'this one'}",
                (*slow[:2], *inside[:2], *(wait.event for wait in timeline.waits[:2])),
                culprits,
            )
        yield absent_rank(timeline, culprits, tuple(slow[:3]), did, "different", "high")


def _gloo_waits_of(timeline: Timeline, people: Sequence[Identity]) -> list[Event[Any]]:
    """The gloo waits of ranks; empty unless every one of them waited itself."""
    waits = [event for kind in (PeerGone, GlooTimeout) for event in timeline.of_kind(kind)]
    by_rank = {who.rank: [event for event in waits if event.who.rank == who.rank] for who in people}
    return [event for events in by_rank.values() for event in events] if all(by_rank.values()) else []


def late_rank(timeline: Timeline) -> Iterator[Candidate]:
    """A rank that enqueued the same collective much later than the others."""
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
    culprits = tuple(distinct_ranks(who for _, who, _ in latecomers))
    if culprits and len(culprits) <= max(1, len(timeline.waits)):
        evidence = (first[2], *(event for *_, event in latecomers[:3]))
        delay = decimal(min(delay for delay, *_ in latecomers), 3)
        yield absent_rank(
            timeline,
            culprits,
            evidence,
            f"entered {collective_name(timeline)}, {delay} s after the others",
            "different",
            "high",
        )


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
    holders = tuple(distinct_ranks(event.who for event in timeline.marked(Mark.GIL_HELD)))
    culprits = tuple(who for who in holders if who.rank not in timeline.waiting_ranks)
    if culprits and len(culprits) < max(2, len(timeline.ranks_seen)):
        yield absent_rank(
            timeline,
            culprits,
            tuple(timeline.marked(Mark.GIL_HELD)[:3]),
            "held Python's lock inside a call",
            "absence",
            "medium",
        )


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
        yield Candidate(
            "timeout_too_short_legit_work",
            "absence",
            "medium" if culprits else "low",
            f"{describe_identities(culprits) or 'another rank'} was {work.what.kind} while the "
            "others waited, "
            f"longer than their timeout",
            (work, *(wait.event for wait in timeline.waits[:2])),
            culprits,
        )


def waits_in_a_save(timeline: Timeline) -> Iterator[Candidate]:
    """Ranks waited where a checkpoint is saved, by a rank that was slow or stuck."""
    waited = save_waits(timeline)
    if waited:
        saving = [event for event in timeline.of_kind(LongWork) if "sav" in event.what.kind]
        people = distinct_ranks(event.who for event in waited)
        who = describe_identities(people) or "ranks"
        yield Candidate(
            "timeout_too_short_legit_work",
            "absence",
            "medium" if saving or len(people) > 1 else "low",
            f"{who} waited until the timeout while a checkpoint was saved",
            (*waited[:3], *saving[-1:]),
            (),
            tuple(people),
        )


def absent_rank(
    timeline: Timeline,
    culprits: tuple[Identity, ...],
    evidence: tuple[Event[Any], ...],
    did: str,
    ground: Ground,
    confidence: Confidence,
    then: str = "",
) -> Candidate:
    """A rank that did not come; legitimate work where a line shows it at that.

    The line is of the rank, or of none. Only a timeout makes work too long: a wait proves nothing.
    """
    ranks = {who.rank for who in culprits}
    work = last_long_work(timeline, ranks) if not then else None
    asleep = [event for event in timeline.marked(Mark.DELIBERATE_SLEEP) if event.who.rank in ranks]
    doing = work.what.kind if work is not None else "a checkpoint was saved" if save_waits(timeline) else ""
    excuse = "" if asleep else doing
    cause: Cause = "timeout_too_short_legit_work" if excuse else "cpu_stuck_or_slow_rank"
    victims = tuple(distinct_ranks(wait.who for wait in timeline.waits if wait.who.rank not in ranks))
    return Candidate(
        cause,
        ground,
        confidence,
        f"{_with_gpu(culprits)} {did}{f' ({excuse})' if excuse else ''}; "
        f"{then.format(it=singular_or_plural(len(culprits), 'it', 'them')) or _waited(timeline, victims)}",
        (*evidence, *asleep[:1], *([work] if work is not None else [])),
        culprits,
        victims,
        collective=timeline.waits[0].work if timeline.waits else None,
    )


def collective_name(timeline: Timeline) -> str:
    """The collective that the ranks waited in: `ALLREDUCE 4411`."""
    work = timeline.waits[0].work if timeline.waits else None
    return work.words if work is not None and work.op else "the collective"


def _with_gpu(culprits: Sequence[Identity]) -> str:
    """The culprits in words, one alone with its GPU: `rank 37 on gpu-5 (GPU 5)`."""
    gpu = culprits[0].gpu if len(culprits) == 1 and culprits[0].rank is not None else None
    return describe_identities(culprits) + (f" (GPU {gpu})" if gpu is not None else "")


def _waited(timeline: Timeline, victims: Sequence[Identity]) -> str:
    """How many ranks waited, and how long: `63 ranks waited 600 s`."""
    limits = {wait.work.timeout_ms for wait in timeline.waits} - {None}
    limit = limits.pop() if len(limits) == 1 else None
    who = count_with_noun(len(victims), "rank") if victims else "the others"
    return f"{who} waited " + (f"{decimal(limit / 1000)} s" if limit else "until the timeout")


def ranks_without_timeout(timeline: Timeline) -> tuple[Identity, ...]:
    """Ranks without a timeout, if most printed one and no line was folded away."""
    if None in timeline.waiting_ranks:
        return ()  # a rank without a timeout may be the one without a number
    ranks_waiting = {*timeline.waiting_ranks, *(event.who.rank for event in _gloo_waits(timeline))}
    waited = {rank for rank in ranks_waiting if rank is not None}
    people = {who.rank: who for who in distinct_ranks(event.who for event in timeline.events)}
    gave_up = {event.who.rank for event in timeline.timeout_events}
    ends = groups.ranks_waited_for(timeline) - waited - gave_up
    if ends and not timeline.folded and len(ends) <= max(1, len(waited) // 2):
        return tuple(people.get(rank, Identity(rank=rank)) for rank in sorted(ends))
    if timeline.folded or len(waited) < 2 or len({wait.work.signature for wait in timeline.waits}) > 1:
        return ()
    size = timeline.expected or groups.size_of(timeline) or 0
    ranks = set(timeline.ranks_seen) | set(range(max(size, max(waited) + 1)))
    if any(w.event.who.group_rank not in (None, w.who.rank) for w in timeline.waits):
        ranks &= waited
    missing = sorted(ranks - waited)
    if not missing or len(missing) >= len(waited) or len(missing) > max(1, len(ranks) // 3):
        return ()
    return tuple(people.get(rank, Identity(rank=rank)) for rank in missing if rank not in gave_up)


def _gloo_waits(timeline: Timeline) -> list[Event[Any]]:
    """Ranks that gave up in gloo, by themselves or because a neighbour did."""
    if not timeline.of_kind(GlooTimeout):
        return []
    places = {e.place for e in timeline.events if not isinstance(e.what, ExceptionRaised)}
    raised = [e for e in timeline.of_kind(ExceptionRaised) if e.place in places]
    return [*timeline.of_kind(GlooTimeout), *raised]


def unjoined_ranks(timeline: Timeline) -> Iterator[Candidate]:
    """Processes that never joined the rendezvous, by the store's own count."""
    reports = timeline.of_kind(ClientsMissing)
    joins, expected = max((event.what.arrivals, event.what.expected) for event in reports)
    absent = expected - joins
    culprits = never_joined(timeline)
    names = f" ({describe_identities(culprits)})" if culprits else ""
    yield Candidate(
        "network_socket_interface",
        "path",
        "medium",
        f"{absent} of {expected} processes never joined the rendezvous{names}",
        tuple(reports[:4]),
        culprits,
    )
