"""What the end of a log leaves open: a hang that somebody ended, a lost store, words of a failure."""

from __future__ import annotations

from collections.abc import Sequence
from textwrap import shorten

from nodedoctor.triage.describe import describe_identities
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import Event
from nodedoctor.triage.patterns.assertion import names_error
from nodedoctor.triage.patterns.exits import PeersTerminated
from nodedoctor.triage.patterns.job_stopped import CANCELLED, CancelledByUser
from nodedoctor.triage.patterns.last_lines import BESIDE, LastLines, without_numbers
from nodedoctor.triage.patterns.nccl import Communicator
from nodedoctor.triage.patterns.progress import LongWork, TrainingStep
from nodedoctor.triage.patterns.unclassified import UnclassifiedError, is_report
from nodedoctor.triage.timeline.model import Timeline, offsets_by_source
from nodedoctor.triage.timeline.recovery.counted_on import outlived_before
from nodedoctor.triage.verdict.causes.exceptions import QUOTE_LENGTH
from nodedoctor.wording import decimal

SILENCE = 600.0
"""Seconds without a step from which on a job may hang; a checkpoint or an evaluation takes less. Ours."""
WORK = 3600.0
"""Seconds of silence from which on announced work, an evaluation say, may hang. Ours."""
LONGER = 4
"""So many times longer than any pause before, a pause is none of the job's own. Ours."""

REPEATS = 3
"""Lines of one form that are no work of the job's own: a monitor's. Ours."""


def describe_hang(timeline: Timeline) -> str:
    """That a job hung when it was ended, by words or a silence behind its last step; '' where it did not."""
    done = offsets_by_source(timeline.marked(Mark.JOB_FINISHED), max)
    steps = timeline.of_kind(TrainingStep)
    last_steps = offsets_by_source(steps, max)
    timed = offsets_by_source([event for event in timeline.events if event.time is not None], min)
    for event in timeline.marked(Mark.HANG_SUSPECTED):
        source, offset = event.place.source, event.place.offset
        of_person = offset < timed.get(source, -1)  # in front of the log that it is about
        behind = max(done.get(source, -1), -1 if of_person else last_steps.get(source, -1))
        if event.asserted and offset > behind:
            words = shorten(event.text, QUOTE_LENGTH, placeholder=" ...")
            return f"a line says that the job hung, and none which rank held it up ({words})"
    return "" if done else _describe_silence(timeline, steps)


def _describe_silence(timeline: Timeline, steps: Sequence[Event[TrainingStep]]) -> str:
    """How long no step had come when the job was ended, or when somebody else still wrote into its log."""
    ends = [event.time for event in cancellations(timeline) if event.time is not None]
    last_steps = {step.place.source: step for step in steps}
    last_lines = () if ends else timeline.last_lines
    onlookers = [e.time for e in last_lines if _only_repeats(e, last_steps.get(e.place.source))]
    advances = [event for event in timeline.last_lines if event.what.advances]
    works = timeline.of_kind(LongWork)
    signs = {e.time: e.what for e in (*works, *advances, *steps) if e.time is not None}
    end = min(ends, default=None) or max((time for time in onlookers if time is not None), default=None)
    pause = max((event.what.pause for event in steps), default=0.0)
    silence = end - max(signs) if end is not None and signs else 0.0
    may_take = WORK if signs and isinstance(signs[max(signs)], LongWork) and not ends else SILENCE
    if silence < may_take or not 0 < pause * LONGER < silence:
        return ""
    when = "before the job was ended" if ends else "at the end of the log, in which only a few lines repeat"
    return (
        f"no step came for {decimal(silence / 60, 3)} minutes {when}, and it had never paused for more than"
        f" {decimal(pause, 3)} s: it may have hung"
    )


def _only_repeats(event: Event[LastLines], last_step: Event[TrainingStep] | None) -> bool:
    """True for a speaker who said a few things alone, again and again, behind the last step of its log."""
    what = event.what
    if last_step is None or what.advances or event.place.offset < last_step.place.offset:
        return False
    form = without_numbers(last_step.text)
    behind = what.repeats[what.forms.index(form) + 1 :] if form in what.forms else what.repeats
    return 0 < len(behind) <= BESIDE and min(behind) >= REPEATS


