"""Where observations come from: the live node, each probe asked at most once, or a recording of one.

Live probes run in lanes. A child that cannot be killed trips its lane: whoever waits there is not asked,
because one stuck driver call predicts the next. What has not answered at the deadline counts as no answer.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Mapping
from typing import Protocol

from nodedoctor.children import child_process
from nodedoctor.children.fork_server import ForkServer
from nodedoctor.declare.registry import Command, Lane, Options, Probe, skipped
from nodedoctor.engine.calls import planned
from nodedoctor.engine.secrets import without_secrets
from nodedoctor.model import Observation, Outcome
from nodedoctor.record import replace

_log = logging.getLogger(__name__)

WIDTH = {Lane.CPU: 8, Lane.NVIDIA: 1, Lane.FS: 4, Lane.GPU_LOAD: 1}
_TRIPPED_BY: dict[Lane, tuple[Outcome, ...]] = {
    # A driver that does not answer one caller in time will not answer the next one either.
    Lane.NVIDIA: (Outcome.STUCK, Outcome.TIMEOUT),
}

LONG_WAIT_S = 0.05
"""Seconds a probe waits for its lane before the debug log says so (chosen by us, no external source)."""

_OURS = re.compile(r"nodedoctor/probes/[\w/]+\.py$")


def entered(seen: Observation) -> Observation:
    """An observation as everything behind this line sees it, live or recorded.

    No secret passes (`engine/secrets.py`). Lines end in LF, whatever an editor or a mail program made of
    them.
    Our own programs end with 0 when they have said everything; what they printed before another end is not an
    answer but a crash.
    """
    if "\r\n" in seen.text:
        seen = replace(seen, text=seen.text.replace("\r\n", "\n"))
    seen = without_secrets(seen)
    if seen.answered and seen.rc and any(_OURS.search(word) for word in seen.argv):
        return replace(seen, outcome=Outcome.CRASH, note=seen.note or f"ended with exit code {seen.rc}")
    return seen


class ObservationSource(Protocol):
    """Answers probes by name."""

    async def observe(self, name: str) -> Observation:
        """The observation of one probe; the same object however often it is asked for."""

    def observations(self) -> tuple[Observation, ...]:
        """All that was seen so far, in the order of asking."""

    def waiting_for(self) -> dict[str, float]:
        """Probes under way, and the seconds each has been running."""

    def close(self) -> None:
        """Let go of whatever is still open."""


class Live:
    """This machine, through children."""

    def __init__(
        self,
        probes: Mapping[str, Probe],
        options: Options,
        deadline: float,
        server: ForkServer | None = None,
    ) -> None:
        self._probes = probes
        self._server = server
        self._options = options
        self._ends = time.monotonic() + deadline
        self._lanes = {lane: asyncio.Semaphore(width) for lane, width in WIDTH.items()}
        self._tripped: dict[Lane, str] = {}
        self._asked: dict[str, asyncio.Task[Observation]] = {}
        self._started: dict[str, float] = {}
        self._held: list[child_process.Running] = []

    async def observe(self, name: str) -> Observation:
        """Ask once; further callers wait for the same answer."""
        if name not in self._asked:
            self._asked[name] = asyncio.create_task(self._ask(name))
        return await asyncio.shield(self._asked[name])

    def observations(self) -> tuple[Observation, ...]:
        """The answers that have come, in the order of asking."""
        done = (task for task in self._asked.values() if task.done() and not task.cancelled())
        return tuple(task.result() for task in done)

    def waiting_for(self) -> dict[str, float]:
        """Children running now, with their age in seconds."""
        now = time.monotonic()
        return {name: now - began for name, began in self._started.items()}

    def close(self) -> None:
        """End children that were kept open and forget tasks nobody waits for."""
        for running in self._held:
            running.close()
        for task in self._asked.values():
            task.cancel()

    async def _ask(self, name: str) -> Observation:
        probe = self._probes.get(name)
        if probe is None or probe.plan is None:
            return Observation(name, Outcome.MISSING, note="no command asks for this on a live node")
        earlier = [await self.observe(other) for other in probe.after]
        plan = planned(probe, self._options, earlier)
        if isinstance(plan, Observation):
            _log.debug("%s is not asked: %s", name, plan.note)
            return plan
        came = time.monotonic()
        if probe.lane is Lane.GPU_LOAD:
            await self._everything_else()
        async with self._lanes[probe.lane]:
            if (waited := time.monotonic() - came) > LONG_WAIT_S:
                _log.debug("%s waited %.3f s for its turn in lane %s", name, waited, probe.lane.name)
            culprit = self._tripped.get(probe.lane)
            if culprit is not None:
                _log.debug("%s is not asked: %s is stuck in lane %s", name, culprit, probe.lane.name)
                return skipped(name, f"{culprit} is stuck; not querying the same driver or file system again")
            return await self._run(probe, plan)

    async def _run(self, probe: Probe, planned: Command) -> Observation:
        left = self._ends - time.monotonic()
        if left <= 0:
            _log.debug("%s is not asked: the deadline has passed", probe.name)
            return Observation(
                probe.name, Outcome.TIMEOUT, argv=planned.argv, note="not run before the deadline"
            )
        self._started[probe.name] = time.monotonic()
        try:
            seen = await self._answer(probe.name, planned, min(probe.timeout, left))
        finally:
            del self._started[probe.name]
        if seen.outcome in _TRIPPED_BY.get(probe.lane, (Outcome.STUCK,)):
            self._tripped[probe.lane] = probe.name
            _log.debug("lane %s is closed by %s", probe.lane.name, probe.name)
        return seen

    async def _answer(self, name: str, planned: Command, timeout: float) -> Observation:
        running = await child_process.start(name, planned, self._server)
        if isinstance(running, Observation):
            return running
        keep = False
        try:
            seen = entered(await running.answer(timeout))
            keep = planned.hold and seen.answered
            return seen
        finally:
            if keep:
                self._held.append(running)
            else:
                running.close()

    async def _everything_else(self) -> None:
        """Load on a GPU would disturb other probes, and they it: wait for all that were asked."""
        others = [task for name, task in self._asked.items() if self._probes[name].lane is not Lane.GPU_LOAD]
        if others:
            await asyncio.wait(others)


class Recorded:
    """A node as it was: the observations of a recording."""

    def __init__(self, seen: Mapping[str, Observation]) -> None:
        self._seen = {name: entered(observation) for name, observation in seen.items()}

    async def observe(self, name: str) -> Observation:
        """What was recorded; what was not is missing, and says so."""
        return self._seen.get(name) or Observation(name, Outcome.MISSING, note="not in this recording")

    def observations(self) -> tuple[Observation, ...]:
        """Everything the recording holds."""
        return tuple(self._seen.values())

    def waiting_for(self) -> dict[str, float]:
        """Nothing: a recording answers at once."""
        return {}

    def close(self) -> None:
        """Nothing to let go of."""
