"""Somebody never arrived: who is silent, behind or late while the others waited, and what it was doing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from nodedoctor.triage.describe import describe_identities, distinct_ranks
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import Candidate, Cause, Confidence, Event, Ground, Identity
from nodedoctor.triage.patterns.exits import ProcessExit
from nodedoctor.triage.patterns.log_pattern import Symptom
from nodedoctor.triage.patterns.progress import LongWork
from nodedoctor.triage.patterns.store import BarrierMissed, ClientsMissing, GlooTimeout, PeerGone, StoreWait
from nodedoctor.triage.patterns.trace import ExceptionRaised
from nodedoctor.triage.patterns.watchdog import CollectiveFailed, CollectiveStatus
from nodedoctor.triage.timeline import Timeline
from nodedoctor.triage.verdict.causes import groups
from nodedoctor.triage.verdict.causes.first_exits import never_joined
from nodedoctor.triage.verdict.causes.long_work import last_long_work, save_waits
from nodedoctor.wording import singular_or_plural

LATE_SHARE = 0.1
"""A rank counts as late when it enqueued the work later than the others by this share of the timeout."""

UNTIL = "the others waited for {} until the timeout"


def barrier_report(story: Timeline) -> Iterator[Candidate]:
    """A monitored barrier, or JAX's coordination service, names who did not come."""
    missed = story.of(BarrierMissed)
    if not missed:
        return
    culprits = tuple(
        Identity(rank=rank) for rank in sorted({r for event in missed for r in event.what.ranks})
    )
    lost = story.marked(Mark.HEARTBEAT_LOST)
    if lost:
        headline = (
            f"{describe_identities(culprits)} stopped sending heartbeats: its process ended, or its node"
        )
        evidence = (*lost[:1], *missed[:4])
        yield Candidate("peer_died", "named", "medium", headline, evidence, culprits)
    elif init := [event for event in story.of(Symptom) if event.what.name == "rendezvous-failed"]:
        headline = f"{describe_identities(culprits)} never joined the rendezvous"
        evidence = (*init[:1], *missed[:4])
        yield Candidate("network_socket_interface", "named", "medium", headline, evidence, culprits)
    else:
        did = f"did not reach {missed[0].what.where}"
        then = "the others wait for {}" if missed[0].what.passing else UNTIL
        yield absent_rank(story, culprits, tuple(missed[:4]), did, "named", "high", then)


def lagging_by_status(story: Timeline) -> Iterator[Candidate]:
    """A rank's own status says that it had not enqueued what the others waited in."""
    named = {e.what.group.name for e in story.of(CollectiveStatus)}
    for group, seqs in _stuck_numbers(story).items():
        seq = Counter(seqs).most_common(1)[0][0]
        mine = named if not group and len(named) == 1 else {group}  # many lines do not name it
        slow = [
            e
            for e in story.of(CollectiveStatus)
            if e.what.group.name in mine and e.what.enqueued is not None and 0 <= e.what.enqueued < seq
        ]
        culprits = tuple(distinct_ranks(e.who for e in slow))
        waited = {wait.who.rank for wait in story.waits}
        if not culprits or any(who.rank in waited for who in culprits):
            continue
        did = f"had not enqueued collective {seq}"
        inside = _in_gloo(story, culprits)
        if inside:
            yield Candidate(
                "collective_mismatch",
                "different",
                "high",
                f"{describe_identities(culprits)} {did} and waited in a collective of another "
                "group, while the others"
                f" waited in {story.waits[0].work.op or 'this one'}",
                (*slow[:2], *inside[:2], *(wait.event for wait in story.waits[:2])),
                culprits,
            )
        yield absent_rank(story, culprits, tuple(slow[:3]), did, "different", "high")


def _in_gloo(story: Timeline, people: Sequence[Identity]) -> list[Event[Any]]:
    """What ranks say that waited in gloo themselves; empty unless all of them do: who waits is not stuck."""
    told = [event for kind in (PeerGone, GlooTimeout) for event in story.of(kind)]
    mine = {who.rank: [event for event in told if event.who.rank == who.rank] for who in people}
    return [event for events in mine.values() for event in events] if all(mine.values()) else []


