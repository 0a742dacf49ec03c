"""What is known of a failure without a cause: waits, ends, and first errors."""

from __future__ import annotations

import re
from textwrap import shorten
from typing import Any

from nodedoctor.triage.describe import blameable_identities, describe_identities, distinct_ranks, rank_ranges
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import Event, Identity
from nodedoctor.triage.patterns.exits import SIGTERM, ProcessExit
from nodedoctor.triage.patterns.log_pattern import Symptom
from nodedoctor.triage.patterns.nccl import NcclError
from nodedoctor.triage.patterns.ray import TaskFailed
from nodedoctor.triage.patterns.stacks import ThreadStack
from nodedoctor.triage.patterns.store import GlooTimeout, PeerGone, StoreWait
from nodedoctor.triage.patterns.trace import CutShort, ExceptionRaised
from nodedoctor.triage.patterns.watchdog import (
    CollectiveFailed,
    CollectiveStatus,
    ProcessAborting,
    WatchdogStuck,
)
from nodedoctor.triage.timeline.counters import statuses_ahead
from nodedoctor.triage.timeline.model import Timeline
from nodedoctor.triage.verdict.causes import groups
from nodedoctor.triage.verdict.causes.absent import waits_by_stack
from nodedoctor.triage.verdict.causes.culprits import shows_who_failed
from nodedoctor.triage.verdict.causes.exceptions import QUOTE_LENGTH
from nodedoctor.triage.verdict.causes.first_exits import FirstEnd, first_end, is_during_abort, people_of
from nodedoctor.triage.verdict.causes.unclassified import unclassified_errors
from nodedoctor.triage.verdict.open_end import describe_lost_end
from nodedoctor.wording import decimal

_ONE_ELEMENT = " (one element: a barrier, or an overflow or gradient-norm check)"
_COLLECTIVE = re.compile(r"torch[/\\]distributed[/\\](?:distributed_c10d|c10d_logger|rendezvous)\.py$")
"""Where torch waits for other ranks."""
_OWN_WORDS = (ExceptionRaised, Mark.BARRIER_VICTIM, GlooTimeout, PeerGone, NcclError, StoreWait)
"""What a process says itself when it ends because of another one."""


def open_question(timeline: Timeline) -> str:
    """What is known of a failure whose cause is unknown."""
    if timeline.marked(Mark.NOT_A_LOG):
        return "this is a page about a failure and not its log: what it quotes does not decide"
    first = timeline.first_wait
    if first is None:
        reason = next(
            (event.what.last_warning for event in timeline.of_kind(NcclError) if event.what.last_warning), ""
        )
        if reason:
            return f"NCCL gave up with {reason!r}, and what was read does not say why"
        if timeline.of_kind(ThreadStack):
            return "processes were looked at, and their stacks do not show who holds the job up"
        if timeline.marked(Mark.HANG_CONFIRMED):
            return "the job hung: Ray's detector saw collectives stand still, and no line names a rank"
        if gloo_waits := timeline.of_kind(GlooTimeout):
            most = max(event.what.milliseconds or 0 for event in gloo_waits)
            long = f" for {decimal(most / 1000)} s" if most else ""
            who = describe_identities(distinct_ranks(event.who for event in gloo_waits)) or "a rank"
            return f"{who} waited{long} in gloo for other ranks, and no line says which one did not come"
        return (
            _describe_first_end(timeline)
            or _describe_lost_peer(timeline)
            or _describe_traceback(timeline)
            or _describe_watchdog(timeline)
            or _describe_sigterm(timeline)
            or ("" if timeline.trouble else describe_lost_end(timeline))
            or _describe_first_error(timeline)
        )
    same = [wait.who for wait in timeline.waits if wait.work.signature[:2] == first.work.signature[:2]]
    who = describe_identities(same) or "a rank"
    limit = f" for {decimal(first.work.timeout_ms / 1000)} s" if first.work.timeout_ms else ""
    what = first.work.words + (_ONE_ELEMENT if first.work.numel_in == 1 else "")
    size = groups.ranks_in_collective(timeline)
    if size is not None and first.work.seq == 1:
        return (
            f"all {size} ranks hang in {what}, the first collective of their group: no data ever moved"
            " between their GPUs"
        )
    if size is not None:
        return (
            f"all {size} ranks entered {what} and none left it in time: the path"
            " between their GPUs, an earlier operation on one of them, or two groups in a different order"
        )
    if gone_on := statuses_ahead(timeline):
        ranks_ahead = describe_identities(event.who for _, event in gone_on)
        return f"{who} waited{limit} in {what}; by its own counters {ranks_ahead} had gone on"
    if not first.work.op:
        return f"{who} gave up waiting{limit}; no line gives the collective or its number"
    by_stack = [e.who for e in waits_by_stack(timeline) if e.who.rank not in timeline.waiting_ranks]
    waiting = {*timeline.waiting_ranks, *(who.rank for who in by_stack)}
    what += f", and {in_calls} in a collective" if (in_calls := describe_identities(by_stack)) else ""
    others = sorted(timeline.ranks_seen - waiting)
    if others and len(timeline.ranks_seen) == groups.world_of(timeline):
        silent = f"ranks {rank_ranges(others)} do not say where they were"
        if not others[1:]:
            silent = f"rank {others[0]} does not say where it was"
        return f"{who} waited{limit} in {what}, and {silent}"
    size = groups.size_of(timeline)
    if size is None and len(waiting) > 1 and waiting == set(range(len(waiting))):
        return f"{who} waited{limit} in {what}; no line says whether there were others, or where"
    ranks = {None, *(wait.rank for wait in same)}
    elsewhere = [wait for wait in timeline.waits if wait.who.rank not in ranks and wait.work.op]
    if elsewhere:
        other_calls = f"{describe_identities(wait.who for wait in elsewhere)} in {elsewhere[0].work.words}"
        return f"{who} waited{limit} in {what}, {other_calls}, and no line says why"
    missing = size - len(waiting) if size is not None else 0
    absent = "other rank" if missing == 1 else f"{missing} other ranks" if missing > 1 else "other ranks"
    return f"{who} waited{limit} in {what}; the lines of the {absent} are not in these logs"


