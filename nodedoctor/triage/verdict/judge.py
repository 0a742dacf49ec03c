"""From candidate causes to one verdict: the one that explains the others, or an honest "undetermined"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from nodedoctor.triage.describe import distinct_ranks
from nodedoctor.triage.marks import Kind, Mark
from nodedoctor.triage.model import OWNERS, Candidate, Confidence, Coverage, Event, Identity, Outcome, Verdict
from nodedoctor.triage.patterns.activity import TrainingActivity
from nodedoctor.triage.patterns.exits import (
    OF_A_SCRIPT,
    SIGTERM,
    LauncherSignalled,
    PeersTerminated,
    ProcessExit,
)
from nodedoctor.triage.patterns.lifecycle import CancelledByUser
from nodedoctor.triage.patterns.nccl import Communicator, NcclError
from nodedoctor.triage.patterns.progress import LongWork, SettingMentioned, TrainingStep
from nodedoctor.triage.patterns.store import GlooTimeout, PeerGone
from nodedoctor.triage.patterns.trace import CutShort
from nodedoctor.triage.patterns.watchdog import (
    CollectiveFailed,
    CollectiveStatus,
    ProcessAborting,
    TimedOut,
    WatchdogStuck,
)
from nodedoctor.triage.timeline import Timeline
from nodedoctor.triage.verdict.advice import guesses
from nodedoctor.triage.verdict.causes import find_candidates, weigh
from nodedoctor.triage.verdict.causes.unclassified import unclassified_errors
from nodedoctor.triage.verdict.causes.weigh import WeighedCandidate
from nodedoctor.triage.verdict.decision.kind import kind_of
from nodedoctor.triage.verdict.undetermined import (
    in_a_traceback,
    open_question,
    stopped_processes,
    unexplained_end,
)

EVIDENCE = 8
_HELPS = re.compile(
    r"(?:[Mm]onitor|\bnvidia-smi|\bdcgm|\bnvtop|stat\b|\bwatch\b|\btail\b|\bsleep\b|[Tt]ensorboard|[Ss]erver?\b"
    r"|\bvllm\b|\bsglang\b|\bray\b|[Pp]rofil|\bnsys\b|[Ss]ampler|\bwhile\b)"
)
"""What scripts start beside their program, by the beginning of the command that a shell shows."""
COMMAND = 80
"""Characters of a command in which its program and its script stand. Ours."""


def judge_incident(
    story: Timeline, coverage: Coverage, more: Sequence[Candidate] = (), *, calm: bool = False
) -> Verdict:
    """The verdict on the last incident; `more` are causes seen elsewhere; `calm`: dumps show no waiting."""
    weighed = weigh.weigh_candidates(story, [*find_candidates(story), *more])
    found = [one for one in weighed if one.decides]
    quiet = not story.trouble or _is_teardown(story) or _is_clean_cancellation(story)
    if quiet and not more and (story.alive or calm or not unclassified_errors(story)):
        return _no_failure(story, coverage, calm)
    if not found or story.marked(Mark.NOT_A_LOG):
        return _undetermined_verdict(story, coverage, weighed)
    best = found[0].candidate
    return Verdict(
        outcome="failure",
        cause=best.cause,
        confidence=_confidence_of(weighed),
        headline=best.headline,
        culprits=best.culprits,
        victims=_find_victims(story, best),
        parties=best.parties,
        collective=best.collective or (story.first_wait.work if story.first_wait else None),
        evidence=_pick_evidence(best.evidence),
        fixes=best.fixes,
        timeline=_make_timeline(story),
        owner=best.owner or OWNERS.get(best.cause, "UNDETERMINED"),
        kinds_alike=_kinds_alike(weighed),
        weighed=_weight_sentences(weighed),
        alternatives=_make_alternatives(weighed),
        incidents=story.incidents,
        coverage=coverage,
    )


def _confidence_of(found: Sequence[WeighedCandidate]) -> Confidence:
    """How sure the first one is: never sure when another one has nearly as many points."""
    best = found[0].candidate.confidence
    return "medium" if best == "high" and weigh.close_seconds(found[0], found[1:]) else best


def _kinds_alike(weighed: Sequence[WeighedCandidate]) -> tuple[str, ...]:
    rivals = [rival.candidate for rival in weigh.close_seconds(weighed[0], weighed[1:])]
    return tuple(dict.fromkeys(kind_of(rival.cause, rival.evidence, rival.owner) for rival in rivals))


def _weight_sentences(found: Sequence[WeighedCandidate]) -> str:
    """What the verdict rests on, and why the strongest other cause counts less."""
    said = weigh.rests_on(found[0])
    for other in _other_causes(found)[:1]:
        said += f" It outweighs {other.candidate.cause}: {weigh.why_less_likely(found[0], other)}."
    return said


def _other_causes(found: Sequence[WeighedCandidate]) -> list[WeighedCandidate]:
    """One per cause other than the first one's."""
    causes = {found[0].candidate.cause: found[0]}
    for other in found[1:]:
        causes.setdefault(other.candidate.cause, other)
    return list(causes.values())[1:]


