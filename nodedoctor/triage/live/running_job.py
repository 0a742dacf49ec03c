"""A job that hangs now: its processes, their stacks and NCCL's own view, all read without touching the job.

Everything that could block is asked by children with deadlines: /proc, NCCL's RAS port, py-spy (never in its
blocking mode, which would stop the process it looks at).
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from nodedoctor.engine import child_process
from nodedoctor.engine.registry import Command
from nodedoctor.json_shapes import document, text
from nodedoctor.model import Observation
from nodedoctor.record import record
from nodedoctor.triage.events.stacks import collective_in
from nodedoctor.triage.events.trace import Frame

PAUSE = 2.0
"""Seconds between the two looks: what stands still over them may be stuck, what moved is not."""
RAS_PORT = 28028
"""NCCL's default: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-ras-addr"""
DEADLINE = 10.0
CHILDREN = 16
"""Children looked at per silent rank; data loaders come in fours and eights."""


@record
class Thread:
    """One Python thread of a process; `frames` from the innermost outwards."""

    frames: tuple[Frame, ...]
    owns_gil: bool = False
    active: bool = False


@record
class Child:
    """A child of a rank's process, a data loader mostly."""

    pid: int
    threads: tuple[Thread, ...]


@record
class RankProcess:
    """One rank's process over two looks. `threads` are empty when its stacks could not be read.

    `gpu_percent` is how busy its GPU is; `workers` are looked at only where a rank is in no collective.
    """

    pid: int
    rank: int | None = None
    world_size: int | None = None
    local_world_size: int | None = None
    states: tuple[str, str] = ("", "")
    wchan: str = ""
    ticks: int = 0
    threads: tuple[Thread, ...] = ()
    moved: bool = False
    children: tuple[int, ...] = ()
    workers: tuple[Child, ...] = ()
    gpu_percent: int | None = None
    host: str = ""

    @property
    def collective(self) -> str:
        """The collective in which some thread waits, '' when none does."""
        return next(filter(None, (collective_in(thread.frames) for thread in self.threads)), "")


@record
class LiveJob:
    """What was seen of a job: its processes and two answers of RAS, empty where there is none."""

    host: str
    processes: tuple[RankProcess, ...]
    ras: tuple[str, str] = ("", "")
    notes: tuple[str, ...] = ()


async def look(pids: Sequence[int]) -> LiveJob:
    """Look twice at a job's processes; all of this machine's ranks when no pid is given."""
    standing, ras, busy = await asyncio.gather(_standing(pids), _ras_twice(), _gpu_percents())
    told = document(standing) or {}
    rows = [row for row in told.get("processes", []) if isinstance(row, dict)]
    found = [int(row["pid"]) for row in rows if isinstance(row.get("pid"), int)]
    spy = shutil.which("py-spy")
    notes = [] if standing.answered else [f"processes: {standing.note}"]
    stacks: list[dict[int, tuple[Thread, ...]]] = [{}, {}]
    if spy and found:
        stacks[0] = await _stacks(spy, found)
        await asyncio.sleep(PAUSE)
        stacks[1] = await _stacks(spy, found)
        notes += [f"process {pid}: py-spy could not read its stack" for pid in found if pid not in stacks[1]]
    elif found:
        notes.append("py-spy is not on PATH: without stacks it is unknown what each rank does")
    seen = (process(row, stacks[0], stacks[1]) for row in rows)
    processes = tuple(replace(one, gpu_percent=busy.get(one.pid)) for one in seen)
    if spy:
        processes = await _with_workers(spy, processes)
    return LiveJob(str(told.get("hostname", "")), processes, ras, tuple(notes))


