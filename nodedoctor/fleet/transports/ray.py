"""Ask the nodes of a Ray cluster: a child in the Python that has Ray pins one task to each of them.

nodedoctor does not depend on Ray. Ray notices a node that died after 14 s, and a cut link after a minute:
the clock here decides when a node is silent.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import re
import time
import zlib
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any

from nodedoctor.children import child_process
from nodedoctor.children.child_stream import ChildStream
from nodedoctor.children.output_bounds import KEPT
from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command
from nodedoctor.fleet.model import FleetError, FleetRequest, Node
from nodedoctor.fleet.reports import reading
from nodedoctor.fleet.transports import node_side
from nodedoctor.json_shapes import Json, loaded, parts, text
from nodedoctor.model import Observation, Outcome
from nodedoctor.nodeset import natural_key
from nodedoctor.record import record

CONNECTING = 30.0
"""Ours: seconds Ray may take to be imported and to connect; with a slow home it takes ten."""
FINDING = 10.0
"""Ours: seconds in which Pythons are looked for."""
PARTING = 2.0
"""Ours: seconds the child may take to end, and Ray to end its tasks."""
ON_THE_WAY = 3.0
"""Ours: seconds of a node's time that are for Ray: to start a worker, and to bring its answer."""
_NODE_LOST = "Ray lost the node while it was being asked"
MARK = "@nodedoctor "
LONGEST = 300
"""Characters kept of an error of Ray's; ours."""

_DIED = re.compile(r"NodeDied|ObjectLost|OwnerDied|Unschedulable|RayletDied|ActorDied|Unavailable")
_TROUBLE = re.compile(r"fail|error|refused|timed? ?out|cannot|unable", re.IGNORECASE)
_PREFIX = re.compile(
    r"^\[[^]]*\] (?:\S+:\d+: )?"
)  # of Ray's own log lines: time, thread, place in its source
_CALM = re.compile(r"\x1b\[[0-9;]*m")


@record
class Member:
    """One node as Ray knows it; `host` is what we call it."""

    id: str
    host: str
    alive: bool
    why: str = ""


