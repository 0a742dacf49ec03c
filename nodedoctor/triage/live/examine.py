"""One triage of a job that runs on this machine now: look, tell, judge."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace

from nodedoctor.triage import verdict
from nodedoctor.triage.events.ras import RasRunning
from nodedoctor.triage.job import Examined, advised
from nodedoctor.triage.live import fixes, judge
from nodedoctor.triage.live.running_job import LiveJob, look
from nodedoctor.triage.model import Coverage
from nodedoctor.triage.read.linenumbers import LineNumbers
from nodedoctor.triage.story import tell


def examine_live(pids: Sequence[int]) -> Examined:
    """Judge a job that runs on this machine now, by its processes, their stacks and NCCL's RAS service."""
    return judge_live(asyncio.run(look(pids)))


def judge_live(live: LiveJob) -> Examined:
    """The verdict on what was seen of a running job, now or by whoever kept it."""
    told = judge.events(live)
    story = tell(told)
    moving = bool(story.of(RasRunning))
    found = [] if moving else judge.candidates(live)
    ranks = [process.rank for process in live.processes if process.rank is not None]
    sizes = [process.world_size for process in live.processes if process.world_size]
    coverage = Coverage(0, 0, tuple(sorted(ranks)), max(sizes, default=None), live.notes)
    judged = verdict.judge(story, coverage, found)
    if judged.outcome == "undetermined":
        processes = (
            f"{len(live.processes)} processes of the job were seen"
            if live.processes
            else "no rank was found here"
        )
        judged = replace(
            judged, headline=f"{processes}, and nothing shows who holds it up", evidence=tuple(told[:8])
        )
    judged = advised(judged, story)
    now = fixes.fixes(live, judged.culprits)
    return Examined(replace(judged, fixes=now or judged.fixes), LineNumbers((), {}))
