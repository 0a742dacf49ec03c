"""Signals that end us: each lets the run close what it opened, so that no child outlives it.

SIGHUP is what a dropped SSH line with a terminal sends, SIGQUIT is Ctrl-\\; both end a run as SIGTERM does.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, TypeVar

from nodedoctor.errors import EndedBySignal

T = TypeVar("T")

ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


@contextlib.contextmanager
def on_ending(stop: Callable[[int], object], *more: int) -> Iterator[None]:
    """Call `stop` with the number of a signal that is to end us, instead of dying of it.

    What was ignored when we were started stays ignored: nohup(1) means it.
    """
    loop = asyncio.get_running_loop()
    heard = [number for number in (*ENDING, *more) if signal.getsignal(number) is not signal.SIG_IGN]
    for number in heard:
        loop.add_signal_handler(number, stop, int(number))
    try:
        yield
    finally:
        for number in heard:
            loop.remove_signal_handler(number)


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let these signals cancel the running task as Ctrl-C does; EndedBySignal when one came."""
    task = asyncio.current_task()
    assert task is not None
    came: list[int] = []

    def stop(number: int) -> None:
        came.append(number)
        task.cancel()

    try:
        with on_ending(stop):
            yield
    except asyncio.CancelledError:
        if came:
            raise EndedBySignal(came[0]) from None
        raise


def run(work: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`, for work that starts children: EndedBySignal when a signal ended it."""

    async def to_its_end() -> T:
        with ended_by_signals():
            return await work

    return asyncio.run(to_its_end())
