"""Ranks in different collectives: a majority shows the odd one, else no rank is blamed."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations

from nodedoctor.grouping import group_by
from nodedoctor.model import Fix
from nodedoctor.triage.describe import describe_identities, distinct_ranks, identities_of
from nodedoctor.triage.flight.compare_ranks import find_minority
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import Candidate, Cause, Confidence, Event
from nodedoctor.triage.patterns.frameworks import DIFFER, CollectiveShape
from nodedoctor.triage.patterns.last_lines import WAS_DONE, LastLines
from nodedoctor.triage.patterns.log_pattern import Symptom
from nodedoctor.triage.patterns.stacks import COLLECTIVES, StackFrame, is_library
from nodedoctor.triage.patterns.store import (
    CALLED_DIFFERENT,
    CollectiveFingerprint,
    CollectiveMismatch,
    GlooTimeout,
    PeerGone,
    SizeMismatch,
)
from nodedoctor.triage.patterns.trace import ExceptionRaised
from nodedoctor.triage.patterns.watchdog import DesyncMissing
from nodedoctor.triage.timeline.counters import statuses_ahead
from nodedoctor.triage.timeline.model import CollectiveWait, Timeline
from nodedoctor.triage.timeline.pace import ended_bars
from nodedoctor.triage.verdict.causes.groups import mixes_groups
from nodedoctor.wording import count_with_noun

_CALLS = re.compile(rf"{COLLECTIVES}|allreduce|\breduce\(|backward\(|save_checkpoint")
_TRANSFERS = ("send", "recv", "isend", "irecv", "batch_isend_irecv")
_SAME_NUMBER = (
    Fix(
        "Give every rank the same number of batches: drop_last=True, a DistributedSampler, or a number of"
        " steps that all ranks agree on before the loop. An iterable dataset splits unevenly where its"
        " length is not a multiple of ranks and workers.",
        (),
        "config",
    ),
    Fix(
        "With DDP, where the data cannot be even: inside `with Join([model]):` ranks without a batch"
        " still join the collectives of the others (torch.distributed.algorithms.Join, not for FSDP).",
        (),
        "config",
    ),
)
_GIVEN_NAME = re.compile(r"^(?!default|undefined|mesh_)[A-Za-z]\w*$")
"""A group's name that a program gave; torch gives numbers, and names of its own to meshes and the default."""
_OF_ALL = re.compile(r"_?(?:ALL|REDUCE_SCATTER|BARRIER)")
"""Collectives that no rank completes before all have entered; the root of a broadcast may, and a sender."""
MAX_DISTANCE = 100
"""The largest distance of sequence numbers of ranks that call different collectives at the same time. A rank
that waits in a broadcast of long ago did not get what the others got, and called nothing else. Ours."""


def reported_mismatch(timeline: Timeline) -> Iterator[Candidate]:
    """DETAIL or DDP compared pairs of ranks: the vote over all lines names one."""
    mismatches = [*timeline.of_kind(CollectiveMismatch), *_shapes_passed(timeline)]
    if not mismatches:
        return
    shown: dict[int, CollectiveFingerprint] = {}
    for event in mismatches:
        for fingerprint in event.what.fingerprints:
            if not shown.get(fingerprint.rank, fingerprint).shown or fingerprint.rank not in shown:
                shown[fingerprint.rank] = fingerprint
    odd_ranks = find_minority(
        {rank: fingerprint.shown for rank, fingerprint in shown.items() if fingerprint.shown}
    )
    culprits = identities_of(odd_ranks)
    parties = () if odd_ranks else identities_of(sorted(shown))
    sure: Confidence = "high" if odd_ranks else "medium"
    headline = _describe_mismatch(shown, set(odd_ranks), mismatches[0].what.about)
    evidence = tuple(mismatches[:4])
    yield Candidate("collective_mismatch", "compared", sure, headline, evidence, culprits, parties=parties)