def suspected_people(timeline: Timeline) -> tuple[tuple[Identity, ...], tuple[Identity, ...]]:
    """Who is behind a failure without a cause: one that ended alone, else several suspects."""
    end = _unexplained_end(timeline)
    if end is not None:
        return (end.people, ()) if end.alone else ((), end.people)
    cut_short = _ranks_in_traceback(timeline)
    if len(cut_short) == 1:
        return cut_short, ()
    stuck = tuple(distinct_ranks(event.who for event in timeline.of_kind(WatchdogStuck)))
    return (), cut_short or _stopped_processes(timeline) or (stuck if len(stuck) == 1 else ())


def _describe_lost_peer(timeline: Timeline) -> str:
    """Who aborted because NCCL lost a peer that ended in another log."""
    errors = [event for event in timeline.of_kind(NcclError) if event.what.result == "ncclRemoteError"]
    if not errors:
        return ""
    who = (
        describe_identities(event.who for event in (*errors, *timeline.of_kind(ProcessAborting))) or "a rank"
    )
    ends = [event for event in timeline.of_kind(ProcessExit) if is_during_abort(timeline, event)]
    crash = "; the crash behind it is part of the abort" if ends else ""
    return f"{who} lost a peer (ncclRemoteError) and aborted: another log shows the first exit{crash}"


def _describe_watchdog(timeline: Timeline) -> str:
    """What a watchdog or a library did, where nothing else is in the logs."""
    stuck, aborting = timeline.of_kind(WatchdogStuck), timeline.of_kind(ProcessAborting)
    own = (WatchdogStuck, ProcessAborting, ProcessExit)
    if not (stuck or aborting) or any(event.kind not in own for event in timeline.trouble):
        return ""
    who = describe_identities(event.who for event in (*stuck, *aborting)) or "a process"
    reasons = [event.what.reason for event in aborting if "atchdog" not in event.what.reason]
    if reasons and not stuck:
        return f"{reasons[0]}; what ended first is not in these logs"
    if stuck:
        long = f" for {stuck[0].what.seconds_stuck} s" if stuck[0].what.seconds_stuck else ""
        return (
            f"the watchdog of {who} was stuck{long} in a call of CUDA or NCCL, or waited for a thread"
            " that holds Python's lock"
        )
    return (
        f"the watchdog of {who} gave up on a collective that had failed or timed out; the line that names"
        " it is not in these logs"
    )


def _describe_sigterm(timeline: Timeline) -> str:
    """That nothing but SIGTERM was seen."""
    people = _stopped_processes(timeline)
    if people is None:
        return ""
    return (
        f"{describe_identities(people) or 'a process'} ended by SIGTERM, and no line says who sent it, or why"
    )


def _stopped_processes(timeline: Timeline) -> tuple[Identity, ...] | None:
    """Who ended by SIGTERM, where nothing else was seen; else None."""
    exits = [event for event in timeline.of_kind(ProcessExit) if not event.what.helper]
    exit_places = {event.place for event in exits}  # where a launcher raises what it saw
    others = [e for e in timeline.trouble if e.kind not in (ProcessExit, Mark.UNREAD_TROUBLE)]
    if not exits or any(event.what.signal != SIGTERM for event in exits):
        return None
    if any(event.place not in exit_places for event in others):
        return None
    return blameable_identities(*(who for event in exits for who in people_of(event)))


