"""Finds the rank that holds up a running job, by state, stack and RAS."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from nodedoctor.grouping import group_by, group_pairs
from nodedoctor.triage.describe import describe_identities
from nodedoctor.triage.lines.prefixes import parse_line
from nodedoctor.triage.live import without_stacks
from nodedoctor.triage.live.activity import (
    FROZEN,
    GPU_WAIT,
    IDLE_TICKS,
    STATES,
    activity_events,
    called_from,
    describe_activity,
    has_no_task,
    holder_text,
    identity_of,
    innermost_frame,
    is_idle_worker,
    long_work,
    waits_in,
)
from nodedoctor.triage.live.running_job import LiveJob, RankProcess
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import NOBODY, Candidate, Cause, Confidence, Event, Identity, Place
from nodedoctor.triage.patterns import read_events
from nodedoctor.triage.patterns.host_limits import HostOom
from nodedoctor.triage.patterns.progress import TrainingStep
from nodedoctor.triage.verdict.causes.groups import are_awaited, describe_holdup
from nodedoctor.wording import comma_list, singular_or_plural

_PLURAL = {"is": "are", "hangs": "hang", "has": "have"}
_DEAD = ("Z", "gone")
_STOPPED = ("T", "t", FROZEN)


def live_candidates(live: LiveJob) -> list[Candidate]:
    """Causes that the states and stacks of the processes speak for."""
    rules = (
        _abnormal_states,
        _missing_processes,
        _waits_for_lock,
        _outside_collective,
        _different_calls,
        _lone_method,
        without_stacks.idle_gpu,
        _differing_rank,
    )
    return [candidate for rule in rules for candidate in rule(live)]


def abnormal(live: LiveJob) -> list[RankProcess]:
    """The processes in a state that the kernel itself calls abnormal, seen so both times.

    That a rank is dead counts where the others wait for it or it is not seen what they do: at the end of a
    job one after another comes to its end.
    """
    processes = [process for process in live.processes if _standstill(process) or process.lock]
    if any(_standstill(process) in _DEAD for process in processes) and not _may_wait(live):
        return [process for process in processes if _standstill(process) not in _DEAD]
    return processes


def _standstill(process: RankProcess) -> str:
    """The kernel state of a process that cannot run, '' for any other state.

    What loads libraries or creates a CUDA context is in state D whenever somebody looks, and yet goes on:
    it uses processor time between the looks.
    """
    if process.frozen:
        return FROZEN
    first, second = process.states
    works = second == "D" and process.ticks > IDLE_TICKS
    return second if first == second and second in STATES and not works else ""


def _may_wait(live: LiveJob) -> bool:
    """True unless all living ranks' stacks were read and none is in a collective."""
    living = [process for process in live.processes if process.states[1] not in _DEAD]
    waits = any(process.collective and not process.moved for process in living)
    return waits or not all(process.threads for process in living)


def live_events(live: LiveJob) -> list[Event[Any]]:
    """What every process does, and what RAS says; moving counts prove life."""
    events = [*activity_events(live, live.processes)]
    first, second = live.ras
    if first and second and ras_counts(first) != ras_counts(second):
        moved = "operation counts moved: not stuck"
        events.append(Event(Mark.RAS_RUNNING, Place("NCCL RAS", 0), NOBODY, None, moved))
    elif second:
        answers = (event for event in without_stacks.ras_events(second) if event.what is not Mark.RAS_RUNNING)
        events += [_with_rank(live, event) for event in answers]
        if first and ras_counts(second):
            unmoved = "asked twice, it counted the same operations"
            events.append(Event(Mark.RAS_UNMOVED, Place("NCCL RAS", 0), NOBODY, None, unmoved))
    if live.steps:
        text = "steps came while it was looked at"
        events.append(Event(TrainingStep(rises=live.steps), Place("output", 0), NOBODY, None, text))
    return events + list(_kernel_events(live))


def _with_rank(live: LiveJob, event: Event[Any]) -> Event[Any]:
    """An event of RAS's, which knows processes and their numbers in a group, as of its rank here."""
    processes = [process for process in live.processes if process.pid == event.who.pid]
    if len(processes) == 1:
        return replace(event, who=identity_of(live, processes[0]))
    absent = _absent_ranks(live.processes) if event.who.pid and not processes else []
    same = absent == [event.who.group_rank]  # the one rank without a process, in a group of all
    return replace(event, who=event.who.fill_from(Identity(rank=absent[0]))) if same else event


def _kernel_events(live: LiveJob) -> Iterator[Event[Any]]:
    """What the kernel said of this job's processes, not of other jobs on the node."""
    by_pid = {(process.host or live.host, process.pid): process for process in live.processes}
    for host, raw in live.kernel:
        for event in read_events(parse_line(raw, Place("kernel log", 0))):
            killed = event.what.pid if isinstance(event.what, HostOom) else None
            process = by_pid.get((host, event.who.pid or killed or -1))
            if process is not None:
                yield replace(event, who=identity_of(live, process))


