"""Where children look for programs: PATH, then the folders of administrators' tools.

As root, a program of somebody else's would run as root: sudo and login scripts often keep folders of a user
on PATH. So root's children search only folders that nobody but root can write. A child looks at them, since
one may lie on a dead mount; a folder it gives no answer for is left out, and no tool then waits for it.
"""

from __future__ import annotations

import functools
import os
import selectors
import subprocess
import sys
from pathlib import Path

from nodedoctor.children.untrusted_files import is_root
from nodedoctor.debug import Log
from nodedoctor.record import record

_log = Log(__name__)

SBIN = ("/usr/local/sbin", "/usr/sbin", "/sbin")  # where ibstat lives; cron and Slurm often leave them out
_BIN = ("/usr/local/bin", "/usr/bin", "/bin")
FIRST_S, NEXT_S = 10.0, 2.0
"""Seconds until the look has said something of a folder, and then of the next. On local disks all of it takes
20 ms with the start of the interpreter, but a hundred times that where everything waits for a processor."""
_PROGRAM = Path(__file__).parents[1] / "probes" / "host" / "path_folders.py"


@record
class SearchPath:
    """The folders that are searched, joined as PATH is, and why others of PATH are not."""

    folders: str
    left_out: tuple[str, ...] = ()

    def said(self) -> str:
        """What to add where a program was not found; empty when nothing was left out."""
        reasons = "; ".join(self.left_out)
        return f"as root these folders of PATH are not searched: {reasons}" if reasons else ""


def begin() -> None:
    """As root, have the folders looked at while we import what needs to know."""
    if is_root():
        wanted = _wanted(_path())
        _begun[wanted] = _look(wanted)


def search_path() -> SearchPath:
    """The folders that our children search."""
    return _judged(_path(), root=is_root())


def _path() -> str:
    return os.environ.get("PATH", os.defpath)


def _wanted(path: str) -> tuple[str, ...]:
    known = path.split(os.pathsep)
    return (*known, *(folder for folder in SBIN if folder not in known))


@functools.lru_cache(maxsize=8)
def _judged(path: str, *, root: bool) -> SearchPath:
    wanted = _wanted(path)
    if not root:
        return SearchPath(os.pathsep.join(wanted))
    said = _asked(wanted)
    left_out = tuple(
        f"{folder or '.'} {said.get(number, 'gave no answer')}"
        for number, folder in enumerate(wanted)
        if said.get(number) != "yes"
    )
    for reason in left_out:
        _log.debug("root does not search %s", reason)
    kept = (folder for number, folder in enumerate(wanted) if said.get(number) == "yes")
    return SearchPath(os.pathsep.join(kept), left_out)


def _asked(folders: tuple[str, ...]) -> dict[int, str]:
    """What a child says of each folder within its time; without a word, the folders of the system will do."""
    usual = {number: "yes" for number, folder in enumerate(folders) if folder in (*SBIN, *_BIN)}
    child = _begun.pop(folders, None) or _look(folders)
    if child is None or child.stdout is None:
        return usual
    answer, patience = b"", FIRST_S
    with selectors.DefaultSelector() as selector, child.stdout:
        selector.register(child.stdout, selectors.EVENT_READ)
        while selector.select(patience) and (data := os.read(child.stdout.fileno(), 1 << 16)):
            answer, patience = answer + data, NEXT_S
    child.kill()
    try:
        child.wait(0.1)
    except subprocess.TimeoutExpired:
        _log.debug("pid %d looks at the folders of PATH, cannot be killed and is left behind", child.pid)
    rows = (line.partition(" ") for line in answer.decode("utf-8", "replace").splitlines())
    return {int(number): words for number, _, words in rows if number.isdecimal()} or usual


_begun: dict[tuple[str, ...], subprocess.Popen[bytes] | None] = {}


def _look(folders: tuple[str, ...]) -> subprocess.Popen[bytes] | None:
    try:
        return subprocess.Popen(
            (sys.executable, "-I", "-S", str(_PROGRAM), *folders),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    except OSError as error:  # no more processes
        _log.debug("the folders of PATH could not be looked at: %s", error)
        return None