def late_rank(story: Timeline) -> Iterator[Candidate]:
    """A rank whose own timeout or error came much later had enqueued the same work much later."""
    began = [(wait.began, wait.who, wait.event, wait.work) for wait in story.waits if wait.began is not None]
    if not began:
        return
    start = min(moment for moment, *_ in began if moment is not None)
    first = min(began, key=lambda row: row[0] or 0.0)
    timeout = (first[3].timeout_ms or 0) / 1000
    comers: list[tuple[Identity, Event[Any]]] = [
        (who, event) for moment, who, event, work in began
        if work.signature[:2] == first[3].signature[:2]
        and (moment or 0) - start > max(5.0, timeout * LATE_SHARE)
    ]  # fmt: skip
    for event in story.of(CollectiveFailed):
        limit = event.what.work.timeout_ms
        same = event.what.work.signature[:2] == first[3].signature[:2]
        if (
            limit
            and same
            and event.time is not None
            and event.time - limit / 1000 - start > max(1.0, timeout * LATE_SHARE)
        ):
            comers.append((event.who, event))
    culprits = tuple(distinct_ranks(who for who, _ in comers))
    if culprits and len(culprits) <= max(1, len(story.waits)):
        evidence = (first[2], *(event for _, event in comers[:3]))
        yield absent_rank(
            story,
            culprits,
            evidence,
            "came to the collective long after the others",
            "different",
            "high",
        )


def silent_ranks(story: Timeline) -> Iterator[Candidate]:
    """Nearly all ranks printed a timeout: the ones that did not are those the others waited for.

    A line may be missing from a log: only a rank that is heard after the others gave up is known
    to be silent.
    """
    gone = ranks_without_timeout(story)
    if gone:
        ranks = {who.rank for who in gone}
        heard = {
            e.who.rank
            for e in story.events
            if story.late(e) and e.kind not in (ProcessExit, Mark.FORCE_KILLED)
        }
        alive = [e for e in story.of(ProcessExit) if e.who.rank in ranks and e.what.signal in (9, 15)]
        waited = [*(wait.event for wait in story.waits), *story.of(GlooTimeout)]
        evidence: tuple[Event[Any], ...] = (*waited[:3], *alive[:1])
        alone = ranks <= heard or len(ranks) == 1
        ground: Ground = "absence" if alone else "hint"  # of several, some may have waited for the others
        confidence: Confidence = "medium" if ranks <= heard else "low"
        yield absent_rank(story, gone, evidence, "never arrived where the others waited", ground, confidence)


def frozen_process(story: Timeline) -> Iterator[Candidate]:
    """A process that ignored SIGTERM for half a minute was stopped or stuck in a call."""
    forced = story.marked(Mark.FORCE_KILLED)
    pids = {event.who.pid for event in forced}
    waited = {wait.who.rank for wait in story.waits}
    named = distinct_ranks(
        [e.who for e in forced] + [e.who for e in story.of(ProcessExit) if e.who.pid in pids]
    )
    held = [who for who in named if who.rank not in waited]
    if held and len(held) <= max(1, len(story.ranks_seen) // 3):
        yield absent_rank(
            story, tuple(held), tuple(forced[:3]), "did not even react to SIGTERM", "absence", "medium"
        )


def gil_held(story: Timeline) -> Iterator[Candidate]:
    """One rank's Python lock was held inside a call."""
    held = tuple(distinct_ranks(event.who for event in story.marked(Mark.GIL_HELD)))
    waited = {wait.who.rank for wait in story.waits}
    odd = tuple(who for who in held if who.rank not in waited)
    if odd and len(odd) < max(2, len(story.ranks_seen)):
        yield absent_rank(
            story,
            odd,
            tuple(story.marked(Mark.GIL_HELD)[:3]),
            "held Python's lock inside a call",
            "absence",
            "medium",
        )


def unpublished_id(story: Timeline) -> Iterator[Candidate]:
    """A rank had not published the communicator's id when the others gave up waiting for it."""
    waits = [event for event in story.of(StoreWait) if not event.what.dead and event.what.rank is not None]
    culprits = tuple(distinct_ranks(Identity(rank=event.what.rank) for event in waits))
    if culprits:
        doing = "had not published what the others needed to start: whether it was alive is unknown"
        yield absent_rank(story, culprits, tuple(waits[:3]), doing, "absence", "low")


def legitimate_work(story: Timeline) -> Iterator[Candidate]:
    """Ranks waited while another one was doing long work that has to be done, and no rank is singled out."""
    work = last_long_work(story, None)
    waited = list(story.waits) or story.of(GlooTimeout)
    if work is not None and waited and not ranks_without_timeout(story):
        who = tuple(distinct_ranks([work.who]))
        waiting = {wait.who.rank for wait in story.waits}
        culprits = tuple(person for person in who if person.rank not in waiting)
        yield Candidate(
            "timeout_too_short_legit_work",
            "absence",
            "medium" if culprits else "low",
            f"{describe_identities(culprits) or 'another rank'} was {work.what.kind} while the "
            "others waited, "
            f"longer than their timeout",
            (work, *(wait.event for wait in story.waits[:2])),
            culprits,
        )


def waits_in_a_save(story: Timeline) -> Iterator[Candidate]:
    """Ranks waited where a checkpoint is saved. Nothing shows whether the writing rank was slow or stuck."""
    waited = save_waits(story)
    if waited:
        saving = [event for event in story.of(LongWork) if "sav" in event.what.kind]
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
    story: Timeline,
    culprits: tuple[Identity, ...],
    evidence: tuple[Event[Any], ...],
    did: str,
    ground: Ground,
    confidence: Confidence,
    then: str = UNTIL,
) -> Candidate:
    """A rank that did not come: legitimate work when a line of it, or of nobody in particular, says so.

    Only a timeout makes work too long: who still waits tells nothing of it.
    """
    ranks = {who.rank for who in culprits}
    work = last_long_work(story, ranks) if then == UNTIL else None
    asleep = [event for event in story.marked(Mark.DELIBERATE_SLEEP) if event.who.rank in ranks]
    doing = work.what.kind if work is not None else "a checkpoint was saved" if save_waits(story) else ""
    excuse = "" if asleep else doing
    cause: Cause = "timeout_too_short_legit_work" if excuse else "cpu_stuck_or_slow_rank"
    victims = tuple(distinct_ranks(wait.who for wait in story.waits if wait.who.rank not in ranks))
    return Candidate(
        cause,
        ground,
        confidence,
        f"{describe_identities(culprits)} {did}{f' ({excuse})' if excuse else ''}; "
        f"{then.format(singular_or_plural(len(culprits), 'it', 'them'))}",
        (*evidence, *asleep[:1], *([work] if work is not None else [])),
        culprits,
        victims,
        collective=story.waits[0].work if story.waits else None,
    )


