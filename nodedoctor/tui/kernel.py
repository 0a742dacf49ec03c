"""The kernel log as it comes. A hang here costs a message and not the verdict, so `sh` may do it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

RECENT = "20"
"""Lines from before, for context."""

_WAYS = (("journalctl", ("-kf", "-n", RECENT, "-o", "short-iso")), ("dmesg", ("-w",)))


async def kernel_lines() -> AsyncIterator[str]:
    """Follow journalctl, or dmesg where there is no journal; a last line says why nothing more comes."""
    complaints: list[str] = []
    for name, words in _WAYS:
        told = False
        async for line in _follow(name, words, complaints.append):
            told = True
            yield line
        if told:
            return
    said = complaints[0].strip() if complaints else "neither journalctl nor dmesg is here"
    yield f"the kernel log cannot be followed: {said}"


async def _follow(name: str, words: tuple[str, ...], complain: Callable[[str], None]) -> AsyncIterator[str]:
    """What a command says, until it ends or nobody listens; nothing when it is not there."""
    import sh  # 66 ms, so only where it is used

    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[str | None] = asyncio.Queue()

    def hear(line: str | None) -> None:
        # Called by threads of sh, which may outlive the loop.
        with contextlib.suppress(RuntimeError):
            loop.call_soon_threadsafe(lines.put_nowait, line)

    try:
        running = getattr(sh, name)(
            *words,
            _out=hear,
            _err=complain,
            _done=lambda *_: hear(None),
            _bg=True,
            _bg_exc=False,
            _tty_out=False,
            _new_session=True,
            _in=b"",
            _decode_errors="replace",
        )
    except sh.CommandNotFound:
        return
    try:
        while (line := await lines.get()) is not None:
            yield line.rstrip("\n")
    finally:
        _end(running)


def _end(running: Any) -> None:
    """Kill what still follows; one that cannot be killed is left behind."""
    with contextlib.suppress(OSError):
        running.kill_group()
