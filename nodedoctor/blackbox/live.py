"""One look at a job that hangs now, here or on all its nodes; the job itself is never touched.

Every node looks for itself and answers with what it saw (`nodedoctor.capture/1`); the looks are judged as one
job. A node that does not answer in time is named, and costs the others nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import time
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from nodedoctor.blackbox import capture, late
from nodedoctor.blackbox.samples.sample import Sample
from nodedoctor.blackbox.samples.sampler import FAST, Sampler
from nodedoctor.blackbox.samples.step_times import DIRECT, StepTimes
from nodedoctor.blackbox.samples.suspected_hang import Progress
from nodedoctor.record import record
from nodedoctor.triage.live import saved
from nodedoctor.triage.live.running_job import LiveJob

if TYPE_CHECKING:
    from nodedoctor.fleet.gather import Transport
    from nodedoctor.fleet.model import FleetRequest, Node

FINDING = 15.0
"""Seconds in which the ranks are found: heaps of Ray's workers are searched for what they set themselves."""
FOLLOWED = 20.0
"""Seconds for which the output of a job is followed whose ranks print their steps."""
DEADLINE = 60.0
"""Seconds in which a node answers: to find its ranks, and two looks at them."""
BEYOND = 10.0
"""Seconds beyond the nodes' own time after which the asking ends, whatever a transport does."""


@record
class Where:
    """Which job is meant on a node: some processes and what is below them, a Slurm job's tasks, Ray's
    workers; without any of them every rank on the machine."""

    pids: tuple[int, ...] = ()
    slurm: str = ""
    ray: bool = False

    def wanted(self) -> dict[str, Any]:
        """The same for the sampler."""
        if self.pids:
            return {"pids": list(self.pids)}
        if self.slurm:
            return {"slurm": self.slurm}
        return {"ray": True} if self.ray else {"all": True}


async def look_here(where: Where, seconds: float = DEADLINE) -> LiveJob:
    """What is seen of the job on this machine."""
    host = socket.gethostname()
    try:
        return await asyncio.wait_for(_look_at_job(where, host), seconds)
    except asyncio.TimeoutError:
        return LiveJob(host, (), notes=(f"the look at the ranks did not end within {seconds:g} s",))


async def look_over(transport: Transport, request: FleetRequest) -> LiveJob:
    """What is seen of the job on all nodes of a transport; FleetError when no node can be asked."""
    hosts = await transport.hosts()
    came: dict[str, Node] = {}

    async def take_in() -> None:
        asking = cast("AsyncGenerator[Node, None]", transport.ask(request))
        async with contextlib.aclosing(asking) as answers:
            async for node in answers:
                came.setdefault(node.host, node)

    waves = -(-len(hosts) // max(1, request.width))
    with contextlib.suppress(asyncio.TimeoutError):
        await asyncio.wait_for(take_in(), waves * request.deadline + BEYOND)
    return together(hosts, came)


def together(hosts: Sequence[str], came: Mapping[str, Node]) -> LiveJob:
    """The answers of the nodes as one job, and who gave none."""
    looks: list[LiveJob] = []
    silent: list[tuple[str, str]] = []
    for host in hosts:
        node = came.get(host)
        look = _read_answer(node.raw) if node is not None else None
        if look is not None:
            notes = look.notes if look.processes else (*look.notes, "no rank was found there")
            looks.append(replace(look, host=host, notes=notes))
        else:
            silent.append((host, node.note if node is not None else "no answer in time"))
    return saved.merge_looks(looks, silent) if looks else LiveJob("", (), silent=tuple(silent))


def answer(live: LiveJob) -> str:
    """What a node says: one line, so that nothing a login shell prints can get into it."""
    return json.dumps(saved.look_document(live)) + "\n"


def _read_answer(raw: str) -> LiveJob | None:
    lines = (line for line in raw.splitlines() if saved.SCHEMA in line)
    return next((look for line in lines if (look := saved.read_look(line.encode())) is not None), None)


async def _look_at_job(where: Where, host: str) -> LiveJob:
    sampler = Sampler(where.wanted(), FAST)
    samples = sampler.samples()
    try:
        sample = await asyncio.wait_for(anext(samples), FINDING)
    except asyncio.TimeoutError:
        return LiveJob(host, (), notes=(f"the processes could not be looked at within {FINDING:g} s",))
    else:
        return await _look_at_ranks(sample, sampler, samples, host)
    finally:
        await sampler.close()


async def _look_at_ranks(
    sample: Sample, sampler: Sampler, samples: AsyncIterator[Sample], host: str
) -> LiveJob:
    """Two looks at the ranks, while their output is followed: for longer where they print their steps."""
    began = time.monotonic()
    steps = _Steps(sample)
    sampler.watch_outputs(DIRECT)
    following = asyncio.ensure_future(steps.follow(samples))
    try:
        live = (await capture.look_twice(sample.living, host=host)).live
        while steps.arrived and steps.times.needs_looks and time.monotonic() - began < FOLLOWED:
            await asyncio.sleep(FAST)
    finally:
        following.cancel()
        await asyncio.wait({following})
    return late.marked(replace(live, steps=steps.arrived), steps.times.late(sample))


class _Steps:
    """The steps that come while a job is looked at."""

    def __init__(self, first: Sample) -> None:
        self.times = StepTimes()
        self._progress = Progress()
        self._feed_sample(first)
        self._before = self._progress.count

    @property
    def arrived(self) -> int:
        """How often there were new ones; a single time is not enough to say that they come."""
        count = self._progress.count - self._before
        return count if count > 1 else 0

    async def follow(self, samples: AsyncIterator[Sample]) -> None:
        """Take them in until cancelled."""
        async for sample in samples:
            self._feed_sample(sample)

    def _feed_sample(self, sample: Sample) -> None:
        self._progress.feed(sample)
        self.times.feed(sample)
