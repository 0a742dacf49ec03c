"""The live node as a source of observations: each probe is asked at most once, by a child.

Live probes run in lanes. A child that cannot be killed trips its lane: probes that wait there are not asked,
because one stuck driver call predicts the next. What has not answered at the deadline counts as no answer.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Generator, Iterable, Mapping
from typing import Any, TypeVar

from nodedoctor.children import child_process
from nodedoctor.children.fork_server import ForkServer
from nodedoctor.debug import Log
from nodedoctor.declare.registry import Check, Command, Lane, Options, Probe, probes_of, skipped
from nodedoctor.engine.calls import call_planner
from nodedoctor.engine.pending import result_of
from nodedoctor.engine.sandbox import end_by
from nodedoctor.engine.sources import normalise_observation
from nodedoctor.model import Observation, Outcome

WIDTH = {Lane.CPU: 8, Lane.NVIDIA: 1, Lane.FS: 4, Lane.GPU_LOAD: 1}
"""A driver is asked one question at a time, and load on GPUs disturbs other load; else as many as keep a
small node busy (chosen by us, no external source)."""


class Turns:
    """At most `width` at a time, `soon` before others. Cancelling one that waits costs no other a turn.

    A run waits longest for what comes late: in the order of arrival, the training Python, which waits for
    the list of processes, came after all that was there from the beginning.
    """

    def __init__(self, width: int) -> None:
        self._free = width
        self._waiting: dict[bool, deque[asyncio.Future[None]]] = {True: deque(), False: deque()}

    @contextlib.asynccontextmanager
    async def turn(self, *, soon: bool) -> AsyncIterator[None]:
        """Wait for a turn, `soon` before everybody else, and have it."""
        if self._free:
            self._free -= 1
        else:
            mine = asyncio.get_running_loop().create_future()
            self._waiting[soon].append(mine)
            try:
                await mine
            except asyncio.CancelledError:
                if mine.done() and not mine.cancelled():  # the turn came with the end
                    self._pass_on()
                raise
        try:
            yield
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        for queue in (self._waiting[True], self._waiting[False]):
            while queue:
                waiter = queue.popleft()
                if not waiter.done():
                    waiter.set_result(None)
                    return
        self._free += 1


_log = Log(__name__)

T = TypeVar("T")

_TRIPPED_BY: dict[Lane, tuple[Outcome, ...]] = {
    # A driver that does not answer one caller in time will not answer the next one either.
    Lane.NVIDIA: (Outcome.STUCK, Outcome.TIMEOUT),
}

CHAIN = 4
"""Probes of a chain that are distinguished, more than any of ours has: pci, nvml, nvidia-smi (ours)."""

LONG_WAIT_S = 0.05
"""Seconds a probe waits for its lane before the debug log says so (chosen by us, no external source)."""


class Live:
    """This machine, through children."""

    def __init__(
        self,
        probes: Mapping[str, Probe],
        options: Options,
        deadline: float,
        server: ForkServer | None = None,
        driver_s: float = 0.0,
    ) -> None:
        """`driver_s`: seconds for a question to the driver, for the first whatever the deadline leaves."""
        self._probes = probes
        self._server = server
        self._options = options
        self._ends = time.monotonic() + deadline
        end_by(self._ends)
        self._driver_s, self._driver_asked = driver_s, False
        self._lanes = {lane: Turns(width) for lane, width in WIDTH.items()}
        self._tripped: dict[Lane, str] = {}
        self._asked: dict[str, asyncio.Task[Observation]] = {}
        self._started: dict[str, float] = {}
        self._held: list[child_process.Running] = []

    def foresee(self, names: Iterable[str]) -> None:
        """Ask first what chains of others wait for, the longest first: a lane serves in order of asking.

        What loads a GPU waits for all that was asked before it, and is not asked here.
        """
        behind: dict[str, int] = {}
        for _ in range(CHAIN):
            for name in names:
                probe = self._probes.get(name)
                for before in probe.after if probe else ():
                    behind[before] = max(behind.get(before, 0), behind.get(name, 0) + 1)
        for name in sorted(behind, key=lambda name: -behind[name]):
            if name in self._probes and not self._loads_gpu(name):
                self.ask(name)

    def ask(self, name: str) -> asyncio.Task[Observation]:
        """Ask once; further callers wait for the same answer."""
        if name not in self._asked:
            self._asked[name] = asyncio.create_task(self._ask_probe(name))
        return self._asked[name]

    def begin(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Let work go on beside other work."""
        return asyncio.create_task(work)

    def as_completed(self, works: Iterable[Coroutine[Any, Any, T]]) -> Generator[Awaitable[T], None, None]:
        """Begin all of them, and give what they come to as they end; what has not ended then is cancelled."""
        tasks = [asyncio.create_task(work) for work in works]
        try:
            yield from asyncio.as_completed(tasks)
        finally:
            for task in tasks:
                task.cancel()

    def observations(self) -> tuple[Observation, ...]:
        """The answers that have come, in the order of asking."""
        done = (task for task in self._asked.values() if task.done() and not task.cancelled())
        return tuple(task.result() for task in done)

    def waiting_for(self) -> dict[str, float]:
        """Children running now, with their age in seconds."""
        now = time.monotonic()
        return {name: now - began for name, began in self._started.items()}

    def close(self) -> None:
        """End children that were kept open and cancel the tasks."""
        for running in self._held:
            running.close()
        for task in self._asked.values():
            task.cancel()

    async def _ask_probe(self, name: str) -> Observation:
        probe = self._probes.get(name)
        if probe is None or probe.plan is None:
            return Observation(name, Outcome.MISSING, note="no command asks for this on a live node")
        earlier = [await result_of(self.ask(before)) for before in probe.after]
        plan = call_planner(probe, self._options, earlier)
        if isinstance(plan, Observation):
            _log.debug("%s is not asked: %s", name, plan.note)
            return plan
        came = time.monotonic()
        if probe.lane is Lane.GPU_LOAD:
            await self._everything_else()
        async with self._lanes[probe.lane].turn(soon=bool(probe.after)):
            if (waited := time.monotonic() - came) > LONG_WAIT_S:
                _log.debug("%s waited %.3f s for its turn in lane %s", name, waited, probe.lane.name)
            culprit = self._tripped.get(probe.lane)
            if culprit is not None:
                _log.debug("%s is not asked: %s is stuck in lane %s", name, culprit, probe.lane.name)
                return skipped(name, f"{culprit} is stuck; not querying the same driver or file system again")
            return await self._run_command(probe, plan)

    async def _run_command(self, probe: Probe, command: Command) -> Observation:
        remaining_s = self._ends - time.monotonic()
        if probe.lane is Lane.NVIDIA and self._driver_s:
            remaining_s = min(remaining_s, self._driver_s) if self._driver_asked else self._driver_s
            self._driver_asked = True
        if remaining_s <= 0:
            _log.debug("%s is not asked: the deadline has passed", probe.name)
            return Observation(
                probe.name, Outcome.TIMEOUT, argv=command.argv, note="not run before the deadline"
            )
        self._started[probe.name] = time.monotonic()
        try:
            observation = await self._command_answer(probe.name, command, min(probe.timeout, remaining_s))
        finally:
            del self._started[probe.name]
        if observation.outcome in _TRIPPED_BY.get(probe.lane, (Outcome.STUCK,)):
            self._tripped[probe.lane] = probe.name
            _log.debug("lane %s is closed by %s", probe.lane.name, probe.name)
        return observation

    async def _command_answer(self, name: str, command: Command, timeout: float) -> Observation:
        running = await child_process.start(name, command, self._server)
        if isinstance(running, Observation):
            return running
        is_held = False
        try:
            observation = normalise_observation(await running.answer(timeout))
            is_held = command.hold and observation.answered
            return observation
        finally:
            if is_held:
                self._held.append(running)
            else:
                running.close()

    async def _everything_else(self) -> None:
        """Load on a GPU would disturb other probes, and they it: wait for all that were asked."""
        others = [task for name, task in self._asked.items() if not self._loads_gpu(name)]
        if others:
            await asyncio.wait(others)

    def _loads_gpu(self, name: str) -> bool:
        probe = self._probes.get(name)  # None: a plug-in may name one that does not exist
        return probe is not None and probe.lane is Lane.GPU_LOAD


