"""Ask nodes through the ssh of whoever asks: their keys, their config, their shared connections.

A node is asked twice at most: with what it has, then, if it has no nodedoctor and we have the single file,
with that on stdin. It keeps the file, so the second connection is paid for once. Connections are shared where
the user's own config says so (ControlMaster); masters of our own would be one more process per node.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import AsyncIterator
from dataclasses import replace

from nodedoctor.engine import child_process
from nodedoctor.engine.child_stream import ChildStream
from nodedoctor.engine.registry import Command
from nodedoctor.fleet.model import FleetError, FleetRequest, Node
from nodedoctor.fleet.reports import reading
from nodedoctor.fleet.transports import node_side
from nodedoctor.model import Observation, Outcome
from nodedoctor.nodeset import NodeSetError, named

CONNECTING = 10
"""Ours: seconds ssh may take to connect. Without it a node that is cut off is silent until its time is up."""
FILES_EACH, FILES_OURS = 6, 64
"""Ours: open files that one ssh takes of this process (its pipes, both ends while it starts), and all else.
Where they run out, nodes would look as if nobody could reach them."""
STARTING = 5.0
"""Ours: seconds within which a working ssh on this machine says its version."""


class Ssh:
    """The way to nodes through OpenSSH; `nodes` is a node set, whose names may be `user@host`.

    Ports, keys and jump hosts are for ssh's own config.
    """

    name = "ssh"

    def __init__(self, nodes: str) -> None:
        self._nodes = nodes

    async def hosts(self) -> tuple[str, ...]:
        """All nodes meant; FleetError when the set cannot be read, is empty, or there is no ssh here."""
        hosts = self._expanded()
        seen = await child_process.run("ssh", Command(("ssh", "-V")), STARTING)
        if not seen.answered:
            raise FleetError(f"no ssh on this machine to reach nodes with: {seen.note}")
        return hosts

    async def ask(self, request: FleetRequest) -> AsyncIterator[Node]:
        """Every node as its answer comes, `width` at once; FleetError when the single file is none."""
        brought = node_side.parcel(request)
        hosts = self._expanded()
        waiting, answers = iter(hosts), asyncio.Queue[Node | None]()

        async def work() -> None:
            try:
                for host in waiting:  # each worker takes the next
                    answers.put_nowait(await self._ask(host, request, brought))
            finally:
                answers.put_nowait(None)

        workers = [asyncio.create_task(work()) for _ in hosts[: _affordable(request.width)]]
        try:
            for _ in workers:
                while node := await answers.get():
                    yield node
            await asyncio.gather(*workers)
        finally:
            for worker in workers:
                worker.cancel()
            await asyncio.gather(*workers, return_exceptions=True)

    async def talk(self, host: str, script: str, first: bytes) -> ChildStream:
        """A line to a script on a node that stays open; OSError when ssh cannot be started."""
        argv = ("ssh", *plain_options(), "--", host, node_side.line(script))
        return await ChildStream.start(Command(argv, stdin=first, tied=True))

    async def close(self) -> None:
        """Nothing is held for all nodes."""

    def _expanded(self) -> tuple[str, ...]:
        try:
            hosts = tuple(named(self._nodes))
        except NodeSetError as error:
            raise FleetError(str(error)) from None
        if not hosts:
            raise FleetError("no nodes were named")
        return hosts

    async def _ask(self, host: str, request: FleetRequest, brought: node_side.Parcel | None) -> Node:
        began = time.monotonic()
        seen = await self._go(host, request, brought)
        if brought and _wants_file(seen):
            left = request.deadline - (time.monotonic() - began)
            seen = await self._go(host, replace(request, deadline=left), brought, arrives=True)
            seen = replace(seen, seconds=round(time.monotonic() - began, 3))
        return reading.node(host, seen)

    async def _go(
        self, host: str, request: FleetRequest, brought: node_side.Parcel | None, *, arrives: bool = False
    ) -> Observation:
        script = node_side.script(request, brought, arrives=arrives, held=True)
        stdin = node_side.stdin(brought, arrives=arrives, held=True)
        argv = ("ssh", *plain_options(request.deadline), "--", host, node_side.line(script))
        return await child_process.run("ssh", Command(argv, stdin=stdin, tied=True), request.deadline)


def _affordable(width: int) -> int:
    """How many ssh can run at once with the files this process may open, of which it takes what it may."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = width * FILES_EACH + FILES_OURS
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return width
    soft = wanted if hard == resource.RLIM_INFINITY else min(hard, wanted)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    return max(1, (soft - FILES_OURS) // FILES_EACH)


def plain_options(deadline: float = CONNECTING) -> tuple[str, ...]:
    """Nobody is asked for a password, no terminal, and none of the forwardings meant for work by hand."""
    seconds = max(1, min(CONNECTING, int(deadline)))
    settings = (
        "BatchMode=yes",
        "ClearAllForwardings=yes",
        "PermitLocalCommand=no",
        f"ConnectTimeout={seconds}",
    )
    return ("-T", "-a", "-x", *(word for setting in settings for word in ("-o", setting)))


def _wants_file(seen: Observation) -> bool:
    """Whether a node was reached, has a Python, and lacks only nodedoctor."""
    return seen.outcome is Outcome.OK and seen.rc == 127 and node_side.NO_NODEDOCTOR in seen.note
