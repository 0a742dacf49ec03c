"""Builds the timeline of the last incident: identities, waits, and errors that the job survived.

Of logs with the same lines one is taken; lines without a time get bounds from those around them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

from nodedoctor.grouping import group_by
from nodedoctor.triage.identity.assign import assign_by_events, identify_waiting
from nodedoctor.triage.identity.file_trees import later_attempts
from nodedoctor.triage.identity.world import world_size
from nodedoctor.triage.model import CollectiveCall, Event, ProcessGroup, SideError
from nodedoctor.triage.patterns.last_lines import LastLines
from nodedoctor.triage.patterns.progress import TrainingStep
from nodedoctor.triage.patterns.watchdog import CollectiveStatus, TimedOut
from nodedoctor.triage.timeline.belonging import drop_foreign
from nodedoctor.triage.timeline.counters import waits_by_counters
from nodedoctor.triage.timeline.model import QUIET, CollectiveWait, Timeline, is_trouble
from nodedoctor.triage.timeline.recovery.counted_on import drop_outlived_interrupts
from nodedoctor.triage.timeline.recovery.job_context import describe_job
from nodedoctor.triage.timeline.recovery.set_aside import decide_in_job, decide_in_log
from nodedoctor.triage.timeline.rotations import newer_files
from nodedoctor.triage.timeline.runs import SURVIVED, LoggedRun, separate_runs


def build_timeline(events: Sequence[Event[Any]]) -> Timeline:
    """The timeline of the last incident in these events, read from any number of sources."""
    incidents = 0
    last: list[Event[Any]] = []
    events, foreign = drop_foreign(events)
    sources = drop_copies(by_source(events))
    earlier_runs: list[list[Event[Any]]] = []
    also_seen: list[SideError] = foreign
    later = later_attempts(source[0].place.source for source in sources)
    last_lines: list[Event[Any]] = []
    over = _files_of_earlier_runs(sources)
    for source in sources:
        own_last_lines = [event for event in source if event.kind is LastLines]
        *earlier, latest = separate_runs(
            drop_outlived_interrupts([event for event in source if event.kind is not LastLines])
        )
        if attempts := later.get(source[0].place.source):
            earlier, latest = [*earlier, latest, *[LoggedRun(())] * (attempts - 1)], LoggedRun(())
        elif source[0].place.source in over:
            earlier, latest = [*earlier, replace(latest, died=True)], LoggedRun(())
        incidents = max(incidents, sum(map(_has_failed, earlier)))
        last_lines += _of_run(own_last_lines, latest, is_only=not earlier)
        decisive, handled = decide_in_log(list(latest.events))
        last += decisive
        also_seen += handled
        for number, run in enumerate(reversed(earlier)):
            earlier_runs += [[]] if len(earlier_runs) == number else []
            earlier_runs[number] += run.events
    last, last_lines = assign_by_events(last, last_lines)
    waits, expected = tuple(_collect_waits(last)), world_size(last)
    waits = (*waits, *waits_by_counters(last, waits))
    last, handled = decide_in_job(last, describe_job(last, waits, expected))
    return Timeline(
        events=tuple(last),
        also_seen=(*also_seen, *handled),
        incidents=incidents + any(e.kind not in QUIET for e in last),
        survived=incidents,
        folded=any(e.repeated for e in last),
        waits=waits,
        steps=_most_rises(last),
        sources=len(sources),
        not_before={key: at for source in by_source(last) for key, at in not_before(source).items()},
        expected=expected,
        earlier=tuple(map(tuple, earlier_runs[::-1])),
        last_lines=tuple(last_lines),
    )


def _files_of_earlier_runs(sources: Sequence[Sequence[Event[Any]]]) -> set[str]:
    """The older files of logs with a failure behind which a newer file of the same log counts on.

    Its times are behind theirs: what is numbered like a rotated log may be of several processes.
    """
    by_path = {source[0].place.source: source for source in sources}
    over: set[str] = set()
    for path, newer in newer_files(by_path).items():
        behind = [event for name in newer for event in by_path[name]]
        end = max((event.time for event in by_path[path] if event.time is not None), default=None)
        begin = min((event.time for event in behind if event.time is not None), default=None)
        if end is None or begin is None or begin < end - DISORDER or not any(map(is_trouble, by_path[path])):
            continue
        if sum(event.what.rises for event in behind if isinstance(event.what, TrainingStep)) >= SURVIVED:
            over.add(path)
    return over


def _of_run(last_lines: list[Event[Any]], run: LoggedRun, *, is_only: bool) -> list[Event[Any]]:
    """The last lines of a log that are of its last run."""
    start = 0 if is_only else run.events[0].place.offset if run.events else None
    return [event for event in last_lines if start is not None and event.place.offset >= start]


def _has_failed(run: LoggedRun) -> bool:
    """True for a run that died, and did not handle all that it met."""
    decisive = decide_in_log(list(run.events))[0] if run.died else ()
    return any(map(is_trouble, decisive))


def _most_rises(events: Iterable[Event[Any]]) -> int:
    """How often the busiest counter of steps rose."""
    rises: Counter[str] = Counter()
    for event in events:
        if isinstance(event.what, TrainingStep):
            rises[event.what.series] += event.what.rises
    return max(rises.values(), default=0)


def _collect_waits(events: list[Event[Any]]) -> Iterable[CollectiveWait]:
    """One wait per rank, group and collective; a later line may name the group."""
    groups: dict[tuple[int | None, int | None], ProcessGroup] = {}
    for event in events:
        what = event.what
        if isinstance(what, CollectiveStatus) and what.group.name and what.stuck is not None:
            groups.setdefault((event.who.rank, what.stuck), what.group)
        if isinstance(what, TimedOut) and what.work.group.name:
            groups.setdefault((event.who.rank, what.work.seq), what.work.group)
    waits: dict[tuple[Any, ...], CollectiveWait] = {}
    for event in events:
        what = event.what
        if not isinstance(what, TimedOut):
            continue
        work = what.work
        if not work.group.name:
            group = groups.get((event.who.rank, work.seq)) or _only_group(groups, work.seq)
            work = replace(work, group=group)
        if event.who.rank is None and any(_repeats_wait(event, work, wait) for wait in waits.values()):
            continue
        who = identify_waiting(event.who)
        key = (who.rank, who.world, work.seq, work.op)
        if key in waits:
            continue
        ran = what.ran_ms / 1000 if what.ran_ms is not None else None
        began = event.time - ran if event.time is not None and ran is not None and what.fresh else None
        waits[key] = CollectiveWait(who, work, event, began)
    return waits.values()


def _only_group(
    groups: Mapping[tuple[int | None, int | None], ProcessGroup], seq: int | None
) -> ProcessGroup:
    """The group of a wait whose own line names none: the only one that others name, in about this call."""
    by_name = {group.name: group for group in groups.values()}
    near = any(
        None not in (seq, near_seq) and abs((seq or 0) - (near_seq or 0)) <= 1 for _, near_seq in groups
    )
    return next(iter(by_name.values())) if len(by_name) == 1 and near else ProcessGroup()


def _repeats_wait(event: Event[TimedOut], work: CollectiveCall, wait: CollectiveWait) -> bool:
    """True for C++'s copy of the exception that ends a process, without the rank."""
    same = work.signature == wait.work.signature and event.who.group_rank == wait.event.who.group_rank
    names = {work.group.name, wait.work.group.name} - {""}
    return not event.what.fresh and same and len(names) < 2 and event.who.world == wait.who.world


