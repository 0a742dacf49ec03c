"""From candidate causes to one verdict: the one that explains the others, or "undetermined"."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from nodedoctor.knowledge.kinds import owner_of_kind
from nodedoctor.triage.describe import distinct_ranks
from nodedoctor.triage.marks import Kind, Mark
from nodedoctor.triage.model import Candidate, Confidence, Coverage, Event, Identity, Outcome, Verdict
from nodedoctor.triage.patterns.activity import TrainingActivity
from nodedoctor.triage.patterns.completed import is_end_of_training
from nodedoctor.triage.patterns.exits import (
    OF_A_SCRIPT,
    SIGTERM,
    LauncherSignalled,
    PeersTerminated,
    ProcessExit,
)
from nodedoctor.triage.patterns.job_stopped import CancelledByUser
from nodedoctor.triage.patterns.nccl import Communicator
from nodedoctor.triage.patterns.progress import LongWork, SettingMentioned, TrainingStep
from nodedoctor.triage.patterns.store import GlooTimeout, PeerGone
from nodedoctor.triage.patterns.trace import CutShort
from nodedoctor.triage.timeline.model import WAIT_ERRORS, Timeline, offsets_by_source
from nodedoctor.triage.verdict.advice import timeouts
from nodedoctor.triage.verdict.causes import find_candidates, weigh
from nodedoctor.triage.verdict.causes.corruption import lost_training
from nodedoctor.triage.verdict.causes.unclassified import unclassified_errors
from nodedoctor.triage.verdict.causes.weigh import WeighedCandidate
from nodedoctor.triage.verdict.decision.kind import kind_of
from nodedoctor.triage.verdict.undetermined import (
    describe_lost_end,
    open_question,
    ranks_in_traceback,
    stopped_processes,
    unexplained_end,
)
from nodedoctor.wording import count_with_noun

EVIDENCE = 8
_HELPER_COMMANDS = re.compile(
    r"(?:[Mm]onitor|\bnvidia-smi|\bdcgm|\bnvtop|stat\b|\bwatch\b|\btail\b|\bsleep\b|[Tt]ensorboard|[Ss]erver?\b"
    r"|\bvllm\b|\bsglang\b|\bray\b|[Pp]rofil|\bnsys\b|[Ss]ampler|\bwhile\b)"
)
"""What scripts start beside their program, by the beginning of the command that a shell shows."""
COMMAND = 80
"""Characters of a command that hold its program and its script. Ours."""


def judge_incident(
    timeline: Timeline, coverage: Coverage, more: Sequence[Candidate] = (), *, calm: bool = False
) -> Verdict:
    """The verdict on the last incident; `more` are other causes; `calm`: dumps show no waiting."""
    weighed = weigh.weigh_candidates(timeline, [*find_candidates(timeline), *more])
    deciding = [entry for entry in weighed if entry.decides]
    quiet = not lost_training(timeline) and (
        not timeline.trouble or _is_teardown(timeline) or _is_clean_cancellation(timeline)
    )
    if quiet and not more and (timeline.alive or calm or not unclassified_errors(timeline)):
        return _no_failure(timeline, coverage, calm)
    if not deciding or timeline.marked(Mark.NOT_A_LOG):
        return _undetermined_verdict(timeline, coverage, weighed)
    best = deciding[0].candidate
    return Verdict(
        outcome="failure",
        cause=best.cause,
        confidence=_confidence_of(weighed),
        headline=best.headline,
        culprits=best.culprits,
        victims=_find_victims(timeline, best),
        parties=best.parties,
        collective=best.collective or (timeline.first_wait.work if timeline.first_wait else None),
        evidence=_pick_evidence(best.evidence),
        fixes=best.fixes,
        timeline=_make_timeline(timeline),
        owner=best.owner or owner_of_kind(kind_of(best.cause, best.evidence)),
        kinds_alike=_kinds_alike(weighed),
        weighed=weigh.based_on(weighed[0]),
        alternatives=_make_alternatives(weighed),
        incidents=timeline.incidents,
        coverage=coverage,
    )


def _confidence_of(weighed: Sequence[WeighedCandidate]) -> Confidence:
    """How sure the first candidate is: never sure beside a close second."""
    best = weighed[0].candidate.confidence
    return "medium" if best == "high" and weigh.close_seconds(weighed[0], weighed[1:]) else best


def _kinds_alike(weighed: Sequence[WeighedCandidate]) -> tuple[str, ...]:
    rivals = [rival.candidate for rival in weigh.close_seconds(weighed[0], weighed[1:])]
    return tuple(dict.fromkeys(kind_of(rival.cause, rival.evidence, rival.owner) for rival in rivals))


def _other_causes(weighed: Sequence[WeighedCandidate]) -> list[WeighedCandidate]:
    """One per cause other than the first one's."""
    causes = {weighed[0].candidate.cause: weighed[0]}
    for rival in weighed[1:]:
        causes.setdefault(rival.candidate.cause, rival)
    return list(causes.values())[1:]


