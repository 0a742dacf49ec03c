"""Saved looks at a running job (`nodedoctor.capture/1`), of one node or several, in one folder or many."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, replace
from typing import Any

from nodedoctor import input_files
from nodedoctor.json_shapes import Json, as_list, loaded, number, objects, text, texts, whole_number
from nodedoctor.record import record
from nodedoctor.triage.live.gpu_use import GpuUse
from nodedoctor.triage.live.lateness import Lateness
from nodedoctor.triage.live.running_job import ChildProcess, LiveJob, PythonThread, RankProcess
from nodedoctor.triage.patterns.stacks import StackFrame
from nodedoctor.wording import count_with_noun, singular_or_plural

SCHEMA = "nodedoctor.capture/1"
_GPU_NUMBERS = ("percent", "power_w", "limit_w", "clock_mhz", "pcie_mb_s", "nvlink_mb_s")
LARGEST = 64 << 20
"""Bytes of such a document: a thousand ranks with hundreds of threads."""


def look_document(live: LiveJob, *, resumed: bool = False) -> dict[str, Any]:
    """The look as plain data; a `resumed` one explains no later end of the job."""
    return {
        "schema": SCHEMA,
        "host": live.host,
        "time": live.time,
        "resumed": resumed,
        "steps": live.steps,
        "notes": list(live.notes),
        "ras": list(live.ras),
        "kernel": [line for _, line in live.kernel],
        "processes": [_process_document(process) for process in live.processes],
    }


def read_look(data: bytes) -> LiveJob | None:
    """The look in a document; None for another document, or a hang that passed."""
    try:
        document = loaded(data)
    except ValueError:
        return None
    if not isinstance(document, dict) or document.get("schema") != SCHEMA or document.get("resumed") is True:
        return None
    host = text(document, "host")
    ras = texts(document, "ras")
    return LiveJob(
        host,
        tuple(_read_process(row, host) for row in objects(document.get("processes"))),
        (ras[0], ras[1]) if len(ras) == 2 else ("", ""),
        texts(document, "notes"),
        kernel=tuple((host, line) for line in texts(document, "kernel")),
        time=number(document.get("time")) or 0.0,
        steps=whole_number(document, "steps") or 0,
    )


def merge_looks(looks: Iterable[LiveJob], silent: Iterable[tuple[str, str]] = ()) -> LiveJob:
    """The looks of several nodes as one job; `silent` are nodes without one."""
    all_looks, silent_nodes = list(looks), tuple(silent)
    if len(all_looks) == 1 and not silent_nodes:
        return all_looks[0]
    ras = next((look.ras for look in all_looks if look.ras[1]), ("", ""))
    return LiveJob(
        "",
        tuple(replace(process, host=look.host) for look in all_looks for process in look.processes),
        ras,
        tuple(f"{look.host}: {note}" for look in all_looks for note in look.notes),
        silent_nodes,
        tuple((look.host, line) for look in all_looks for _, line in look.kernel),
        steps=max((look.steps for look in all_looks), default=0),
    )


_READ_FIELDS: dict[str, Callable[[Json, str], Any]] = {
    "pid": lambda row, name: whole_number(row, name) or 0,
    "rank": whole_number,
    "world_size": whole_number,
    "local_world_size": whole_number,
    "local_rank": whole_number,
    "ticks": lambda row, name: whole_number(row, name) or 0,
    "computing": lambda row, name: number(row.get(name)) or 0.0,
    "job": text,
    "frozen": lambda row, name: row.get(name) is True,
    "lock": text,
    "awaited": text,
    "wchan": text,
    "moved": lambda row, name: row.get(name) is True,
}
"""Fields of a process that are written as they are, and how each is read."""


def _process_document(process: RankProcess) -> dict[str, Any]:
    return {
        **{name: getattr(process, name) for name in _READ_FIELDS},
        "gpu": None if process.gpu is None else asdict(process.gpu),
        "late": None if process.late is None else asdict(process.late),
        "states": list(process.states),
        "threads": _thread_documents(process.threads),
        "workers": [
            {"pid": child.pid, "threads": _thread_documents(child.threads)} for child in process.workers
        ],
    }


def _thread_documents(threads: Iterable[PythonThread]) -> list[dict[str, Any]]:
    return [
        {
            "gil": thread.owns_gil,
            "active": thread.active,
            "frames": [[frame.file, frame.line, frame.function] for frame in thread.frames],
        }
        for thread in threads
    ]


def _read_process(row: Json, host: str) -> RankProcess:
    states = texts(row, "states")
    return RankProcess(
        **{name: read(row, name) for name, read in _READ_FIELDS.items()},
        states=(states[0], states[1]) if len(states) == 2 else ("", ""),
        gpu=_read_gpu(row),
        late=_read_late(row.get("late")),
        threads=_read_threads(row.get("threads")),
        workers=tuple(
            ChildProcess(whole_number(child, "pid") or 0, _read_threads(child.get("threads")))
            for child in objects(row.get("workers"))
        ),
        host=host,
    )


def _read_gpu(row: Json) -> GpuUse | None:
    """What its GPU did; of older looks it is known how busy it was."""
    gpu = row.get("gpu")
    if not isinstance(gpu, dict):
        percent = number(row.get("gpu_percent"))
        return None if percent is None else GpuUse(percent=percent)
    numbers = {name: number(gpu.get(name)) for name in _GPU_NUMBERS}
    return GpuUse(whole_number(gpu, "index"), **numbers, slowed=texts(gpu, "slowed"))


def _read_late(value: Any) -> Lateness | None:
    if not isinstance(value, dict):
        return None
    numbers = [number(value.get(name)) for name in ("seconds", "share", "spread", "step")]
    steps = whole_number(value, "steps")
    if steps is None or None in numbers:
        return None
    seconds, share, spread, step = (figure or 0.0 for figure in numbers)
    return Lateness(seconds, share, steps, spread, step)


def _read_threads(value: Any) -> tuple[PythonThread, ...]:
    return tuple(
        PythonThread(_read_frames(row.get("frames")), row.get("gil") is True, row.get("active") is True)
        for row in objects(value)
    )


def _read_frames(value: Any) -> tuple[StackFrame, ...]:
    frames = []
    for row in as_list(value)[:200]:
        if isinstance(row, list) and len(row) == 3 and isinstance(row[0], str) and isinstance(row[2], str):
            line = row[1] if isinstance(row[1], int) and 0 <= row[1] < 1 << 31 else 0
            frames.append(StackFrame(row[0], line, row[2]))
    return tuple(frames)


MOST_APART = 3600.0
"""Seconds between two looks at one hang, at most: nodes notice it at different times, by their own steps."""


@record
class CapturedJob:
    """The newest hang as one job, with notes; `older` are folders of earlier hangs."""

    live: LiveJob
    notes: tuple[str, ...] = ()
    older: tuple[str, ...] = ()

    def is_older(self, path: str) -> bool:
        """True for a file that belongs to an earlier hang."""
        return any(path.startswith(folder + os.sep) for folder in self.older)


def read_captures(paths: Iterable[str]) -> CapturedJob | None:
    """The looks in these documents as one job; None when there is none."""
    looks: list[tuple[str, LiveJob]] = []
    notes: list[str] = []
    for path in paths:
        try:
            look = read_look(input_files.read(path))
        except OSError as problem:
            notes.append(f"{path}: {problem.strerror}")
            continue
        if look is not None:
            looks.append((os.path.dirname(path), look))
    if not looks:
        return None
    newest, older = _newest_looks(looks)
    if older:
        count = len(older)
        notes.append(
            f"{count_with_noun(count, 'folder')} {singular_or_plural(count, 'is', 'are')} of an "
            "earlier hang, and "
            f"{singular_or_plural(count, 'was', 'were')} left out: {', '.join(older[:3])}"
        )
    return CapturedJob(merge_looks(newest), tuple(notes), tuple(older))


def _newest_looks(looks: Sequence[tuple[str, LiveJob]]) -> tuple[list[LiveJob], list[str]]:
    """The last look of each node at each job, and the folders of older ones."""
    latest = max(look.time for _, look in looks)
    jobs: set[tuple[str, str]] = set()
    newest: list[LiveJob] = []
    older: list[str] = []
    for folder, look in sorted(looks, key=lambda pair: pair[1].time, reverse=True):
        fresh = tuple(process for process in look.processes if (look.host, process.job) not in jobs)
        if latest - look.time > MOST_APART or (look.processes and not fresh):
            older.append(folder)
            continue
        jobs |= {(look.host, process.job) for process in fresh}
        newest.append(replace(look, processes=fresh))
    return newest, older
