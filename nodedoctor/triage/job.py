"""One triage from paths to verdict: read, build the timeline, judge, advise."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from nodedoctor.debug import Log
from nodedoctor.nodeset import fold
from nodedoctor.triage.flight.dump import RankDump, one_per_rank, parse_dump, read_dump
from nodedoctor.triage.flight.judge import FlightReport, judge_dumps
from nodedoctor.triage.flight.unpickle import PickleRefused
from nodedoctor.triage.identity.assign import assign_by_source
from nodedoctor.triage.identity.paths import rank_of_dump
from nodedoctor.triage.identity.world import short_host
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import Coverage, EarlierRun, Event, OtherJob, Verdict
from nodedoctor.triage.read.limits import TAILS, TimeLimit
from nodedoctor.triage.read.parallel import read_all
from nodedoctor.triage.read.reader import SourceReading, unexpected_note
from nodedoctor.triage.read.scan import LineNumbers
from nodedoctor.triage.read.search import GrepSearch
from nodedoctor.triage.read.sources import LogSource, NoSuchPath, find_sources
from nodedoctor.triage.timeline.build import build_timeline
from nodedoctor.triage.timeline.documents import scripts_and_pages
from nodedoctor.triage.timeline.jobs import LoggedJob, events_of, separate_jobs
from nodedoctor.triage.timeline.model import Timeline
from nodedoctor.triage.timeline.node_reports import JoinedNodes, NodeFaults, join_nodes
from nodedoctor.triage.verdict import judge as verdict_judge
from nodedoctor.triage.verdict.document import of_kind
from nodedoctor.triage.verdict.result import TriageResult, add_advice, without_secrets

if TYPE_CHECKING:
    from nodedoctor.triage.live.saved import CapturedJob

EARLIER = 32
"""Earlier runs that are listed one by one, the newest of them."""
_DUMPS = ("pickle", "json")

_log = Log(__name__)


def examine_job(
    paths: Iterable[str],
    nodes: Sequence[NodeFaults] = (),
    *,
    look_here: bool = False,
    job: str = "",
    searches: dict[str, GrepSearch] | None = None,
    seconds: float | None = None,
    start_time: float | None = None,
) -> TriageResult:
    """Judge logs and dumps together, with faults of nodes. NoSuchPath for a wrong path.

    With `look_here` and no nodes, this machine is looked at where the logs evidently come from it. Of several
    jobs in the logs the newest is judged, or the one whose id is `job`. `searches` are those in large logs
    that run already; those that turn out not to be needed are ended. With `seconds` it ends within that
    time, from `start_time` on: the ends of large logs are read first, and what is not read in time lowers the
    confidence.
    """
    if seconds is None:
        return _examine(paths, nodes, look_here, job, searches, None)
    limit = TimeLimit.in_seconds(seconds, start_time)
    limit.end_late()
    try:
        return _examine(paths, nodes, look_here, job, searches, limit)
    finally:
        limit.cancel()


def _examine(
    paths: Iterable[str],
    nodes: Sequence[NodeFaults],
    look_here: bool,
    job: str,
    searches: dict[str, GrepSearch] | None,
    limit: TimeLimit | None,
) -> TriageResult:
    material = find_sources(list(paths))
    reading = SourceReading(notes=list(material.notes), searches=searches or {}, limit=limit)
    read_all([source for source in material.sources if source.kind not in (*_DUMPS, "capture")], reading)
    in_time = limit is None or not (reading.interrupted and limit.is_over)
    if limit is not None and not in_time:
        reading.interrupted = False  # by us, and not by a person
        reading.notes.append(f"--deadline {limit.seconds:g}: these logs were not read whole in time")
    for search in reading.searches.values():
        search.stop()
    if captured := _read_captures(material.sources):
        from nodedoctor.triage.live.examine import judge_live

        dumps = [s for s in material.sources if s.kind in _DUMPS and not captured.is_older(s.path)]
        flight = _read_dumps(dumps, reading)
        notes = (*captured.notes, *reading.notes)
        return judge_live(captured.live, flight, files=len(material.sources), size=reading.size, notes=notes)
    has_dumps = bool(reading.dumps) or any(source.kind in _DUMPS for source in material.sources)
    pages = scripts_and_pages(reading.events, with_dumps=has_dumps)
    speakers = {source: stats for source, stats in reading.speakers.items() if source not in pages}
    of_logs = [event for event in reading.events if event.place.source not in pages]
    all_events = assign_by_source(of_logs, speakers)
    found_jobs = separate_jobs(all_events, speakers)
    chosen = _choose_job(found_jobs, job)
    reading.events = events_of(chosen, found_jobs, all_events) if chosen else all_events
    if chosen and len(found_jobs) > 1:
        reading.notes.append(
            f"{len(found_jobs)} jobs are in these logs, and one was judged (--job ID picks another)"
        )
    flight = _read_dumps([source for source in material.sources if source.kind in _DUMPS], reading)
    timeline = build_timeline([*reading.events, *flight.events])
    if look_here and not nodes and timeline.trouble and not reading.interrupted:
        nodes = _look_at_machine(timeline, material.sources, reading)
    node_faults = join_nodes(timeline, nodes) if nodes and timeline.trouble else JoinedNodes()
    events = [*reading.events, *flight.events, *node_faults.events]
    if node_faults.events:
        timeline = build_timeline(events)
    reading.notes += (*node_faults.notes, *transport_notes(timeline))
    coverage = Coverage(
        files=len(material.sources),
        size=reading.size,
        ranks_seen=tuple(sorted({*timeline.ranks_seen, *flight.ranks})),
        ranks_expected=timeline.expected,
        notes=tuple(reading.notes),
        unread=reading.unread,
    )
    verdict = verdict_judge.judge_incident(timeline, coverage, flight.candidates, calm=flight.calm)
    suspected = node_faults.undated if verdict.outcome == "undetermined" else ()
    if suspected:  # for lack of a cause in the logs themselves
        timeline = build_timeline([*events, *suspected])
        verdict = verdict_judge.judge_incident(timeline, coverage, flight.candidates, calm=flight.calm)
    verdict = add_advice(verdict, timeline)
    if not in_time or suspected:
        verdict = replace(verdict, confidence="low")
    elif reading.slow and verdict.confidence == "high":
        verdict = replace(verdict, confidence="medium")
    verdict = replace(
        verdict,
        jobs=tuple(_job_summary(entry, chosen, found_jobs, all_events, verdict) for entry in found_jobs),
        earlier=tuple(_earlier_run(run) for run in timeline.earlier[-EARLIER:]),
    )
    countable_sources = [s for s in material.sources if s.kind == "text" and (in_time or s.size <= TAILS[-1])]
    plain = {
        s.path: sorted(reading.anchors.get(s.path, [])) for s in countable_sources
    }  # to count lines takes time
    shown = [
        *verdict.evidence,
        *(event for run in verdict.earlier for event in run.evidence),
        *(group[0] for group in of_kind(verdict)),
        *(error.event for error in verdict.also_seen),
    ]
    return TriageResult(verdict, LineNumbers(shown, plain), reading.interrupted)


def _read_captures(sources: Iterable[LogSource]) -> CapturedJob | None:
    """Looks at the running job that black boxes saved: they show more than its logs."""
    paths = [source.path for source in sources if source.kind == "capture"]
    if not paths:
        return None
    from nodedoctor.triage.live import saved

    return saved.read_captures(paths)


def _choose_job(jobs: Sequence[LoggedJob], wanted: str) -> LoggedJob | None:
    """The job that is asked for, else the newest; NoSuchPath for an unknown one."""
    if not wanted:
        return jobs[-1] if jobs else None
    chosen = next((job for job in jobs if job.id == wanted), None)
    if chosen is None:
        raise NoSuchPath(
            f"no job {wanted!r} in these logs; jobs: {' '.join(job.id for job in jobs) or 'none'}"
        )
    return chosen


def _job_summary(
    job: LoggedJob,
    chosen: LoggedJob | None,
    jobs: Sequence[LoggedJob],
    events: list[Event[Any]],
    verdict: Verdict,
) -> OtherJob:
    """A job in the list of jobs; others than the chosen by logs alone."""
    if job is not chosen:
        verdict = verdict_judge.judge_incident(build_timeline(events_of(job, jobs, events)), Coverage())
    hosts = tuple(sorted(job.hosts))[:64]
    return OtherJob(
        job.id, hosts, job.world, job.first, job.last, verdict.outcome, verdict.cause, job is chosen
    )


def _earlier_run(events: Sequence[Event[Any]]) -> EarlierRun:
    """How a run before the judged one ended, by its own lines alone."""
    verdict = without_secrets(verdict_judge.judge_incident(build_timeline(events), Coverage()))
    return EarlierRun(
        verdict.outcome, verdict.cause, verdict.headline, verdict.culprits, verdict.evidence[:1]
    )


def _look_at_machine(
    timeline: Timeline, sources: Iterable[LogSource], reading: SourceReading
) -> Sequence[NodeFaults]:
    from nodedoctor.triage.live import this_machine

    why = this_machine.evidence_for_machine(timeline, [source.path for source in sources])
    if not why:
        return ()
    nodes, note = this_machine.look_at_machine(why)
    reading.notes.append(note)
    return nodes


def _read_dumps(sources: Iterable[LogSource], reading: SourceReading) -> FlightReport:
    """The dumps among the sources, one by one; an unusable one becomes a note."""
    dumps: list[RankDump] = []
    ranks: set[int | None] = set()
    for source in sorted(sources, key=lambda source: source.kind != "pickle"):
        if source.kind == "json" and rank_of_dump(source.path) in ranks:
            continue  # the same dump once more, without its stack frames
        try:
            began = time.perf_counter()
            dump = read_dump(source.path)
            _log.debug("%s read as a dump in %.3f s", source.path, time.perf_counter() - began)
            dumps.append(dump)
            ranks |= {dump.rank} if dump.rank is not None and dump.complete and dump.entries else set()
        except (PickleRefused, OSError) as problem:
            reading.notes.append(f"{source.path}: {problem}")
        except Exception as fault:  # whatever one dump does to us costs the others nothing
            reading.notes.append(unexpected_note(source.path, fault))
        reading.size += source.size
    for name, data in reading.dumps:
        try:
            dumps.append(parse_dump(name, data))
        except PickleRefused as problem:
            reading.notes.append(f"{name}: {problem}")
    if not dumps:
        return FlightReport()
    best_dumps, notes = one_per_rank(dumps)
    report = judge_dumps(best_dumps, notes)
    reading.notes += report.notes
    return report


NODES = 2
"""Nodes from which on a job needs a network."""


def transport_notes(timeline: Timeline) -> list[str]:
    """A note where several nodes of a job talk TCP: adapters that they may have are not used."""
    chosen = [event for event in timeline.marked(Mark.SET_UP) if event.text.endswith("Using network Socket")]
    hosts = sorted({short_host(event.who.host) for event in chosen if event.who.host})
    if len(hosts) < NODES:
        return []
    return [
        f"NCCL talks TCP on {fold(hosts)} (Using network Socket): InfiniBand, RoCE or EFA adapters, where"
        " these nodes have them, are not used"
    ]
