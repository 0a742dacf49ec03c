"""The command in a process of its own, forked from that of the tests, so that its imports are paid for once.

Tests of the start itself (imports, signals, limits, terminals) need `python -m nodedoctor`.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NoReturn

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
) -> subprocess.CompletedProcess[str]:
    """What `nodedoctor WORDS` prints and ends with, in the environment of the tests or the one given."""
    _import_late_modules()
    with contextlib.ExitStack() as stack:
        stdin, stdout, stderr = (stack.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        stdin.write(input.encode())
        stdin.seek(0)
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            try:
                _become(words, env, cwd, (stdin.fileno(), stdout.fileno(), stderr.fileno()))
            finally:
                os._exit(99)
        status = _waited(pid, timeout)
        texts = []
        for file in (stdout, stderr):
            file.seek(0)
            texts.append(file.read().decode("utf-8", "surrogateescape").replace("\r\n", "\n"))
    return subprocess.CompletedProcess(words, os.waitstatus_to_exitcode(status), *texts)


@functools.cache
def _import_late_modules() -> None:
    discover()
    for room, names in LATE.items():
        for name in names:
            importlib.import_module(f"nodedoctor.{room}.{name}")


def _become(
    words: tuple[str, ...], env: Mapping[str, str] | None, cwd: str | Path | None, files: tuple[int, ...]
) -> NoReturn:
    """Be in the child what a fresh interpreter would be."""
    for number, file in enumerate(files):
        os.dup2(file, number)
    sys.stdin = os.fdopen(0, encoding="utf-8", closefd=False)
    sys.stdout = os.fdopen(1, "w", encoding="utf-8", closefd=False)
    sys.stderr = os.fdopen(2, "w", 1, encoding="utf-8", errors="backslashreplace", closefd=False)
    if env is not None:
        os.environ.clear()
        os.environ.update(env)
    if cwd is not None:
        os.chdir(cwd)
    atexit._clear()  # those of the tests
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
