"""Turns in a lane: so many probes at a time, and those that had to wait for others go first.

What comes late is what a run waits for in the end: in the order of coming, the training Python, which waits
for the list of processes, stood behind all that was there from the beginning.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator

from nodedoctor.declare.registry import Lane

WIDTH = {Lane.CPU: 8, Lane.NVIDIA: 1, Lane.FS: 4, Lane.GPU_LOAD: 1}
"""A driver is asked one question at a time, and load on GPUs disturbs other load; else as many as keep a
small node busy (chosen by us, no external source)."""


class Turns:
    """At most `width` at a time. Cancelling who waits costs nobody else a turn."""

    def __init__(self, width: int) -> None:
        self._free = width
        self._waiting: dict[bool, deque[asyncio.Future[None]]] = {True: deque(), False: deque()}

    @contextlib.asynccontextmanager
    async def turn(self, *, soon: bool) -> AsyncIterator[None]:
        """Wait for a turn, `soon` before everybody else, and have it."""
        if self._free:
            self._free -= 1
        else:
            mine = asyncio.get_running_loop().create_future()
            self._waiting[soon].append(mine)
            try:
                await mine
            except asyncio.CancelledError:
                if mine.done() and not mine.cancelled():  # the turn came with the end
                    self._pass_on()
                raise
        try:
            yield
        finally:
            self._pass_on()

    def _pass_on(self) -> None:
        for queue in (self._waiting[True], self._waiting[False]):
            while queue:
                waiter = queue.popleft()
                if not waiter.done():
                    waiter.set_result(None)
                    return
        self._free += 1