def _no_failure(timeline: Timeline, coverage: Coverage, calm: bool) -> Verdict:
    """The verdict without trouble: healthy on a sign of life, else undetermined."""
    done = timeline.marked(Mark.JOB_FINISHED)
    stops = [event for event in timeline.of_kind(CancelledByUser) if not _was_done_before(event, done)]
    running, serving = timeline.marked(Mark.RAS_RUNNING), timeline.marked(Mark.SERVER_READY)
    in_order = bool(stops or done or timeline.marked(Mark.SHUT_DOWN))
    unfinished_bar = "" if in_order else _unfinished_bar(timeline)
    activities = [] if timeline.alive else timeline.of_kind(TrainingActivity)
    teardowns = [e for e in timeline.of_kind(Communicator) if e.what.step.startswith("Destroy")]
    lost_end = "" if in_order else describe_lost_end(timeline)
    alive = timeline.alive or calm or bool(activities or teardowns)
    alive = alive and not unfinished_bar and not lost_end
    only_dumps = calm and not (stops or done or running or timeline.steps)
    if stops:
        headline = f"no failure: the job was ended in order ({stops[-1].what.why})"
    elif done:
        headline = "no failure: the job came to its end"
    elif unfinished_bar:
        headline = f"the program ended in the middle of its work ({unfinished_bar}), and no line says why"
    elif lost_end:
        headline = lost_end
    elif running:
        headline = "no failure: NCCL's communicators run and answer"
    elif calm and not timeline.steps:
        headline = (
            "in the flight recorder's dumps no rank waits for another; they hold neither gloo's"
            " point-to-point calls nor the groups of TORCH_DISTRIBUTED_DEBUG=DETAIL, nor the job's end"
        )
    elif timeline.marked(Mark.SHUT_DOWN) and timeline.alive:
        headline = "no failure: the server was shut down in order"
    elif timeline.answers:
        headline = "no failure in what was read: the server was answering requests where it ends"
    elif timeline.steps:
        headline = "no failure in what was read: the job was making progress where it ends"
    elif activities:
        headline = f"no failure in what was read: the program {activities[0].what.how}, and counted nothing"
    elif serving:
        headline = "no failure in what was read: the server was up"
    elif timeline.of_kind(PeersTerminated):
        headline = "the launcher ended its processes, and no line says which one failed first, or why"
    elif teardowns:
        headline = "no failure in what was read: NCCL's communicators were taken down in order"
    elif timeline.marked(Mark.SET_UP):
        headline = "the log ends while the job is set up, and no line says why"
    elif steps := [event for event in timeline.of_kind(TrainingStep) if not event.what.answers]:
        headline = _describe_count(steps[-1].what)
    else:
        headline = "nothing was read that shows a failure or progress"
    last_signs = [*timeline.marked(Mark.STORE_LOST), *timeline.marked(Mark.SESSION_CUT)] if lost_end else []
    outcome: Outcome = "recovered" if alive and timeline.survived else "clean" if alive else "undetermined"
    if not alive and _is_no_job(timeline, coverage):
        outcome, headline = "nothing", _nothing_recognised(coverage)
    if outcome == "recovered":
        times = "once" if timeline.survived == 1 else f"{timeline.survived} times"
        headline = f"the job failed {times}, was restarted and got past it: {headline.partition(': ')[2]}"
    return Verdict(
        outcome,
        "none" if alive else "undetermined",
        "low" if not alive or only_dumps else "high" if timeline.alive else "medium",
        headline,
        evidence=_pick_evidence(
            (*stops[-1:], *done[-1:], *last_signs[:EVIDENCE], *timeline.of_kind(TrainingStep)[-1:])
        ),
        incidents=timeline.incidents,
        coverage=coverage,
    )


