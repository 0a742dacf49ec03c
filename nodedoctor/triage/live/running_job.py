"""A job that runs now: its processes, their stacks and NCCL's own view of it."""

from __future__ import annotations

from typing import Any

from nodedoctor.children import child_process
from nodedoctor.children.programs import child
from nodedoctor.declare.registry import Command
from nodedoctor.json_shapes import document, loaded, objects, text, whole_number
from nodedoctor.record import record
from nodedoctor.triage.live.gpu_use import GpuUse
from nodedoctor.triage.live.lateness import Lateness
from nodedoctor.triage.patterns.stacks import StackFrame, collective_in

RAS_PORT = 28028
"""NCCL's default: https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-ras-addr"""


@record
class PythonThread:
    """One Python thread of a process; `frames` from the innermost outwards."""

    frames: tuple[StackFrame, ...]
    owns_gil: bool = False
    active: bool = False


@record
class ChildProcess:
    """A child of a rank's process, a data loader mostly."""

    pid: int
    threads: tuple[PythonThread, ...]


@record
class RankProcess:
    """One rank's process over two looks. `threads` are empty without readable stacks.

    `ticks` is the CPU time it used between the looks, in hundredths of a second, `gpu` what its GPU does,
    `late` how late it came to its steps, `workers` are its data loaders. `computing` is for how many seconds
    it has gone on in one function, moved no byte and started nothing, while others waited for it: 0 unless it
    was watched for long. `job` is the same for all ranks of a job. `frozen` means that its control group was,
    in both looks, and `lock` is the file lock that it waited for in both, with its holder, `awaited` the pipe
    or socket, with who has its other end.
    """

    pid: int
    rank: int | None = None
    world_size: int | None = None
    local_world_size: int | None = None
    states: tuple[str, str] = ("", "")
    wchan: str = ""
    ticks: int = 0
    threads: tuple[PythonThread, ...] = ()
    moved: bool = False
    children: tuple[int, ...] = ()
    workers: tuple[ChildProcess, ...] = ()
    gpu: GpuUse | None = None
    host: str = ""
    local_rank: int | None = None
    computing: float = 0.0
    job: str = ""
    frozen: bool = False
    lock: str = ""
    awaited: str = ""
    late: Lateness | None = None

    @property
    def collective(self) -> str:
        """The collective in which some thread waits, '' when none does."""
        return next(filter(None, (collective_in(thread.frames) for thread in self.threads)), "")

    @property
    def polls(self) -> bool:
        """True while its GPU waits for other GPUs, as can be seen without its stack."""
        return self.gpu is not None and self.gpu.only_waits


@record
class LiveJob:
    """What was seen of a job: its processes and two answers of RAS, or empty ones.

    `silent` are the nodes of the job that were asked and gave no answer, each with the reason. `kernel` are a
    node and a line of its kernel's log since the job began, about memory, GPUs or stalls. `time`
    is when it was looked at, by the node's own clock, `steps` how often steps were seen to come
    meanwhile.
    """

    host: str
    processes: tuple[RankProcess, ...]
    ras: tuple[str, str] = ("", "")
    notes: tuple[str, ...] = ()
    silent: tuple[tuple[str, str], ...] = ()
    kernel: tuple[tuple[str, str], ...] = ()
    time: float = 0.0
    steps: int = 0


def parse_threads(printed: str) -> tuple[PythonThread, ...]:
    """The threads in py-spy's JSON; nothing when it is not that."""
    try:
        value = loaded(printed)
    except ValueError:
        return ()
    return tuple(
        PythonThread(_parse_frames(row.get("frames")), bool(row.get("owns_gil")), bool(row.get("active")))
        for row in objects(value)
    )


def _parse_frames(value: Any) -> tuple[StackFrame, ...]:
    return tuple(
        StackFrame(str(row.get("filename", "")), whole_number(row, "line") or 0, str(row.get("name", "")))
        for row in objects(value)[:200]
    )


async def ask_ras(host: str, port: int, seconds: float) -> str:
    """What NCCL's RAS service says there; '' when it does not answer in time."""
    argv = child("cluster/nccl_ras", host, str(port), str(seconds))
    answer = await child_process.run("nccl-ras", Command(argv), seconds + 2)
    return text(document(answer) or {}, "text")
