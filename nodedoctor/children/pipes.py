"""What children write: collected to its end, or handed on line by line; never more of it than can be kept."""

from __future__ import annotations

import asyncio

from nodedoctor.children.output_bounds import BACKLOG, KEPT, KEPT_STDERR


class Tail:
    """The last bytes of a stream, bounded."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._data = bytearray()
        self.truncated = False

    def feed(self, data: bytes) -> None:
        """Add what has come."""
        self._data += data
        if len(self._data) > 2 * self._limit:
            self._trim()

    def text(self) -> str:
        """What is kept, as text."""
        if len(self._data) > self._limit:
            self._trim()
        return self._data.decode("utf-8", "replace")

    def _trim(self) -> None:
        del self._data[: -self._limit]
        self.truncated = True


class Pipes(asyncio.SubprocessProtocol):
    """Collects output as it comes, so that a timeout loses none of it."""

    def __init__(self) -> None:
        loop = asyncio.get_running_loop()
        self.output = Tail(KEPT)
        self.errors = Tail(KEPT_STDERR)
        self.exited: asyncio.Future[None] = loop.create_future()
        self.ended: asyncio.Future[None] = loop.create_future()

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """See asyncio.SubprocessProtocol."""
        (self.output if fd == 1 else self.errors).feed(data)

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """The end of one pipe; that of stdout is the end of the answer."""
        if fd == 1 and not self.ended.done():
            self.ended.set_result(None)

    def process_exited(self) -> None:
        """The end of the process itself."""
        if not self.exited.done():
            self.exited.set_result(None)


class Lines(asyncio.SubprocessProtocol):
    """Passes on lines as they come, and None at the end."""

    def __init__(self) -> None:
        self.queue: asyncio.Queue[str | None] = asyncio.Queue()
        self._rest = b""

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """See asyncio.SubprocessProtocol."""
        if fd != 1:
            return
        *lines, self._rest = (self._rest + data[-KEPT:]).split(b"\n")
        self._rest = self._rest[-KEPT:]
        for line in lines:
            if self.queue.qsize() >= BACKLOG:
                self.queue.get_nowait()
            self.queue.put_nowait(line.decode("utf-8", "replace"))

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """The end of one pipe; that of stdout is the end of the answer."""
        if fd == 1:
            self.queue.put_nowait(None)
