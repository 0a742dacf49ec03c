"""The engine as the screens see it, when it is another process."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import time
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any, cast

from nodedoctor.model import Observation
from nodedoctor.tui.process.wire import packed, receive
from nodedoctor.tui.state import EngineInfo, RequestRefused, State

if TYPE_CHECKING:
    from nodedoctor.report.document import Report

STOP_TIMEOUT_S = 0.5  # seconds the engine has to end its children once the screen has ended


class Remote:
    """Its states as they come, and questions to it."""

    def __init__(self, pid: int, line: socket.socket) -> None:
        self.about = EngineInfo()
        self.latest: State | None = None
        self._pid = pid
        self._line = line
        self._shown = False
        self._writer: asyncio.StreamWriter | None = None
        self._seen: dict[str, Observation] = {}
        self._report: dict[str, Any] = {}
        self._changed = asyncio.Event()
        self._listening: asyncio.Task[None] | None = None
        self._recordings: asyncio.Queue[bytes] = asyncio.Queue()

    async def begin(self) -> asyncio.Task[None]:
        """Listen from now on: what has come by the time that the first picture is drawn is in it."""
        reader, self._writer = await asyncio.open_unix_connection(sock=self._line)
        self._listening = asyncio.create_task(self._receive_messages(reader))
        return self._listening

    async def states(self) -> AsyncIterator[State]:
        """Every state that comes. Refused when this cannot be run at all, RuntimeError after a crash."""
        listening = self._listening or await self.begin()
        try:
            while not listening.done():
                self._changed.clear()
                if self.latest is not None:
                    yield self.latest
                    if not self._shown:
                        self._send("shown")
                        self._shown = True
                await self._changed.wait()
            await listening
        finally:
            listening.cancel()

    def again(self, check: str = "") -> None:
        """Ask one check once more, or all of them."""
        self._send("again", check)

    async def recording(self) -> bytes:
        """The zip that keeps what was seen so far."""
        self._send("recording")
        return await self._recordings.get()

    async def close(self) -> None:
        """Let the engine end itself and its children; kill it if it does not."""
        self._writer.close() if self._writer else self._line.close()
        ends = time.monotonic() + STOP_TIMEOUT_S
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(self._pid, os.WNOHANG) == (0, 0):
                if time.monotonic() > ends:
                    os.kill(self._pid, signal.SIGKILL)
                    return
                await asyncio.sleep(0.005)

    def _send(self, *words: str) -> None:
        if self._writer:
            self._writer.write(packed(*words))

    async def _receive_messages(self, reader: asyncio.StreamReader) -> None:
        try:
            while True:
                self._handle(*await receive(reader))
                self._changed.set()
        except (asyncio.IncompleteReadError, ConnectionError):
            raise RuntimeError("the process that runs the checks has ended") from None
        finally:
            self._changed.set()

    def _handle(self, kind: str, *words: Any) -> None:
        if kind == "refused":
            raise RequestRefused(*words)
        if kind == "crashed":
            raise RuntimeError(*words)
        if kind == "about":
            (self.about,) = words
        elif kind == "recording":
            self._recordings.put_nowait(*words)
        else:
            self._merge_state(*words)

    def _merge_state(self, state: State, news: dict[str, Any], fresh: dict[str, Observation]) -> None:
        """A state comes without what came before; what is the same stays the same object."""
        self._seen = {**self._seen, **fresh} if fresh else self._seen
        self._report = {**self._report, **news}
        self.latest = replace(state, report=cast("Report", self._report), answers=self._seen)
