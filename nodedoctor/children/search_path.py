"""Where children look for programs: PATH, then the folders of administrators' tools.

As root, a program of somebody else's would run as root: sudo and login scripts often keep folders of a user
on PATH. So root's children search only folders that only root can write. A child looks at them, since
one may lie on a dead mount; a folder it gives no answer for is left out, and no tool then waits for it.
"""

from __future__ import annotations

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


def look_for_us() -> tuple[tuple[str, ...], int]:
    """As root, what the fork server is to look at as it starts, and the descriptor to tell it by, which the
    caller closes; nothing when it is known or being looked at."""
    wanted = _search_folders(_env_path())
    if not is_root() or wanted in _known or wanted in _pipes:
        return (), -1
    try:
        _pipes[wanted], telling = os.pipe()
    except OSError as error:  # no more files: a child will be tried
        _log.debug("the fork server is not to look at the folders of PATH: %s", error)
        return (), -1
    return wanted, telling


def search_path() -> SearchPath:
    """The folders that our children search."""
    return _judge_folders(_env_path(), root=is_root())


def _env_path() -> str:
    return os.environ.get("PATH", os.defpath)


def _search_folders(path: str) -> tuple[str, ...]:
    folders = path.split(os.pathsep)
    return (*folders, *(folder for folder in SBIN if folder not in folders))


def _judge_folders(path: str, *, root: bool) -> SearchPath:
    wanted = _search_folders(path)
    if not root:
        return SearchPath(os.pathsep.join(wanted))
    if wanted not in _known:
        _known[wanted] = _looked_at(wanted)
    return _known[wanted]


def _looked_at(wanted: tuple[str, ...]) -> SearchPath:
    verdicts = _ask_child(wanted)
    left_out = tuple(
        f"{folder or '.'} {verdicts.get(number, 'gave no answer')}"
        for number, folder in enumerate(wanted)
        if verdicts.get(number) != "yes"
    )
    for reason in left_out:
        _log.debug("root does not search %s", reason)
    searched = (folder for number, folder in enumerate(wanted) if verdicts.get(number) == "yes")
    return SearchPath(os.pathsep.join(searched), left_out)


def _ask_child(folders: tuple[str, ...]) -> dict[int, str]:
    """What a child says of each folder within its time; without a word, the folders of the system will do."""
    usual = {number: "yes" for number, folder in enumerate(folders) if folder in (*SBIN, *_BIN)}
    answer = _read_answer(_pipes.pop(folders)) if folders in _pipes else None
    if answer is None:
        answer = _by_a_child(folders)
    rows = (line.partition(" ") for line in (answer or b"").decode("utf-8", "replace").splitlines())
    return {int(number): words for number, _, words in rows if number.isdecimal()} or usual


def _read_answer(pipe: int) -> bytes | None:
    """What is answered within its time, None where it ends without a word; closes the pipe."""
    answer, patience = b"", FIRST_S
    try:
        with selectors.DefaultSelector() as selector:
            selector.register(pipe, selectors.EVENT_READ)
            while selector.select(patience):
                if not (data := os.read(pipe, 1 << 16)):
                    return answer or None
                answer, patience = answer + data, NEXT_S
    finally:
        os.close(pipe)
    return answer


def _by_a_child(folders: tuple[str, ...]) -> bytes | None:
    child = _look_at_folder(folders)
    if child is None or child.stdout is None:
        return None
    with child.stdout:
        answer = _read_answer(os.dup(child.stdout.fileno()))
    child.kill()
    try:
        child.wait(0.1)
    except subprocess.TimeoutExpired:
        _log.debug("pid %d looks at the folders of PATH, cannot be killed and is left behind", child.pid)
    return answer


_known: dict[tuple[str, ...], SearchPath] = {}
_pipes: dict[tuple[str, ...], int] = {}
"""What is known of folders, and by which descriptors the fork server tells of others."""


def _look_at_folder(folders: tuple[str, ...]) -> subprocess.Popen[bytes] | None:
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
