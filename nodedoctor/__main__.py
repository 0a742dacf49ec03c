"""`python -m nodedoctor`, and what the installed command calls.

Where memory or descriptors run out, anything can fail, also what was to say so: here nothing is imported.
"""

from __future__ import annotations

import atexit
import contextlib
import errno
import os
import signal
import sys

AT_THE_END = 0.5
"""Seconds for what is called at exit; ours, of the one by which the deadline may be exceeded."""

TYPE_CHECKING = False
if TYPE_CHECKING:
    from types import FrameType
    from typing import NoReturn


def main() -> NoReturn:
    """Run nodedoctor; that there is no room even to load it is no warning, whose exit code 1 is."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _end_at_once)
    try:
        from nodedoctor.cli.main import main as run

        _leave(run())
    except SystemExit as ended:  # argparse, after --help and errors of use
        if isinstance(ended.code, int):
            _leave(ended.code)
        raise
    except Exception as error:
        if (limit := _ran_out(error)) is None:
            raise
        with contextlib.suppress(OSError):
            os.write(2, b"nodedoctor: cannot run: " + limit + b"\n")
    _leave(70)


def _end_at_once(number: int, frame: FrameType | None) -> None:
    """End at Ctrl-C where nothing is open that must be closed; an event loop sets its own: cli/endings.py.

    A KeyboardInterrupt in an import may come out as a RuntimeError, as a SyntaxError, or not at all.
    """
    os._exit(128 + number)


def _ran_out(error: BaseException | None) -> bytes | None:
    """What there was too little of: an exception's own word, or that of one it was raised for."""
    while error is not None:
        code = error.errno if isinstance(error, OSError) else None
        if code in (errno.EMFILE, errno.ENFILE):
            return b"too few files may be open; see `ulimit -n`"
        if isinstance(error, MemoryError) or code == errno.ENOMEM:
            return b"too little memory; see `ulimit -v`"
        error = error.__context__
    return None


def _leave(code: int) -> NoReturn:
    """End at once: taking the interpreter apart takes a tenth of a run, 0.16 s where a screen was shown."""
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    if atexit._ncallbacks():
        _run_exit_functions(code)
    os._exit(code)


def _run_exit_functions(code: int) -> None:
    """What asked to be called at the end, as a plug-in may: none of it keeps us from ending."""
    signal.signal(signal.SIGALRM, lambda *_: os._exit(code))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, (signal.SIGALRM,))
    signal.setitimer(signal.ITIMER_REAL, AT_THE_END)
    atexit._run_exitfuncs()


if __name__ == "__main__":
    main()
