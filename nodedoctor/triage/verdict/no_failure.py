"""The verdict on a job without trouble: done, cancelled, making progress, or showing nothing."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import Coverage, Event, Outcome, Verdict
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
from nodedoctor.triage.patterns.machine import GpuOnBus, HostAddress, TasksPlaced
from nodedoctor.triage.patterns.nccl import Communicator
from nodedoctor.triage.patterns.progress import LongWork, SettingMentioned, TrainingStep
from nodedoctor.triage.patterns.secondary_errors import is_secondary
from nodedoctor.triage.patterns.stacks import ends_in_package
from nodedoctor.triage.patterns.store import PeerGone
from nodedoctor.triage.patterns.trace import CutShort, ExceptionRaised
from nodedoctor.triage.timeline.belonging import without_nodes
from nodedoctor.triage.timeline.model import WAIT_ERRORS, Timeline, offsets_by_source
from nodedoctor.triage.verdict.open_end import cancellations, describe_hang, describe_lost_end
from nodedoctor.wording import count_with_noun

EVIDENCE = 8
_HELPER_COMMANDS = re.compile(
    r"(?:[Mm]onitor|\bnvidia-smi|\bdcgm|\bnvtop|stat\b|\bwatch\b|\btail\b|\bsleep\b|[Tt]ensorboard|[Ss]erver?\b"
    r"|\bvllm\b|\bsglang\b|\bray\b|[Pp]rofil|\bnsys\b|[Ss]ampler|\bwhile\b)"
)
"""What scripts start beside their program, by the beginning of the command that a shell shows."""
COMMAND = 80
"""Characters of a command that hold its program and its script. Ours."""


def ended_in_order(timeline: Timeline) -> bool:
    """True where all trouble followed from the job's own end or its cancellation, or is beside a good end."""
    if not timeline.trouble or _is_teardown(timeline) or _is_clean_cancellation(timeline):
        return True
    own = replace(timeline, events=without_nodes(timeline.events))
    return len(own.events) < len(timeline.events) and _is_done(own) and ended_in_order(own)


def _is_done(timeline: Timeline) -> bool:
    """True where a log says that the job came to its end, and none counts behind that."""
    ends = offsets_by_source(timeline.marked(Mark.JOB_FINISHED), max)
    worked = offsets_by_source(timeline.of_kind(TrainingStep), max)
    return bool(ends) and all(worked.get(source, -1) < end for source, end in ends.items())


