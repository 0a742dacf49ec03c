"""Weighs candidate causes: what each rests on, and what else in the story speaks for or against it.

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
from nodedoctor.triage.describe import describe_identities
from nodedoctor.triage.model import Candidate, Event, Ground, Identity
from nodedoctor.triage.patterns.exits import ProcessExit
from nodedoctor.triage.patterns.log_pattern import Symptom
from nodedoctor.triage.patterns.machine import HostOom, KernelTaskHung, NodeLost, XidReported
from nodedoctor.triage.patterns.trace import ExceptionRaised
from nodedoctor.triage.timeline import Timeline
from nodedoctor.triage.verdict.causes.corruption import nan_beside_peers

GROUNDS: dict[Ground, tuple[int, str]] = {
    "fault": (50, "a fault of the machine or its software"),
    "own error": (40, "an error that a process reports of itself"),
    "compared": (36, "a comparison of the ranks with each other"),
    "named": (34, "the word of a program that knows all ranks"),
    "death": (32, "a process that ended"),
    "path": (28, "a connection that failed"),
    "different": (26, "a difference between the ranks"),
    "absence": (22, "a rank that did not come"),
    "echo": (14, "what the others see when a process ends"),
    "last words": (12, "a line about a failure, where nothing else was read"),
    "node": (10, "a failed check of the node"),
    "hint": (0, "a hint"),
}
"""Points of each ground, and its name in a sentence."""

DECIDES = 10
"""A candidate with fewer points is a suspicion: the verdict stays open."""
NOTICED = 60.0
"""Seconds in which a launcher notices that a process has ended: torchrun looks every 0.1 s, in old releases
every 5, and every 30 where nothing is set (`monitor_interval` in `WorkerSpec`)."""
CLOSE = 4
"""Points between two candidates below which the verdict is not sure: less than the step between grounds."""
KILLS = frozenset((4, 7, 8, 9, 11))
"""Signals that end a process without a word of its own; SIGABRT and SIGTERM are how victims end."""
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


def weigh_candidates(story: Timeline, candidates: Sequence[Candidate]) -> list[WeighedCandidate]:
    """All candidates, suspicions last, the one with the most points first; the earlier one where equal."""
    weighed = [WeighedCandidate(one, tuple(_weight_factors(story, one, candidates))) for one in candidates]
    return sorted(weighed, key=lambda one: (not one.decides, -one.points, _first_time(story, one.candidate)))


def rests_on(best: WeighedCandidate) -> str:
    """What the verdict rests on, as a sentence."""
    reasons = [factor.why for factor in best.factors if factor.points > 0]
    return f"It rests on {'; '.join([GROUNDS[best.candidate.ground][1], *reasons])}."


def why_less_likely(best: WeighedCandidate, other: WeighedCandidate) -> str:
    """Why the other one counts less, as a clause."""
    against = other.against
    if against is not None and against.points <= -CLOSE:
        return against.why
    mine, its = GROUNDS[best.candidate.ground], GROUNDS[other.candidate.ground]
    if mine[0] > its[0]:
        return f"{mine[1]} explains {its[1]}"
    own = [f for f in best.factors if f.points > 0 and f not in other.factors]
    more = max(own, key=lambda f: f.points, default=None)
    return more.why if more is not None else "it was seen later"


def close_seconds(best: WeighedCandidate, rest: Iterable[WeighedCandidate]) -> list[WeighedCandidate]:
    """The other candidates that blame somebody or something else and have nearly as many points."""
    one = best.candidate
    return [
        other
        for other in rest
        if (
            other.candidate.cause != one.cause
            or _culprit_ranks(other.candidate) not in (frozenset(), _culprit_ranks(one))
        )
        and other.decides
        and best.points - other.points < CLOSE
    ]


Rule = Callable[[Timeline, Candidate, Sequence[Candidate]], WeightFactor | None]


def _weight_factors(story: Timeline, one: Candidate, others: Sequence[Candidate]) -> Iterator[WeightFactor]:
    for rule in _RULES:
        factor = rule(story, one, others)
        if factor is not None:
            yield factor


def _order_in_time(story: Timeline, one: Candidate, _: Sequence[Candidate]) -> WeightFactor | None:
    """A consequence comes after what it follows from."""
    first = story.first_wait
    own = [event for event in one.evidence if not _is_wait(story, event)]
    if first is None or not own or not _of_the_process(one):
        return None
    if all(story.late(event) for event in own):
        who = describe_identities([first.who]) or "a rank"
        return WeightFactor(-40, f"it came only after {who} had given up waiting")
    begun = min((wait.began for wait in story.waits if wait.began is not None), default=None)
    if begun is not None and any(e.time is not None and e.time < begun for e in own):
        return WeightFactor(2, "it came before the others began to wait")
    return None


def _killed_first(story: Timeline, one: Candidate, _: Sequence[Candidate]) -> WeightFactor | None:
    """The first process to be killed says nothing itself: what another one says then is an echo."""
    ranks = _culprit_ranks(one)
    killed = {e.who.rank for e in story.of(ProcessExit) if e.what.first and e.what.signal in KILLS} - {None}
    if not killed or not ranks or one.ground not in ("own error", "death", "path"):
        return None
    if ranks & killed:
        return WeightFactor(3, "it is the process that its launcher saw end first")
    if one.ground == "own error" and not _long_before_exits(story, one):
        return WeightFactor(
            -12, f"{describe_identities(Identity(rank=rank) for rank in killed)} had been killed by then"
        )
    return None


def _long_before_exits(story: Timeline, one: Candidate) -> bool:
    """True for an error so long before a launcher saw any process end that nothing had ended by then."""
    told = min((e.time for e in story.of(ProcessExit) if e.what.first and e.time is not None), default=None)
    own = [event.time for event in one.evidence if event.time is not None]
    return told is not None and bool(own) and min(own) < told - NOTICED


def _waited_itself(story: Timeline, one: Candidate, _: Sequence[Candidate]) -> WeightFactor | None:
    """Who came to the collective and waited there is waited for by nobody."""
    ranks = _culprit_ranks(one)
    waited = {wait.who.rank for wait in story.waits}
    if not ranks or not waited or one.ground in ("different", "compared", "named"):
        return None
    if ranks <= waited and one.ground in ("own error", "absence", "echo", "death"):
        return WeightFactor(
            -12 if _of_the_process(one) else 0, f"{describe_identities(one.culprits)} waited itself"
        )
    if ranks.isdisjoint(waited):
        return WeightFactor(3, f"the others waited, and {describe_identities(one.culprits)} did not")
    return None


def _external_source(_: Timeline, one: Candidate, __: Sequence[Candidate]) -> WeightFactor | None:
    """The kernel, the driver and schedulers are no part of the job."""
    if any(isinstance(event.what, OUTSIDE) for event in one.evidence):
        return WeightFactor(3, "the kernel, the driver or a scheduler says it")
    return None


def _is_corroborated(story: Timeline, one: Candidate, others: Sequence[Candidate]) -> WeightFactor | None:
    """Two different kinds of evidence that point to the same rank support each other; one line is not two."""
    ranks = _culprit_ranks(one)
    places = {event.place for event in one.evidence}
    for other in others:
        if other.ground in (one.ground, "hint", "node") or not ranks or _culprit_ranks(other) != ranks:
            continue
        if not places >= {event.place for event in other.evidence}:
            return WeightFactor(
                2, f"two kinds of evidence name {describe_identities(Identity(rank=rank) for rank in ranks)}"
            )
    return None


def _unused_transport(story: Timeline, one: Candidate, _: Sequence[Candidate]) -> WeightFactor | None:
    """Only links that the job uses can break it."""
    if one.cause == "network_ib" and _on_one_node(story) and not _of_nccl(one):
        return WeightFactor(-30, "the job ran on one node, and its GPUs do not talk over InfiniBand")
    if one.cause == "peer_cuda_oom" and _sized_by_others(story, one):
        return WeightFactor(-35, "it wanted room for an object whose size came out of a broken collective")
    return None


def _handled_by_program(_: Timeline, one: Candidate, others: Sequence[Candidate]) -> WeightFactor | None:
    """What a program's logger told had been caught: an error that nobody caught counts more."""
    logged = [
        event for event in one.evidence if isinstance(event.what, ExceptionRaised) and event.what.logged
    ]
    own = any(other is not one and other.ground == "own error" for other in others)
    if one.ground == "own error" and own and logged and len(logged) == len(one.evidence):
        return WeightFactor(-CLOSE, "its program had caught and logged it")
    return None


