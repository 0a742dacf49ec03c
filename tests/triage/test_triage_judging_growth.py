"""What it costs to judge grows with the number of events: no two of them are compared with each other."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from say import caught, elastic, raised, status

import nodedoctor
from nodedoctor.triage import job
from nodedoctor.triage.verdict import document

OURS = str(Path(nodedoctor.__file__).parent)
LINES = [json.loads(line)["text"] for line in (Path(__file__).parent / "lines.jsonl").open()]
NUMBERED = re.compile(r"(?i)(rank ?|rank: |pid[= ]|task |worker_|gpu-|node-?)\d+")
LONG = re.compile(r"(?<![\d.:])\d{3,}(?![\d.:])")
NAMED = re.compile(r"\[?rank ?\d", re.IGNORECASE)
FEW = 100
PAIRS = 0.2
"""Lines of ours that may run for each pair of events: comparing all takes one, or half of one. Ours."""

Log = Callable[[int], str]


def of_ranks(text: str) -> Log:
    """A text as each of many ranks says it."""

    def log(number: int) -> str:
        own = NUMBERED.sub(lambda found: f"{found[1]}{number}", text.rstrip("\n"))
        return "".join(
            f"{line if NAMED.search(line) else f'[rank{number}]: {line}'}\n" for line in own.split("\n")
        )

    return log


def of_one(text: str) -> Log:
    """A text that one process says again and again, with other numbers."""
    return lambda number: LONG.sub(str(1000 + number), text.rstrip("\n")) + "\n"


MIXED: dict[str, Log] = {
    "waits": lambda n: caught(n, seq=n),
    "waits of one rank": lambda n: caught(3, seq=n),
    "waits and how far each was": lambda n: caught(n) + status(n, 7, 7, 6),
    "exceptions and waits": lambda n: raised(n, f"ValueError: {n}") + caught(n + 5000),
    "exceptions of hosts": lambda n: f"gpu-{n}: ValueError: x{n}\n",
    "exceptions of pids": lambda n: f"(Worker pid={n}) ValueError: x{n}\n",
    "ends": lambda n: elastic([(n, 1)], n),
    "kernel": lambda n: (
        f"[{n}.000000] NVRM: Xid (PCI:0000:{n % 256:02x}:00): 79, pid={n}, GPU has fallen off the bus.\n"
    ),
    "killed for memory": lambda n: (
        f"[{n}.0] Memory cgroup out of memory: Killed process {n} (python) total-vm:1kB, anon-rss:{n}kB\n"
    ),
    "actors that died after waits": lambda n: (
        caught(n) + f"ray.exceptions.ActorDiedError: The actor died. pid={n}\n"
        f"srun: error: node-{n}: task {n}: Exited with exit code 1\n"
    ),
    "ends by signals": lambda n: f"srun: error: node-{n}: task {n}: Killed\n" + caught(n),
    "aborted": lambda n: (
        f"[rank{n}]:[E1121 10:20:30.5 ProcessGroupNCCL.cpp:2268] [Rank {n}] To avoid data inconsistency, we"
        " are taking the entire process down.\n" + raised(n, "RuntimeError: NCCL communicator was aborted")
    ),
    "full GPUs": lambda n: (
        f"[rank{n}]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU {n % 8}"
        " has a total capacity of 79.15 GiB of which 1.00 GiB is free."
        f" Process {n + 9} has 70.00 GiB memory in use. Process {n} has 8.00 GiB memory in use.\n"
    ),
    "steps and logged errors": lambda n: f"step {n} loss: 2.0\nERROR:root:cannot read shard{n} of it\n",
    "communicators": lambda n: (
        f"node-{n // 8}:{n}:{n} [{n % 8}] NCCL INFO comm 0x5{n:x} rank {n} nranks 4096 cudaDev {n % 8} busId"
        f" {n % 8 + 1}000 commId 0x7 - Init COMPLETE\n"
    ),
    "retries": lambda n: (
        f"gpu-{n}:1:2 [0] NCCL WARN Call to ibv_modify_qp failed with error No such device\n"
    ),
    "steps and exceptions": lambda n: f"step {n} loss: 2.0\nValueError: x{n}\n",
}


class Counted:
    """How many of our lines run while a log is judged."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.lines = 0
        read = job.assign_by_source

        def assign_by_source(*words: Any) -> Any:  # the first that follows reading
            sys.settrace(self._call)
            return read(*words)

        monkeypatch.setattr(job, "assign_by_source", assign_by_source)

    def of(self, path: Path) -> int:
        self.lines = 0
        try:
            found = job.examine_job([str(path)])
            document.make_document(found.verdict, found.lines.line_of)
        finally:
            sys.settrace(None)
        return self.lines

    def _call(self, frame: FrameType, event: str, _: Any) -> Any:
        return self._line if frame.f_code.co_filename.startswith(OURS) else None

    def _line(self, frame: FrameType, event: str, _: Any) -> Any:
        self.lines += event == "line"
        return self._line


SAID: dict[str, Log] = {
    f"{number} {way.__name__}": way(text) for number, text in enumerate(LINES) for way in (of_ranks, of_one)
}
LOGS = {**MIXED, **SAID}


@pytest.mark.slow
@pytest.mark.parametrize("kind", [*MIXED, *SAID])
def test_judging_compares_no_event_with_every_other_one(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of n events a + bn + cn² lines run; three sizes tell c."""
    counted = Counted(monkeypatch)
    costs = []
    for times in (FEW, FEW, 2 * FEW, 4 * FEW):
        path = tmp_path / "log"
        path.write_text("".join(map(LOGS[kind], range(times))))
        costs.append(counted.of(path))
    _, small, middle, large = costs  # the first time more runs, which is kept then
    assert (large - middle - 2 * (middle - small)) / (6 * FEW**2) < PAIRS, costs
