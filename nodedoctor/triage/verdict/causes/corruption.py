"""Suspected silent data corruption: a rank's results differ from its peers', without a reported fault.

A program's own mistake can look like it, so the confidence is never high. What all ranks have, or one while
no peer prints a number in that step or later, stays the program's: a peer that waits, or is ended, has none.
So does one rank's NaN where the loss rose before, or where its own check alone speaks: a bad batch makes the
local loss a NaN on the rank that has it.
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
from nodedoctor.triage.patterns.corruption import FINITE
from nodedoctor.triage.patterns.log_pattern import Symptom
from nodedoctor.triage.patterns.nccl import BusBandwidth
from nodedoctor.triage.patterns.progress import TrainingStep
from nodedoctor.triage.patterns.trace import ExceptionRaised
from nodedoctor.triage.timeline.model import Timeline
from nodedoctor.triage.verdict.causes.culprits import find_culprits
from nodedoctor.wording import count_with_noun, decimal, singular_or_plural

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
class LoneNan:
    """A NaN of a few ranks: their lines, themselves, and how many peers had none."""

    events: tuple[Event[Any], ...]
    people: tuple[Identity, ...]
    peers: int


def nan_beside_peers(timeline: Timeline) -> LoneNan | None:
    """A NaN of one rank or a few whose peers had none; else None.

    A peer counts that prints a loss or a norm in the same step or later. What only rank 0 says need not be
    its own: many programs look at the mean loss there, and nowhere else.
    """
    local = timeline.marked(Mark.NOT_A_NUMBER)
    nans = [*local, *(event for event in timeline.of_kind(ExceptionRaised) if _mentions_nan(event.what))]
    people = find_culprits(timeline, nans) if nans and not timeline.folded else ()
    ranks = {who.rank for who in people}
    if not ranks or None in ranks or (ranks == {0} and not local) or timeline.marked(Mark.REPEAT_AGREES):
        return None
    curve = _curve_before(timeline, min(nans, key=timeline.moment))
    if curve is Mark.CURVE_ROSE or (curve is None and not local):
        return None  # it diverged, or only the trainer's own check speaks
    printed = {event.who.rank for event in timeline.marked(Mark.PRINTED_NAN)}
    if {event.who.rank for event in nans} not in (ranks, {None}) or not printed <= ranks:
        return None  # other ranks had it, too, or may have had it
    first = min(nans, key=timeline.moment)
    count = len(_finite_ranks(timeline, first) - ranks)
    enough = count > 0 if len(ranks) == 1 else count >= 2 * len(ranks)
    return LoneNan(tuple(nans), people, count) if enough else None


def _curve_before(timeline: Timeline, nan: Event[Any]) -> Mark | None:
    """What the loss and the gradient norm did before a NaN, in any log; None where none prints them."""
    turns = [
        event
        for mark in (Mark.CURVE_CALM, Mark.CURVE_ROSE)
        for event in timeline.marked(mark)
        if event.place.source != nan.place.source or event.place.offset < nan.place.offset
    ]
    last = {event.place.source: event.what for event in sorted(turns, key=lambda turn: turn.place.offset)}
    return max(last.values(), key=lambda mark: mark is Mark.CURVE_ROSE, default=None)


def _mentions_nan(raised: ExceptionRaised) -> bool:
    """True for a NaN outside the loss scale, which is the same on all ranks."""
    return _NAN.search(raised.message) is not None and "scale" not in raised.message


_STEP = re.compile(r"\b(?:iteration|iter|step)[ :=#]{1,2}(?P<step>\d{1,12})\b")


def _finite_ranks(timeline: Timeline, nan: Event[Any]) -> set[int]:
    """Ranks whose counters have a finite loss or norm beside them, in the step of a NaN or later."""
    match = _STEP.search(nan.text)
    step = float(match["step"]) if match else None
    return {
        event.who.rank
        for event in timeline.of_kind(TrainingStep)
        if event.who.rank is not None
        and FINITE.search(event.text)
        and (_is_after(event, nan) if step is None else event.what.last[-1] >= step)
    }


def _is_after(event: Event[Any], first: Event[Any]) -> bool:
    """True for a later event by time or place."""
    if event.time is not None and first.time is not None:
        return event.time >= first.time
    return event.place.source == first.place.source and event.place.offset > first.place.offset


def lone_nan(timeline: Timeline) -> Iterator[Candidate]:
    """One rank's NaN beside clean peers; only a pipeline's last stage has a loss."""
    nan = nan_beside_peers(timeline)
    if nan is None:
        return
    one_rank = len(nan.people) == 1
    last = max({*timeline.ranks_seen, (timeline.expected or 0) - 1}, default=0)
    no_peer_has_it = nan.people[0].rank == last and any("loss" in event.text for event in nan.events)
    sure: Confidence = "medium" if one_rank and nan.peers > 1 and not no_peer_has_it else "low"
    its = singular_or_plural(len(nan.people), "its", "their")
    headline = (
        f"{describe_identities(nan.people)} computed a NaN, and "
        f"{count_with_noun(nan.peers, 'peer')} did not: {_SUSPECTED},"
    )
    headline += f" or {its} own batch"
    culprits, parties = (nan.people, ()) if one_rank else ((), nan.people)
    yield Candidate(
        "gpu_hardware_xid", "compared", sure, headline, nan.events[:4], culprits, (), parties, _FIXES
    )


def replicas_differ(timeline: Timeline) -> Iterator[Candidate]:
    """Parameters that differ between replicas: the rank in the minority, where one is."""
    reports, odd_hashes = timeline.marked(Mark.REPLICAS_DIFFER), timeline.marked(Mark.ODD_HASH)
    group = distinct_ranks(event.who for event in reports)
    outliers = distinct_ranks(event.who for event in odd_hashes)
    matching = [who for who in group if who.rank not in {outlier.rank for outlier in outliers}]
    culprits: list[Identity] = []
    if outliers and len(matching) > len(outliers):
        culprits = outliers
    elif len(matching) == 1 < len(outliers):
        culprits = matching
    parties = [] if culprits else distinct_ranks([*group, *outliers])
    among = f" ({describe_identities(parties)})" if parties else ""
    headline = (
        f"the parameters of {describe_identities(culprits)} are not those of the other replicas: {_SUSPECTED}"
        if culprits
        else f"the replicas of the model{among} do not have the same parameters: {_SUSPECTED}"
    )
    sure: Confidence = "medium" if culprits else "low"
    evidence, guilty = (*odd_hashes[:2], *reports[:2]), tuple(culprits)
    yield Candidate(
        "gpu_hardware_xid", "compared", sure, headline, evidence, guilty, (), tuple(parties), _FIXES
    )


def repeat_differs(timeline: Timeline) -> Iterator[Candidate]:
    """A step that gave another result when computed again; some programs name a rank."""
    reports = timeline.marked(Mark.REPEAT_DIFFERS)
    culprits = tuple(distinct_ranks(event.who for event in reports))
    all_may = not culprits or {who.rank for who in culprits} == {0}
    headline = (
        f"{describe_identities(culprits) or 'a rank'} computed the same step twice with different results:"
        f" {_SUSPECTED}, or a program that is not deterministic"
    )
    sure: Confidence = "low" if all_may else "medium"
    yield Candidate("gpu_hardware_xid", "named", sure, headline, tuple(reports[:4]), culprits, fixes=_FIXES)


def wrong_values(timeline: Timeline) -> Iterator[Candidate]:
    """Wrong values of a test of NCCL that was faster than PCIe: GPUs or NVLink, and no path through PCIe."""
    wrong_at: dict[str, Event[Any]] = {}
    for event in timeline.events:
        source, what = event.place.source, event.what
        if isinstance(what, Symptom) and what.name == "wrong-values":
            wrong_at[source] = event
        elif isinstance(what, BusBandwidth) and what.gigabytes > PCIE and source in wrong_at:
            if event.place.offset - wrong_at[source].place.offset >= _SUMMARY:
                continue
            speed = decimal(what.gigabytes, 3)
            headline = (
                f"a test of NCCL read wrong values at {speed} GB/s, which only NVLink reaches: {_SUSPECTED}"
            )
            evidence = (wrong_at[source], event)
            yield Candidate("gpu_hardware_xid", "compared", "medium", headline, evidence, fixes=_VALUES_FIXES)
            return


_VALUES_FIXES = (
    Fix(
        "Repeat the test on fewer GPUs at a time: the wrong values go with one GPU or one link.",
        looks("nvidia-smi nvlink -e", "nodedoctor compute.gemm nvlink --preview"),
        "investigate",
    ),
    Fix("Drain the node and test its GPUs.", looks("dcgmi diag -r 3"), "drain", "every job on the node"),
)
PCIE = 64.0
"""GB/s that 16 lanes of PCIe 5 carry in one direction: NCCL's bus bandwidth through them is below."""
_SUMMARY = 400
"""Bytes from the count of wrong values to the bandwidth, the next line of nccl-tests' summary."""


