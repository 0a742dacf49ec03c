"""Looks at every rank of a job that may hang: Python stacks (stacks.py), the kernel's view, NCCL's RAS.

Where no stack can be had the kernel's view remains: state, system call and wait channel. Everything is asked
by children with deadlines.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from nodedoctor.blackbox import gpus, kernel_log, stack_methods, stacks
from nodedoctor.blackbox.samples.sample import RankSample
from nodedoctor.blackbox.stacks import CapturedStack
from nodedoctor.children import child_process
from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command
from nodedoctor.json_shapes import document, whole_number
from nodedoctor.probes.job.alive import lives
from nodedoctor.record import record
from nodedoctor.triage.live.activity import main_thread
from nodedoctor.triage.live.running_job import RAS_PORT, ChildProcess, LiveJob, RankProcess, ask_ras

BETWEEN = 2.0
"""Seconds between the two looks: a stack that is the same in both does not move."""
DEADLINE = 8.0
"""Seconds for the kernel's view, RAS or dumps of all ranks."""
LOADERS = 8
"""Children looked at per rank."""


@record
class KernelThread:
    """Where one thread is in the kernel."""

    name: str
    state: str
    wchan: str
    syscall: str
    stack: str = ""
    ticks: int = 0
    frozen: bool = False
    lock: str = ""
    awaited: str = ""


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
        phrases = [f"{used.count(way)} by {way}" for way in dict.fromkeys(used)]
        return ", ".join(phrases) or "none could be read"


