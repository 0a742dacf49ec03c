"""Work that has begun: a task of asyncio on a live node, done at once where everything is known already.

A recording answers at once, so reading and judging it never waits. Then no event loop is needed, and none is
imported: asyncio and what it needs are a tenth of a replay.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, Generic, Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)


class Pending(Protocol[T_co]):
    """What a task and work that is done have in common."""

    def done(self) -> bool:
        """Whether it has ended."""

    def cancelled(self) -> bool:
        """Whether it was ended before it had a result."""

    def result(self) -> T_co:
        """What it returned, or raises what it raised."""


class Ready(Generic[T]):
    """Work that never had to wait, with what it returned."""

    def __init__(self, value: T) -> None:
        self._value = value

    def done(self) -> bool:
        """It is."""
        return True

    def cancelled(self) -> bool:
        """There was no time for that."""
        return False

    def result(self) -> T:
        """What it returned."""
        return self._value


def run_sync(work: Coroutine[Any, Any, T]) -> T:
    """What work returns that never waits; RuntimeError for work that does."""
    try:
        work.send(None)
    except StopIteration as ended:
        value: T = ended.value
        return value
    work.close()
    raise RuntimeError(f"{work!r} waits for something, and nothing runs that could bring it")


async def result_of(pending: Pending[T]) -> T:
    """What work comes to that others wait for too: who stops waiting does not end it."""
    if pending.done():
        return pending.result()
    import asyncio

    assert isinstance(pending, asyncio.Task)
    result: T = await asyncio.shield(pending)
    return result