_LANES = (Lane.CPU, Lane.FS)
"""What loads nothing and asks no driver."""


class Prefetcher:
    """Begins with probes while the checks that ask for them, and what waits for answers, are being loaded.

    Loading takes a third of a fast run, in which a second core would have little to do. Only what is asked in
    any case is begun: probes of checks that are selected, which depend on nothing but the options, and of
    each lane no more than are asked at a time.
    """

    def __init__(self, server: ForkServer, options: Options, chosen: Callable[[Check], bool]) -> None:
        self._server = server
        self._options = options
        self._chosen = chosen
        self._wanted: dict[str, Probe] = {}
        self._begun: dict[str, Lane] = {}

    def on_check_loaded(self, check: Check, probes: Mapping[str, Probe]) -> None:
        """A check has been loaded: begin with what it asks for that other probes wait for, too."""
        if not self._chosen(check):
            return
        heads = {before for probe in probes.values() for before in probe.after}
        for name in sorted(probes_of(check) - self._wanted.keys()):
            probe = probes.get(name)
            if probe is not None and probe.plan and probe.lane in _LANES and not probe.after:
                self._wanted[name] = probe
                if name in heads:
                    self._begin_probe(probe)

    def start_rest(self) -> None:
        """All checks are loaded: begin with the others that they ask for."""
        for probe in self._wanted.values():
            self._begin_probe(probe)

    def _begin_probe(self, probe: Probe) -> None:
        if probe.name in self._begun or list(self._begun.values()).count(probe.lane) >= WIDTH[probe.lane]:
            return
        self._begun[probe.name] = probe.lane
        plan = call_planner(probe, self._options, ())
        if isinstance(plan, Command):
            self._server.ahead(plan)
