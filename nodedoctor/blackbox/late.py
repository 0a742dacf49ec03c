"""Watches for a rank that comes late to its steps: when it is found, its GPU and NCCL are asked about it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import asdict, replace
from typing import Any

from nodedoctor.blackbox import capture, gpus
from nodedoctor.blackbox.samples.sample import RankSample, Sample
from nodedoctor.blackbox.samples.step_times import DIRECT, StepTimes
from nodedoctor.record import record
from nodedoctor.triage.live import without_stacks
from nodedoctor.triage.live.lateness import Lateness
from nodedoctor.triage.live.running_job import LiveJob, RankProcess

LOOKING, RESTING = 120.0, 600.0
"""Seconds for which outputs are looked at a hundred times a second, and until that is done again."""
QUESTION_SECONDS = 5.0
"""Seconds over which GPUs are asked, and between RAS's two answers."""


@record
class LateRank:
    """A rank that was found to come late, and the sentence that says so."""

    time: float
    rank: int
    late: Lateness
    words: str


class LateRanks:
    """Follows one node's ranks of a job; each rank is named once."""

    def __init__(self, host: str, print_line: Callable[[str], None]) -> None:
        self._host = host
        self._print_line = print_line
        self._times = StepTimes()
        self._began: float | None = None
        self._asking: asyncio.Task[None] | None = None
        self.late_ranks: list[LateRank] = []

    def feed(self, sample: Sample) -> float:
        """Take in a sample; how often outputs are to be looked at from now on, 0 for not at all."""
        if self._began is not None and sample.moment - self._began >= RESTING:
            self._began, self._times = None, StepTimes()
        self._times.feed(sample)
        candidate = self._times.late(sample)
        if (
            candidate is not None
            and candidate[0] not in {entry.rank for entry in self.late_ranks}
            and self._asking is None
        ):
            self._asking = asyncio.ensure_future(self._report_late(sample.living, *candidate))
        if self._began is None and self._times.needs_looks:
            self._began = sample.moment
        looks = self._began is not None and sample.moment - self._began < LOOKING and self._times.needs_looks
        return DIRECT if looks else 0.0

    def state(self) -> list[dict[str, Any]]:
        """What run.json says of them."""
        return [
            {"time": entry.time, "rank": entry.rank, **asdict(entry.late), "text": entry.words}
            for entry in self.late_ranks
        ]

    def close(self) -> None:
        """Ask no more."""
        if self._asking is not None:
            self._asking.cancel()

    async def _report_late(self, ranks: tuple[RankSample, ...], rank: int, late: Lateness) -> None:
        live = await ask(self._host, ranks)
        process = next(entry for entry in live.processes if entry.rank == rank)
        words = f"rank {rank} {late.words}{without_stacks.reason(live, process)}"
        self.late_ranks.append(LateRank(time.time(), rank, late, words))
        self._print_line(words)
        self._asking = None


async def ask(host: str, ranks: tuple[RankSample, ...]) -> LiveJob:
    """What the ranks' GPUs do, and what RAS says twice."""
    load = asyncio.ensure_future(gpus.uses(QUESTION_SECONDS))
    first = await capture.ras_answer(ranks)
    use = await load
    second = await capture.ras_answer(ranks) if first else ""
    processes = tuple(
        RankProcess(entry.pid, entry.rank, entry.world, gpu=use.get(entry.pid)) for entry in ranks
    )
    return LiveJob(host, processes, (first, second))


def marked(live: LiveJob, late_rank: tuple[int, Lateness] | None) -> LiveJob:
    """The same look with what its steps showed of one rank."""
    if late_rank is None:
        return live
    rank, late = late_rank
    return replace(
        live,
        processes=tuple(
            replace(entry, late=late if entry.rank == rank else None) for entry in live.processes
        ),
    )
