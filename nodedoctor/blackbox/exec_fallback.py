"""The command of `nodedoctor run` in our own place: where it cannot be watched, it is started all the same.

It takes neither a process nor a descriptor, and little is imported here: what watches a job takes 33 MiB of
address space to load, and Python itself was seen to crash on the way there.
"""

from __future__ import annotations

import errno
import os
import signal

from nodedoctor.cli.console import complain, mutter, write_stderr

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

NOT_FOUND, NOT_STARTED = 127, 126
"""What a shell exits with when it finds no such command, and when it may not or cannot start it."""


class NotStarted(Exception):
    """The command could not be started: why, and the exit code for it."""

    def __init__(self, why: str, code: int) -> None:
        super().__init__(why)
        self.code = code


def main(words: list[str]) -> int:
    """`run` where there is no room for the watch; returns only where the command cannot be started."""
    from nodedoctor.blackbox import arguments

    command = command_of(arguments.run().parse_args(words))
    if not command:
        return no_command()
    mutter("nodedoctor: run: the command is not watched: too little address space; see `ulimit -v`\n")
    refused = exec_command(command)
    write_stderr(f"run: {refused}")
    return refused.code


def command_of(arguments: argparse.Namespace) -> list[str]:
    """The words of the command, without the -- before them."""
    words: list[str] = arguments.command
    return words[1:] if words[:1] == ["--"] else words


def no_command() -> int:
    """Say that there is none."""
    return complain("run needs a command: nodedoctor run [options] -- COMMAND")


def become(command: Sequence[str], environ: Mapping[str, str]) -> None:
    """Be the command from here on, as if a shell had started it; returns by OSError alone."""
    for ignored in (signal.SIGPIPE, signal.SIGXFSZ):  # by Python; nohup's SIGHUP stays so
        signal.signal(ignored, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.execvpe(command[0], list(command), dict(environ))


def exec_command(command: Sequence[str]) -> NotStarted:
    """Be the command; else why not."""
    try:
        become(command, os.environ)
    except OSError as error:
        return not_started(command[0], error.errno or errno.ENOEXEC)
    raise AssertionError("become() returned")


def not_started(name: str, number: int) -> NotStarted:
    """Why a command could not be started, by the number of the error."""
    missing = number == errno.ENOENT
    why = "command not found" if missing and "/" not in name else os.strerror(number)
    return NotStarted(f"{name}: {why}", NOT_FOUND if missing else NOT_STARTED)
