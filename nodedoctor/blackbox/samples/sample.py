"""One look at a job's processes, as the sampler child prints it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from nodedoctor.json_shapes import Json, as_list, loaded, number, parts, text, whole_number
from nodedoctor.record import record

TICKS_PER_SECOND = 100
"""USER_HZ, in which /proc counts CPU time whatever the kernel's own rate is (proc(5), time(7))."""


@record
class RankSample:
    """One rank at one moment; `bytes`, `wchan` and `syscall` are None or '' where we may not look.

    `local` and `local_world` are its rank and the number of ranks on its node, where the launcher says so,
    `job` what all ranks of one job share, `minutes` the limit of its collectives, where its environment has
    one (DEEPSPEED_TIMEOUT), `running` how many of its children run or wait for a core.
    `ras`, `pipe` and `stacks` are where it can be asked for more, `prefix` the environment that its Python
    packages are in. `ticks` is its own CPU time, `child_ticks` and `child_bytes` those of its data loaders
    and compilers. `group` is the file in which its control group counts `kills` for memory.
    """

    pid: int
    start: int
    rank: int | None = None
    world: int | None = None
    local: int | None = None
    title: str = ""
    gone: bool = False
    state: str = ""
    ticks: int = 0
    children: tuple[int, ...] = ()
    child_ticks: int = 0
    child_bytes: int = 0
    bytes: int | None = None
    wchan: str = ""
    syscall: str = ""
    memory: int | None = None
    ras: str = ""
    pipe: str = ""
    stacks: str = ""
    prefix: str = ""
    local_world: int | None = None
    job: str = ""
    minutes: int | None = None
    running: int = 0
    group: str = ""
    kills: int | None = None

    @property
    def key(self) -> tuple[int, int]:
        """What names this process and no later one: pids are given again."""
        return self.pid, self.start

    @property
    def of_ray(self) -> bool:
        """Whether it is a worker of Ray, which gives its processes their titles."""
        return self.title.startswith("ray::")

    @property
    def called(self) -> str:
        """How a person calls it: its rank, else Ray's name of its actor, else its pid."""
        if self.rank is not None:
            return f"rank {self.rank}"
        actor = self.title.partition("::")[2] if self.of_ray else ""
        return f"{actor} (pid {self.pid})" if actor else f"process {self.pid}"


@record
class ProcessEnd:
    """When a process ended, by the clock that never jumps, and its status of wait(2), None if not known."""

    pid: int
    start: int
    moment: float
    status: int | None = None

    @property
    def key(self) -> tuple[int, int]:
        """The process's own, as RankSample has it."""
        return self.pid, self.start


@record
class OutputPart:
    """What one output file got since the look before; `skipped` bytes before it were not read.

    `writers` are the processes of the job that write into it themselves. `grown` tells how many bytes of the
    text were there at which moments, where somebody looked in between.
    """

    path: str
    text: str
    skipped: int = 0
    writers: tuple[int, ...] = ()
    grown: tuple[tuple[int, float], ...] = ()


@record
class Sample:
    """The whole job at one moment. `time` is of the wall clock, `moment` of one that never jumps, as
    `walked`, when the job's processes were last searched for.
    """

    time: float
    moment: float
    roots: tuple[int, ...] = ()
    ranks: tuple[RankSample, ...] = ()
    output: tuple[OutputPart, ...] = ()
    heartbeat: int | None = None
    walked: float = 0.0
    ended: tuple[ProcessEnd, ...] = ()

    @property
    def living(self) -> tuple[RankSample, ...]:
        """The ranks that still have a process."""
        return tuple(rank for rank in self.ranks if not rank.gone)

    @property
    def over(self) -> bool:
        """True when nothing of the job is left; a process that ended and was not waited for is nothing, and
        stays where process 1 of a container waits for no child."""
        return not self.roots and all(rank.state in ("Z", "X") for rank in self.living)


def parse(line: str) -> Sample | None:
    """The sample in a line of the child; None when it is not one."""
    try:
        document: Any = loaded(line)
    except ValueError:
        return None
    monotonic = number(document.get("monotonic")) if isinstance(document, dict) else None
    if monotonic is None:
        return None
    output = tuple(
        OutputPart(
            text(part, "path"),
            text(part, "text"),
            whole_number(part, "skipped") or 0,
            tuple(pid for pid in as_list(part.get("writers")) if isinstance(pid, int)),
            tuple(_read_growth(part.get("grown"))),
        )
        for part in parts(document, "output")
    )
    return Sample(
        number(document.get("time")) or 0.0,
        monotonic,
        tuple(pid for pid in as_list(document.get("roots")) if isinstance(pid, int)),
        tuple(map(_read_rank, parts(document, "ranks"))),
        output,
        whole_number(document, "heartbeat"),
        number(document.get("walked")) or 0.0,
        tuple(map(_read_end, parts(document, "ended"))),
    )


def _read_growth(value: Any) -> Iterator[tuple[int, float]]:
    for row in as_list(value):
        size, moment = row if isinstance(row, list) and len(row) == 2 else (None, None)
        if isinstance(size, int) and (seconds := number(moment)) is not None:
            yield size, seconds


def _read_end(row: Json) -> ProcessEnd:
    return ProcessEnd(
        whole_number(row, "pid") or 0,
        whole_number(row, "start") or 0,
        number(row.get("monotonic")) or 0.0,
        whole_number(row, "status"),
    )


def _read_rank(row: Json) -> RankSample:
    return RankSample(
        whole_number(row, "pid") or 0,
        whole_number(row, "start") or 0,
        whole_number(row, "rank"),
        whole_number(row, "world"),
        whole_number(row, "local"),
        text(row, "title"),
        row.get("gone") is True,
        text(row, "state"),
        whole_number(row, "ticks") or 0,
        tuple(pid for pid in as_list(row.get("children")) if isinstance(pid, int)),
        whole_number(row, "child_ticks") or 0,
        whole_number(row, "child_bytes") or 0,
        whole_number(row, "bytes"),
        text(row, "wchan"),
        text(row, "syscall"),
        whole_number(row, "memory"),
        text(row, "ras"),
        text(row, "pipe"),
        text(row, "stacks"),
        text(row, "prefix"),
        whole_number(row, "local_world"),
        text(row, "job"),
        int(minutes) if (minutes := text(row, "minutes")).isdecimal() and len(minutes) < 7 else None,
        whole_number(row, "running") or 0,
        text(row, "group"),
        whole_number(row, "kills"),
    )