def _stuck_numbers(story: Timeline) -> dict[str, list[int]]:
    """Per named group, the sequence numbers its ranks timed out at."""
    stuck: dict[str, list[int]] = {}
    for wait in story.waits:
        if wait.work.seq is not None:
            stuck.setdefault(wait.work.group.name, []).append(wait.work.seq)
    return stuck


def ranks_without_timeout(story: Timeline) -> tuple[Identity, ...]:
    """Ranks of the world without a timeout, if most printed one and nothing was folded away."""
    waited: dict[int, Identity] = {}
    for wait in story.waits:
        if wait.who.rank is not None:
            waited[wait.who.rank] = wait.who
    for event in _gloo_waits(story):
        if event.who.rank is not None:
            waited[event.who.rank] = event.who
    if any(wait.who.rank is None for wait in story.waits):
        return ()  # one of those that are missed may be the one that has no name
    people = {who.rank: who for who in distinct_ranks(event.who for event in story.events)}
    gave_up = {event.who.rank for event in story.given_up}
    ends = groups.ranks_waited_for(story) - set(waited) - gave_up
    if ends and not story.folded and len(ends) <= max(1, len(waited) // 2):
        return tuple(people.get(rank, Identity(rank=rank)) for rank in sorted(ends))
    if story.folded or len(waited) < 2 or len({wait.work.signature for wait in story.waits}) > 1:
        return ()
    size = story.expected or groups.size_of(story) or 0
    known = set(story.ranks_seen) | set(range(max(size, max(waited) + 1)))
    if any(w.event.who.group_rank not in (None, w.who.rank) for w in story.waits):
        known &= {rank for rank in known if rank in waited}
    missing = sorted(known - set(waited))
    if not missing or len(missing) >= len(waited) or len(missing) > max(1, len(known) // 3):
        return ()
    return tuple(people.get(rank, Identity(rank=rank)) for rank in missing if rank not in gave_up)


def _gloo_waits(story: Timeline) -> list[Event[Any]]:
    """Ranks that gave up in gloo, whether they waited themselves or saw a neighbour give up."""
    if not story.of(GlooTimeout):
        return []
    places = {
        (e.place.source, e.place.offset) for e in story.events if not isinstance(e.what, ExceptionRaised)
    }
    raised = [e for e in story.of(ExceptionRaised) if (e.place.source, e.place.offset) in places]
    return [*story.of(GlooTimeout), *raised]


def unjoined_ranks(story: Timeline) -> Iterator[Candidate]:
    """The store counted who came: the others never did, and there was no group yet that could have hung."""
    told = story.of(ClientsMissing)
    if not told:
        return
    joined, expected = max((event.what.joined, event.what.expected) for event in told)
    absent = expected - joined
    culprits = never_joined(story)
    names = f" ({describe_identities(culprits)})" if culprits else ""
    yield Candidate(
        "network_socket_interface",
        "path",
        "medium",
        f"{absent} of {expected} processes never joined the rendezvous{names}",
        tuple(told[:4]),
        culprits,
    )


RULES = (
    unjoined_ranks,
    barrier_report,
    lagging_by_status,
    late_rank,
    silent_ranks,
    frozen_process,
    gil_held,
    unpublished_id,
    legitimate_work,
    waits_in_a_save,
)