def describe_lost_end(timeline: Timeline) -> str:
    """What a log broke off with that leaves open how its job ended; '' where nothing does."""
    return (
        _describe_ended_step(timeline)
        or _describe_lost_store(timeline)
        or _describe_cut_session(timeline)
        or _describe_last_words(timeline)
    )


def cancellations(timeline: Timeline) -> list[Event[CancelledByUser]]:
    """Who ended the job: not srun, which ends a step itself where one of its tasks failed."""
    events = timeline.of_kind(CancelledByUser)
    return [event for event in events if event.what.why != CANCELLED or not _ended_for_a_task(timeline)]


def _ended_for_a_task(timeline: Timeline) -> bool:
    return any(event.what.for_a_task for event in timeline.of_kind(PeersTerminated))


def _describe_ended_step(timeline: Timeline) -> str:
    """That a task failed of which no line is here, for which srun ended the others."""
    if not _ended_for_a_task(timeline):
        return ""
    return "srun ended the step, as it does when one of its tasks failed, and no line says which one or why"


def _describe_cut_session(timeline: Timeline) -> str:
    """That the session was cut off in which the job was watched, where nothing follows."""
    cuts = offsets_by_source(timeline.marked(Mark.SESSION_CUT), max)
    steps = timeline.of_kind(TrainingStep)
    if not cuts or any(event.place.offset > cuts.get(event.place.source, 1 << 62) for event in steps):
        return ""
    return "the ssh session was cut off, and no line says whether the job or its node ended, too"


def _describe_last_words(timeline: Timeline) -> str:
    """The words of a failure behind the last step of a log, that the job had not outlived before."""
    if not timeline.alive:
        return ""
    steps = offsets_by_source(timeline.of_kind(TrainingStep), max)
    ends = offsets_by_source(timeline.events, max)
    complaints = [event for event in timeline.of_kind(UnclassifiedError) if event.place.source in steps]
    for event in complaints:
        source, offset = event.place.source, event.place.offset
        if offset < ends[source] or not (is_report(event.text) or names_error(event.text)):
            continue
        if not outlived_before(event, complaints, steps[source]):
            words = shorten(event.text, QUOTE_LENGTH, placeholder=" ...")
            return f"the log ends with words of a failure, and no line says what became of the job ({words})"
    return ""


def _describe_lost_store(timeline: Timeline) -> str:
    """Who lost torch's store, where neither a bar nor how processes left shows that all was done then."""
    store_events = timeline.marked(Mark.STORE_LOST)
    steps = timeline.of_kind(TrainingStep)
    if not store_events or (steps and steps[-1].what.is_full):
        return ""
    unfinished = bool(steps) and steps[-1].what.length is not None
    if not unfinished and (_all_took_down(timeline) or _ended_before(timeline, store_events)):
        return ""
    who = describe_identities(event.who for event in store_events) or "a process"
    return (
        f"{who} lost the rendezvous store: the process that holds it, rank 0 or torchrun's agent, had ended,"
        " and no line says why"
    )


def _all_took_down(timeline: Timeline) -> bool:
    """True where every rank took down NCCL's largest communicator, as none does that aborts."""
    communicators = timeline.of_kind(Communicator)
    size = max((event.what.ranks for event in communicators), default=0)
    ranks = {
        event.what.rank
        for event in communicators
        if event.what.ranks == size and event.what.step.startswith("Destroy")
    }
    return size > 0 and ranks >= set(range(size))


def _ended_before(timeline: Timeline, store_events: Sequence[Event[Mark]]) -> bool:
    """True where a program ended by itself before anyone lost the store: torch warns of its open groups."""
    ends = offsets_by_source(timeline.marked(Mark.PROGRAM_ENDED))
    return all(ends.get(event.place.source, 1 << 62) < event.place.offset for event in store_events)