def _describe_traceback(timeline: Timeline) -> str:
    """Where the log was in a traceback when it ended."""
    tracebacks = timeline.of_kind(CutShort)
    if not tracebacks:
        return ""
    who = describe_identities(_ranks_in_traceback(timeline) or [tracebacks[0].who])
    frame = tracebacks[0].what.frames[-1] if tracebacks[0].what.frames else None
    where = f" at {frame.name}, line {frame.line}," if frame is not None else ""
    owner = f" of {who}" if who else ""
    which = "tracebacks" if len(_ranks_in_traceback(timeline)) > 1 else "a traceback"
    error = tracebacks[0].what.error
    if error and len(tracebacks) == 1:
        return (
            f"{who or 'a process'} raised {error}; the log ends in its traceback,{where} before its message"
        )
    return f"the log ends in {which}{owner},{where} before the line that names the exception"


def _ranks_in_traceback(timeline: Timeline) -> tuple[Identity, ...]:
    """The ranks in whose tracebacks the log ends, where it shows no other failure.

    One in a collective waited for others: it may be their victim.
    """
    tracebacks = timeline.of_kind(CutShort)
    others = [
        e
        for e in timeline.trouble
        if not isinstance(e.what, (CutShort, TaskFailed)) and not shows_who_failed(e)
    ]
    is_only = not others and not timeline.marked(Mark.NOT_A_LOG)
    waits = any(_COLLECTIVE.search(frame.file) for event in tracebacks for frame in event.what.frames[-2:])
    if not is_only or waits or any(event.what.echo for event in tracebacks):
        return ()
    tasks = [event.who for event in tracebacks if event.what.error]
    return tuple(distinct_ranks(event.who for event in tracebacks)) or blameable_identities(*tasks)


def _describe_first_error(timeline: Timeline) -> str:
    """The first line about trouble, where nothing explains it."""
    errors = timeline.trouble or unclassified_errors(timeline)
    readable = [event for event in errors if any(map(str.isalpha, event.text))]
    errors = [event for event in readable if not shows_who_failed(event)] or readable

    def order_of(event: Event[Any]) -> tuple[object, ...]:
        hints = isinstance(event.what, Symptom) and not event.what.decisive  # an exception only repeats them
        return isinstance(event.what, ProcessExit), not hints, timeline.moment(event)

    first = min(errors, key=order_of, default=None)
    quote = shorten(first.text, QUOTE_LENGTH, placeholder=" ...") if first is not None else ""
    if not timeline.trouble:
        begin = f"; they begin with: {quote}" if quote else ""
        return f"no progress was read, but lines about a failure that do not say why{begin}"
    if all(event.what is Mark.UNREAD_TROUBLE for event in timeline.trouble):
        return f"a line of an error was read, and nothing that shows whether the job failed of it: {quote}"
    begin = f"; it begins with: {quote}" if quote else ""
    return f"the job failed, and what was read does not say why{begin}"


def _describe_first_end(timeline: Timeline) -> str:
    """The first end that a launcher saw, or a server's watchdog of its ranks."""
    stuck = [event for event in timeline.of_kind(WatchdogStuck) if event.what.of_server]
    if stuck:
        who = describe_identities(event.who for event in stuck) or "a process"
        return (
            f"{who} finished no step for {stuck[0].what.seconds_stuck} s, and the server's watchdog ended the"
            " server; what held it up is not in these logs"
        )
    status = next(
        (event for event in timeline.of_kind(CollectiveStatus) if event.what.stuck is not None), None
    )
    if status is not None:
        behind = (status.what.enqueued or 0) - (status.what.stuck or 0)
        more = f", with {behind} more enqueued behind it" if behind > 0 else ""
        who = describe_identities([status.who]) or "a rank"
        return (
            f"{who} gave up waiting in collective number {status.what.stuck}{more}; the line that names the"
            " collective is not in these logs"
        )
    end = _unexplained_end(timeline)
    if end is None:
        return ""
    code = f", with exit code {end.codes[0]}" if len(end.codes) == 1 else ""
    who = describe_identities(end.people)
    if end.people[1:]:
        return f"{who} ended{code}; their launcher does not tell which one was first, and no error is here"
    if who and not end.alone:
        return f"{who} ended{code}; nothing says whether others had ended before, and no error is here"
    return f"{who or 'a process'} ended first{code}, and its own error is not in these logs"


def _unexplained_end(timeline: Timeline) -> FirstEnd | None:
    """Who ended first, where no process says why or that it gave up."""
    exit_places = {event.place for event in timeline.of_kind(ProcessExit)}
    own_reports = [
        event
        for event in timeline.trouble
        if event.kind in _OWN_WORDS
        and not shows_who_failed(event)
        and event.place not in exit_places  # a launcher's: it names who ended
    ]
    victims = timeline.timeout_events or timeline.of_kind(CollectiveFailed) or timeline.of_kind(WatchdogStuck)
    never_started = [  # their launcher's code says nothing more
        event
        for event in timeline.of_kind(Symptom)
        if event.what.cause == "peer_died" and not event.what.decisive
    ]
    no_log = timeline.marked(Mark.NOT_A_LOG)
    return None if own_reports or victims or never_started or no_log else first_end(timeline)
