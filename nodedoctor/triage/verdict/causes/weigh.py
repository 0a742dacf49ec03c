"""Weighs candidate causes: what each rests on, and what speaks for or against it.

Points are few and coarse, so that a person can follow them. The ground is how far a piece of evidence
reaches: a broken GPU explains an exception, an exception explains why a process ended, a process that ended
explains why the others waited, and never the other way round. What proves that something is a consequence
weighs more than any ground; what only supports it weighs less than the step from one ground to the next but
one. The points are our own; tests pair every cause with all that it makes happen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from nodedoctor.record import record
from nodedoctor.triage.describe import describe_identities, identities_of
from nodedoctor.triage.model import Candidate, Event, Ground
from nodedoctor.triage.patterns.exits import KILLS, ProcessExit
from nodedoctor.triage.patterns.host_limits import HostOom
from nodedoctor.triage.patterns.log_pattern import Symptom
from nodedoctor.triage.patterns.machine import KernelTaskHung, NodeLost, XidReported
from nodedoctor.triage.patterns.secondary_errors import is_lost_connection
from nodedoctor.triage.patterns.trace import ExceptionRaised
from nodedoctor.triage.timeline.model import Timeline
from nodedoctor.triage.verdict.causes.corruption import nan_beside_peers

GROUNDS: dict[Ground, tuple[int, str]] = {
    "fault": (50, "a fault that the machine or a library reported"),
    "own error": (40, "{}'s own error"),
    "compared": (36, "a comparison of the ranks"),
    "named": (34, "a report that covers all ranks"),
    "death": (32, "the exit of {}"),
    "path": (28, "a connection that failed"),
    "different": (26, "a difference between the ranks"),
    "absence": (22, "the absence of {}"),
    "echo": (14, "what other ranks reported when a process exited"),
    "last words": (12, "the only error line"),
    "node": (10, "a failed check of the node"),
    "hint": (0, "a hint"),
}
"""Points of each ground, and its name in a sentence about a process."""

DECIDES = 10
"""A candidate with fewer points is a suspicion: the verdict stays open."""
NOTICED = 60.0
"""Seconds in which a launcher notices that a process has ended: torchrun looks every 0.1 s, in old releases
every 5, and every 30 where nothing is set (`monitor_interval` in `WorkerSpec`)."""
CLOSE = 4
"""Points between two candidates below which the verdict is not sure: less than the step between grounds."""
_OBJECTS = ("all_gather_object", "gather_object", "broadcast_object_list", "scatter_object_list")
OUTSIDE = (XidReported, HostOom, NodeLost, KernelTaskHung)
"""What the driver, the kernel or a scheduler says: none of them waits in a collective."""


@record
class WeightFactor:
    """One thing that speaks for a candidate, or against it when its points are negative."""

    points: int
    why: str


@record
class WeighedCandidate:
    """A candidate with all that speaks for and against it."""

    candidate: Candidate
    factors: tuple[WeightFactor, ...]

    @property
    def points(self) -> int:
        """What it comes to."""
        return GROUNDS[self.candidate.ground][0] + sum(factor.points for factor in self.factors)

    @property
    def decides(self) -> bool:
        """True when it is more than a suspicion."""
        return self.candidate.decides and self.points >= DECIDES

    @property
    def against(self) -> WeightFactor | None:
        """What speaks most against it."""
        return min((f for f in self.factors if f.points < 0), key=lambda f: f.points, default=None)


def weigh_candidates(timeline: Timeline, candidates: Sequence[Candidate]) -> list[WeighedCandidate]:
    """All candidates by points, suspicions last; of equals the earlier one first."""
    weighed = [
        WeighedCandidate(candidate, tuple(_weight_factors(timeline, candidate, candidates)))
        for candidate in candidates
    ]

    def order_of(entry: WeighedCandidate) -> tuple[bool, int, tuple[float, str, int]]:
        first = min(map(timeline.moment, entry.candidate.evidence), default=(float("inf"), "", 0))
        return not entry.decides, -entry.points, first

    return sorted(weighed, key=order_of)


def based_on(best: WeighedCandidate) -> str:
    """What the verdict is based on, as a sentence."""
    reasons = [factor.why for factor in best.factors if factor.points > 0]
    return f"Based on: {'; '.join([_ground_of(best.candidate), *reasons])}."


def _ground_of(candidate: Candidate) -> str:
    """The ground of a candidate in words: `rank 3's own error`."""
    return GROUNDS[candidate.ground][1].format(_in_ranks(candidate) or "a process")


def _in_ranks(candidate: Candidate) -> str:
    """The ranks of a candidate, in words: `rank 3`."""
    return describe_identities(identities_of(_culprit_ranks(candidate)))


def why_less_likely(best: WeighedCandidate, rival: WeighedCandidate) -> str:
    """Why another candidate counts less, as a clause."""
    against = rival.against
    if against is not None and against.points <= -CLOSE:
        return against.why
    if GROUNDS[best.candidate.ground][0] > GROUNDS[rival.candidate.ground][0]:
        return f"{_ground_of(best.candidate)} explains {_ground_of(rival.candidate)}"
    own = [f for f in best.factors if f.points > 0 and f not in rival.factors]
    more = max(own, key=lambda f: f.points, default=None)
    return more.why if more is not None else "it was seen later"


def close_seconds(best: WeighedCandidate, rest: Iterable[WeighedCandidate]) -> list[WeighedCandidate]:
    """Candidates with another cause or culprit and nearly as many points."""
    candidate = best.candidate
    return [
        rival
        for rival in rest
        if (
            rival.candidate.cause != candidate.cause
            or _culprit_ranks(rival.candidate) not in (frozenset(), _culprit_ranks(candidate))
        )
        and rival.decides
        and best.points - rival.points < CLOSE
    ]


Rule = Callable[[Timeline, Candidate, Sequence[Candidate]], WeightFactor | None]


def _weight_factors(
    timeline: Timeline, candidate: Candidate, others: Sequence[Candidate]
) -> Iterator[WeightFactor]:
    for rule in _RULES:
        factor = rule(timeline, candidate, others)
        if factor is not None:
            yield factor


def _order_in_time(timeline: Timeline, candidate: Candidate, _: Sequence[Candidate]) -> WeightFactor | None:
    """A consequence comes after what it follows from."""
    first = timeline.first_wait
    waits = {id(wait.event) for wait in timeline.waits}
    own = [event for event in candidate.evidence if id(event) not in waits]
    if first is None or not own or not _of_the_process(candidate):
        return None
    if all(timeline.late(event) for event in own):
        who = describe_identities([first.who]) or "a rank"
        return WeightFactor(-40, f"it came only after {who} had given up waiting")
    wait_start = min((wait.began for wait in timeline.waits if wait.began is not None), default=None)
    if wait_start is not None and any(e.time is not None and e.time < wait_start for e in own):
        return WeightFactor(2, "it came before the others began to wait")
    return None


def _killed_first(timeline: Timeline, candidate: Candidate, _: Sequence[Candidate]) -> WeightFactor | None:
    """The first process to be killed says nothing: what another one says is an echo."""
    ranks = _culprit_ranks(candidate)
    killed = {
        e.who.rank for e in timeline.of_kind(ProcessExit) if e.what.first and e.what.signal in KILLS
    } - {None}
    if not killed or not ranks or candidate.ground not in ("own error", "death", "path"):
        return None
    if ranks & killed:
        return WeightFactor(3, "it is the process that its launcher saw end first")
    if candidate.ground == "own error" and not _long_before_exits(timeline, candidate):
        return WeightFactor(-12, f"{describe_identities(identities_of(killed))} had been killed by then")
    return None


def _lost_killed_process(
    timeline: Timeline, candidate: Candidate, _: Sequence[Candidate]
) -> WeightFactor | None:
    """Who lost a connection behind the crash of a process of its job spoke to that one, it seems."""
    raised = [event for event in candidate.evidence if isinstance(event.what, ExceptionRaised)]
    if candidate.ground != "own error" or not raised or len(raised) < len(candidate.evidence):
        return None
    killed = [e for e in timeline.of_kind(ProcessExit) if e.what.signal in KILLS and not e.what.helper]
    crashes = [death for death in killed if not any(_is_behind(death, event) for event in raised)]
    if crashes and all(is_lost_connection(event.what) for event in raised):
        who = describe_identities([crashes[0].who]) or "a process"
        return WeightFactor(-12, f"it lost a connection, and {who} had been killed by then")
    return None


def _is_behind(event: Event[Any], reference: Event[Any]) -> bool:
    """True for an event that is known to be later than another one, by its place or its time."""
    if event.place.source == reference.place.source:
        return event.place.offset > reference.place.offset
    return event.time is not None and reference.time is not None and event.time > reference.time


def _long_before_exits(timeline: Timeline, candidate: Candidate) -> bool:
    """True for an error long before a launcher saw any process end."""
    first_exit = min(
        (e.time for e in timeline.of_kind(ProcessExit) if e.what.first and e.time is not None), default=None
    )
    own = [event.time for event in candidate.evidence if event.time is not None]
    return first_exit is not None and bool(own) and min(own) < first_exit - NOTICED


def _waited_itself(timeline: Timeline, candidate: Candidate, _: Sequence[Candidate]) -> WeightFactor | None:
    """A rank that waited in the collective itself is not awaited by the others."""
    ranks = _culprit_ranks(candidate)
    waited = timeline.waiting_ranks
    if not ranks or not waited or candidate.ground in ("different", "compared", "named"):
        return None
    if ranks <= waited and candidate.ground in ("own error", "absence", "echo", "death"):
        return WeightFactor(-12 if _of_the_process(candidate) else 0, f"{_in_ranks(candidate)} waited itself")
    if ranks.isdisjoint(waited):
        return WeightFactor(3, f"the others waited, and {_in_ranks(candidate)} did not")
    return None


def _external_source(_: Timeline, candidate: Candidate, __: Sequence[Candidate]) -> WeightFactor | None:
    """The kernel, the driver and schedulers are no part of the job."""
    if any(isinstance(event.what, OUTSIDE) for event in candidate.evidence):
        return WeightFactor(3, "the kernel, the driver or a scheduler reported it")
    return None


def _is_corroborated(
    timeline: Timeline, candidate: Candidate, others: Sequence[Candidate]
) -> WeightFactor | None:
    """Two kinds of evidence in different lines for the same rank support each other."""
    ranks = _culprit_ranks(candidate)
    places = {event.place for event in candidate.evidence}
    for witness in others:
        if (
            witness.ground in (candidate.ground, "hint", "node")
            or not ranks
            or _culprit_ranks(witness) != ranks
        ):
            continue
        if not places >= {event.place for event in witness.evidence}:
            return WeightFactor(2, f"two kinds of evidence name {describe_identities(identities_of(ranks))}")
    return None


def _unused_transport(
    timeline: Timeline, candidate: Candidate, _: Sequence[Candidate]
) -> WeightFactor | None:
    """Only links that the job uses can break it."""
    by_nccl = any("NCCL" in event.text for event in candidate.evidence)
    if candidate.cause == "network_ib" and _on_one_node(timeline) and not by_nccl:
        return WeightFactor(-30, "the job ran on one node, and its GPUs do not talk over InfiniBand")
    if candidate.cause == "peer_cuda_oom" and _sized_by_others(timeline, candidate):
        return WeightFactor(-35, "it wanted room for an object whose size came out of a broken collective")
    return None


def _handled_by_program(
    _: Timeline, candidate: Candidate, others: Sequence[Candidate]
) -> WeightFactor | None:
    """An error that a program caught and logged counts less than an uncaught one."""
    logged = [
        event for event in candidate.evidence if isinstance(event.what, ExceptionRaised) and event.what.logged
    ]
    own = any(rival is not candidate and rival.ground == "own error" for rival in others)
    if candidate.ground == "own error" and own and logged and len(logged) == len(candidate.evidence):
        return WeightFactor(-CLOSE, "its program had caught and logged it")
    return None


def _lone_nan(timeline: Timeline, candidate: Candidate, _: Sequence[Candidate]) -> WeightFactor | None:
    """A NaN that a rank's peers did not have need not be the program's."""
    nan = nan_beside_peers(timeline) if candidate.ground == "own error" else None
    if nan is not None and all(
        any(event is nan_event for nan_event in nan.events) for event in candidate.evidence
    ):
        return WeightFactor(
            -12, f"{describe_identities(nan.people)} had it, and the others that ran the same program did not"
        )
    return None


_RULES: tuple[Rule, ...] = (
    _handled_by_program,
    _lone_nan,
    _order_in_time,
    _killed_first,
    _lost_killed_process,
    _waited_itself,
    _external_source,
    _is_corroborated,
    _unused_transport,
)


def _of_the_process(candidate: Candidate) -> bool:
    """True for a process's words about itself: their time matters."""
    return candidate.ground == "own error" or any(
        isinstance(event.what, Symptom) and event.what.personal for event in candidate.evidence
    )


def _on_one_node(timeline: Timeline) -> bool:
    """True when every rank of the job was seen, and all on one host."""
    hosts = {event.who.host for event in timeline.events if event.who.host and event.who.rank is not None}
    return len(hosts) == 1 and timeline.expected is not None and len(timeline.ranks_seen) >= timeline.expected


def _sized_by_others(timeline: Timeline, candidate: Candidate) -> bool:
    """True when the memory was for an object whose size other ranks had sent."""
    ranks = _culprit_ranks(candidate)
    return any(
        event.who.rank in ranks and any(frame.function in _OBJECTS for frame in event.what.frames)
        for event in timeline.of_kind(ExceptionRaised)
    )


def _culprit_ranks(candidate: Candidate) -> frozenset[int]:
    return frozenset(who.rank for who in (*candidate.culprits, *candidate.parties) if who.rank is not None)