def process(
    row: dict[str, Any], before: dict[int, tuple[Thread, ...]], after: dict[int, tuple[Thread, ...]]
) -> RankProcess:
    """A process out of the child's row and its two stacks."""
    pid = int(row["pid"])
    looks = [row.get("before") or {}, row.get("after") or {}]
    ticks = [int(look.get("ticks", 0)) for look in looks]
    return RankProcess(
        pid,
        _number(row.get("rank")),
        _number(row.get("world_size")),
        _number(row.get("local_world_size")),
        (str(looks[0].get("state", "")), str(looks[1].get("state", ""))),
        str(looks[1].get("wchan", "")),
        ticks[1] - ticks[0],
        after.get(pid, ()),
        pid in before and pid in after and before[pid] != after[pid],
        tuple(child for child in row.get("children", []) if isinstance(child, int)),
    )


def threads(printed: str) -> tuple[Thread, ...]:
    """The threads in py-spy's JSON; nothing when it is not that."""
    try:
        found = json.loads(printed)
    except (ValueError, RecursionError):
        return ()
    rows = [row for row in found if isinstance(row, dict)] if isinstance(found, list) else []
    return tuple(
        Thread(_frames(row.get("frames")), bool(row.get("owns_gil")), bool(row.get("active"))) for row in rows
    )


def _frames(value: Any) -> tuple[Frame, ...]:
    rows = [row for row in value if isinstance(row, dict)] if isinstance(value, list) else []
    return tuple(
        Frame(str(row.get("filename", "")), _number(row.get("line")) or 0, str(row.get("name", "")))
        for row in rows[:200]
    )


async def _standing(pids: Sequence[int]) -> Observation:
    argv = child_process.child("cluster/live_job", str(PAUSE), *(str(pid) for pid in pids))
    return await child_process.run("live-job", Command(argv), PAUSE + DEADLINE)


async def _ras_twice() -> tuple[str, str]:
    first = await ask_ras("localhost", RAS_PORT, DEADLINE)
    if not first:
        return ("", "")
    await asyncio.sleep(PAUSE)
    return first, await ask_ras("localhost", RAS_PORT, DEADLINE)


async def ask_ras(host: str, port: int, seconds: float) -> str:
    """What NCCL's RAS service says there; '' when it does not answer within so many seconds."""
    argv = child_process.child("cluster/nccl_ras", host, str(port), str(seconds))
    seen = await child_process.run("nccl-ras", Command(argv), seconds + 2)
    return text(document(seen) or {}, "text")


async def _stacks(spy: str, pids: Sequence[int]) -> dict[int, tuple[Thread, ...]]:
    """Stacks of all processes at once; one that hangs only loses its own."""

    async def one(pid: int) -> tuple[int, tuple[Thread, ...]]:
        argv = (spy, "dump", "--nonblocking", "--json", "--pid", str(pid))
        seen = await child_process.run(f"py-spy-{pid}", Command(argv), DEADLINE)
        return pid, threads(seen.text) if seen.answered else ()

    return {pid: found for pid, found in await asyncio.gather(*(one(pid) for pid in pids)) if found}


async def _with_workers(spy: str, processes: Sequence[RankProcess]) -> tuple[RankProcess, ...]:
    """The stacks of the children of ranks that are in no collective: such a rank may wait for its loaders."""
    silent = {one.pid: one.children[:CHILDREN] for one in processes if one.threads and not one.collective}
    stacks = await _stacks(spy, [child for children in silent.values() for child in children])

    def workers(one: RankProcess) -> tuple[Child, ...]:
        return tuple(Child(pid, stacks[pid]) for pid in silent.get(one.pid, ()) if pid in stacks)

    return tuple(replace(one, workers=workers(one)) for one in processes)


async def _gpu_percents() -> dict[int, int]:
    """How busy the GPU of each process is; empty without a driver, or when it does not answer in time."""
    if not os.path.exists("/dev/nvidiactl"):
        return {}
    from nodedoctor.facts.gpu.nvml.nvml import NvmlReading

    seen = await child_process.run("nvml", Command(child_process.child("gpu/nvml", packages=True)), DEADLINE)
    told = NvmlReading.parse(seen)
    return {
        user.pid: gpu.gpu_utilization_percent
        for gpu in (told.gpus.gpus if isinstance(told, NvmlReading) else ())
        for user in gpu.processes or ()
        if gpu.gpu_utilization_percent is not None
    }


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None
