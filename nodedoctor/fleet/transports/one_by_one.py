"""Ask nodes by a child for each of them: what ssh and kubectl have in common.

A node is asked twice at most: with what it has, then, if it has no nodedoctor and we have the single file,
with that on stdin. It keeps the file, so the second connection is paid for once.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import replace

from nodedoctor.children import child_process
from nodedoctor.declare.registry import Command
from nodedoctor.fleet.model import FleetRequest, Node
from nodedoctor.fleet.transports import node_side
from nodedoctor.model import Observation, Outcome

FILES_EACH, FILES_OURS = 6, 64
"""Ours: open files that one child takes of this process (its pipes, both ends while it starts), and all else.
Where they run out, nodes would look as if they could not be reached."""

ArgvOf = Callable[[str, str, float], tuple[str, ...]]
"""The command line that has a host run a script of sh, within seconds."""
Read = Callable[[str, Observation], Node]
"""What an answer says of the host."""


async def ask(
    name: str, hosts: tuple[str, ...], request: FleetRequest, argv: ArgvOf, read: Read
) -> AsyncGenerator[Node, None]:
    """Every node as its answer comes, `width` at once; FleetError when the single file is none."""
    brought = node_side.parcel(request)
    waiting, answers = iter(hosts), asyncio.Queue[Node | None]()
    way = _Way(name, request, argv, brought)

    async def work() -> None:
        try:
            for host in waiting:  # each worker takes the next
                answers.put_nowait(read(host, await way.ask(host)))
        finally:
            answers.put_nowait(None)

    workers = [asyncio.create_task(work()) for _ in hosts[: affordable(request.width)]]
    try:
        for _ in workers:
            while node := await answers.get():
                yield node
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)


class _Way:
    """The way to any of the nodes."""

    def __init__(
        self, name: str, request: FleetRequest, argv: ArgvOf, brought: node_side.Parcel | None
    ) -> None:
        self._name = name
        self._request = request
        self._argv = argv
        self._brought = brought

    async def ask(self, host: str) -> Observation:
        began = time.monotonic()
        observation = await self._ask_node(host, self._request)
        if self._brought and _wants_file(observation):
            remaining = self._request.deadline - (time.monotonic() - began)
            observation = await self._ask_node(host, replace(self._request, deadline=remaining), arrives=True)
            observation = replace(observation, seconds=round(time.monotonic() - began, 3))
        return observation

    async def _ask_node(self, host: str, request: FleetRequest, *, arrives: bool = False) -> Observation:
        script = node_side.script(request, self._brought, arrives=arrives, stays_open=True)
        stdin = node_side.stdin(self._brought, arrives=arrives, stays_open=True)
        argv = self._argv(host, script, request.deadline)
        return await child_process.run(self._name, Command(argv, stdin=stdin, tied=True), request.deadline)


def affordable(width: int) -> int:
    """How many children can run at once with the files this process may open, of which it takes what it
    may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = width * FILES_EACH + FILES_OURS
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return width
    soft = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(1, (soft - FILES_OURS) // FILES_EACH)


def _wants_file(observation: Observation) -> bool:
    """Whether a node was reached, has a Python, and lacks only nodedoctor."""
    return (
        observation.outcome is Outcome.OK
        and observation.rc == 127
        and node_side.NO_NODEDOCTOR in observation.note
    )