def _no_failure(story: Timeline, coverage: Coverage, rested: bool) -> Verdict:
    """No trouble: healthy when there is a sign of life, unknown when there is nothing at all."""
    stops = story.of(CancelledByUser)
    done = story.marked(Mark.JOB_FINISHED)
    running, serving = story.marked(Mark.RAS_RUNNING), story.marked(Mark.SERVER_READY)
    left_off = "" if stops or done or story.marked(Mark.SHUT_DOWN) else _left_off(story)
    worked = [] if story.alive else story.of(TrainingActivity)
    destroyed = [e for e in story.of(Communicator) if e.what.step.startswith("Destroy")]
    alive = (story.alive or rested or bool(worked or destroyed)) and not left_off
    told_by_dumps = rested and not (stops or done or running or story.steps)
    if stops:
        headline = f"no failure: the job was ended in order ({stops[-1].what.why})"
    elif done:
        headline = "no failure: the job came to its end"
    elif left_off:
        headline = f"the program ended in the middle of its work ({left_off}), and no line says why"
    elif running:
        headline = "no failure: NCCL's communicators run and answer"
    elif rested and not story.steps:
        headline = (
            "in the flight recorder's dumps no rank waits for another; they hold neither gloo's"
            " point-to-point calls nor the groups of TORCH_DISTRIBUTED_DEBUG=DETAIL, nor the job's end"
        )
    elif story.marked(Mark.SHUT_DOWN) and story.alive:
        headline = "no failure: the server was shut down in order"
    elif story.answers:
        headline = "no failure in what was read: the server was answering requests where it ends"
    elif story.steps:
        headline = "no failure in what was read: the job was making progress where it ends"
    elif worked:
        headline = f"no failure in what was read: the program {worked[0].what.how}, and counted nothing"
    elif serving:
        headline = "no failure in what was read: the server was up"
    elif story.of(PeersTerminated):
        headline = "the launcher ended its processes, and no line says which one failed first, or why"
    elif destroyed:
        headline = "no failure in what was read: NCCL's communicators were taken down in order"
    elif story.marked(Mark.SET_UP):
        headline = "the log ends while the job is set up, and no line says why"
    else:
        headline = "nothing was read that shows a failure or progress"
    outcome: Outcome = "recovered" if alive and story.survived else "clean" if alive else "undetermined"
    if not alive and _of_no_job(story, coverage):
        outcome, headline = "nothing", _nothing_recognised(coverage)
    if outcome == "recovered":
        times = "once" if story.survived == 1 else f"{story.survived} times"
        headline = f"the job failed {times}, was restarted and got past it: {headline.partition(': ')[2]}"
    return Verdict(
        outcome,
        "none" if alive else "undetermined",
        "low" if not alive or told_by_dumps else "high" if story.alive else "medium",
        headline,
        evidence=_pick_evidence((*stops[-1:], *done[-1:], *story.of(TrainingStep)[-1:])),
        incidents=story.incidents,
        coverage=coverage,
    )


def _left_off(story: Timeline) -> str:
    """How far a bar of known length was when all of its processes were gone; '' unless one was not full."""
    gone = {event.place.source: event.place.offset for event in story.marked(Mark.RESOURCE_TRACKER_WARNING)}
    before = [e for e in story.of(TrainingStep) if e.place.offset <= gone.get(e.place.source, -1)]
    last = max(reversed(before), key=lambda event: event.place.offset, default=None)
    if last is None or last.what.length is None or last.what.is_full:
        return ""
    return f"{int(last.what.last[-1])} of {last.what.length}"


def _of_no_job(story: Timeline, coverage: Coverage) -> bool:
    """True when no line was recognised; names of frameworks stand in any text."""
    spoken = story.also_seen or coverage.ranks_seen or coverage.ranks_expected
    return not spoken and all(isinstance(event.what, SettingMentioned) for event in story.events)


def _nothing_recognised(coverage: Coverage) -> str:
    if not coverage.files:
        return "no log or dump was found in what was given"
    if not coverage.size:
        return "what was given is empty"
    if coverage.unread:
        return f"no line of a job was recognised, and {coverage.unread} lines or files could not be opened"
    return "no line of a job was recognised in what was read"


def _is_teardown(story: Timeline) -> bool:
    """True when the job had said that it was done first: trouble while it took itself down."""
    done = {
        e.place.source: e.place.offset for e in reversed(story.marked(Mark.JOB_FINISHED)) if "rain" in e.text
    }
    finished = {e.who.rank for e in story.marked(Mark.JOB_FINISHED)}
    others = {e.who.rank for e in story.trouble} - finished - {None}
    if others and None not in finished:
        return False  # some had come to their end, and others waited for them
    kinds = (
        WatchdogStuck,
        TimedOut,
        CollectiveStatus,
        ProcessAborting,
        CollectiveFailed,
        PeerGone,
        NcclError,
        Mark.GIL_HELD,
    )
    return bool(done) and all(
        (event.kind in kinds and event.place.offset > done.get(event.place.source, 1 << 62))
        or _of_a_helper(story, event)
        for event in story.trouble
    )


