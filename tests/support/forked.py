"""The command in a process of its own, forked from that of the tests, so that its imports are paid for once.

Tests of the start itself (imports, signals, limits, terminals) need `python -m nodedoctor`.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import itertools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import IO, NoReturn

import nodedoctor
from nodedoctor.__main__ import main
from nodedoctor.engine.plugins import discover

LATE = {
    "cli": ("main", "diagnose", "headless", "compare"),
    "fleet": ("cli", "compare", "reports"),
    "intake": ("cli", "document", "page"),
    "report": ("text", "html.node", "html.triage", "html.fleet"),
    "triage": ("cli", "job"),
    "tui": ("start", "state"),
}
"""What commands import when they need it, and so would every fork."""

ARGV0 = str(Path(nodedoctor.__file__).with_name("__main__.py"))


def nodedoctor_forked(
    *words: str,
    env: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    input: str = "",
    timeout: float = 120,
    piped: bool = False,
    user: int | None = None,
) -> subprocess.CompletedProcess[str]:
    """What `nodedoctor WORDS` prints and ends with, in the environment of the tests or the one given.

    Its streams are files, or pipes if `piped`: `run` tells them apart. It becomes `user` where one is given.
    """
    _import_late_modules()
    with contextlib.ExitStack() as stack:
        stdin, *files = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        pipes = [os.pipe() for _ in files] if piped else []
        written = [pipe[1] for pipe in pipes] or [file.fileno() for file in files]
        stdin.write(input.encode())
        stdin.seek(0)
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            try:
                for number, end in enumerate((stdin.fileno(), *written)):
                    os.dup2(end, number)
                for end in itertools.chain(*pipes):
                    os.close(end)  # a pipe ends with its last writer
                _become(words, env, cwd, user)
            finally:
                os._exit(99)
        pumps = [
            threading.Thread(target=_drain, args=(pipe, file), daemon=True)
            for pipe, file in zip(pipes, files, strict=False)
        ]
        for pump in pumps:
            pump.start()
        status = _waited(pid, timeout)
        for pump in pumps:
            pump.join(timeout)
        texts = []
        for file in files:
            file.seek(0)
            texts.append(file.read().decode("utf-8", "surrogateescape").replace("\r\n", "\n"))
    return subprocess.CompletedProcess(words, os.waitstatus_to_exitcode(status), *texts)


def _drain(pipe: tuple[int, int], file: IO[bytes]) -> None:
    """Keep what comes through a pipe until all who could write have gone."""
    os.close(pipe[1])
    with os.fdopen(pipe[0], "rb") as reader:
        shutil.copyfileobj(reader, file)


@functools.cache
def _import_late_modules() -> None:
    discover()
    for room, names in LATE.items():
        for name in names:
            importlib.import_module(f"nodedoctor.{room}.{name}")


def _become(
    words: tuple[str, ...], env: Mapping[str, str] | None, cwd: str | Path | None, user: int | None
) -> NoReturn:
    """Be in the child what a fresh interpreter would be."""
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)
    if env is not None:
        os.environ.clear()
        os.environ.update(env)
    if cwd is not None:
        os.chdir(cwd)
    atexit._clear()  # those of the tests
    if user is not None:
        os.setgroups([])
        os.setresgid(user, user, user)
        os.setresuid(user, user, user)
    sys.argv = [ARGV0, *words]
    main()


def _waited(pid: int, timeout: float) -> int:
    """The status with which the child has ended."""
    ends = time.monotonic() + timeout
    pause = 0.002
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        if time.monotonic() > ends:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise subprocess.TimeoutExpired("nodedoctor", timeout)
        time.sleep(pause)
        pause = min(0.02, pause * 1.5)