def _describe_mismatch(
    shown: Mapping[int, CollectiveFingerprint], culprits: Collection[int], about: str
) -> str:
    """Who called what, as `collective 6: rank 3 called ALLREDUCE with [2048] Float, the others ...`."""
    kinds = {fingerprint.kind for fingerprint in shown.values() if fingerprint.kind}
    calls = {
        rank: call
        for rank, fingerprint in sorted(shown.items())
        if (call := _describe_call(fingerprint, len(kinds) > 1))
    }
    same_kind = len(kinds) == 1 and about == CALLED_DIFFERENT
    numbers = {number for fingerprint in shown.values() if (number := fingerprint.number)}
    where = f"collective {numbers.pop()}: " if len(numbers) == 1 else ""
    verb = f"called {next(iter(kinds))} with" if same_kind else "called" if kinds else "passed"
    ours, theirs = (
        {call for rank, call in calls.items() if (rank in culprits) is side} for side in (True, False)
    )
    who = describe_identities(identities_of(culprits or shown)) or "the ranks"
    if len(ours) == len(theirs) == 1:
        return f"{where}{who} {verb} {ours.pop()}, the others {theirs.pop()}"
    if len(shown) == 1:  # the line ends before it names the other one
        return f"{who} and another rank called different things"
    if same_kind:
        about = f"called {next(iter(kinds))} with different tensors"
    each_call = "; ".join(f"rank {rank}: {call}" for rank, call in list(calls.items())[:3])
    others = " and the others" if culprits else ""
    return f"{where}{who}{others} {about}" + (f": {each_call}" if len(calls) > 1 else "")


def _shapes_passed(timeline: Timeline) -> list[Event[CollectiveMismatch]]:
    """The tensors that each process passed, as accelerate lists them behind its exception."""
    raised = [event for event in timeline.of_kind(Symptom) if DIFFER in event.text]
    passed = [
        CollectiveFingerprint(event.who.rank, event.what.shape)
        for event in timeline.of_kind(CollectiveShape)
        if event.who.rank is not None
    ]
    if not raised or not passed:
        return []
    first = raised[0]
    what = CollectiveMismatch(tuple(passed), "passed different tensors to a collective")
    return [Event(what, first.place, first.who, first.time, first.text, first.repeated, first.origin)]


def _describe_call(fingerprint: CollectiveFingerprint, with_kind: bool) -> str:
    """What a rank called, or has, in a few words."""
    if not fingerprint.kind:
        return fingerprint.shown
    return f"{fingerprint.kind} {fingerprint.tensors}".rstrip() if with_kind else fingerprint.tensors


def desync_report(timeline: Timeline) -> Iterator[Candidate]:
    """The desync report names the ranks that never joined."""
    reports = [event for event in timeline.of_kind(DesyncMissing) if event.what.ranks]
    if reports:
        culprits = identities_of(sorted({r for e in reports for r in e.what.ranks})[:64])
        reported = any("mismatched" in event.text for event in reports) and len(timeline.waits) > 1
        mismatch = reported and any(
            len({wait.work.signature for wait in waits}) > 1 for waits in _waits_by_group(timeline)
        )
        cause: Cause = "collective_mismatch" if mismatch else "cpu_stuck_or_slow_rank"
        headline = f"{describe_identities(culprits)} never joined the collective (PyTorch's desync report)"
        yield Candidate(cause, "named", "high", headline, tuple(reports[:4]), culprits)


def gloo_sizes(timeline: Timeline) -> Iterator[Candidate]:
    """Gloo got more bytes than expected: the line's rank had only the smaller buffer."""
    events = timeline.of_kind(SizeMismatch)
    what = events[0].what
    headline = (
        "one rank called the collective with another size or type:"
        f" {what.received} bytes received, {what.expected} expected"
    )
    evidence = (*events[:2], *(event for event, _ in _calling_frames(timeline)[:2]))
    yield Candidate("collective_mismatch", "compared", "high", headline, evidence)


def _calls_contradict(first: tuple[object, ...], second: tuple[object, ...]) -> bool:
    """Whether two collectives differ in what is known of both."""
    return any(a != b for a, b in zip(first, second, strict=True) if a and b)


