"""What is known of a failure whose cause is not: who waited, who ended, what was said first."""

from __future__ import annotations

import re
from textwrap import shorten

from nodedoctor.triage.describe import blameable_identities, describe_identities, distinct_ranks, rank_ranges
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import Identity
from nodedoctor.triage.patterns.exits import SIGTERM, ProcessExit
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
from nodedoctor.triage.timeline import Timeline
from nodedoctor.triage.verdict.causes import groups
from nodedoctor.triage.verdict.causes.crashes import in_an_abort
from nodedoctor.triage.verdict.causes.culprits import shows_who_failed
from nodedoctor.triage.verdict.causes.exceptions import SAID
from nodedoctor.triage.verdict.causes.first_exits import FirstEnd, first_end, people_of
from nodedoctor.triage.verdict.causes.unclassified import unclassified_errors
from nodedoctor.wording import decimal

_ONE = " of one element (a barrier, or a check of overflow or gradient norm)"
_COLLECTIVE = re.compile(r"torch[/\\]distributed[/\\](?:distributed_c10d|c10d_logger|rendezvous)\.py$")
"""Where torch waits for other ranks."""
_OWN_WORDS = (ExceptionRaised, Mark.BARRIER_VICTIM, GlooTimeout, PeerGone, NcclError, StoreWait)
"""What a process says itself when it ends because of another one."""


def open_question(story: Timeline) -> str:
    """What is known of a failure whose cause is not."""
    if story.marked(Mark.NOT_A_LOG):
        return "this is a page about a failure and not its log: what it quotes does not decide"
    first = story.first_wait
    if first is None:
        said = next((event.what.told for event in story.of(NcclError) if event.what.told), "")
        if said:
            return f"NCCL gave up with {said!r}, and what was read does not say why"
        if story.of(ThreadStack):
            return "processes were looked at, and their stacks do not show who holds the job up"
        if story.marked(Mark.HANG_CONFIRMED):
            return "the job hung: Ray's detector saw collectives stand still, and no line names a rank"
        if waited := story.of(GlooTimeout):
            most = max(event.what.milliseconds or 0 for event in waited)
            long = f" for {decimal(most / 1000)} s" if most else ""
            who = describe_identities(distinct_ranks(event.who for event in waited)) or "a rank"
            return f"{who} waited{long} in gloo for other ranks, and no line says which one did not come"
        return (
            _ended_first(story)
            or _lost_a_peer(story)
            or _cut_short(story)
            or _only_sigterm(story)
            or _first_words(story)
        )
    same = [wait.who for wait in story.waits if wait.work.signature[:2] == first.work.signature[:2]]
    who = describe_identities(same) or "a rank"
    limit = f" for {decimal(first.work.timeout_ms / 1000)} s" if first.work.timeout_ms else ""
    what = (first.work.op or "a collective") + (_ONE if first.work.numel_in == 1 else "")
    size = groups.ranks_in_collective(story)
    if size is not None and first.work.seq == 1:
        return (
            f"all {size} ranks hang in {what}, the first collective of their group: no data ever moved"
            " between their GPUs"
        )
    if size is not None:
        return (
            f"all {size} ranks entered {what}, number {first.work.seq}, and none left it in time: the path"
            " between their GPUs, an earlier operation on one of them, or two groups in a different order"
        )
    if not first.work.op:
        return f"{who} gave up waiting{limit}; no line gives the collective or its number"
    seen = {wait.who.rank for wait in story.waits}
    others = sorted(story.ranks_seen - seen)
    if others and len(story.ranks_seen) == groups.world_of(story):
        silent = f"ranks {rank_ranges(others)} do not say where they were"
        if not others[1:]:
            silent = f"rank {others[0]} does not say where it was"
        return f"{who} waited{limit} in {what}, and {silent}"
    size = groups.size_of(story)
    missing = size - len(seen) if size is not None else 0
    absent = "other rank" if missing == 1 else f"{missing} other ranks" if missing > 1 else "other ranks"
    number = f", number {first.work.seq}" if first.work.seq is not None else ""
    return f"{who} waited{limit} in {what}{number}; the lines of the {absent} are not in these logs"


def _lost_a_peer(story: Timeline) -> str:
    """Who aborted because NCCL lost a peer, whose own end is in another log."""
    lost = [event for event in story.of(NcclError) if event.what.result == "ncclRemoteError"]
    if not lost:
        return ""
    who = describe_identities(event.who for event in (*lost, *story.of(ProcessAborting))) or "a rank"
    ends = [event for event in story.of(ProcessExit) if in_an_abort(story, event)]
    crash = "; the crash behind it is part of the abort" if ends else ""
    return f"{who} lost a peer (ncclRemoteError) and aborted: another log shows the first exit{crash}"


def _only_sigterm(story: Timeline) -> str:
    """That nothing but SIGTERM was seen."""
    people = stopped_processes(story)
    if people is None:
        return ""
    return (
        f"{describe_identities(people) or 'a process'} ended by SIGTERM, and no line says who sent it, or why"
    )


