"""A program that the fork server has started, as asyncio sees a child."""

from __future__ import annotations

import asyncio
import errno
import os

CHUNK = 1 << 18  # bytes read from a pipe at once


class Fork(asyncio.SubprocessTransport):
    """One program that the server has forked."""

    def __init__(
        self, protocol: asyncio.SubprocessProtocol, loop: asyncio.AbstractEventLoop, pipes: dict[int, int]
    ) -> None:
        """Listen at the pipes of a program that was asked for."""
        super().__init__()
        self.started: asyncio.Future[int] = loop.create_future()
        self._protocol = protocol
        self._loop = loop
        self._returncode: int | None = None
        self._orphaned = False
        self._pipes = dict(pipes)
        for fd, pipe in pipes.items():
            loop.add_reader(pipe, self._read, fd)

    def begins(self, pid: int) -> None:
        """It has a session of its own and can be killed."""
        if not self.started.done():
            self.started.set_result(pid)

    def fails(self, error: int) -> None:
        """It could not be started."""
        if not self.started.done():
            self.started.set_exception(OSError(error, os.strerror(error)))

    def ends(self, returncode: int) -> None:
        """It has exited."""
        self._returncode = returncode
        self._protocol.process_exited()

    def lost(self) -> None:
        """Its exit will not be reported, so the end of its output counts as that."""
        self.fails(errno.EPIPE)
        self._orphaned = self._returncode is None
        if self._orphaned and 1 not in self._pipes:
            self._protocol.process_exited()

    def get_pid(self) -> int:
        """Its process, which is also its session."""
        return self.started.result()

    def get_returncode(self) -> int | None:
        """As of `subprocess`; None while it runs."""
        return self._returncode

    def close(self) -> None:
        """Close our ends of its pipes."""
        for fd in tuple(self._pipes):
            self._close_pipe(fd)

    def _read(self, fd: int) -> None:
        if data := os.read(self._pipes[fd], CHUNK):
            self._protocol.pipe_data_received(fd, data)
        else:
            self._close_pipe(fd)
            self._protocol.pipe_connection_lost(fd, None)
            if self._orphaned and fd == 1:
                self._protocol.process_exited()

    def _close_pipe(self, fd: int) -> None:
        pipe = self._pipes.pop(fd)
        self._loop.remove_reader(pipe)
        os.close(pipe)