def _peers(story: Timeline, one: Candidate, _: Sequence[Candidate]) -> WeightFactor | None:
    """A NaN that the peers of a rank did not have need not be of the program that all of them run."""
    alone = nan_beside_peers(story) if one.ground == "own error" else None
    if alone is not None and all(any(event is other for other in alone.events) for event in one.evidence):
        return WeightFactor(
            -12,
            f"{describe_identities(alone.people)} had it, and the others that ran the same program did not",
        )
    return None


_RULES: tuple[Rule, ...] = (
    _handled_by_program,
    _peers,
    _order_in_time,
    _killed_first,
    _waited_itself,
    _external_source,
    _is_corroborated,
    _unused_transport,
)


def _of_the_process(one: Candidate) -> bool:
    """True for what a process says about itself, so that it matters when it says it."""
    return one.ground == "own error" or any(
        isinstance(event.what, Symptom) and event.what.personal for event in one.evidence
    )


def _on_one_node(story: Timeline) -> bool:
    """True when every rank of the job was seen, and all on one host."""
    hosts = {event.who.host for event in story.events if event.who.host and event.who.rank is not None}
    return len(hosts) == 1 and story.expected is not None and len(story.ranks_seen) >= story.expected


def _sized_by_others(story: Timeline, one: Candidate) -> bool:
    """True when the memory was wanted for an object whose size the other ranks had sent."""
    ranks = _culprit_ranks(one)
    return any(
        event.who.rank in ranks and any(frame.function in _OBJECTS for frame in event.what.frames)
        for event in story.of(ExceptionRaised)
    )


def _of_nccl(one: Candidate) -> bool:
    return any("NCCL" in event.text for event in one.evidence)


def _is_wait(story: Timeline, event: Event[Any]) -> bool:
    return any(event is wait.event for wait in story.waits)


def _culprit_ranks(one: Candidate) -> frozenset[int]:
    return frozenset(who.rank for who in (*one.culprits, *one.parties) if who.rank is not None)


def _first_time(story: Timeline, one: Candidate) -> tuple[float, str, int]:
    return min((story.moment(event) for event in one.evidence), default=(float("inf"), "", 0))
