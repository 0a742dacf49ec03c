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
from nodedoctor.triage.live import stragglers
from nodedoctor.triage.live.lateness import Lateness
from nodedoctor.triage.live.running_job import LiveJob, RankProcess

LOOKING, RESTING = 120.0, 600.0
"""Seconds for which outputs are looked at a hundred times a second, and until that is done again."""
ASKED = 5.0
"""Seconds over which GPUs are asked, and between RAS's two answers."""


@record
class LateRank:
    """A rank that was found to come late, and the sentence that says so."""

    time: float
    rank: int
    late: Lateness
    words: str


class LateRanks:
    """Follows one node's ranks of a job; each rank is told of once."""

    def __init__(self, host: str, say: Callable[[str], None]) -> None:
        self._host = host
        self._say = say
        self._times = StepTimes()
        self._began: float | None = None
        self._asking: asyncio.Task[None] | None = None
        self.found: list[LateRank] = []

    def feed(self, sample: Sample) -> float:
        """Take in a sample; how often outputs are to be looked at from now on, 0 for not at all."""
        if self._began is not None and sample.moment - self._began >= RESTING:
            self._began, self._times = None, StepTimes()
        self._times.feed(sample)
        found = self._times.late(sample)
        if found is not None and found[0] not in {one.rank for one in self.found} and self._asking is None:
            self._asking = asyncio.ensure_future(self._tell(sample.living, *found))
        if self._began is None and self._times.needs_looks:
            self._began = sample.moment
        looks = self._began is not None and sample.moment - self._began < LOOKING and self._times.needs_looks
        return DIRECT if looks else 0.0

    def state(self) -> list[dict[str, Any]]:
        """What run.json says of them."""
        return [
            {"time": one.time, "rank": one.rank, **asdict(one.late), "text": one.words} for one in self.found
        ]

    def close(self) -> None:
        """Ask no more."""
        if self._asking is not None:
            self._asking.cancel()

    async def _tell(self, ranks: tuple[RankSample, ...], rank: int, late: Lateness) -> None:
        live = await ask(self._host, ranks)
        process = next(one for one in live.processes if one.rank == rank)
        words = f"rank {rank} {late.words}{stragglers.reason(live, process)}"
        self.found.append(LateRank(time.time(), rank, late, words))
        self._say(words)
        self._asking = None


async def ask(host: str, ranks: tuple[RankSample, ...]) -> LiveJob:
    """What the ranks' GPUs do, and what RAS says twice."""
    load = asyncio.ensure_future(gpus.uses(ASKED))
    first = await capture.ras_answer(ranks)
    use = await load
    second = await capture.ras_answer(ranks) if first else ""
    processes = tuple(RankProcess(one.pid, one.rank, one.world, gpu=use.get(one.pid)) for one in ranks)
    return LiveJob(host, processes, (first, second))


def marked(live: LiveJob, found: tuple[int, Lateness] | None) -> LiveJob:
    """The same look with what its steps showed of one rank."""
    if found is None:
        return live
    rank, late = found
    return replace(
        live,
        processes=tuple(replace(one, late=late if one.rank == rank else None) for one in live.processes),
    )
