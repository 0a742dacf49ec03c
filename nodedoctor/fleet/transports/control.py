"""Short questions to the cluster's own commands: `sinfo`, `squeue`, `ray status`.

They may hang, with a dead controller or a dead home. `sh` runs them in a daemon thread that is given up when
the time is over, so that a hang costs a message and not the run.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any

from nodedoctor.record import record

COMMAND_TIMEOUT_S = 15.0
"""Ours: seconds a question may take. Slurm's own commands wait MessageTimeout, by default 10 s."""

_QUIETLY: dict[str, Any] = {
    "_tty_out": False,
    "_new_session": True,
    "_in": b"",
    "_decode_errors": "replace",
    "_ok_code": list(range(-64, 256)),
    "_return_cmd": True,
    "_bg_exc": False,
}


@record
class CommandAnswer:
    """What a command said; `rc` is None when it said nothing in time or is not there."""

    rc: int | None
    text: str = ""
    errors: str = ""

    @property
    def complaint(self) -> str:
        """The last line of its stderr, which is where commands say why."""
        lines = [line.strip() for line in self.errors.splitlines() if line.strip()]
        return lines[-1] if lines else f"exit code {self.rc}"


async def ask(program: str, *words: str, timeout: float = COMMAND_TIMEOUT_S) -> CommandAnswer:
    """Run a command to its end, or give it up; never raises for its deeds."""
    loop = asyncio.get_running_loop()
    answered: asyncio.Future[CommandAnswer] = loop.create_future()

    def hand_over(answer: CommandAnswer) -> None:
        if not answered.done():
            answered.set_result(answer)

    def run() -> None:
        answer = _run(program, words, timeout)
        with contextlib.suppress(RuntimeError):  # the loop has ended
            loop.call_soon_threadsafe(hand_over, answer)

    threading.Thread(target=run, daemon=True).start()
    try:
        return await asyncio.wait_for(answered, timeout + 0.5)
    except asyncio.TimeoutError:
        return _silent(program, timeout)


def _run(program: str, words: tuple[str, ...], timeout: float) -> CommandAnswer:
    import sh  # 66 ms, so only where it is used

    try:
        done: Any = sh.Command(program)(*words, _timeout=timeout, **_QUIETLY)
    except sh.CommandNotFound:
        return CommandAnswer(None, errors=f"{program} is not on PATH")
    except sh.TimeoutException:
        return _silent(program, timeout)
    except OSError as error:
        return CommandAnswer(None, errors=f"{program}: {error.strerror or error}")
    return CommandAnswer(done.exit_code, _text(done.stdout), _text(done.stderr))


def _silent(program: str, timeout: float) -> CommandAnswer:
    return CommandAnswer(None, errors=f"{program} gave no answer within {timeout:g} s")


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")