async def look_twice(
    ranks: Sequence[RankSample], *, host: str, missing: Sequence[RankSample] = (), twice: float = BETWEEN
) -> Capture:
    """Look at all ranks two times, `twice` seconds apart; `missing` had a process and have none any more."""
    began = time.monotonic()
    alive = [rank for rank in ranks if not rank.gone]
    pids = [rank.pid for rank in alive]
    load = asyncio.ensure_future(gpus.uses(twice + gpus.EVERY))
    kernel_first = await _kernel_threads(pids)
    first, ras_first = await asyncio.gather(stacks.of(pids, alive), ras_answer(alive))
    await asyncio.sleep(twice)
    kernel = await _kernel_threads(pids)  # before the stacks: who is asked for its stack runs for a moment
    second, ras, busy = await asyncio.gather(stacks.of(pids, alive), ras_answer(alive), load)
    # What is quick is not asked beside the others: each child takes 5 MiB from the job.
    dumps = await _ask_dumps(alive)
    kernel_lines = await kernel_log.lines([*alive, *missing])
    loaders = [child for rank in alive for child in rank.children[:LOADERS]]
    below = await stacks.of(loaders, alive) if loaders else {}
    notes = _unread_notes(alive, second)
    moving = tuple(
        rank.pid
        for rank in alive
        if _went_on(first.get(rank.pid), second.get(rank.pid))
        or (rank.pid not in second and _kernel_moved(kernel_first.get(rank.pid), kernel.get(rank.pid)))
    )
    processes = tuple(
        replace(
            _rank_process(rank, second, kernel, below),
            **_in_both(kernel_first.get(rank.pid), kernel.get(rank.pid)),
            moved=rank.pid in moving,
            ticks=max(0, _kernel_ticks(kernel, rank.pid) - _kernel_ticks(kernel_first, rank.pid)),
            gpu=busy.get(rank.pid),
        )
        for rank in alive
    )
    missing_processes = tuple(
        replace(_rank_process(dead, {}, {}, {}), states=("gone", "gone"), wchan="", children=())
        for dead in missing
    )
    now = time.time()
    live = LiveJob(
        host,
        (*processes, *missing_processes),
        (ras_first, ras),
        notes,
        kernel=tuple((host, line) for line in kernel_lines),
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


async def _kernel_threads(pids: Sequence[int]) -> dict[int, tuple[KernelThread, ...]]:
    argv = child("job/kernel_stacks", *map(str, pids))
    answer = document(await child_process.run("kernel-stacks", Command(argv), DEADLINE)) or {}
    return {int(pid): tuple(map(_kernel_thread, rows)) for pid, rows in answer.items() if pid.isdecimal()}


def _kernel_thread(row: Mapping[str, Any]) -> KernelThread:
    texts = {key: str(row.get(key, "")) for key in ("name", "state", "wchan", "syscall", "stack")}
    texts |= {key: str(row.get(key, "")) for key in ("lock", "awaited")}
    return KernelThread(**texts, ticks=whole_number(row, "ticks") or 0, frozen=row.get("frozen") is True)


def _in_both(
    first: tuple[KernelThread, ...] | None, second: tuple[KernelThread, ...] | None
) -> dict[str, Any]:
    """What holds a process in both looks: a frozen control group, one lock, one end of a pipe or socket."""
    if not first or not second:
        return {}
    before, now = first[0], second[0]
    return {
        "frozen": before.frozen and now.frozen,
        "lock": before.lock if before.lock == now.lock else "",
        "awaited": before.awaited if before.awaited == now.awaited else "",
    }


def _kernel_ticks(kernel: Mapping[int, tuple[KernelThread, ...]], pid: int) -> int:
    return sum(thread.ticks for thread in kernel.get(pid, ()))


async def ras_answer(ranks: Sequence[RankSample]) -> str:
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
    argv = child("job/ask_dumps", *pipes)
    observation = await child_process.run("ask-dumps", Command(argv), DEADLINE)
    return len((document(observation) or {}).get("asked", ()))


def _went_on(first: CapturedStack | None, second: CapturedStack | None) -> bool:
    """True when the main thread is elsewhere in the second look: those of watchdogs and bars always are."""
    if first is None or second is None:
        return False
    before, now = main_thread(first.threads), main_thread(second.threads)
    return before is not None and now is not None and before.frames != now.frames


def _kernel_moved(first: tuple[KernelThread, ...] | None, second: tuple[KernelThread, ...] | None) -> bool:
    """The same for the main thread's system call, where there are no stacks; running counts as moving."""
    if not first or not second:
        return False
    before, now = first[0], second[0]
    return (before.syscall, before.wchan) != (now.syscall, now.wchan) or "R" in (before.state, now.state)


def _second_state(rank: RankSample, kernel: Mapping[int, tuple[KernelThread, ...]]) -> str:
    """Its state in the second look; `gone` where the kernel had no thread of it any more."""
    if rank.pid not in kernel:
        return rank.state
    rows = kernel[rank.pid]
    if not rows:
        return rank.state if lives(rank.pid) else "gone"
    return rows[0].state or rank.state


def _rank_process(
    rank: RankSample,
    python_stacks: Mapping[int, CapturedStack],
    kernel: Mapping[int, tuple[KernelThread, ...]],
    below: Mapping[int, CapturedStack],
) -> RankProcess:
    kernel_threads = kernel.get(rank.pid) or (KernelThread("", rank.state, rank.wchan, rank.syscall),)
    stack = python_stacks.get(rank.pid)
    workers = tuple(ChildProcess(pid, below[pid].threads) for pid in rank.children if pid in below)
    return RankProcess(
        rank.pid,
        rank.rank,
        rank.world,
        rank.local_world,
        states=(rank.state, _second_state(rank, kernel)),
        wchan=kernel_threads[0].wchan if kernel_threads[0].wchan != "0" else "",
        threads=stack.threads if stack else (),
        children=rank.children,
        workers=workers,
        local_rank=rank.local,
        job=rank.job,
    )


def _unread_notes(ranks: Sequence[RankSample], python_stacks: Mapping[int, CapturedStack]) -> tuple[str, ...]:
    unread = [rank for rank in ranks if rank.pid not in python_stacks]
    if not unread:
        return ()
    names = ", ".join(rank.called for rank in unread[:8]) + (" and more" if len(unread) > 8 else "")
    if stacks.folder_of(ranks):
        return (f"{names}: no Python stack could be read",)
    if why := stack_methods.forbids(unread):
        return (f"{names}: no Python stack, as the job was not started armed and {why}",)
    if not stacks.spies(ranks):
        return (f"{names}: no Python stack; no py-spy here can be run, and the job was not started armed",)
    return (f"{names}: no Python stack could be read",)