_NAN_FIXES = (
    Fix(
        "Stop the job, and start it from a checkpoint before the first NaN: what it has computed and saved"
        " since is lost.",
        (),
        "restart-job",
    ),
    Fix(
        "Look at the steps before the first NaN: a learning rate or gradient norm that rose, a loss scale"
        " that fell, a batch. The same NaN in the same step again is the data or the program.",
        (),
        "investigate",
    ),
)


def lost_training(timeline: Timeline) -> tuple[Event[Any], ...]:
    """The marks of losses that are NaN where the log ends; empty where they are numbers again."""
    marks = sorted(
        (*timeline.marked(Mark.LOSS_STAYS_NAN), *timeline.marked(Mark.LOSS_IS_FINITE)),
        key=lambda event: event.place.offset,
    )
    last = {event.place.source: event for event in marks}
    return tuple(event for event in last.values() if event.what is Mark.LOSS_STAYS_NAN)


def loss_stays_nan(timeline: Timeline) -> Iterator[Candidate]:
    """The job goes on, and every loss that it prints is NaN: nothing stops it."""
    marks = lost_training(timeline)
    if marks:
        headline = (
            "the loss is NaN in every line that prints one, to the end: the job goes on and learns nothing"
        )
        yield Candidate("user_code_exception", "last words", "medium", headline, marks[:4], fixes=_NAN_FIXES)
