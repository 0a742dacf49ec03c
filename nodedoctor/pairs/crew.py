"""The agents on the nodes: started, told what to do, heard, and let go of.

Each is one child of ours (ssh, srun or kubectl) whose stdin stays open: its end ends the agent.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import json
from collections.abc import Callable, Iterable, Mapping
from importlib import resources
from typing import Any

from nodedoctor.engine.child_stream import ChildStream
from nodedoctor.engine.registry import Command

MARK = "@nodedoctor "
QUIET_S = 30.0
"""Seconds of silence after which an agent ends: six beats that did not come."""
BEAT_S = 5.0
STARTING_S = 30.0
"""Seconds within which an agent must say that it is ready: ssh may take ten to connect, nvidia-smi eight."""
STARTS_AT_ONCE = 64
PARTING_S = 3.0

_FIRST = (
    "import os,base64\ns=b''\nc=b' '\nwhile c and c!=b'\\n':\n c=os.read(0,1)\n s+=c\n"
    "exec(compile(base64.b64decode(s),'nodedoctor-pairs','exec'),{'__name__':'__main__'})"
)

SCRIPT = f"""\
for python in python3 python3.14 python3.13 python3.12 python3.11 python3.10 python3.9; do
  if "$python" -I -c 'import sys; sys.exit(sys.version_info < (3, 8))' 2>/dev/null; then
    exec "$python" -I -S -u -c "{_FIRST}"
  fi
done
echo '{MARK}{{"is_": "unable", "note": "no Python 3.8 or newer on PATH"}}'
"""
"""What the node's shell runs: the first Python that will do reads the agent from its stdin."""

Way = Callable[[str], tuple[str, ...]]
"""The command line that runs SCRIPT on a node."""


class Crew:
    """One agent per node. `heard` brings what they say: the node and its object, None when its line ended."""

    def __init__(self, way: Way) -> None:
        self._way = way
        self._talks: dict[str, ChildStream] = {}
        self._listening: list[asyncio.Task[None]] = []
        self._beating: asyncio.Task[None] | None = None
        self._heard: asyncio.Queue[tuple[str, dict[str, Any] | None]] = asyncio.Queue()
        self.complaints: dict[str, str] = {}

    async def start(self, hosts: Iterable[str], toward: Mapping[str, list[str]]) -> None:
        """Start the agents and ask each who it is."""
        program = (resources.files("nodedoctor.pairs") / "agent.py").read_bytes()
        room = asyncio.Semaphore(STARTS_AT_ONCE)

        async def begin(host: str) -> None:
            async with room:
                command = Command(self._way(host), stdin=base64.b64encode(program) + b"\n", tied=True)
                try:
                    self._talks[host] = await ChildStream.start(command)
                except OSError as error:
                    self._heard.put_nowait((host, {"is_": "unable", "note": error.strerror or str(error)}))
                    return
                self._listening.append(asyncio.create_task(self._listen(host, self._talks[host])))
                self.say(host, do="hello", toward=toward[host], quiet=QUIET_S)

        await asyncio.gather(*map(begin, hosts))
        self._beating = asyncio.create_task(self._beat())

    def say(self, host: str, **told: Any) -> None:
        """Tell one agent something."""
        if talk := self._talks.get(host):
            with contextlib.suppress(OSError, RuntimeError):
                talk.say(json.dumps(told).encode() + b"\n")

    async def hear(self, seconds: float) -> tuple[str, dict[str, Any] | None] | None:
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
        await asyncio.gather(*(talk.leave(PARTING_S) for talk in self._talks.values()))
        for task in self._listening:
            task.cancel()

    async def _listen(self, host: str, talk: ChildStream) -> None:
        while (line := await talk.line()) is not None:
            if line[1].startswith(MARK):
                with contextlib.suppress(ValueError):
                    told = json.loads(line[1].removeprefix(MARK))
                    if isinstance(told, dict):
                        self._heard.put_nowait((host, told))
            elif line[0] == 2 and line[1].strip():
                self.complaints[host] = line[1].strip()[:300]
        self._heard.put_nowait((host, None))

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(BEAT_S)
            for host in self._talks:
                self.say(host, do="beat")