def _abnormal_states(live: LiveJob) -> Iterator[Candidate]:
    """A stopped, frozen, unkillable or dead process, seen so both times.

    What all of them do is no rank's fault, unless they are stopped or frozen: none can go on then.
    """
    processes = abnormal(live)
    stuck = [process for process in processes if _standstill(process)]
    if stuck and (len(stuck) < len(live.processes) or all(_standstill(p) in _STOPPED for p in stuck)):
        who = tuple(identity_of(live, process) for process in stuck)
        state = _standstill(stuck[0])
        cause: Cause = "peer_died" if state in _DEAD else "cpu_stuck_or_slow_rank"
        verb, _, rest = STATES[state].partition(" ")
        headline = f"{describe_identities(who)} {singular_or_plural(len(who), verb, _PLURAL[verb])} {rest}"
        evidence = activity_events(live, stuck[:4])
        yield Candidate(cause, "death", "high", headline, evidence, who)


def _waits_for_lock(live: LiveJob) -> Iterator[Candidate]:
    """A process that the kernel lists behind the holder of a file lock, both times."""
    behind = [process for process in live.processes if process.lock]
    if behind and len(behind) < len(live.processes):
        who = tuple(identity_of(live, process) for process in behind)
        headline = (
            f"{describe_identities(who)} {singular_or_plural(len(who), 'waits', 'wait')} for the "
            f"{behind[0].lock}"
        )
        evidence = activity_events(live, behind[:4])
        yield Candidate("cpu_stuck_or_slow_rank", "absence", "medium", headline, evidence, who)


def _missing_processes(live: LiveJob) -> Iterator[Candidate]:
    """Ranks that a launcher started on a node and that have no process there."""
    if any(process.states[1] in _DEAD for process in live.processes):
        return
    who: list[Identity] = []
    for host in dict.fromkeys(process.host for process in live.processes):
        here = [process for process in live.processes if process.host == host]
        who += [Identity(rank=rank, host=host or live.host or None) for rank in _absent_ranks(here)]
    if who:
        evidence = activity_events(live, live.processes[:3])
        waited = any(process.collective and not process.moved for process in live.processes)
        sure: Confidence = "high" if waited else "low"  # a job that ends loses its ranks one by one
        headline = (
            f"{describe_identities(tuple(who))} {singular_or_plural(len(who), 'has', 'have')} no "
            "process any more"
        )
        yield Candidate("peer_died", "death", sure, headline, evidence, tuple(who), decides=waited)


def _absent_ranks(here: Sequence[RankProcess]) -> list[int]:
    """The ranks of a node that have no process there; none where that is uncertain."""
    sizes = {process.local_world_size for process in here}
    size = sizes.pop() if len(sizes) == 1 else None
    if size is None or any(process.rank is None for process in here):
        return []
    begins = {(process.rank or 0) - process.local_rank for process in here if process.local_rank is not None}
    if not begins and {process.world_size for process in here} == {size}:
        begins = {0}
    if len(begins) != 1:
        return []
    begin = begins.pop()
    return sorted(set(range(begin, begin + size)) - {process.rank for process in here})


def _outside_collective(live: LiveJob) -> Iterator[Candidate]:
    """All but a few ranks wait in a collective for the few.

    One that uses CPU may loop or compute, which two looks cannot tell: a suspicion, unless it was watched
    for long (`computing`).
    """
    ranks = [p for p in live.processes if p.threads and not is_idle_worker(p)]
    waiting = [process for process in ranks if waits_in(process) and not process.moved]
    others = [process for process in ranks if not waits_in(process)]
    stuck = [process for process in others if not process.moved]
    if not stuck or not are_awaited(others, waiting):
        return
    who = tuple(identity_of(live, process) for process in stuck)
    work = next(filter(None, map(long_work, stuck)), "")
    cause: Cause = "timeout_too_short_legit_work" if work else "cpu_stuck_or_slow_rank"
    gil = any(thread.owns_gil for process in stuck for thread in process.threads)
    doing, more = describe_activity(stuck[0]), holder_text(stuck[0])
    collective = waits_in(waiting[0])
    headline = describe_holdup(describe_identities(who), doing, len(waiting), collective, gil=gil, more=more)
    evidence = activity_events(live, (*stuck[:3], *waiting[:2]))
    victims = tuple(identity_of(live, process) for process in waiting)
    computes = all(map(_may_compute, stuck))
    long_watched = any(process.computing for process in stuck)
    sure: Confidence = "low" if long_watched or computes else "medium"
    yield Candidate(cause, "absence", sure, headline, evidence, who, victims, decides=not computes)


def _may_compute(process: RankProcess) -> bool:
    """True for a process that used CPU between the looks, and was not watched for longer."""
    return process.ticks > IDLE_TICKS and not process.computing