def _was_done_before(stop: Event[Any], done: Sequence[Event[Mark]]) -> bool:
    """True for a stop of a job that had said before that its training was done."""
    return any(
        is_end_of_training(event)
        and event.place.source == stop.place.source
        and event.place.offset < stop.place.offset
        for event in done
    )


def _describe_count(step: TrainingStep) -> str:
    """What a counter shows that was seen once, or did not move."""
    value = f"{step.last[-1]:g}"
    if step.is_full:
        return (
            f"a progress bar came to its end ({value} of {step.length}), and no line says whether the job did"
        )
    return f"a counter was seen at {value}, and nothing shows whether the job went on"


def _unfinished_bar(timeline: Timeline) -> str:
    """How far a bar was when its processes had ended; '' for a full one."""
    ends = offsets_by_source(timeline.marked(Mark.RESOURCE_TRACKER_WARNING), max)
    steps = [e for e in timeline.of_kind(TrainingStep) if e.place.offset <= ends.get(e.place.source, -1)]
    last = max(reversed(steps), key=lambda event: event.place.offset, default=None)
    if last is None or last.what.length is None or last.what.is_full:
        return ""
    return f"{int(last.what.last[-1])} of {last.what.length}"


def _is_no_job(timeline: Timeline, coverage: Coverage) -> bool:
    """True when no line was recognised: frameworks may be named in any text."""
    job_signs = timeline.also_seen or coverage.ranks_seen or coverage.ranks_expected
    return not job_signs and all(isinstance(event.what, SettingMentioned) for event in timeline.events)


def _nothing_recognised(coverage: Coverage) -> str:
    if not coverage.files:
        return "no log or dump was found in what was given"
    if not coverage.size and coverage.unread:
        return "nothing of what was given could be read; the notes say why"
    if not coverage.size:
        return "what was given is empty"
    if coverage.unread:
        unread = count_with_noun(coverage.unread, "line or file", "lines or files")
        return f"no line of a job was recognised, and {unread} could not be opened"
    return "no line of a job was recognised in what was read"


def _is_teardown(timeline: Timeline) -> bool:
    """True for trouble after the job had said that it was done."""
    done = offsets_by_source(e for e in timeline.marked(Mark.JOB_FINISHED) if is_end_of_training(e))
    finished = {e.who.rank for e in timeline.marked(Mark.JOB_FINISHED)}
    others = {e.who.rank for e in timeline.trouble} - finished - {None}
    if others and None not in finished:
        return False  # some had come to their end, and others waited for them
    kinds = (*WAIT_ERRORS, PeerGone)
    return bool(done) and all(
        (event.kind in kinds and event.place.offset > done.get(event.place.source, 1 << 62))
        or _is_helper_kill(timeline, event)
        for event in timeline.trouble
    )


def _is_helper_kill(timeline: Timeline, event: Event[Any]) -> bool:
    """True for a monitor that a script kills after its job, before other work."""
    if not isinstance(event.what, ProcessExit) or not OF_A_SCRIPT.match(event.text):
        return False
    command = event.text.partition(" Killed ")[2] or event.text.partition(" Terminated ")[2]
    if not _HELPER_COMMANDS.search(command.strip().partition(" -")[0][:COMMAND]):
        return False
    here = [e for e in timeline.events if e.place.source == event.place.source]
    before = [e for e in here if e.place.offset < event.place.offset]
    progress = [e for e in before if e.kind in (Mark.JOB_FINISHED, TrainingStep, LongWork)]
    return bool(progress) and max(progress, key=lambda e: e.place.offset).what is Mark.JOB_FINISHED


