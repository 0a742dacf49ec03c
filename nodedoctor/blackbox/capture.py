"""Looks at every rank of a job that may hang: Python stacks by whatever way works here, the kernel's view,
RAS.

Ways to a stack, the least disturbing first: the signal that the process has registered (`arm`, `run`), py-spy
without stopping the process, py-spy by `sudo -n`. Where none works the kernel's view remains: state, system
call and wait channel. Everything is asked by children with deadlines.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from nodedoctor.blackbox import gpus, kernel_log
from nodedoctor.blackbox.samples.sample import RankSample
from nodedoctor.children import child_process
from nodedoctor.declare.registry import Command
from nodedoctor.json_shapes import document, whole
from nodedoctor.record import record
from nodedoctor.triage.events.trace import Frame
from nodedoctor.triage.live.judge import main_thread
from nodedoctor.triage.live.running_job import RAS_PORT, Child, LiveJob, RankProcess, Thread, ask_ras, threads

if TYPE_CHECKING:
    from nodedoctor.children.untrusted_files import Writers

_log = logging.getLogger(__name__)

BETWEEN = 2.0
"""Seconds between the two looks: a stack that is the same in both stands still."""
DEADLINE = 8.0
"""Seconds for one way to the stacks of all ranks: eight ranks are to be captured within ten."""
ANSWERING = 3.0
"""Seconds a process has to write its stacks after the signal: a stopped one never does."""
LOADERS = 8
"""Children looked at per rank."""
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
    threads: tuple[Thread, ...] = ()
    text: str = ""


@record
class KernelThread:
    """Where one thread is in the kernel."""

    name: str
    state: str
    wchan: str
    syscall: str
    stack: str = ""
    ticks: int = 0


@record
class Capture:
    """Two looks at a job. `moving` are the ranks whose stack or system call went on between them, `dumps`
    is how many ranks were asked for a dump of the flight recorder."""

    live: LiveJob
    ranks: tuple[RankSample, ...]
    stacks: tuple[CapturedStack, ...] = ()
    kernel: tuple[tuple[int, tuple[KernelThread, ...]], ...] = ()
    moving: tuple[int, ...] = ()
    dumps: int = 0
    time: float = 0.0
    seconds: float = 0.0

    @property
    def ways(self) -> str:
        """How the stacks were had, as a phrase."""
        used = [stack.way for stack in self.stacks if stack.way]
        told = [f"{used.count(way)} by {way}" for way in dict.fromkeys(used)]
        return ", ".join(told) or "none could be read"


async def look(
    ranks: Sequence[RankSample], *, host: str, missing: Sequence[RankSample] = (), twice: float = BETWEEN
) -> Capture:
    """Look at all ranks two times, `twice` seconds apart; `missing` had a process and have none any more."""
    began = time.monotonic()
    alive = [rank for rank in ranks if not rank.gone]
    pids = [rank.pid for rank in alive]
    kernel_first = await _kernel(pids)
    first, ras_first, busy = await asyncio.gather(_stacks(alive), _ras(alive), gpus.percents())
    await asyncio.sleep(twice)
    kernel = await _kernel(pids)  # before the stacks: who is asked for its stack runs for a moment
    second, ras, dumps, said = await asyncio.gather(
        _stacks(alive), _ras(alive), _ask_dumps(alive), kernel_log.lines([*alive, *missing])
    )
    loaders = [child for rank in alive for child in rank.children[:LOADERS]]
    below = await _stacks_of(loaders, alive) if loaders else {}
    notes = _notes(alive, second)
    moving = tuple(
        rank.pid
        for rank in alive
        if _went_on(first.get(rank.pid), second.get(rank.pid))
        or (rank.pid not in second and _kernel_moved(kernel_first.get(rank.pid), kernel.get(rank.pid)))
    )
    processes = tuple(
        replace(
            _process(rank, second, kernel, below),
            moved=rank.pid in moving,
            ticks=max(0, _ticks(kernel, rank.pid) - _ticks(kernel_first, rank.pid)),
            gpu_percent=busy.get(rank.pid),
        )
        for rank in alive
    )
    gone = tuple(
        replace(_process(one, {}, {}, {}), states=("gone", "gone"), wchan="", children=()) for one in missing
    )
    now = time.time()
    live = LiveJob(
        host,
        (*processes, *gone),
        (ras_first, ras),
        notes,
        kernel=tuple((host, line) for line in said),
        time=now,
    )
    return Capture(
        live,
        tuple(ranks),
        (*second.values(), *below.values()),
        tuple(kernel.items()),
        moving,
        dumps,
        now,
        time.monotonic() - began,
    )


def from_faulthandler(text: str) -> tuple[Thread, ...]:
    """The threads in what faulthandler writes; the current one is the main thread, which got the signal."""
    found: list[tuple[bool, list[Frame]]] = []
    for line in text.split("\n"):
        head, frame = _THREAD.match(line), _FRAME.match(line)
        if head:
            found.append((head[1] != "Thread", []))
        elif frame and found:
            found[-1][1].append(Frame(frame[1], int(frame[2]), frame[3]))
    return tuple(Thread(tuple(frames[:200]), active=current) for current, frames in found)


def spies(ranks: Iterable[RankSample] = ()) -> tuple[str, ...]:
    """Where py-spy is: on PATH, beside our own Python or beside the job's.

    Root uses none that another user can have written.
    """
    from nodedoctor.children.untrusted_files import Writers, is_root

    beside = [os.path.dirname(sys.executable), *(f"{rank.prefix}/bin" for rank in ranks if rank.prefix)]
    places = [shutil.which("py-spy"), *(os.path.join(folder, "py-spy") for folder in beside)]
    found = [path for path in dict.fromkeys(places) if path and os.access(path, os.X_OK)]
    return tuple(path for path in found if not is_root() or _only_roots(Writers(), path))


def _only_roots(writers: Writers, path: str) -> bool:
    writers.path(path)
    return not writers.found


def _folder(ranks: Iterable[RankSample]) -> str:
    return next((rank.stacks for rank in ranks if rank.stacks), "")


async def _stacks(ranks: Sequence[RankSample]) -> dict[int, CapturedStack]:
    return await _stacks_of([rank.pid for rank in ranks], ranks)


async def _stacks_of(pids: Sequence[int], ranks: Sequence[RankSample]) -> dict[int, CapturedStack]:
    """The stacks of processes, each by the first way that works."""
    found: dict[int, CapturedStack] = {}
    if folder := _folder(ranks):
        found |= await _by_signal(pids, folder, ANSWERING)
    for way, argv in _spying(ranks):
        rest = [pid for pid in pids if pid not in found]
        if not rest:
            break
        found |= await _by_spy(rest, way, argv, DEADLINE)
    return found


def _spying(ranks: Sequence[RankSample]) -> list[tuple[Way, tuple[str, ...]]]:
    found = spies(ranks)
    if not found:
        return []
    ways: list[tuple[Way, tuple[str, ...]]] = [("py-spy", (found[0],))]
    if os.geteuid() != 0 and shutil.which("sudo"):
        ways.append(("sudo py-spy", ("sudo", "-n", found[0])))
    return ways


async def _by_signal(pids: Sequence[int], folder: str, seconds: float) -> dict[int, CapturedStack]:
    argv = child_process.child("job/ask_stacks", folder, str(seconds), *map(str, pids))
    seen = await child_process.run("ask-stacks", Command(argv), seconds + 2)
    told = document(seen) or {}
    return {
        int(pid): CapturedStack(int(pid), "signal", from_faulthandler(text), text)
        for pid, text in told.items()
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
            seen = await child_process.run(f"py-spy-{pid}", command, seconds)
            if seen.rc and re.search(r"[Pp]ermission|password is required|not permitted", seen.note):
                refused.set()
            found = threads(seen.text) if seen.answered else ()
            return CapturedStack(pid, way, found, as_text(found)) if found else None

    stacks = await asyncio.gather(*map(one, pids))
    return {stack.pid: stack for stack in stacks if stack is not None}


def as_text(found: Iterable[Thread]) -> str:
    """Threads as faulthandler would write them, so that one reader serves both."""
    lines: list[str] = []
    for number, thread in enumerate(found):
        word = "Current thread" if thread.owns_gil else "Thread"
        lines.append(f"{word} 0x{number:016x} (most recent call first):")
        lines += [f'  File "{frame.file}", line {frame.line} in {frame.function}' for frame in thread.frames]
        lines.append("")
    return "\n".join(lines)


async def _kernel(pids: Sequence[int]) -> dict[int, tuple[KernelThread, ...]]:
    argv = child_process.child("job/kernel_stacks", *map(str, pids))
    told = document(await child_process.run("kernel-stacks", Command(argv), DEADLINE)) or {}
    return {int(pid): tuple(map(_kernel_thread, rows)) for pid, rows in told.items() if pid.isdecimal()}


def _kernel_thread(row: Mapping[str, Any]) -> KernelThread:
    told = {key: str(row.get(key, "")) for key in ("name", "state", "wchan", "syscall", "stack")}
    return KernelThread(**told, ticks=whole(row, "ticks") or 0)


def _ticks(kernel: Mapping[int, tuple[KernelThread, ...]], pid: int) -> int:
    return sum(thread.ticks for thread in kernel.get(pid, ()))


async def _ras(ranks: Sequence[RankSample]) -> str:
    """What NCCL's RAS service says where the ranks have it: at their address, else at NCCL's own."""
    if not ranks:
        return ""
    address = next((rank.ras for rank in ranks if rank.ras), f"localhost:{RAS_PORT}")
    host, _, port = address.rpartition(":")
    if not port.isdecimal():
        return ""
    return await ask_ras(host.strip("[]") or "localhost", int(port), DEADLINE)


async def _ask_dumps(ranks: Sequence[RankSample]) -> int:
    """Have the ranks that read a dump pipe write what their flight recorder has; how many were asked."""
    pipes = [f"{rank.pipe}{rank.rank}.pipe" for rank in ranks if rank.pipe and rank.rank is not None]
    if not pipes:
        return 0
    argv = child_process.child("job/ask_dumps", *pipes)
    seen = await child_process.run("ask-dumps", Command(argv), DEADLINE)
    return len((document(seen) or {}).get("asked", ()))


def _went_on(first: CapturedStack | None, second: CapturedStack | None) -> bool:
    """True when the main thread is elsewhere in the second look: those of watchdogs and bars always are."""
    if first is None or second is None:
        return False
    one, other = main_thread(first.threads), main_thread(second.threads)
    return one is not None and other is not None and one.frames != other.frames


def _kernel_moved(first: tuple[KernelThread, ...] | None, second: tuple[KernelThread, ...] | None) -> bool:
    """The same for the main thread's system call, where there are no stacks; running counts as moving."""
    if not first or not second:
        return False
    one, other = first[0], second[0]
    return (one.syscall, one.wchan) != (other.syscall, other.wchan) or "R" in (one.state, other.state)


