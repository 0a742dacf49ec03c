"""Work that needs no event loop is done without one; work that waits is refused, not lost."""

from __future__ import annotations

import asyncio

import pytest

from nodedoctor.engine.pending import Ready, result_of, run_sync


async def _sum(*parts: int) -> int:
    return sum([await result_of(Ready(part)) for part in parts])


def test_what_never_waits_is_done_at_once() -> None:
    assert run_sync(_sum(1, 2, 3)) == 6


def test_what_is_raised_goes_through() -> None:
    async def failing() -> None:
        await _sum(1)
        raise ValueError("wrong")

    with pytest.raises(ValueError, match="wrong"):
        run_sync(failing())


def test_what_waits_is_refused() -> None:
    with pytest.raises(RuntimeError, match="waits for something"):
        run_sync(asyncio.sleep(0))


def test_who_stops_waiting_does_not_end_what_others_wait_for() -> None:
    async def run() -> str:
        async def slow() -> str:
            await asyncio.sleep(0.05)
            return "come"

        begun = asyncio.create_task(slow())
        first = asyncio.create_task(result_of(begun))
        await asyncio.sleep(0)
        first.cancel()
        return await result_of(begun)

    assert asyncio.run(run()) == "come"
