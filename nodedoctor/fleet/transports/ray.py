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

from nodedoctor.children import child_process, pipes
from nodedoctor.children.child_stream import ChildStream
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
_LEFT = "Ray lost the node while it was being asked"
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

    def __init__(self, talk: ChildStream, node: str) -> None:
        self._talk, self._node = talk, node
        self._came: asyncio.Queue[tuple[int, str] | None] = asyncio.Queue()
        self._ended = asyncio.Event()

    def say(self, data: bytes) -> None:
        """Tell it something."""
        told = {"node": self._node, "data": base64.b64encode(data).decode()}
        self._talk.say(json.dumps(told).encode() + b"\n")

    def came(self, said: Json) -> None:
        """Take in what the child says of this node."""
        lines = said.get("lines")
        if not isinstance(lines, list):
            if lost := text(said, "lost"):
                self._came.put_nowait((2, _error(lost)))
            self._came.put_nowait(None)
            self._ended.set()
            return
        for number, line in lines:
            self._came.put_nowait((int(number), str(line)))

    async def line(self) -> tuple[int, str] | None:
        """The next line and its descriptor; None when it has ended."""
        return await self._came.get()

    async def leave(self, parting: float = 0.0) -> None:
        """It has so many seconds to end by what it was told; else it ends with the child."""
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
        for python in await self._pythons():
            said, why = await self._connect(python)
            if said.get("error") == "no-cluster":
                await self.close()
                raise FleetError(f"Ray finds no cluster at {self._address}: {_plain(text(said, 'text'))}")
            if "nodes" in said:
                self._members = members(parts(said, "nodes"))
                return tuple(member.host for member in self._members)
            await self.close()
            tried.append(f"{python} ({why})")
        told = f"tried {', '.join(tried)}" if tried else "no Python was found"
        raise FleetError(f"no Python with Ray here: {told}; name one with --python PATH")

    async def ask(self, request: FleetRequest) -> AsyncIterator[Node]:
        """Every node as its answer comes, all asked at once; Ray starts what its nodes have room for."""
        began = time.monotonic()
        try:
            waiting = {member.id: member.host for member in self._members if member.alive}
            for member in self._members:
                if not member.alive:
                    why = f": {_plain(member.why)}" if member.why else ""
                    yield Node(member.host, "unreachable", note=f"Ray has it as dead{why}")
            self._say(request, tuple(waiting))
            while waiting and (left := began + request.deadline - time.monotonic()) > 0:
                said = await self._hear(left)
                if said is None:
                    break
                if host := waiting.pop(text(said, "node"), ""):
                    yield _answer(host, said, round(time.monotonic() - began, 3))
            passed = time.monotonic() - began
            ended = "" if passed >= request.deadline else "Ray's driver ended"
            for host in waiting.values():
                note = ended or f"no answer in {passed:.0f} s from a task Ray was to run there"
                yield Node(host, "silent", note=note, seconds=round(passed, 3))
        finally:
            await self.close()

    async def talk(self, host: str, script: str, first: bytes) -> RayTalk:
        """A line to a script on a node; FleetError where Ray has the node as dead."""
        member = next(member for member in self._members if member.host == host)
        if not member.alive:
            raise FleetError(f"Ray has it as dead{f': {_plain(member.why)}' if member.why else ''}")
        if self._talk is None:
            raise FleetError("Ray's driver ended")
        if self._pump is None:
            self._talk.say(json.dumps({"talk": script}).encode() + b"\n")
            self._pump = asyncio.create_task(self._pumped(self._talk))
        made = self._lines[member.id] = RayTalk(self._talk, member.id)
        made.say(first)
        return made

    async def _pumped(self, talk: ChildStream) -> None:
        """Hand what the child says to the line of its node, until it ends."""
        complaint = ""
        while (line := await talk.line()) is not None:
            said = _object(line[1])
            complaint = line[1] if not said and line[1].strip() else complaint
            if made := self._lines.get(text(said, "node")):
                made.came(said)
        for made in self._lines.values():
            made.came({"lost": complaint})

    async def close(self) -> None:
        """End the child, and with it the tasks."""
        if self._pump is not None:
            self._pump.cancel()
        talk, self._talk = self._talk, None
        if talk is not None:
            await talk.leave(PARTING)

    async def _pythons(self) -> tuple[str, ...]:
        seen = await child_process.run(
            "pythons", Command(child("cluster/ray_pythons", self._python)), FINDING
        )
        try:
            found = loaded(seen.text)
        except ValueError:
            raise FleetError(f"no Python with Ray could be looked for: {seen.note or seen.outcome}") from None
        if self._python and not found:
            raise FleetError(f"--python {self._python}: there is no such interpreter")
        return tuple(map(str, found))

    async def _connect(self, python: str) -> tuple[Json, str]:
        """What the child in this Python says first, and why it did not say what it should."""
        argv = child("in_python", python, "cluster/ray_fleet", self._address)
        complaints: list[str] = []
        try:
            self._talk = await ChildStream.start(Command(argv, stdin=b"", tied=True))
        except OSError as error:
            return {}, error.strerror or str(error)
        said = await self._hear(CONNECTING, complaints)
        if said is None:
            return {}, _plain(complaints[-1]) if complaints else "it said nothing"
        if said.get("error") == "silent":
            await self.close()
            troubles = [line for line in complaints if _TROUBLE.search(line)]
            last = f": {_plain(_PREFIX.sub('', troubles[-1]))}" if troubles else ""
            raise FleetError(f"Ray has not connected to {self._address} within {CONNECTING:g} s{last}")
        return said, _plain(text(said, "text"))

    def _say(self, request: FleetRequest, hosts: tuple[str, ...]) -> None:
        brought = node_side.parcel(request)
        request = replace(request, deadline=max(request.deadline - ON_THE_WAY, request.deadline / 2))
        told = {
            "hosts": hosts,
            "seconds": request.deadline,
            "lacks": node_side.NO_NODEDOCTOR,
            "script": node_side.script(request, brought, held=True),
            "file_script": node_side.script(request, brought, arrives=brought is not None, held=True),
            "file": base64.b64encode(brought.data).decode() if brought else "",
        }
        if self._talk is not None:
            self._talk.say(json.dumps(told).encode() + b"\n")

    async def _hear(self, seconds: float, complaints: list[str] | None = None) -> Json | None:
        """The next object of the child; None when it ends, an error called silent when time is over."""
        ends = time.monotonic() + seconds
        while self._talk is not None:
            try:
                line = await asyncio.wait_for(self._talk.line(), max(0.0, ends - time.monotonic()))
            except asyncio.TimeoutError:
                return {"error": "silent"}
            if line is None:
                return None
            if said := _object(line[1]):
                return said
            if complaints is not None and line[1].strip():
                complaints.append(line[1])
        return None