def _different_calls(live: LiveJob) -> Iterator[Candidate]:
    """All ranks of the job wait in collectives, but in different ones.

    Those in collectives of one name that different functions of the job call wait in different ones, too,
    though less surely: a rank may go its own way to the same call. What only waits for the GPU
    (`synchronize`, `wait`) does not say for which collective.
    """
    processes = live.processes
    complete = len(processes) > 1 and len(processes) == max((p.world_size or 0 for p in processes), default=0)
    waits = {process: waits_in(process) for process in processes} if complete else {}
    if not waits or any(p.moved or not name or GPU_WAIT.search(name) for p, name in waits.items()):
        return
    sure: Confidence = "medium"
    if len(set(waits.values())) == 1:
        callers = {process: called_from(process) for process in processes}
        waits = {p: f"{name}, {callers[p]}" if callers[p] else "" for p, name in waits.items()}
        sure = "low"
    calls = group_pairs((name, process) for process, name in waits.items())
    if len(calls) < 2 or "" in calls:
        return
    few, *others = sorted(calls.values(), key=len)
    outvoted = len(calls) == 2 and len(few) < len(others[0])
    who = tuple(identity_of(live, process) for process in few) if outvoted else ()
    descriptions = [
        f"{describe_identities(identity_of(live, p) for p in group)} in {name}"
        for name, group in calls.items()
    ]
    headline = f"the ranks wait for each other in different collectives: {comma_list(descriptions, most=4)}"
    evidence = activity_events(live, (*few[:3], *others[0][:3]))
    yield Candidate("collective_mismatch", "absence", sure, headline, evidence, who)


def _lone_method(live: LiveJob) -> Iterator[Candidate]:
    """One of Ray's actors alone runs a method, and does nothing: its driver waits."""
    runs = [process for process in live.processes if not has_no_task(process)]
    idle = len(live.processes) - 1
    if idle < 1 or len(runs) != 1 or not runs[0].threads:
        return
    (runner,) = runs
    if runner.moved or runner.collective or runner.ticks > IDLE_TICKS or long_work(runner):
        return
    who = (identity_of(live, runner),)
    alone = f"the other {idle} {singular_or_plural(idle, 'actor has', 'actors have')} nothing to do"
    evidence = activity_events(live, live.processes[:4])
    headline = f"{describe_identities(who)} {describe_activity(runner)}, and {alone}"
    yield Candidate("cpu_stuck_or_slow_rank", "absence", "low", headline, evidence, who)


def _differing_rank(live: LiveJob) -> Iterator[Candidate]:
    """A rank that is elsewhere than all others, where none is in a known collective or behind a lock.

    Ranks talk to each other by means we do not know, or their stacks are missing. It is a suspicion: by the
    function, else the line in it, else the place in the kernel.
    """
    ranks = [p for p in live.processes if p.states[1] not in STATES and not is_idle_worker(p)]
    if len(ranks) < 3 or any(process.moved or process.collective or process.lock for process in ranks):
        return
    all_stacks = all(process.threads for process in ranks)
    for place, shown in _PLACES if all_stacks else _PLACES[-1:]:
        places = group_by(ranks, place)
        if len(places) != 2 or "" in places:
            continue
        few, many = sorted(places.values(), key=len)
        if len(few) == 1 and len(many) > 1:
            who = (identity_of(live, few[0]),)
            there, here = shown(few[0]), shown(many[0])
            headline = (
                f"{describe_identities(who)} is in {there}, and the other {len(many)} ranks are in {here}"
            )
            evidence = activity_events(live, (*few, *many[:3]))
            alone = shown is _wait_channel  # a rank elsewhere in the kernel may be the one that waits
            decides = not alone and not _may_compute(few[0])
            yield Candidate(
                "cpu_stuck_or_slow_rank", "absence", "low", headline, evidence, who, decides=decides
            )
        return


def _function_name(process: RankProcess) -> str:
    frame = innermost_frame(process)
    return f"{frame.function} ({frame.file})" if frame is not None else ""


def _source_line(process: RankProcess) -> str:
    frame = innermost_frame(process)
    return frame.place if frame is not None else ""


def _wait_channel(process: RankProcess) -> str:
    return process.wchan


_PLACES = ((_function_name, _source_line), (_source_line, _source_line), (_wait_channel, _wait_channel))
"""What tells ranks apart, and how it is shown: the coarsest first, as loops have several lines."""


def is_named_by_ras(live: LiveJob) -> bool:
    """Whether RAS's last answer names a process of this job."""
    pids = {int(pid) for pid in re.findall(r"\b[Pp]rocess (\d{1,9}) on node ", live.ras[1])}
    return any(process.pid in pids for process in live.processes)


def ras_counts(text: str) -> list[str]:
    """RAS's operation counts: the only part that says whether anything moved."""
    return re.findall(r"operation \d+|\"(?:AllReduce|AllGather|ReduceScatter|Broadcast|Reduce)\": \d+", text)