def _process(
    rank: RankSample,
    stacks: Mapping[int, CapturedStack],
    kernel: Mapping[int, tuple[KernelThread, ...]],
    below: Mapping[int, CapturedStack],
) -> RankProcess:
    seen = kernel.get(rank.pid) or (KernelThread("", rank.state, rank.wchan, rank.syscall),)
    stack = stacks.get(rank.pid)
    workers = tuple(Child(pid, below[pid].threads) for pid in rank.children if pid in below)
    return RankProcess(
        rank.pid,
        rank.rank,
        rank.world,
        rank.local_world,
        states=(rank.state, seen[0].state or rank.state),
        wchan=seen[0].wchan if seen[0].wchan != "0" else "",
        threads=stack.threads if stack else (),
        children=rank.children,
        workers=workers,
        local_rank=rank.local,
        job=rank.job,
    )


def _notes(ranks: Sequence[RankSample], stacks: Mapping[int, CapturedStack]) -> tuple[str, ...]:
    unread = [rank for rank in ranks if rank.pid not in stacks]
    if not unread:
        return ()
    named = ", ".join(rank.called for rank in unread[:8]) + (" and more" if len(unread) > 8 else "")
    if not spies(ranks) and not _folder(ranks):
        return (f"{named}: no Python stack; py-spy is not installed and the job was not started armed",)
    return (f"{named}: no Python stack could be read",)
