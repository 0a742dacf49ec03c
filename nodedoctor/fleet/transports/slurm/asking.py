"""Ask the nodes of a Slurm job, in as few steps as their troubles allow.

One srun for all costs slurmctld one step, and answers come as nodes are done. But srun aborts the whole
step when it cannot start it on one of the nodes: then those that had not answered are asked again without
that one. Nodes that lack nodedoctor are brought it in a step of their own, with none in it that hangs.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, Coroutine
from dataclasses import replace

from nodedoctor.children.child_stream import listen
from nodedoctor.declare.registry import Command
from nodedoctor.fleet.model import FleetRequest, Node, NodeState
from nodedoctor.fleet.reports import reading
from nodedoctor.fleet.transports import node_side
from nodedoctor.fleet.transports.slurm.step import PARTING, NodeAnswer, SlurmStep, argv
from nodedoctor.model import Observation, Outcome
from nodedoctor.nodeset import fold

LEAST = 3.0
"""Ours: seconds that must be left of the deadline to ask once more."""
TOGETHER = 1.0
"""Ours: seconds in which nodes that lack nodedoctor are gathered, to bring it to all of them in one step."""


class SlurmAsking:
    """The steps of one request in one job; `words` are options for each srun besides ours."""

    def __init__(self, job: str, words: tuple[str, ...], request: FleetRequest) -> None:
        self._job = job
        self._words = words
        self._request = request
        self._brought = node_side.parcel(request)
        self._began = time.monotonic()
        self._nodes: asyncio.Queue[Node | BaseException | None] = asyncio.Queue()
        self._running: set[asyncio.Task[None]] = set()
        self._told: set[str] = set()
        self._lacking: list[str] = []
        self._turn: dict[str, SlurmStep | None] = {}  # the step that answers for a host; None between two

    async def nodes(self, hosts: tuple[str, ...]) -> AsyncGenerator[Node, None]:
        """All of these, as they come."""
        self._start_task(self._run_step(hosts))
        try:
            while (node := await self._nodes.get()) is not None:
                if isinstance(node, BaseException):  # a bug of ours
                    raise node
                yield node
        finally:
            for task in self._running:
                task.cancel()
            await asyncio.gather(*self._running, return_exceptions=True)

    @property
    def _passed(self) -> float:
        return time.monotonic() - self._began

    def _start_task(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._task_done)

    def _task_done(self, task: asyncio.Task[None]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()):
            self._nodes.put_nowait(error)
        if not self._running:
            self._nodes.put_nowait(None)

    def _hand_over(self, node: Node) -> None:
        if node.host not in self._told:
            self._told.add(node.host)
            self._nodes.put_nowait(node)

    async def _run_step(self, hosts: tuple[str, ...], *, arrives: bool = False) -> None:
        """Run one step over these hosts until its end or the deadline; each is reported or asked again."""
        seconds = self._request.deadline - self._passed
        step = SlurmStep()
        self._turn.update(dict.fromkeys(hosts, step))
        hearing = asyncio.create_task(self._listen(step, hosts, seconds, arrives))
        await asyncio.wait({hearing}, timeout=seconds)
        self._settle_hosts(step, hosts, over=not hearing.done())
        hearing.cancel()
        await asyncio.wait({hearing})
        if not hearing.cancelled():
            hearing.result()

    async def _listen(self, step: SlurmStep, hosts: tuple[str, ...], seconds: float, arrives: bool) -> None:
        request = replace(self._request, deadline=seconds)
        script = node_side.script(request, self._brought, arrives=arrives)
        command = Command(
            argv(self._job, self._words, hosts, script, stdin=arrives),
            stdin=node_side.stdin(self._brought, arrives=True) if arrives else None,
        )
        try:
            async with contextlib.aclosing(listen(command, parting=PARTING)) as lines:
                async for fd, line in lines:
                    answer = step.observe(fd, line)
                    if answer is not None and answer.host in hosts:
                        self._take_answer(answer, arrives)
        except OSError as error:
            step.errors.append(f"srun: {error.strerror or error}")

    def _take_answer(self, answer: NodeAnswer, arrives: bool) -> None:
        lacks = answer.rc == 127 and node_side.NO_NODEDOCTOR in answer.errors
        if lacks and self._brought and not arrives and self._request.deadline - self._passed > LEAST:
            self._turn[answer.host] = None
            self._lacking.append(answer.host)
            if len(self._lacking) == 1:
                self._start_task(self._bring_tool())
            return
        observation = Observation(
            "slurm",
            Outcome.OK,
            text=answer.text,
            rc=answer.rc,
            seconds=round(self._passed, 3),
            note=answer.errors,
            truncated=answer.truncated,
        )
        self._hand_over(reading.node(answer.host, observation))

    async def _bring_tool(self) -> None:
        await asyncio.sleep(TOGETHER)
        hosts, self._lacking = tuple(self._lacking), []
        await self._run_step(hosts, arrives=True)

    def _settle_hosts(self, step: SlurmStep, hosts: tuple[str, ...], *, over: bool) -> None:
        """Say what became of the hosts without an answer, or ask them again when others were the reason."""
        waiting = [host for host in hosts if host not in self._told and self._turn[host] is step]
        lost_hosts = [host for host in waiting if host in step.lost]
        rest = [host for host in waiting if host not in step.lost]
        for host in lost_hosts:
            self._hand_over(
                self._silent_node(
                    host, "unreachable", f"Slurm could not start anything there: {step.lost[host]}"
                )
            )
        if rest and lost_hosts and not over and self._request.deadline - self._passed > LEAST:
            self._start_task(self._run_step(tuple(rest)))
            return
        running = set(step.begun.values())
        for host in rest:
            if over:
                how_far = "nodedoctor runs there" if host in running else "Slurm had started nothing there"
                self._hand_over(
                    self._silent_node(host, "silent", f"no answer in {self._passed:.0f} s; {how_far}")
                )
            elif host in step.ended and not lost_hosts:
                self._hand_over(self._silent_node(host, "unable", f"its task ended: {step.ended[host]}"))
            else:
                self._hand_over(self._silent_node(host, "unreachable", _lost_reason(step, lost_hosts)))

    def _silent_node(self, host: str, state: NodeState, note: str) -> Node:
        return Node(host, state, note=note, seconds=round(self._passed, 3))


def _lost_reason(step: SlurmStep, lost_hosts: list[str]) -> str:
    if lost_hosts:
        return f"Slurm ended the step because of {fold(lost_hosts)}, and there was no time to ask again"
    return f"srun: {step.errors[0]}" if step.errors else "srun ended without naming it"