def no_failure(timeline: Timeline, coverage: Coverage, calm: bool) -> Verdict:
    """The verdict without trouble: healthy on a sign of life, else undetermined."""
    done = timeline.marked(Mark.JOB_FINISHED)
    stops = [event for event in cancellations(timeline) if not _was_done_before(event, done)]
    stops = _without_passed(stops, timeline.of_kind(TrainingStep), done)
    running, serving = timeline.marked(Mark.RAS_RUNNING), timeline.marked(Mark.SERVER_READY)
    in_order = bool(stops or done or timeline.marked(Mark.SHUT_DOWN))
    unfinished_bar = "" if in_order else _unfinished_bar(timeline)
    activities = [] if timeline.alive else timeline.of_kind(TrainingActivity)
    teardowns = [e for e in timeline.of_kind(Communicator) if e.what.step.startswith("Destroy")]
    lost_end = describe_hang(timeline) or ("" if in_order else describe_lost_end(timeline))
    full_bar = _ended_behind_full_bar(timeline)
    alive = timeline.alive or calm or full_bar or bool(activities or teardowns)
    alive = alive and not unfinished_bar and not lost_end
    only_dumps = calm and not (stops or done or running or timeline.steps)
    if lost_end and not unfinished_bar:
        headline = lost_end
    elif stops:
        headline = f"no failure: the job was ended in order ({stops[-1].what.why})"
    elif done:
        headline = "no failure: the job came to its end"
    elif full_bar and not unfinished_bar:
        headline = "no failure: a progress bar came to its end, and its program ended by itself"
    elif unfinished_bar:
        headline = f"the program ended in the middle of its work ({unfinished_bar}), and no line says why"
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
    elif _all_set_up(timeline):
        headline = "NCCL is set up on every rank that is shown, and the log has nothing after it"
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
        failed = count_with_noun(timeline.survived, "run")
        headline = f"{headline.partition(': ')[2]}, after {failed} that failed"
    return Verdict(
        outcome,
        "none" if alive else "undetermined",
        "low" if not alive or only_dumps else "high" if timeline.alive else "medium",
        headline,
        evidence=pick_evidence(
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


def _without_passed(
    stops: Sequence[Event[Any]], steps: Sequence[Event[TrainingStep]], done: Sequence[Event[Mark]]
) -> list[Event[Any]]:
    """The stops but those behind which the job worked on, and then came to its end."""
    worked, ends = offsets_by_source(steps, max), offsets_by_source(done, max)
    return [
        stop
        for stop in stops
        if not stop.place.offset < worked.get(stop.place.source, -1) < ends.get(stop.place.source, -1)
    ]


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


def _ended_behind_full_bar(timeline: Timeline) -> bool:
    """True where a program ended by itself behind a bar that had come to its end."""
    ends = offsets_by_source(timeline.marked(Mark.PROGRAM_ENDED), max)
    bars = offsets_by_source((e for e in timeline.of_kind(TrainingStep) if e.what.is_full), max)
    return any(bars[source] < ends.get(source, -1) for source in bars)


def _is_no_job(timeline: Timeline, coverage: Coverage) -> bool:
    """True when no line was recognised: frameworks may be named in any text."""
    job_signs = timeline.also_seen or coverage.ranks_seen or coverage.ranks_expected
    places = (SettingMentioned, GpuOnBus, HostAddress, TasksPlaced)
    return not job_signs and all(isinstance(event.what, places) for event in timeline.events)


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
    worked = offsets_by_source(timeline.of_kind(TrainingStep), max)
    kinds = (*WAIT_ERRORS, PeerGone)
    all_done = timeline.expected is not None and finished >= set(range(timeline.expected))

    def is_behind_the_end(event: Event[Any]) -> bool:
        if all_done and event.time is None and event.place.source not in worked and "NCCL WARN" in event.text:
            return event.kind in (*kinds, Mark.UNREAD_TROUBLE)  # NCCL's own file has no times
        end = done.get(event.place.source, 1 << 62)
        follows = event.kind in kinds or (_is_sigterm(event) and end > worked.get(event.place.source, -1))
        return follows and event.place.offset > end

    return all(is_behind_the_end(event) or _is_helper_kill(timeline, event) for event in timeline.trouble)


def _is_sigterm(event: Event[Any]) -> bool:
    """True for the end of a process that was asked to end."""
    return isinstance(event.what, (ProcessExit, LauncherSignalled)) and event.what.signal == SIGTERM


def _is_helper_kill(timeline: Timeline, event: Event[Any]) -> bool:
    """True for a monitor that a script ends, or kills after its job, before other work."""
    if not isinstance(event.what, ProcessExit) or not OF_A_SCRIPT.match(event.text):
        return False
    command = event.text.partition(" Killed ")[2] or event.text.partition(" Terminated ")[2]
    if not _HELPER_COMMANDS.search(command.strip().partition(" -")[0][:COMMAND]):
        return False
    if _is_sigterm(event):
        return True  # which scripts send what they started
    here = [e for e in timeline.events if e.place.source == event.place.source]
    before = [e for e in here if e.place.offset < event.place.offset]
    progress = [e for e in before if e.kind in (Mark.JOB_FINISHED, TrainingStep, LongWork)]
    return bool(progress) and max(progress, key=lambda e: e.place.offset).what is Mark.JOB_FINISHED


def _is_clean_cancellation(timeline: Timeline) -> bool:
    """True when the job was ended in order, and all its trouble follows from that.

    These are ends by SIGTERM, of launchers, too, and behind it tracebacks that the log does not finish and
    exceptions that only report the end of others, where no person interrupted them: who does may have seen
    why.
    """
    cancels = cancellations(timeline)
    stops = offsets_by_source(cancels, max)
    by_hand = any(event.what.by_hand for event in cancels)
    notices = _own_notices(timeline, cancels)

    def follows(event: Event[Any]) -> bool:
        noticed = notices.get((event.place.source, event.who.rank), 1 << 62)
        if isinstance(event.what, ExceptionRaised) and noticed < event.place.offset:
            return is_secondary(event.what) or ends_in_package(event.what.frames)
        ends = isinstance(event.what, CutShort) or (not by_hand and _is_secondary(event.what))
        return ends and stops.get(event.place.source, event.place.offset) < event.place.offset

    return bool(stops) and all(_is_sigterm(event) or follows(event) for event in timeline.trouble)


def _own_notices(
    timeline: Timeline, cancels: Sequence[Event[CancelledByUser]]
) -> dict[tuple[str, int | None], int]:
    """Where a process that had worked noticed that it was interrupted: what libraries raise then follows."""
    is_single = not timeline.ranks_seen and (timeline.expected or 1) == 1
    worked = offsets_by_source(timeline.of_kind(TrainingStep), max)
    notices: dict[tuple[str, int | None], int] = {}
    for event in cancels:
        source, rank, offset = event.place.source, event.who.rank, event.place.offset
        if (rank is not None or is_single) and -1 < worked.get(source, -1) < offset:
            notices.setdefault((source, rank), offset)
    return notices


def _is_secondary(what: object) -> bool:
    return isinstance(what, ExceptionRaised) and is_secondary(what)


def pick_evidence(events: tuple[Event[Any], ...]) -> tuple[Event[Any], ...]:
    """The first lines of some events, each once."""
    by_line: dict[tuple[str, int, str], Event[Any]] = {}
    for event in events:
        by_line.setdefault((event.place.source, event.place.offset, event.text[:80]), event)
    return tuple(by_line.values())[:EVIDENCE]


def _all_set_up(timeline: Timeline) -> bool:
    """Whether each process that began a communicator says that it works."""
    communicators = (event.what for event in timeline.of_kind(Communicator))
    is_complete = {(item.ranks, item.rank): item.is_complete for item in communicators}
    return bool(is_complete) and all(is_complete.values())