def _of_a_helper(story: Timeline, event: Event[Any]) -> bool:
    """True for what a script kills when its job is done: a monitor. No work was seen to begin in between."""
    if not isinstance(event.what, ProcessExit) or not OF_A_SCRIPT.match(event.text):
        return False
    command = event.text.partition(" Killed ")[2] or event.text.partition(" Terminated ")[2]
    if not _HELPS.search(command.strip().partition(" -")[0][:COMMAND]):
        return False
    here = [e for e in story.events if e.place.source == event.place.source]
    before = [e for e in here if e.place.offset < event.place.offset]
    told = [e for e in before if e.kind in (Mark.JOB_FINISHED, TrainingStep, LongWork)]
    return bool(told) and max(told, key=lambda e: e.place.offset).what is Mark.JOB_FINISHED


def _is_clean_cancellation(story: Timeline) -> bool:
    """True when the job was ended in order, and all that is told besides follows from that.

    These are ends by SIGTERM, of launchers, too, and tracebacks behind it that the log does not finish. That
    srun terminates the step itself, which it does when a task failed, is no such end.
    """
    if any(event.what.for_a_task for event in story.of(PeersTerminated)) and story.of(LauncherSignalled):
        return False
    stops = {event.place.source: event.place.offset for event in story.of(CancelledByUser)}
    return bool(stops) and all(
        (isinstance(event.what, (ProcessExit, LauncherSignalled)) and event.what.signal == SIGTERM)
        or (
            isinstance(event.what, CutShort)
            and stops.get(event.place.source, event.place.offset) < event.place.offset
        )
        for event in story.trouble
    )


def _undetermined_verdict(
    story: Timeline, coverage: Coverage, suspected: Sequence[WeighedCandidate]
) -> Verdict:
    waits = story.waits
    told = [(one.candidate.cause, _suspected_cause(one)) for one in suspected]
    causes = {cause for cause, _ in told}
    told += [(cause, why) for cause, why in guesses.unseen_explanations(story) if cause not in causes]
    end = unexplained_end(story)
    culprits = end.people if end is not None and end.alone else ()
    parties = end.people if end is not None and not end.alone else ()
    if end is None:
        stuck = in_a_traceback(story)
        culprits, parties = (stuck, ()) if len(stuck) == 1 else ((), stuck or stopped_processes(story) or ())
    return Verdict(
        "undetermined",
        "undetermined",
        "low",
        open_question(story),
        culprits=culprits,
        parties=parties,
        victims=_waited(story),
        collective=waits[0].work if waits else None,
        evidence=_pick_evidence(tuple(story.trouble or unclassified_errors(story))),
        timeline=_make_timeline(story),
        alternatives=tuple({cause: (cause, why) for cause, why in reversed(told)}.values())[::-1][:5],
        incidents=story.incidents,
        coverage=coverage,
    )


def _suspected_cause(one: WeighedCandidate) -> str:
    against = f", but {one.against.why}" if one.against is not None else ""
    return f"only suspected: {one.candidate.headline}{against}"


def _waited(story: Timeline) -> tuple[Identity, ...]:
    """Who waited in vain, in NCCL or gloo."""
    people = [wait.who for wait in story.waits]
    return tuple(distinct_ranks([*people, *(event.who for event in story.of(GlooTimeout))]))


def _find_victims(story: Timeline, best: Candidate) -> tuple[Identity, ...]:
    guilty = {(who.world, who.rank) for who in best.culprits}
    waiting = best.victims or _waited(story)
    return tuple(who for who in waiting if (who.world, who.rank) not in guilty)


def _pick_evidence(events: tuple[Event[Any], ...]) -> tuple[Event[Any], ...]:
    seen: dict[tuple[str, int, str], Event[Any]] = {}
    for event in events:
        seen.setdefault((event.place.source, event.place.offset, event.text[:80]), event)
    return tuple(seen.values())[:EVIDENCE]


def _make_timeline(story: Timeline) -> tuple[Event[Any], ...]:
    """The first of each kind of trouble per rank, in order of time."""
    first: dict[tuple[Kind, int | None], Event[Any]] = {}
    for event in sorted(story.trouble, key=story.moment):
        first.setdefault((event.kind, event.who.rank), event)
    return tuple(first.values())


def _make_alternatives(found: Sequence[WeighedCandidate]) -> tuple[tuple[Any, str], ...]:
    return tuple(
        (other.candidate.cause, f"{other.candidate.headline}: {weigh.why_less_likely(found[0], other)}")
        for other in _other_causes(found)[:4]
    )
