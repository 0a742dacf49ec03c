"""The kernel log as it comes. A hang here costs a message and not the verdict, so `sh` may do it.

It is listened to by a daemon thread of its own: started on the event loop, sh would still call that loop
after it has ended.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

RECENT = "20"
"""Lines from before, for context."""

_COMMANDS = (("journalctl", ("-kf", "-n", RECENT, "-o", "short-iso")), ("dmesg", ("-w",)))
# Any exit is fine: sh would otherwise raise in a background thread and print a traceback.
_QUIETLY = {
    "_iter": True,
    "_tty_out": False,
    "_new_session": True,
    "_in": b"",
    "_decode_errors": "replace",
    "_ok_code": list(range(-64, 256)),
    "_bg_exc": False,
}


async def kernel_lines() -> AsyncIterator[str]:
    """Follow journalctl, or dmesg where there is no journal; a last line says why nothing more comes."""
    loop = asyncio.get_running_loop()
    lines: asyncio.Queue[str | None] = asyncio.Queue()
    following: list[Any] = []

    def hear(line: str | None) -> None:
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(lines.put_nowait, line)

    threading.Thread(target=_follow_log, args=(hear, following), daemon=True).start()
    try:
        while (line := await lines.get()) is not None:
            yield line.rstrip("\n")
    finally:
        for running in following:
            with contextlib.suppress(OSError):  # it has ended, or cannot be killed and is left behind
                running.kill_group()


def _follow_log(put_line: Callable[[str | None], None], following: list[Any]) -> None:
    """Pass on the lines of the first command that works; then why it ended, and None."""
    import sh  # 66 ms, so only where it is used

    complaints: list[str] = []
    has_lines = False
    for name, words in _COMMANDS:
        with contextlib.suppress(sh.CommandNotFound):
            following.append(getattr(sh, name)(*words, _err=complaints.append, **_QUIETLY))
            for line in following[-1]:
                has_lines = True
                put_line(line)
        if has_lines:
            complaints = [f"{name} has ended"]
            break
    put_line(f"the kernel log cannot be followed: {(complaints or ['no journalctl, no dmesg'])[0].strip()}")
    put_line(None)
