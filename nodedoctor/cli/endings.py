"""Signals that end us: each lets the run close what it opened, so that no child outlives it.

SIGHUP is what a dropped SSH line with a terminal sends, SIGQUIT is Ctrl-\\; both end a run as SIGTERM does.
Before and after an event loop Ctrl-C ends us at once, as the others do: see __main__.py.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Callable, Coroutine, Iterator
from types import FrameType
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
    before = {number: signal.getsignal(number) for number in (*ENDING, *more)}
    handled = [number for number, handler in before.items() if handler is not signal.SIG_IGN]
    for number in handled:
        loop.add_signal_handler(number, stop, int(number))
    try:
        yield
    finally:
        for number in handled:
            loop.remove_signal_handler(number)
            if (handler := before[number]) is not None:  # None: it was not set from Python
                signal.signal(number, handler)


@contextlib.contextmanager
def ended_by_signals() -> Iterator[None]:
    """Let these signals and Ctrl-C cancel the running task; EndedBySignal when one came.

    Another Ctrl-C ends the process at once, whatever it waits for.
    """
    task, loop = asyncio.current_task(), asyncio.get_running_loop()
    assert task is not None
    came: list[int] = []

    def stop(number: int) -> None:
        came.append(number)
        task.cancel()

    def interrupt(number: int, frame: FrameType | None) -> None:
        if came:
            os._exit(128 + number)
        stop(number)
        loop.call_soon_threadsafe(lambda: None)  # it may sleep

    before = signal.getsignal(signal.SIGINT)
    try:
        with on_ending(stop):
            if callable(before):
                signal.signal(signal.SIGINT, interrupt)
            yield
    except asyncio.CancelledError:
        if not came:
            raise
    finally:
        if callable(before):
            signal.signal(signal.SIGINT, before)
    if came:  # also where nothing was left to be cancelled
        raise EndedBySignal(came[0])


def run(work: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`, for work that starts children: EndedBySignal when a signal ended it."""

    async def to_its_end() -> T:
        with ended_by_signals():
            return await work

    return asyncio.run(to_its_end())