def different_collectives(timeline: Timeline) -> Iterator[Candidate]:
    """Timeouts of one group in different collectives: order, type or size differ between ranks."""
    for waits in _waits_by_group(timeline):
        by_rank = {wait.who.rank: wait for wait in waits if wait.who.rank is not None}
        signatures = {rank: wait.work.signature for rank, wait in by_rank.items()}
        if not any(_calls_contradict(*pair) for pair in combinations(set(signatures.values()), 2)):
            continue
        numbers = [wait.work.seq for wait in waits if wait.work.seq is not None]
        if numbers and max(numbers) - min(numbers) > MAX_DISTANCE:
            continue
        odd_ranks = find_minority({rank: str(value) for rank, value in signatures.items()})
        if _went_on_from_broadcast(by_rank, odd_ranks):
            odd_ranks = []
        culprits = tuple(by_rank[rank].who for rank in odd_ranks)
        parties = () if odd_ranks else tuple(by_rank[rank].who for rank in sorted(signatures))
        calls = "; ".join(f"rank {rank}: {_shown_signature(by_rank[rank])}" for rank in sorted(by_rank)[:4])
        yield Candidate(
            "collective_mismatch",
            "different",
            "medium",
            f"{describe_identities(culprits or parties)} waited in "
            f"{'another collective' if culprits else 'different collectives'}: {calls}",
            tuple(wait.event for wait in waits[:6]),
            culprits,
            tuple(w.who for w in waits if w.who.rank not in odd_ranks),
            parties,
            collective=waits[0].work,
        )


def _went_on_from_broadcast(by_rank: Mapping[int, CollectiveWait], odd_ranks: Collection[int]) -> bool:
    """True where the odd ranks are ahead of a collective that one rank may leave before the others."""
    behind = [wait.work for rank, wait in by_rank.items() if rank not in odd_ranks]
    front = min((by_rank[rank].work.seq or 0 for rank in odd_ranks), default=0)
    return all(not _OF_ALL.match(work.op) and (work.seq or 0) < front for work in behind)


def ahead_by_status(timeline: Timeline) -> Iterator[Candidate]:
    """A rank's own counters say that it had completed what the others wait in, and all need each other."""
    gone_on = [
        (wait, event)
        for wait, event in statuses_ahead(timeline)
        if 0 <= (event.what.completed or 0) - (wait.work.seq or 0) <= MAX_DISTANCE
        and _OF_ALL.match(wait.work.op)
    ]
    if gone_on:
        parties = tuple(distinct_ranks(event.who for _, event in gone_on))
        work = gone_on[0][0].work
        number = count_with_noun(len(timeline.waits), "rank")
        headline = (
            f"{describe_identities(parties)} had completed {work.words}, in which {number} waited: the ranks"
            " do not make the same collectives"
        )
        evidence = (*(event for _, event in gone_on[:2]), *(wait.event for wait in timeline.waits[:3]))
        yield Candidate(
            "collective_mismatch", "different", "low", headline, evidence, parties=parties, collective=work
        )


def fewer_collectives(timeline: Timeline) -> Iterator[Candidate]:
    """Ranks that finished while others still made collectives: uneven numbers of steps."""
    if _point_to_point(timeline):
        return  # a rank that sends and receives may finish before the others
    done = distinct_ranks(e.who for e in timeline.marked(Mark.JOB_FINISHED) if not timeline.late(e))
    gave_up = [wait.event.who.rank for wait in timeline.waits]
    gave_up += [e.who.rank for kind in (GlooTimeout, PeerGone) for e in timeline.of_kind(kind)]
    victims = {rank for rank in gave_up if rank is not None}
    bars, short = ended_bars(e for e in timeline.events if not timeline.late(e))
    ends = [*_ordinary_ends(timeline), *_last_words_of_ends(timeline)]
    done = distinct_ranks([*done, *(e.who for e in bars if short & victims), *(e.who for e in ends)])
    early = tuple(who for who in done if who.rank not in victims)
    if early and victims and len(early) <= len(victims):
        ranks = {who.rank for who in early}
        events = [e for e in [*timeline.marked(Mark.JOB_FINISHED), *bars, *ends] if e.who.rank in ranks]
        who, evidence = describe_identities(early), tuple(events[:3])
        headline = f"{who} had finished while others still waited: different numbers of steps"
        yield Candidate(
            "collective_mismatch", "different", "medium", headline, evidence, early, fixes=_SAME_NUMBER
        )


