"""Python stacks of a job's processes, by whatever way works here; the least disturbing comes first.

The signal that the process has registered (`arm`, `run`), py-spy without stopping the process, py-spy by
`sudo -n`. Everything is asked by children with deadlines.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal

from nodedoctor.blackbox.samples.sample import RankSample
from nodedoctor.children import child_process
from nodedoctor.children.programs import child, installed_with_us
from nodedoctor.declare.registry import Command
from nodedoctor.json_shapes import document
from nodedoctor.record import record
from nodedoctor.triage.live.running_job import PythonThread, parse_threads
from nodedoctor.triage.patterns.stacks import StackFrame

if TYPE_CHECKING:
    from nodedoctor.children.untrusted_files import Writers

DEADLINE = 8.0
"""Seconds for one way to the stacks of all ranks: eight ranks are to be captured within ten."""
ANSWERING = 3.0
"""Seconds a process has to write its stacks after the signal: a stopped one never does."""
DROPPING = 2.0
"""Seconds to remove the files of processes that have ended: the job is over, and somebody waits."""
AT_ONCE = 8
"""py-spy processes at a time: each takes a core for half a second."""

Way = Literal["signal", "py-spy", "sudo py-spy", "kernel", ""]

_FRAME = re.compile(r'^  File "(.{1,500}?)", line (\d{1,9}) in (.{1,200})$')
_THREAD = re.compile(r"^(Current thread|Thread) 0x[0-9a-f]+")


@record
class CapturedStack:
    """The stacks of one process as they came: `text` is kept in the folder, `threads` are judged."""

    pid: int
    way: Way
    threads: tuple[PythonThread, ...] = ()
    text: str = ""


def from_faulthandler(text: str) -> tuple[PythonThread, ...]:
    """The threads in what faulthandler writes; the current one is the main thread, which got the signal."""
    threads: list[tuple[bool, list[StackFrame]]] = []
    for line in text.split("\n"):
        head, frame = _THREAD.match(line), _FRAME.match(line)
        if head:
            threads.append((head[1] != "Thread", []))
        elif frame and threads:
            threads[-1][1].append(StackFrame(frame[1], int(frame[2]), frame[3]))
    return tuple(PythonThread(tuple(frames[:200]), active=current) for current, frames in threads)


def spies(ranks: Iterable[RankSample] = ()) -> tuple[str, ...]:
    """Where py-spy is: with nodedoctor, on PATH or beside the job's Python.

    Root uses none that another user can have written.
    """
    from nodedoctor.children.untrusted_files import Writers, is_root

    jobs = [f"{rank.prefix}/bin/py-spy" for rank in ranks if rank.prefix]
    places = [installed_with_us("py-spy"), shutil.which("py-spy"), *jobs]
    spy_paths = [path for path in dict.fromkeys(places) if path and os.access(path, os.X_OK)]
    return tuple(path for path in spy_paths if not is_root() or _only_roots(Writers(), path))


def _only_roots(writers: Writers, path: str) -> bool:
    writers.path(path)
    return not writers.found


def folder_of(ranks: Iterable[RankSample]) -> str:
    """Where the ranks write their stacks to when they get the signal; '' where none does."""
    return next((rank.stacks for rank in ranks if rank.stacks), "")


async def of(pids: Sequence[int], ranks: Sequence[RankSample]) -> dict[int, CapturedStack]:
    """The stacks of processes, each by the first way that works."""
    by_pid: dict[int, CapturedStack] = {}
    if folder := folder_of(ranks):
        by_pid |= await _by_signal(pids, folder, ANSWERING)
    for way, argv in _spy_ways(ranks):
        rest = [pid for pid in pids if pid not in by_pid]
        if not rest:
            break
        by_pid |= await _by_spy(rest, way, argv, DEADLINE)
    return by_pid


async def drop(folder: str) -> None:
    """Remove what processes that have ended left in the folder of stacks."""
    await child_process.run("drop-stacks", Command(child("job/drop_stacks", folder)), DROPPING)


def _spy_ways(ranks: Sequence[RankSample]) -> list[tuple[Way, tuple[str, ...]]]:
    spy_paths = spies(ranks)
    if not spy_paths:
        return []
    commands: list[tuple[Way, tuple[str, ...]]] = [("py-spy", (spy_paths[0],))]
    if os.geteuid() != 0 and shutil.which("sudo"):
        commands.append(("sudo py-spy", ("sudo", "-n", spy_paths[0])))
    return commands


async def _by_signal(pids: Sequence[int], folder: str, seconds: float) -> dict[int, CapturedStack]:
    argv = child("job/ask_stacks", folder, str(seconds), *map(str, pids))
    observation = await child_process.run("ask-stacks", Command(argv), seconds + 2)
    texts = document(observation) or {}
    return {
        int(pid): CapturedStack(int(pid), "signal", from_faulthandler(text), text)
        for pid, text in texts.items()
        if pid.isdecimal() and isinstance(text, str)
    }


async def _by_spy(
    pids: Sequence[int], way: Way, argv: tuple[str, ...], seconds: float
) -> dict[int, CapturedStack]:
    """By py-spy, never in its blocking mode; a few at a time, and one refusal tells about all others."""
    slots = asyncio.Semaphore(AT_ONCE)
    refused = asyncio.Event()

    async def one(pid: int) -> CapturedStack | None:
        async with slots:
            if refused.is_set():
                return None
            command = Command((*argv, "dump", "--nonblocking", "--json", "--pid", str(pid)))
            observation = await child_process.run(f"py-spy-{pid}", command, seconds)
            if observation.rc and re.search(
                r"[Pp]ermission|password is required|not permitted", observation.note
            ):
                refused.set()
            threads = parse_threads(observation.text) if observation.answered else ()
            return CapturedStack(pid, way, threads, as_text(threads)) if threads else None

    stacks = await asyncio.gather(*map(one, pids))
    return {stack.pid: stack for stack in stacks if stack is not None}


def as_text(threads: Iterable[PythonThread]) -> str:
    """Threads as faulthandler would write them, so that one reader serves both."""
    lines: list[str] = []
    for number, thread in enumerate(threads):
        word = "Current thread" if thread.owns_gil else "Thread"
        lines.append(f"{word} 0x{number:016x} (most recent call first):")
        lines += [f'  File "{frame.file}", line {frame.line} in {frame.function}' for frame in thread.frames]
        lines.append("")
    return "\n".join(lines)