def _is_clean_cancellation(timeline: Timeline) -> bool:
    """True when the job was ended in order, and all its trouble follows from that.

    These are ends by SIGTERM, of launchers, too, and tracebacks behind it that the log does not finish. That
    srun terminates the step itself, which it does when a task failed, is no such end.
    """
    if any(event.what.for_a_task for event in timeline.of_kind(PeersTerminated)) and timeline.of_kind(
        LauncherSignalled
    ):
        return False
    stops = offsets_by_source(timeline.of_kind(CancelledByUser), max)
    return bool(stops) and all(
        (isinstance(event.what, (ProcessExit, LauncherSignalled)) and event.what.signal == SIGTERM)
        or (
            isinstance(event.what, CutShort)
            and stops.get(event.place.source, event.place.offset) < event.place.offset
        )
        for event in timeline.trouble
    )


def _undetermined_verdict(
    timeline: Timeline, coverage: Coverage, suspects: Sequence[WeighedCandidate]
) -> Verdict:
    waits = timeline.waits
    reasons = [(suspect.candidate.cause, _suspected_cause(suspect)) for suspect in suspects]
    causes = {cause for cause, _ in reasons}
    reasons += [(cause, why) for cause, why in timeouts.unseen_explanations(timeline) if cause not in causes]
    end = unexplained_end(timeline)
    culprits = end.people if end is not None and end.alone else ()
    parties = end.people if end is not None and not end.alone else ()
    if end is None:
        stuck = ranks_in_traceback(timeline)
        culprits, parties = (
            (stuck, ()) if len(stuck) == 1 else ((), stuck or stopped_processes(timeline) or ())
        )
    return Verdict(
        "undetermined",
        "undetermined",
        "low",
        open_question(timeline),
        culprits=culprits,
        parties=parties,
        victims=_waiting_ranks(timeline),
        collective=waits[0].work if waits else None,
        evidence=_pick_evidence(tuple(timeline.trouble or unclassified_errors(timeline))),
        timeline=_make_timeline(timeline),
        alternatives=tuple({cause: (cause, why) for cause, why in reversed(reasons)}.values())[::-1][:5],
        incidents=timeline.incidents,
        coverage=coverage,
    )


def _suspected_cause(suspect: WeighedCandidate) -> str:
    against = f", but {suspect.against.why}" if suspect.against is not None else ""
    return f"only suspected: {suspect.candidate.headline}{against}"


def _waiting_ranks(timeline: Timeline) -> tuple[Identity, ...]:
    """The ranks that gave up waiting, in NCCL or gloo."""
    people = [wait.who for wait in timeline.waits]
    return tuple(distinct_ranks([*people, *(event.who for event in timeline.of_kind(GlooTimeout))]))


def _find_victims(timeline: Timeline, best: Candidate) -> tuple[Identity, ...]:
    guilty = {(who.world, who.rank) for who in best.culprits}
    waiting = best.victims or _waiting_ranks(timeline)
    return tuple(who for who in waiting if (who.world, who.rank) not in guilty)


def _pick_evidence(events: tuple[Event[Any], ...]) -> tuple[Event[Any], ...]:
    by_line: dict[tuple[str, int, str], Event[Any]] = {}
    for event in events:
        by_line.setdefault((event.place.source, event.place.offset, event.text[:80]), event)
    return tuple(by_line.values())[:EVIDENCE]


def _make_timeline(timeline: Timeline) -> tuple[Event[Any], ...]:
    """The first of each kind of trouble per rank, in order of time."""
    first: dict[tuple[Kind, int | None], Event[Any]] = {}
    for event in sorted(timeline.trouble, key=timeline.moment):
        first.setdefault((event.kind, event.who.rank), event)
    return tuple(first.values())


def _make_alternatives(weighed: Sequence[WeighedCandidate]) -> tuple[tuple[Any, str], ...]:
    return tuple(
        (rival.candidate.cause, f"{rival.candidate.headline}: {weigh.why_less_likely(weighed[0], rival)}")
        for rival in _other_causes(weighed)[:4]
    )
