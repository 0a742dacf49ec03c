"""The kernel log as it comes. A hang here costs a message and not the verdict, so `sh` may do it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

RECENT = "20"
"""Lines from before, for context."""


async def kernel_lines() -> AsyncIterator[str]:
    """Follow journalctl, or dmesg where there is no journal; a last line says why nothing more comes."""
    import sh  # 66 ms, so only where it is used

    for name, words in (("journalctl", ("-kf", "-n", RECENT, "-o", "short-iso")), ("dmesg", ("-w",))):
        told = False
        try:
            running = getattr(sh, name)(*words, **_QUIETLY)
        except sh.CommandNotFound:
            continue
        try:
            async for line in running:
                told = True
                yield line.rstrip("\n")
        except sh.ErrorReturnCode as error:
            said = error.stderr.decode("utf-8", "replace").strip().partition("\n")[0]
            yield f"{name}: {said or f'exit {error.exit_code}'}"
        finally:
            _end(running)
        if told:
            return
    yield "the kernel log cannot be followed from here: it takes journalctl or dmesg, and permission"


_QUIETLY: dict[str, Any] = {
    "_async": True,
    "_return_cmd": True,
    "_tty_out": False,
    "_new_session": True,
    "_in": b"",
    "_decode_errors": "replace",
}


def _end(running: Any) -> None:
    """Kill what still follows; one that cannot be killed is left behind."""
    try:
        running.kill_group()
    except OSError:
        return
