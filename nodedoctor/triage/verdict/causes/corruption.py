"""Suspected silent data corruption: a rank computed what its peers did not, and nothing reports a fault.

A program's own mistake can look like it, so the confidence is never high. What all ranks have, or one of
which no peer is seen, stays the program's.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from nodedoctor.model import Fix
from nodedoctor.record import record
from nodedoctor.steps import looks
from nodedoctor.triage.describe import describe_identities, distinct_ranks
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import Candidate, Confidence, Event, Identity
from nodedoctor.triage.patterns.exits import PeersTerminated, ProcessExit
from nodedoctor.triage.patterns.trace import ExceptionRaised
from nodedoctor.triage.timeline import QUIET, Timeline
from nodedoctor.triage.verdict.causes.culprits import find_culprits
from nodedoctor.wording import count_with_noun, singular_or_plural

_NAN = re.compile(
    r"(?:\b(?:found|detected|result|got|is|are|was|were|became|returned|produced)|[=:])"
    r"\s?(?:\w+ ){0,2}(?:NaN|nan)s?\b"
    r"|\b(?:NaN|nan)s? (?:values? |loss |gradients? )?(?:in|detected|found|encountered)\b"
)
"""That a number is none, and not that data or a text has such a word in it."""
_SUSPECTED = "silent data corruption is suspected"
_FIXES = (
    Fix(
        "Compute the same step with the same data on another node: the same result again is the data or the"
        " program, another one is the GPU.",
        (),
        "investigate",
    ),
    Fix(
        "Drain the node of that rank and test its GPUs.",
        looks("nodedoctor compute.gemm --preview", "dcgmi diag -r 3"),
        "drain",
        "every job on the node",
    ),
    Fix(
        "Restart without that node from the last checkpoint before this step: what was saved since may be"
        " corrupt.",
        (),
        "restart-job",
    ),
)


@record
class Alone:
    """What few ranks say of a NaN of their own, and how many others were seen to go on without one."""

    events: tuple[Event[Any], ...]
    people: tuple[Identity, ...]
    peers: int


def nan_beside_peers(story: Timeline) -> Alone | None:
    """A NaN that one rank had, or a small group; None where more had one, or no peer is seen without.

    A peer counts that is heard of after it, or that its launcher had to end: it was alive then. What only
    rank 0 says need not be its own: many programs look at the mean loss there, and nowhere else.
    """
    local = story.marked(Mark.NOT_A_NUMBER)
    told = [*local, *(event for event in story.of(ExceptionRaised) if _tells_of_nan(event.what))]
    people = find_culprits(story, told) if told and not story.folded else ()
    ranks = {who.rank for who in people}
    if not ranks or None in ranks or (ranks == {0} and not local) or story.marked(Mark.REPEAT_AGREES):
        return None
    printed = {event.who.rank for event in story.marked(Mark.PRINTED_NAN)}
    if {event.who.rank for event in told} not in (ranks, {None}) or not printed <= ranks:
        return None  # who else had it is not known, or known
    first = min(told, key=story.moment)
    peers = {
        event.who.rank
        for event in story.events
        if _is_after(event, first) and not (isinstance(event.what, ProcessExit) and event.what.signal is None)
    }
    count = max(
        len(peers - ranks - {None}), len({event.who.pid for event in story.of(PeersTerminated)} - {None})
    )
    enough = count > 0 if len(ranks) == 1 else count >= 2 * len(ranks)
    return Alone(tuple(told), people, count) if enough else None


def _tells_of_nan(raised: ExceptionRaised) -> bool:
    """True for a NaN; the loss scale is the same on all ranks, and who ends first may tell of it alone."""
    return _NAN.search(raised.message) is not None and "scale" not in raised.message


def _is_after(event: Event[Any], first: Event[Any]) -> bool:
    """True for what was told after another event, as far as clocks or places tell, and for any trouble."""
    if event.time is not None and first.time is not None:
        return event.time >= first.time
    if event.kind not in QUIET:
        return True
    return event.place.source == first.place.source and event.place.offset > first.place.offset


def odd_number(story: Timeline) -> Iterator[Candidate]:
    """One rank's NaN beside clean peers; a pipeline's last stage is the only one that has a loss at all."""
    alone = nan_beside_peers(story)
    if alone is None:
        return
    one = len(alone.people) == 1
    last = max({*story.ranks_seen, (story.expected or 0) - 1}, default=0)
    no_peer_has_it = alone.people[0].rank == last and any("loss" in event.text for event in alone.events)
    sure: Confidence = "medium" if one and alone.peers > 1 and not no_peer_has_it else "low"
    its = singular_or_plural(len(alone.people), "its", "their")
    headline = (
        f"{describe_identities(alone.people)} computed a NaN, and "
        f"{count_with_noun(alone.peers, 'peer')} did not: {_SUSPECTED},"
    )
    headline += f" or {its} own batch"
    culprits, parties = (alone.people, ()) if one else ((), alone.people)
    yield Candidate(
        "gpu_hardware_xid", "compared", sure, headline, alone.events[:4], culprits, (), parties, _FIXES
    )


def replicas(story: Timeline) -> Iterator[Candidate]:
    """Parameters that differ between replicas: the rank in the minority, where one is."""
    told, odd = story.marked(Mark.REPLICAS_DIFFER), story.marked(Mark.ODD_HASH)
    if not told:
        return
    group = distinct_ranks(event.who for event in told)
    differ = distinct_ranks(event.who for event in odd)
    alike = [who for who in group if who.rank not in {other.rank for other in differ}]
    culprits: list[Identity] = []
    if differ and len(alike) > len(differ):
        culprits = differ
    elif len(alike) == 1 < len(differ):
        culprits = alike
    parties = [] if culprits else distinct_ranks([*group, *differ])
    headline = (
        f"the parameters of {describe_identities(culprits)} are not those of the other replicas: {_SUSPECTED}"
        if culprits
        else f"the replicas of the model{_among(parties)} do not have the same parameters: {_SUSPECTED}"
    )
    yield Candidate(
        "gpu_hardware_xid",
        "compared",
        "medium" if culprits else "low",
        headline,
        (*odd[:2], *told[:2]),
        tuple(culprits),
        (),
        tuple(parties),
        _FIXES,
    )


def _among(people: list[Identity]) -> str:
    return f" ({describe_identities(people)})" if people else ""


def repeated(story: Timeline) -> Iterator[Candidate]:
    """A step that gave another result when it was computed again; some programs name the first rank."""
    told = story.marked(Mark.REPEAT_DIFFERS)
    if not told:
        return
    culprits = tuple(distinct_ranks(event.who for event in told))
    all_may = not culprits or {who.rank for who in culprits} == {0}
    headline = (
        f"{describe_identities(culprits) or 'a rank'} computed the same step twice with different results"
    )
    yield Candidate(
        "gpu_hardware_xid",
        "named",
        "low" if all_may else "medium",
        f"{headline}: {_SUSPECTED}, or a program that is not deterministic",
        tuple(told[:4]),
        culprits,
        fixes=_FIXES,
    )


RULES = (odd_number, replicas, repeated)
