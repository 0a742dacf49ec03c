"""Listen to a child that speaks for many others: every line counts, and none may be dropped."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import AsyncGenerator
from typing import cast

from nodedoctor.children.child_process import PIPE_DRAIN_S, feed, kill, spawn
from nodedoctor.children.output_bounds import BACKLOG, KEPT
from nodedoctor.declare.registry import Command

TIED = 0.25
"""Ours: the share of its parting that a tied child has before it gets a signal too."""


async def listen(command: Command, *, parting: float = 0.0) -> AsyncGenerator[tuple[int, str], None]:
    """Every line of a child, with the descriptor it came on (1 or 2); a reader who is late makes it wait.

    Ends with its output, or soon after its exit; left earlier, the child is ended as by `ChildStream.leave`.
    OSError when it cannot be started.
    """
    stream = await ChildStream.start(command)
    try:
        while (line := await stream.line()) is not None:
            yield line
    finally:
        await stream.leave(parting)


class ChildStream:
    """A child that speaks and may be written to; made by `start`."""

    def __init__(
        self, command: Command, transport: asyncio.SubprocessTransport, protocol: _StreamProtocol
    ) -> None:
        self._command = command
        self._transport = transport
        self._heard = protocol

    @classmethod
    async def start(cls, command: Command) -> ChildStream:
        """Start it; OSError when that cannot be."""
        transport, protocol = await spawn(command, _StreamProtocol, talks=command.stdin is not None)
        if command.stdin is not None:
            feed(transport, command.stdin, ends=not command.tied)
        return cls(command, transport, protocol)

    async def line(self) -> tuple[int, str] | None:
        """The next line and its descriptor; None when no more will come."""
        return await self._heard.next()

    def take_waiting(self) -> list[tuple[int, str]]:
        """Return the lines that have come and were not asked for yet."""
        return self._heard.take_waiting()

    def say(self, data: bytes) -> None:
        """Give it more to read, if its stdin is tied."""
        feed(self._transport, data, ends=False)

    async def leave(self, parting: float = 0.0) -> None:
        """Let go of it: it has `parting` seconds to end by itself, then it is killed.

        What works for it elsewhere ends only if it can say so. It learns of it by the end of its stdin if
        that is tied, then by SIGTERM.
        """
        exited = self._heard.exited
        if parting and self._command.tied and not exited.done():
            _end_stdin(self._transport)
            await asyncio.wait({exited}, timeout=parting * TIED)
        if parting and not exited.done():
            kill(self._transport, signal.SIGTERM)
            await asyncio.wait({exited}, timeout=parting)
        kill(self._transport)
        self._transport.close()


def _end_stdin(transport: asyncio.SubprocessTransport) -> None:
    pipe = transport.get_pipe_transport(0)
    if pipe is not None:
        pipe.close()


class _StreamProtocol(asyncio.SubprocessProtocol):
    """Keeps lines of both pipes in the order they came; reads no further while too many wait."""

    def __init__(self) -> None:
        self.exited: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue: asyncio.Queue[tuple[int, str] | None] = asyncio.Queue()
        self._rests = {1: b"", 2: b""}
        self._paused = False
        self._came = False  # something, since the last look
        self._transport: asyncio.SubprocessTransport | None = None

    async def next(self) -> tuple[int, str] | None:
        if self._paused and self._queue.qsize() < BACKLOG // 2:
            self._pause_pipes(False)
        return await self._queue.get()

    def take_waiting(self) -> list[tuple[int, str]]:
        queued = [self._queue.get_nowait() for _ in range(self._queue.qsize())]
        return [line for line in queued if line is not None]

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.SubprocessTransport, transport)

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        self._came = True
        *lines, rest = (self._rests[fd] + data).split(b"\n")
        self._rests[fd] = rest[-KEPT:]
        for line in lines:
            self._queue.put_nowait((fd, line.decode("utf-8", "replace")))
        if not self._paused and self._queue.qsize() >= BACKLOG:
            self._pause_pipes(True)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        if rest := self._rests.pop(fd, b""):
            self._queue.put_nowait((fd, rest.decode("utf-8", "replace")))
        if not self._rests:
            self._queue.put_nowait(None)

    def process_exited(self) -> None:
        if not self.exited.done():
            self.exited.set_result(None)
        asyncio.get_running_loop().call_later(PIPE_DRAIN_S, self._end_outlived)

    def _end_outlived(self) -> None:
        """End although a grandchild holds a pipe, once it is silent: a late reader has more to come."""
        if self._transport is None or self._transport.is_closing():
            return
        if self._paused or self._came:
            self._came = False
            asyncio.get_running_loop().call_later(PIPE_DRAIN_S, self._end_outlived)
        elif self._rests:
            self._queue.put_nowait(None)

    def _pause_pipes(self, paused: bool) -> None:
        self._paused = paused
        for fd in self._rests:
            pipe = self._transport.get_pipe_transport(fd) if self._transport else None
            if isinstance(pipe, asyncio.ReadTransport):
                (pipe.pause_reading if paused else pipe.resume_reading)()