def stopped_processes(story: Timeline) -> tuple[Identity, ...] | None:
    """Who was seen to end by SIGTERM, where nothing else was seen; None where anything was."""
    exits = [event for event in story.of(ProcessExit) if not event.what.helper]
    told = {event.place for event in exits}  # where a launcher raises what it saw
    others = [e for e in story.trouble if e.kind not in (ProcessExit, Mark.UNREAD_TROUBLE)]
    if not exits or any(event.what.signal != SIGTERM for event in exits):
        return None
    if any(event.place not in told for event in others):
        return None
    return blameable_identities(*(who for event in exits for who in people_of(event)))


def _cut_short(story: Timeline) -> str:
    """Where the log was in a traceback when it ended."""
    cut = story.of(CutShort)
    if not cut:
        return ""
    who = describe_identities(in_a_traceback(story) or [cut[0].who])
    frame = cut[0].what.frames[-1] if cut[0].what.frames else None
    where = f" at {frame.name}, line {frame.line}," if frame is not None else ""
    of = f" of {who}" if who else ""
    which = "tracebacks" if len(in_a_traceback(story)) > 1 else "a traceback"
    error = cut[0].what.error
    if error and len(cut) == 1:
        return (
            f"{who or 'a process'} raised {error}; the log ends in its traceback,{where} before its message"
        )
    return f"the log ends in {which}{of},{where} before the line that names the exception"


def in_a_traceback(story: Timeline) -> tuple[Identity, ...]:
    """The ranks in whose tracebacks the log ends, where these are all that is told of the failure.

    One that stood in a collective waited for others: it may be a victim of theirs.
    """
    cut = story.of(CutShort)
    others = [
        e for e in story.trouble if not isinstance(e.what, (CutShort, TaskFailed)) and not shows_who_failed(e)
    ]
    only = not others and not story.marked(Mark.NOT_A_LOG)
    waits = any(_COLLECTIVE.search(frame.file) for event in cut for frame in event.what.frames[-2:])
    if not only or waits or any(event.what.echo for event in cut):
        return ()
    tasks = [event.who for event in cut if event.what.error]
    return tuple(distinct_ranks(event.who for event in cut)) or blameable_identities(*tasks)


def _first_words(story: Timeline) -> str:
    """The first line about trouble, where nothing explains it."""
    told = story.trouble or unclassified_errors(story)
    words = [event for event in told if any(map(str.isalpha, event.text))]
    told = [event for event in words if not shows_who_failed(event)] or words
    first = min(
        told, key=lambda event: (isinstance(event.what, ProcessExit), story.moment(event)), default=None
    )
    said = shorten(first.text, SAID, placeholder=" ...") if first is not None else ""
    if not story.trouble:
        begin = f"; they begin with: {said}" if said else ""
        return f"no progress was read, but lines about a failure that do not say why{begin}"
    if all(event.what is Mark.UNREAD_TROUBLE for event in story.trouble):
        return f"a line of an error was read, and nothing that shows whether the job failed of it: {said}"
    begin = f"; it begins with: {said}" if said else ""
    return f"the job failed, and what was read does not say why{begin}"


def _ended_first(story: Timeline) -> str:
    """What a launcher saw of the first process that ended, or a server's watchdog of its ranks."""
    stuck = [event for event in story.of(WatchdogStuck) if event.what.of_server]
    if stuck:
        who = describe_identities(event.who for event in stuck) or "a process"
        return (
            f"{who} finished no step for {stuck[0].what.seconds_stuck} s, and the server's watchdog ended the"
            " server; what held it up is not in these logs"
        )
    status = next((event for event in story.of(CollectiveStatus) if event.what.stuck is not None), None)
    if status is not None:
        behind = (status.what.enqueued or 0) - (status.what.stuck or 0)
        more = f", with {behind} more enqueued behind it" if behind > 0 else ""
        who = describe_identities([status.who]) or "a rank"
        return (
            f"{who} gave up waiting in collective number {status.what.stuck}{more}; the line that names the"
            " collective is not in these logs"
        )
    end = unexplained_end(story)
    if end is None:
        return ""
    code = f", with exit code {end.codes[0]}" if len(end.codes) == 1 else ""
    who = describe_identities(end.people)
    if end.people[1:]:
        return f"{who} ended{code}; their launcher does not tell which one was first, and no error is here"
    if who and not end.alone:
        return f"{who} ended{code}; nothing says whether others had ended before, and no error is here"
    return f"{who or 'a process'} ended first{code}, and its own error is not in these logs"


def unexplained_end(story: Timeline) -> FirstEnd | None:
    """Who ended first, where no process says why, and none that it gave up waiting."""
    told = {(event.place.source, event.place.offset) for event in story.of(ProcessExit)}
    said = [
        event
        for event in story.trouble
        if event.kind in _OWN_WORDS
        and not shows_who_failed(event)
        and (event.place.source, event.place.offset) not in told  # a launcher's, which names who ended
    ]
    victims = story.given_up or story.of(CollectiveFailed) or story.of(WatchdogStuck)
    return None if said or victims or story.marked(Mark.NOT_A_LOG) else first_end(story)