DISORDER = 2.0
"""Seconds by which a line may be older than the one before it: pipes of several processes. Ours."""


def by_source(events: Iterable[Event[Any]]) -> list[list[Event[Any]]]:
    """The events of each source, in their order."""
    return list(group_by(events, lambda event: event.place.source).values())


def not_before(source: Sequence[Event[Any]]) -> dict[int, float]:
    """For each event without a time, the last time before it, by the event's `id`.

    Only where one log took the lines of several ranks as they came: its ranks take turns, and its times only
    go forward. Logs that were put one behind another tell nothing between their ranks.
    """
    speakers = [event.who.rank for event in source if event.who.rank is not None]
    turns = sum(rank != next_rank for rank, next_rank in pairwise(speakers))
    times = [event.time for event in source if event.time is not None and event.who.rank is not None]
    forward = all(later >= earlier - DISORDER for earlier, later in pairwise(times))
    if len(set(speakers)) < 2 or turns < len(set(speakers)) or not forward:
        return {}
    earliest_times: dict[int, float] = {}
    last: float | None = None
    for event in source:
        if event.time is not None:
            last = event.time if event.who.rank is not None else last
        elif last is not None:
            earliest_times[id(event)] = last
    return earliest_times


def drop_copies(sources: Sequence[list[Event[Any]]]) -> list[list[Event[Any]]]:
    """The sources without copies: logs that have the same lines as another one."""
    contents: set[tuple[Any, ...]] = set()
    originals = []
    for source in sources:
        content = tuple(
            (event.place.offset, event.text, event.time, event.who, event.kind) for event in source
        )
        if content not in contents:
            originals.append(source)
        contents.add(content)
    return originals
