"""Processes in a list of `ps` that lost their launcher and cannot be ended.

Format: procps 3.3 to 4.0, ps/output.c: the headings say which columns there are.
"""

from __future__ import annotations

from collections.abc import Iterator

from nodedoctor.declare.registry import pasted
from nodedoctor.facts.verdicts.verdict import Verdict, make_verdict
from nodedoctor.patterns import regex

PROBE = "process-list"
process_list = pasted(PROBE, "The output of ps with the states of processes and their parents.")

_OF_JOBS = regex(r"python|torchrun|deepspeed|accelerate|ray::|VLLM::|pt_main_thread|mpirun|nccl")
"""Programs that jobs start; daemons have the parent 1 by nature."""


def orphans(output: str) -> Iterator[Verdict]:
    """A job's process in uninterruptible sleep whose parent is 1: it holds its GPU until a reboot."""
    columns: list[str] = []
    stuck = False
    for line in output.splitlines():
        cells = line.split(None, max(len(columns) - 1, 0)) if columns else line.split()
        if "PID" in cells and "PPID" in cells:
            columns = ["STAT" if name == "S" else name for name in cells]
        row = dict(zip(columns, cells, strict=False))
        command = row.get(columns[-1], "") if columns else ""
        if row.get("PPID") == "1" and row.get("STAT", "").startswith("D") and _OF_JOBS.search(command):
            stuck = True
            since = f" since {row['ELAPSED']}" if "ELAPSED" in row else ""
            words = (
                f"process {row['PID']} ({row['STAT']}{since}) hangs in the kernel, its launcher has exited"
            )
            yield make_verdict(PROBE, "ps", "warn", words, f"pid:{row['PID']}", line)
    if columns and not stuck:
        yield make_verdict(PROBE, "ps", "note", "no job's process without its launcher hangs in the kernel")
