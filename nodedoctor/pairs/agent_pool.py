"""The agents on the nodes: started, given commands, read, and let go of.

Each has a line of its own (ssh, srun, an actor of Ray, kubectl) that stays open: its end ends the agent.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
import shlex
from collections.abc import Iterable, Mapping
from importlib import resources
from typing import Any, Literal, Protocol

from nodedoctor.errors import NodeDoctorError
from nodedoctor.fleet.transports.one_by_one import affordable
from nodedoctor.json_shapes import loaded
from nodedoctor.pairs.methods import METHODS
from nodedoctor.pairs.model import What

Asked = What | Literal["auto"]
"""What is to be measured; auto leaves it to what the nodes can."""
MARK = "@nodedoctor "
QUIET_S = 30.0
"""Seconds of silence after which an agent ends: six beats that did not come."""
BEAT_S = 5.0
STARTS_AT_ONCE = 64
PARTING_S = 3.0

_PARTS = ("tied", "node", "tcp", "rdma", "collective", "agent")
"""The modules of on_node, each after those it imports."""
_NAME = "nodedoctor.pairs.on_node"

_FIRST = (
    "import os,base64,json,sys,types\ns=b''\nc=b' '\nwhile c and c!=b'\\n':\n c=os.read(0,1)\n s+=c\n"
    "for n,t in json.loads(base64.b64decode(s)):\n m=sys.modules[n]=types.ModuleType(n)\n"
    " exec(compile(t,n,'exec'),m.__dict__)\nm.main()"
)

_SCRIPT = """\
owned() {
  [ "$(id -u)" -ne 0 ] || [ "$(stat -L -c %u "$1" "${1%/*}/.." | sort -u)" = 0 ]
}
for python in @FIRST@ python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3.9; do
  python=$(command -v "$python") && owned "$python" || continue
  if "$python" -I@SITE@ -c 'import sys, importlib.util as u; sys.exit(@FAILS@)' 2>/dev/null; then
    exec "$python" -I@SITE@ -u -c "@PROGRAM@"
  fi
done
echo '@MARK@{"is_": "unable", "note": "no Python 3.8 or newer@LACKS@"}'
"""


def script(what: Asked, python: str = "") -> str:
    """What the node's shell runs: the first Python that will do reads the agent from its stdin."""
    fails = "sys.version_info < (3, 8)"
    lacks = " on PATH"
    if what == "collective":
        fails += ' or not u.find_spec("torch")'
        lacks = " with torch: --python names the one that trains (root runs none of another user)"
    # torch lies in site-packages; what does not need them starts faster, and where they are broken too.
    words = {
        "FIRST": shlex.quote(python) if python else "",
        "SITE": "" if what == "collective" else " -S",
        "FAILS": fails,
        "LACKS": lacks,
        "MARK": MARK,
        "PROGRAM": _FIRST,
    }
    text = _SCRIPT
    for name, value in words.items():
        text = text.replace(f"@{name}@", value)
    return text


def program() -> bytes:
    """The agent with all it imports, as the line that it is read from."""
    folder = resources.files(_NAME)
    sources = [[name, ""] for name in ("nodedoctor", "nodedoctor.pairs", _NAME)]
    sources += [[f"{_NAME}.{part}", (folder / f"{part}.py").read_text("utf-8")] for part in _PARTS]
    return base64.b64encode(json.dumps(sources).encode()) + b"\n"


class Channel(Protocol):
    """Something that runs on one node, reads lines and writes lines."""

    def say(self, data: bytes) -> None:
        """Tell it something."""

    async def line(self) -> tuple[int, str] | None:
        """What it says next, and on which descriptor; None when it has ended."""

    async def leave(self, parting: float = 0.0) -> None:
        """Let go of it: with its stdin it ends too."""


class Transport(Protocol):
    """A way to nodes that holds a line to each: see the classes in fleet/transports."""

    name: str

    async def hosts(self) -> tuple[str, ...]:
        """All nodes meant, in order."""
        ...

    async def talk(self, host: str, script: str, first: bytes) -> Channel:
        """Run a script on a node with these bytes on its stdin; OSError or NodeDoctorError says why not."""
        ...

    async def close(self) -> None:
        """Give back what was taken for all of them."""
        ...


class AgentPool:
    """One agent per node. `heard` brings what they say: the node and its object, None when its line ended."""

    def __init__(self, way: Transport, what: Asked = "tcp", python: str = "") -> None:
        self.what = what
        self._way, self._python = way, python
        self._talks: dict[str, Channel] = {}
        self._listening: list[asyncio.Task[None]] = []
        self._beating: asyncio.Task[None] | None = None
        self._heard: asyncio.Queue[tuple[str, dict[str, Any] | None]] = asyncio.Queue()
        self.complaints: dict[str, str] = {}

    @property
    def starting_s(self) -> float:
        """Seconds within which an agent must say that it is ready."""
        return METHODS["tcp" if self.what == "auto" else self.what].starting_s

    async def start(self, hosts: Iterable[str], toward: Mapping[str, list[str]]) -> None:
        """Start the agents and ask each who it is."""
        affordable(len(toward))
        brought, runs = program(), script(self.what, self._python)
        room = asyncio.Semaphore(STARTS_AT_ONCE)

        async def begin(host: str) -> None:
            async with room:
                try:
                    self._talks[host] = await self._way.talk(host, runs, brought)
                except (OSError, NodeDoctorError) as error:
                    note = getattr(error, "strerror", "") or str(error)
                    self._heard.put_nowait((host, {"is_": "unable", "note": note}))
                    return
                self._listening.append(asyncio.create_task(self._receive_lines(host, self._talks[host])))
                self.say(host, do="hello", toward=toward[host], quiet=QUIET_S, what=self.what)

        await asyncio.gather(*map(begin, hosts))
        self._beating = asyncio.create_task(self._send_beats())

    def say(self, host: str, **message: Any) -> None:
        """Tell one agent something."""
        if channel := self._talks.get(host):
            with contextlib.suppress(OSError, RuntimeError):
                channel.say(json.dumps(message).encode() + b"\n")

    async def observe(self, seconds: float) -> tuple[str, dict[str, Any] | None] | None:
        """What is said next; None when nothing is, in so many seconds."""
        try:
            return await asyncio.wait_for(self._heard.get(), max(0.0, seconds))
        except asyncio.TimeoutError:
            return None

    async def leave(self) -> None:
        """Let all of them go; returns when the children have ended or were killed."""
        if self._beating:
            self._beating.cancel()
        for host in self._talks:
            self.say(host, do="end")
        await asyncio.gather(*(channel.leave(PARTING_S) for channel in self._talks.values()))
        for task in self._listening:
            task.cancel()
        await self._way.close()

    async def _receive_lines(self, host: str, channel: Channel) -> None:
        while (line := await channel.line()) is not None:
            if line[1].startswith(MARK):
                with contextlib.suppress(ValueError):
                    message = loaded(line[1].removeprefix(MARK))
                    if isinstance(message, dict):
                        self._heard.put_nowait((host, message))
            elif line[0] == 2 and line[1].strip():
                self.complaints[host] = line[1].strip()[:300]
        self._heard.put_nowait((host, None))

    async def _send_beats(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            for host in self._talks:
                self.say(host, do="beat")