class RayTalk:
    """A line to a script on one node; all of them go through the one child that is Ray's driver."""

    def __init__(self, stream: ChildStream, node: str) -> None:
        self._talk, self._node = stream, node
        self._came: asyncio.Queue[tuple[int, str] | None] = asyncio.Queue()
        self._ended = asyncio.Event()

    def say(self, data: bytes) -> None:
        """Tell it something."""
        message = {"node": self._node, "data": base64.b64encode(data).decode()}
        self._talk.say(json.dumps(message).encode() + b"\n")

    def came(self, message: Json) -> None:
        """Take in what the child says of this node."""
        lines = message.get("lines")
        if not isinstance(lines, list):
            if error := text(message, "lost"):
                self._came.put_nowait((2, _telling_line(error)))
            self._came.put_nowait(None)
            self._ended.set()
            return
        for number, line in lines:
            self._came.put_nowait((int(number), str(line)))

    async def line(self) -> tuple[int, str] | None:
        """The next line and its descriptor; None when it has ended."""
        return await self._came.get()

    async def leave(self, parting: float = 0.0) -> None:
        """It has so many seconds to end as it was asked to; else it ends with the child."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._ended.wait(), parting)


class Ray:
    """The way to the nodes of a Ray cluster; `python` is one that has Ray, else one is looked for."""

    name = "ray"

    def __init__(self, address: str = "auto", python: str = "") -> None:
        self._address = address or "auto"
        self._python = python
        self._talk: ChildStream | None = None
        self._members: tuple[Member, ...] = ()
        self._lines: dict[str, RayTalk] = {}
        self._pump: asyncio.Task[None] | None = None

    async def hosts(self) -> tuple[str, ...]:
        """All nodes Ray knows, dead ones too; FleetError when no Python has Ray or there is no cluster."""
        tried = []
        for python in await self._find_pythons():
            message, why = await self._connect(python)
            if message.get("error") == "no-cluster":
                await self.close()
                raise FleetError(
                    f"Ray finds no cluster at {self._address}: {_plain_line(text(message, 'text'))}"
                )
            if "nodes" in message:
                self._members = members(parts(message, "nodes"))
                return tuple(member.host for member in self._members)
            await self.close()
            tried.append(f"{python} ({why})")
        attempts = f"tried {', '.join(tried)}" if tried else "no Python was found"
        raise FleetError(f"no Python with Ray here: {attempts}; name one with --python PATH")

    async def ask(self, request: FleetRequest) -> AsyncIterator[Node]:
        """Every node as its answer comes, all asked at once; Ray starts what its nodes have room for."""
        began = time.monotonic()
        try:
            waiting = {member.id: member.host for member in self._members if member.alive}
            for member in self._members:
                if not member.alive:
                    why = f": {_plain_line(member.why)}" if member.why else ""
                    yield Node(member.host, "unreachable", note=f"Ray has it as dead{why}")
            self._send_request(request, tuple(waiting))
            while waiting and (remaining := began + request.deadline - time.monotonic()) > 0:
                message = await self._receive(remaining)
                if message is None:
                    break
                if host := waiting.pop(text(message, "node"), ""):
                    yield _answer(host, message, round(time.monotonic() - began, 3))
            passed = time.monotonic() - began
            end_note = "" if passed >= request.deadline else "Ray's driver ended"
            for host in waiting.values():
                note = end_note or f"no answer in {passed:.0f} s from a task Ray was to run there"
                yield Node(host, "silent", note=note, seconds=round(passed, 3))
        finally:
            await self.close()

    async def talk(self, host: str, script: str, first: bytes) -> RayTalk:
        """A line to a script on a node; FleetError where Ray has the node as dead."""
        member = next(member for member in self._members if member.host == host)
        if not member.alive:
            raise FleetError(f"Ray has it as dead{f': {_plain_line(member.why)}' if member.why else ''}")
        if self._talk is None:
            raise FleetError("Ray's driver ended")
        if self._pump is None:
            self._talk.say(json.dumps({"talk": script}).encode() + b"\n")
            self._pump = asyncio.create_task(self._pump_lines(self._talk))
        node_line = self._lines[member.id] = RayTalk(self._talk, member.id)
        node_line.say(first)
        return node_line

    async def _pump_lines(self, stream: ChildStream) -> None:
        """Hand what the child says to the line of its node, until it ends."""
        complaint = ""
        while (line := await stream.line()) is not None:
            message = _object(line[1])
            complaint = line[1] if not message and line[1].strip() else complaint
            if node_line := self._lines.get(text(message, "node")):
                node_line.came(message)
        for node_line in self._lines.values():
            node_line.came({"lost": complaint})

    async def close(self) -> None:
        """End the child, and with it the tasks."""
        if self._pump is not None:
            self._pump.cancel()
        stream, self._talk = self._talk, None
        if stream is not None:
            await stream.leave(PARTING)

    async def _find_pythons(self) -> tuple[str, ...]:
        observation = await child_process.run(
            "pythons", Command(child("cluster/ray_pythons", self._python)), FINDING
        )
        try:
            pythons = loaded(observation.text)
        except ValueError:
            raise FleetError(
                f"no Python with Ray could be looked for: {observation.note or observation.outcome}"
            ) from None
        if self._python and not pythons:
            raise FleetError(f"--python {self._python}: there is no such interpreter")
        return tuple(map(str, pythons))

    async def _connect(self, python: str) -> tuple[Json, str]:
        """What the child in this Python says first, and why it did not say what it should."""
        argv = child("in_python", python, "cluster/ray_fleet", self._address)
        complaints: list[str] = []
        try:
            self._talk = await ChildStream.start(Command(argv, stdin=b"", tied=True))
        except OSError as error:
            return {}, error.strerror or str(error)
        message = await self._receive(CONNECTING, complaints)
        if message is None:
            return {}, _plain_line(complaints[-1]) if complaints else "it said nothing"
        if message.get("error") == "silent":
            await self.close()
            troubles = [line for line in complaints if _TROUBLE.search(line)]
            last = f": {_plain_line(_PREFIX.sub('', troubles[-1]))}" if troubles else ""
            raise FleetError(f"Ray has not connected to {self._address} within {CONNECTING:g} s{last}")
        return message, _plain_line(text(message, "text"))

    def _send_request(self, request: FleetRequest, hosts: tuple[str, ...]) -> None:
        brought = node_side.parcel(request)
        request = replace(request, deadline=max(request.deadline - ON_THE_WAY, request.deadline / 2))
        message = {
            "hosts": hosts,
            "seconds": request.deadline,
            "lacks": node_side.NO_NODEDOCTOR,
            "script": node_side.script(request, brought, stays_open=True),
            "file_script": node_side.script(request, brought, arrives=brought is not None, stays_open=True),
            "file": base64.b64encode(brought.data).decode() if brought else "",
        }
        if self._talk is not None:
            self._talk.say(json.dumps(message).encode() + b"\n")

    async def _receive(self, seconds: float, complaints: list[str] | None = None) -> Json | None:
        """The next object of the child; None when it ends, an error called silent when time is over."""
        ends = time.monotonic() + seconds
        while self._talk is not None:
            try:
                line = await asyncio.wait_for(self._talk.line(), max(0.0, ends - time.monotonic()))
            except asyncio.TimeoutError:
                return {"error": "silent"}
            if line is None:
                return None
            if message := _object(line[1]):
                return message
            if complaints is not None and line[1].strip():
                complaints.append(line[1])
        return None


def members(nodes: tuple[Json, ...]) -> tuple[Member, ...]:
    """The nodes, each with a name of its own: where two have the same hostname, that is their address.

    Two raylets on one machine share that too: then the beginning of Ray's id tells them apart.
    """
    names = [_node_name(node) for node in nodes]
    alone = Counter(names)
    places = [
        name if alone[name] == 1 else text(node, "address") or name
        for name, node in zip(names, nodes, strict=True)
    ]
    counts = Counter(places)
    unsorted = (
        Member(
            text(node, "id"),
            name if counts[name] == 1 else f"{name}-{text(node, 'id')[:6]}",
            node.get("alive") is True,
            text(node, "why"),
        )
        for name, node in zip(places, nodes, strict=True)
    )
    return tuple(sorted(unsorted, key=lambda member: natural_key(member.host)))


def _node_name(node: Json) -> str:
    """Ray calls a node by its address unless somebody named it (`ray start --node-name`)."""
    name, address = text(node, "name"), text(node, "address")
    return (name if name != address else "") or text(node, "hostname") or address or "unnamed"


def _object(line: str) -> Json:
    """What the child said in one line; of in_python.py, which says why it could not start, without MARK."""
    if not line.startswith((MARK, '{"error"')):
        return {}
    try:
        message: Any = loaded(line.removeprefix(MARK))
    except ValueError:
        return {}
    return message if isinstance(message, dict) else {}


def _answer(host: str, message: Json, seconds: float) -> Node:
    if error := text(message, "lost"):
        kind = error.partition(":")[0].strip()
        if _DIED.search(kind):
            return Node(host, "unreachable", note=f"{_NODE_LOST} ({_plain_line(kind)})", seconds=seconds)
        return Node(host, "unable", note=_telling_line(error), seconds=seconds)
    rc = message.get("rc")
    over = message.get("over") is True
    observation = Observation(
        "ray",
        Outcome.TIMEOUT if over else Outcome.OK,
        text=_unpack_report(text(message, "text")),
        rc=rc if isinstance(rc, int) and not over else None,
        seconds=seconds,
        note=text(message, "errors").strip(),
    )
    return reading.node(host, observation)


def _unpack_report(packed: str) -> str:
    try:
        data = zlib.decompressobj().decompress(base64.b64decode(packed), KEPT)
    except (ValueError, zlib.error):
        return ""
    return data.decode("utf-8", "replace")


def _telling_line(error: str) -> str:
    """The telling line of an error of Ray's: an exception on the node is the end of its traceback."""
    lines = [line.strip() for line in error.splitlines() if line.strip()] or [""]
    return _plain_line(lines[-1] if "Traceback" in error or lines[0].startswith("RayTaskError") else lines[0])


def _plain_line(text: str) -> str:
    """One line without colours, of bounded length."""
    lines = [line.strip() for line in _CALM.sub("", text).splitlines() if line.strip()]
    line = " ".join(lines[:3])
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 3]}..."
