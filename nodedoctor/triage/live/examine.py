"""One triage of a job that runs now: describe what it does, judge, and say what to do: look, then decide."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from nodedoctor.children.programs import installed_with_us
from nodedoctor.grouping import group_by
from nodedoctor.model import Fix
from nodedoctor.steps import keep, look, looks, repair
from nodedoctor.triage.flight.judge import FlightReport
from nodedoctor.triage.live import activity, judge, without_stacks
from nodedoctor.triage.live.running_job import LiveJob, RankProcess
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.model import Coverage, Identity
from nodedoctor.triage.read.scan import LineNumbers
from nodedoctor.triage.timeline.build import build_timeline
from nodedoctor.triage.verdict import judge as verdict_judge
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
    """The verdict on a running job, as seen now or in a saved look.

    Of several jobs on the same nodes the first that a process holds up is judged, and the others are named.
    `flight` is what the flight recorder's dumps of the largest of them say; `files`, `size` in bytes and
    `notes` are what was read of the saved looks.
    """
    jobs = _find_jobs(live)
    read = Coverage(files, size, notes=notes)
    results = [_judge_job(job, flight if number == 0 else None, read) for number, job in enumerate(jobs)]
    chosen = next((n for n, result in enumerate(results) if result.verdict.outcome == "failure"), 0)
    others = tuple(_named_processes(job) for n, job in enumerate(jobs) if n != chosen)
    if not others:
        return results[chosen]
    verdict = results[chosen].verdict
    coverage = replace(verdict.coverage, notes=(*verdict.coverage.notes, *others))
    return replace(results[chosen], verdict=replace(verdict, coverage=coverage))


def _find_jobs(live: LiveJob) -> list[LiveJob]:
    """The jobs among the processes, the largest first.

    NCCL's RAS answers for one of them: not for those of which it names no process, where it names another's.
    """
    by_job = group_by(live.processes, lambda process: process.job)
    sizes = sorted(by_job.values(), key=len, reverse=True)
    jobs = [replace(live, processes=tuple(processes)) for processes in sizes] or [live]
    answering = [job for job in jobs if judge.is_named_by_ras(job)]
    return [job if job in answering or not answering else replace(job, ras=("", "")) for job in jobs]


def _named_processes(job: LiveJob) -> str:
    first = job.processes[0]
    count = count_with_noun(len(job.processes), "process")
    return f"another job runs there ({count}): `nodedoctor triage --live {first.pid}` looks at it alone"


def _judge_job(live: LiveJob, flight: FlightReport | None, read: Coverage) -> TriageResult:
    events = [*judge.live_events(live), *(flight.events if flight is not None else ())]
    timeline = build_timeline(events)
    moving = bool(timeline.marked(Mark.RAS_RUNNING) or live.steps)
    candidates = [] if moving else judge.live_candidates(live)
    candidates += without_stacks.late_ranks(live)
    candidates += flight.candidates if flight is not None else ()
    ranks = [process.rank for process in live.processes if process.rank is not None]
    sizes = [process.world_size for process in live.processes if process.world_size]
    unseen = () if live.processes else (UNSEEN,)
    silent = tuple(f"{host} gave no answer: {why}" for host, why in live.silent)
    notes = (*silent, *live.notes, *read.notes, *unseen)
    world = max(sizes, default=None)
    ranks_seen = tuple(sorted({*ranks, *(flight.ranks if flight is not None else ())}))
    coverage = Coverage(read.files, read.size, ranks_seen, world, notes, silent=live.silent)
    verdict = verdict_judge.judge_incident(timeline, coverage, candidates)
    if verdict.outcome in ("undetermined", "nothing"):
        count = len(live.processes)
        seen_processes = (
            f"{count_with_noun(count, 'process')} of the job {singular_or_plural(count, 'was', 'were')} seen"
        )
        processes = seen_processes if count else "no rank was found"
        suspicion = next((candidate for candidate in candidates if not candidate.decides), None)
        if suspicion is None:
            headline = f"{processes}, and nothing shows who holds it up"
            verdict = replace(verdict, headline=headline, evidence=tuple(events[:8]))
        else:
            headline = f"{suspicion.headline}; a suspicion, nothing else shows who holds the job up"
            evidence, who = suspicion.evidence, suspicion.culprits
            verdict = replace(verdict, headline=headline, evidence=evidence, culprits=who)
    verdict = add_advice(verdict, timeline)
    if verdict.next and not read.files:  # it still runs: what was saved is of one that need not
        verdict = replace(verdict, next=deciding_measurements(live))
    own_fixes = live_fixes(live, verdict.culprits)
    if live.silent:
        hosts = comma_list((host for host, _ in live.silent), most=3)
        verdict = replace(verdict, headline=f"{verdict.headline}; {hosts} gave no answer")
    verdict = replace(
        verdict, fixes=own_fixes or verdict.fixes, standings=tuple(activity.group_activities(live))
    )
    return TriageResult(verdict, LineNumbers((), {}))


SHOWN = 2
"""Processes that get commands of their own; the others are alike."""


def live_fixes(live: LiveJob, culprits: Iterable[Identity]) -> tuple[Fix, ...]:
    """The fixes for the processes that hold the job up; none without culprits."""
    pids = {who.pid for who in culprits}
    guilty = [process for process in live.processes if process.pid in pids][:SHOWN]
    return tuple(fix for process in guilty for fix in _fix_for(process))


def deciding_measurements(live: LiveJob) -> tuple[Fix, ...]:
    """What would decide about a job that runs, by what was not seen of it."""
    if not live.processes:
        text = (
            "Look where its ranks run: on their node, in their container, as their own user or as root; a"
            " process id behind --live takes everything below that process for the job."
        )
        return (Fix(text, looks("sudo nodedoctor triage --live")),)
    if all(process.threads for process in live.processes):
        beside = look("nodedoctor watch --job $(ps -o ppid= {})", live.processes[0].pid)
        text = (
            "Look again while it hangs: a stack that is the same in two looks a minute apart does not go on."
            " A watch beside the job does that when no step comes, and looks at all ranks at once."
        )
        return (Fix(text, (*looks("nodedoctor triage --live"), beside)),)
    text = (
        "Look at the Python stacks of its processes as root; those of a job that `nodedoctor run` starts"
        " can be had without."
    )
    return (Fix(text, looks("sudo nodedoctor triage --live")),)


def _fix_for(process: RankProcess) -> tuple[Fix, ...]:
    pid, state = process.pid, process.states[1]
    if state in ("T", "t"):
        return (
            Fix("See who stopped it, then let it go on.",
                (look("ps -o pid,ppid,stat,lstart,args -p {}", pid),
                 repair("kill -CONT {}", pid, disturbs="this job"))),
        )  # fmt: skip
    if state in ("Z", "gone"):
        return (
            Fix("Find out who ended it: the kernel log first, for an out-of-memory kill.",
                (look("dmesg -T | grep -iE 'killed process|oom|segfault|Xid' | tail"),)),
            Fix("End the job: without that rank it waits until its own limit.", ()),
        )  # fmt: skip
    steps = (
        keep("{} dump --nonblocking --locals --pid {}", installed_with_us("py-spy") or "py-spy", pid),
        look("ls -l /proc/{}/fd", pid),
        look("cat /proc/{}/wchan /proc/{}/stack", pid, pid),
    )
    return (
        Fix(
            f"Look at process {pid} while it is there: its stack with its variables, and what it has open.",
            steps,
        ),
    )