def members(found: tuple[Json, ...]) -> tuple[Member, ...]:
    """The nodes, each with a name of its own: where two have the same hostname, that is their address.

    Two raylets on one machine share that too: then the beginning of Ray's id tells them apart.
    """
    names = [_node_name(node) for node in found]
    alone = Counter(names)
    places = [
        name if alone[name] == 1 else text(node, "address") or name
        for name, node in zip(names, found, strict=True)
    ]
    counts = Counter(places)
    made = (
        Member(
            text(node, "id"),
            name if counts[name] == 1 else f"{name}-{text(node, 'id')[:6]}",
            node.get("alive") is True,
            text(node, "why"),
        )
        for name, node in zip(places, found, strict=True)
    )
    return tuple(sorted(made, key=lambda member: natural_key(member.host)))


def _node_name(node: Json) -> str:
    """Ray calls a node by its address unless somebody named it (`ray start --node-name`)."""
    name, address = text(node, "name"), text(node, "address")
    return (name if name != address else "") or text(node, "hostname") or address or "unnamed"


def _object(line: str) -> Json:
    """What the child said in one line; of in_python.py, which says why it could not start, without MARK."""
    if not line.startswith((MARK, '{"error"')):
        return {}
    try:
        said: Any = loaded(line.removeprefix(MARK))
    except ValueError:
        return {}
    return said if isinstance(said, dict) else {}


def _answer(host: str, said: Json, seconds: float) -> Node:
    if lost := text(said, "lost"):
        kind = lost.partition(":")[0].strip()
        if _DIED.search(kind):
            return Node(host, "unreachable", note=f"{_LEFT} ({_plain(kind)})", seconds=seconds)
        return Node(host, "unable", note=_error(lost), seconds=seconds)
    rc = said.get("rc")
    over = said.get("over") is True
    seen = Observation(
        "ray",
        Outcome.TIMEOUT if over else Outcome.OK,
        text=_unpacked(text(said, "text")),
        rc=rc if isinstance(rc, int) and not over else None,
        seconds=seconds,
        note=text(said, "errors").strip(),
    )
    return reading.node(host, seen)


def _unpacked(packed: str) -> str:
    try:
        data = zlib.decompressobj().decompress(base64.b64decode(packed), pipes.KEPT)
    except (ValueError, zlib.error):
        return ""
    return data.decode("utf-8", "replace")


def _error(lost: str) -> str:
    """The telling line of an error of Ray's: an exception on the node stands at the end of its traceback."""
    lines = [line.strip() for line in lost.splitlines() if line.strip()] or [""]
    return _plain(lines[-1] if "Traceback" in lost or lines[0].startswith("RayTaskError") else lines[0])


def _plain(said: str) -> str:
    """One line without colours, of bounded length."""
    lines = [line.strip() for line in _CALM.sub("", said).splitlines() if line.strip()]
    line = " ".join(lines[:3])
    return line if len(line) <= LONGEST else f"{line[: LONGEST - 3]}..."