def _ordinary_ends(timeline: Timeline) -> list[Event[Mark]]:
    """Programs that came to their end before any rank gave up, and had no trouble of their own."""
    in_trouble = {event.who.rank for event in timeline.trouble}
    return [
        event
        for event in timeline.marked(Mark.PROGRAM_ENDED)
        if event.who.rank not in in_trouble and not timeline.late(event)
    ]


def _last_words_of_ends(timeline: Timeline) -> list[Event[LastLines]]:
    """The last lines of ranks that say that they have nothing more to do."""
    return [event for event in timeline.last_lines if WAS_DONE.search(event.text)]


def _point_to_point(timeline: Timeline) -> bool:
    """True when a rank waited in a send or a receive."""
    return any(
        frame.function in _TRANSFERS and "distributed" in frame.file
        for event in timeline.of_kind(ExceptionRaised)
        for frame in event.what.frames
    ) or any(wait.work.op in ("SEND", "RECV", "COALESCED") for wait in timeline.waits)


def different_source_lines(timeline: Timeline) -> Iterator[Candidate]:
    """Ranks that waited in different source lines do not make the same collectives.

    The odd one is not named: a ring of gloo's lets some ranks go on to their next call before it stops.
    """
    if not timeline.of_kind(GlooTimeout) and not timeline.waits:
        return
    frames = {e.who.rank: (e, frame) for e, frame in _calling_frames(timeline) if e.who.rank is not None}
    if len({(frame.file, frame.line) for _, frame in frames.values()}) > 1:
        rows = sorted(frames.items())[:4]
        lines = ", ".join(f"rank {rank}: line {frame.line}" for rank, (_, frame) in rows)
        headline = f"the ranks waited in different calls ({lines}): they do not make the same collectives"
        evidence = tuple(event for _, (event, _) in rows)
        parties = tuple(distinct_ranks(event.who for event, _ in frames.values()))
        yield Candidate("collective_mismatch", "different", "low", headline, evidence, parties=parties)


def _waits_by_group(timeline: Timeline) -> list[list[CollectiveWait]]:
    """Waits of the same group; without a name only if no group rank occurs twice.

    Where one name alone occurs, those without one may be of it.
    """
    shared = _groups_of_worlds(timeline.waits)
    names = {wait.work.group.name for wait in timeline.waits} - {""}
    usual = names.pop() if len(names) == 1 else ""
    by_name = group_by(
        timeline.waits,
        lambda wait: (
            "" if wait.work.group.name in shared else wait.who.world,
            wait.work.group.name or usual,
        ),
    )
    groups: list[list[CollectiveWait]] = []
    for (_, name), waits in by_name.items():
        inner = [w.event.who.group_rank for w in waits if w.event.who.group_rank is not None]
        same = all(w.event.who.group_rank in (None, w.who.rank) for w in waits)
        if (name and not mixes_groups(waits)) or (same and len(inner) == len(set(inner))):
            groups.append(waits)
    return groups


def _groups_of_worlds(waits: Sequence[CollectiveWait]) -> set[str]:
    """The groups with a given name that may span worlds: no rank of them occurs in two."""
    worlds: dict[tuple[str, int | None], set[str]] = {}
    for wait in waits:
        worlds.setdefault((wait.work.group.name or "", wait.who.rank), set()).add(wait.who.world)
    doubled = {name for (name, _), their_worlds in worlds.items() if len(their_worlds) > 1}
    return {name for name, _ in worlds if name not in doubled and _GIVEN_NAME.search(name)}


def _shown_signature(wait: CollectiveWait) -> str:
    elements = wait.work.numel_in
    return wait.work.words + (f" of {count_with_noun(elements, 'element')}" if elements is not None else "")


def _calling_frames(timeline: Timeline) -> list[tuple[Event[ExceptionRaised], StackFrame]]:
    """Per rank that waited, the job's innermost own source line that calls a collective."""
    calls: list[tuple[Event[ExceptionRaised], StackFrame]] = []
    for event in timeline.of_kind(ExceptionRaised):
        own = [f for f in event.what.frames if not is_library(f) and _CALLS.search(f.source)]
        if own:
            calls.append((event, own[-1]))
    return calls
