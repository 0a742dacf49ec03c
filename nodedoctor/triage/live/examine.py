"""One triage of a job that runs now: tell what was seen of it, and judge."""

from __future__ import annotations

from dataclasses import replace

from nodedoctor.triage.flight.judge import FlightReport
from nodedoctor.triage.live import fixes, judge
from nodedoctor.triage.live.running_job import LiveJob, RankProcess
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import Coverage
from nodedoctor.triage.read.linenumbers import LineNumbers
from nodedoctor.triage.timeline import build_timeline
from nodedoctor.triage.verdict import judge as verdict
from nodedoctor.triage.verdict.result import TriageResult, add_advice
from nodedoctor.wording import comma_list, count_with_noun, singular_or_plural

UNSEEN = (
    "ranks are known by RANK, SLURM_PROCID or OMPI_COMM_WORLD_RANK in their environment, which only their own"
    " user and root can read"
)


def judge_live(
    live: LiveJob,
    flight: FlightReport | None = None,
    *,
    files: int = 0,
    size: int = 0,
    notes: tuple[str, ...] = (),
) -> TriageResult:
    """The verdict on what was seen of a running job, now or by whoever kept it.

    Of several jobs on the same nodes the first that somebody holds up is judged, and the others are named.
    `flight` is what the flight recorder's dumps of the largest of them say; `files`, `size` in bytes and
    `notes` are what was read of those that kept it.
    """
    jobs = _find_jobs(live)
    read = Coverage(files, size, notes=notes)
    judged = [_judge_job(job, flight if number == 0 else None, read) for number, job in enumerate(jobs)]
    chosen = next((n for n, one in enumerate(judged) if one.verdict.outcome == "failure"), 0)
    others = tuple(_named_processes(job) for n, job in enumerate(jobs) if n != chosen)
    if not others:
        return judged[chosen]
    found = judged[chosen].verdict
    coverage = replace(found.coverage, notes=(*found.coverage.notes, *others))
    return replace(judged[chosen], verdict=replace(found, coverage=coverage))


def _find_jobs(live: LiveJob) -> list[LiveJob]:
    """The jobs among the processes, the largest first."""
    apart: dict[str, list[RankProcess]] = {}
    for process in live.processes:
        apart.setdefault(process.job, []).append(process)
    sizes = sorted(apart.values(), key=len, reverse=True)
    return [replace(live, processes=tuple(processes)) for processes in sizes] or [live]


def _named_processes(job: LiveJob) -> str:
    first = job.processes[0]
    count = count_with_noun(len(job.processes), "process")
    return f"another job runs there ({count}): `nodedoctor triage --live {first.pid}` looks at it alone"


def _judge_job(live: LiveJob, flight: FlightReport | None, read: Coverage) -> TriageResult:
    told = [*judge.live_events(live), *(flight.events if flight is not None else ())]
    story = build_timeline(told)
    moving = bool(story.marked(Mark.RAS_RUNNING))
    found = [] if moving else judge.live_candidates(live)
    found += flight.candidates if flight is not None else ()
    ranks = [process.rank for process in live.processes if process.rank is not None]
    sizes = [process.world_size for process in live.processes if process.world_size]
    unseen = () if live.processes else (UNSEEN,)
    silent = tuple(f"{host} gave no answer: {why}" for host, why in live.silent)
    notes = (*silent, *live.notes, *read.notes, *unseen)
    world = max(sizes, default=None)
    seen = tuple(sorted({*ranks, *(flight.ranks if flight is not None else ())}))
    coverage = Coverage(read.files, read.size, seen, world, notes, silent=live.silent)
    judged = verdict.judge_incident(story, coverage, found)
    if judged.outcome in ("undetermined", "nothing"):
        count = len(live.processes)
        those = (
            f"{count_with_noun(count, 'process')} of the job {singular_or_plural(count, 'was', 'were')} seen"
        )
        processes = those if count else "no rank was found"
        suspicion = next((one for one in found if not one.decides), None)
        if suspicion is None:
            headline = f"{processes}, and nothing shows who holds it up"
            judged = replace(judged, headline=headline, evidence=tuple(told[:8]))
        else:
            headline = f"{suspicion.headline}: a suspicion, nothing else shows who holds the job up"
            evidence, who = suspicion.evidence, suspicion.culprits
            judged = replace(judged, headline=headline, evidence=evidence, culprits=who)
    judged = add_advice(judged, story)
    if judged.outcome in ("undetermined", "nothing"):
        judged = replace(judged, next=fixes.deciding_measurements(live) or judged.next)
    now = fixes.live_fixes(live, judged.culprits)
    if live.silent:
        hosts = comma_list((host for host, _ in live.silent), most=3)
        judged = replace(judged, headline=f"{judged.headline}; {hosts} gave no answer")
    judged = replace(judged, fixes=now or judged.fixes, standings=tuple(judge.group_activities(live)))
    return TriageResult(judged, LineNumbers((), {}))
