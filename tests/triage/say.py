"""Writes job logs in the exact words of the programs that print them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from nodedoctor.triage.job import examine_job
from nodedoctor.triage.verdict import document
from nodedoctor.triage.verdict.result import TriageResult

WORK = "WorkNCCL(SeqNum={seq}, OpType={op}, NumelIn={numel}, NumelOut={out}, Timeout(ms)={ms})"


def caught(
    rank: int,
    seq: int = 7,
    op: str = "ALLREDUCE",
    numel: int = 4096,
    out: int | None = None,
    at: str = "10:20:30.000000000",
    line: int = 632,
    ms: int = 600000,
    ran: int | None = None,
) -> str:
    """The watchdog's announcement on one rank, torch 2.4 and later."""
    work = WORK.format(seq=seq, op=op, numel=numel, out=numel if out is None else out, ms=ms)
    took = ms + 17 if ran is None else ran
    return (
        f"[rank{rank}]:[E1121 {at} ProcessGroupNCCL.cpp:{line}] [Rank {rank}] Watchdog caught collective"
        f" operation timeout: {work} ran for {took} milliseconds before timing out.\n"
    )


def status(rank: int, stuck: int, enqueued: int, completed: int, group: str = "0(default_pg)") -> str:
    """How far a rank was, torch 2.6 and later: two blanks before the text."""
    return (
        f"[rank{rank}]:[E1121 10:20:30.500000000 ProcessGroupNCCL.cpp:2268] [PG ID 0 PG GUID {group} "
        f"Rank {rank}] "
        f" failure detected by watchdog at work sequence id: {stuck} PG status: last enqueued work: "
        f"{enqueued},"
        f" last completed work: {completed}\n"
    )


def raised(rank: int, error: str, source: str = "loss = model(batch)") -> str:
    """A Python traceback as torchrun's children print it."""
    head = f"[rank{rank}]: "
    return "".join(
        head + line + "\n"
        for line in (
            "Traceback (most recent call last):",
            '  File "/job/train.py", line 41, in <module>',
            f"    {source}",
            "    " + "^" * len(source),
            error,
        )
    )


def elastic(ranks: list[tuple[int, int]], root: int) -> str:
    """torchelastic's list of (rank, exit code), the first observed one last."""
    names = {-15: "  (SIGTERM)", -9: "  (SIGKILL)", -6: "  (SIGABRT)", -11: "  (SIGSEGV)"}

    def row(number: int, rank: int, code: int) -> str:
        signal = names.get(code, " ")
        return (
            f"[{number}]:\n  time      : 2026-11-21_10:30:00\n  host      : node-1\n"
            f"  rank      : {rank} (local_rank: {rank})\n  exitcode  : {code} (pid: {4000 + rank}){signal}\n"
            "  error_file: <N/A>\n  traceback : To enable traceback see: https://pytorch.org/docs\n"
        )

    others = "".join(row(i, rank, code) for i, (rank, code) in enumerate(ranks, 1) if rank != root)
    first = next(code for rank, code in ranks if rank == root)
    bar = "=" * 60
    return (
        f"E1121 10:30:00.000000 3999 torch/distributed/elastic/multiprocessing/api.py:882] failed "
        f"(exitcode: {first})"
        f" local_rank: {root} (pid: {4000 + root}) of binary: /usr/bin/python3\n"
        "torch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
        f"{bar}\ntrain.py FAILED\n{'-' * 60}\nFailures:\n{others}{'-' * 60}\n"
        f"Root Cause (first observed failure):\n{row(0, root, first)}{bar}\n"
    )


def steps(first: int, count: int) -> str:
    """Training that goes on."""
    return "".join(f"step {number} loss: 2.{number} lr: 1e-4\n" for number in range(first, first + count))


def judged(tmp_path: Path, *texts: str) -> TriageResult:
    """Triage of these texts, each as a file of its own."""
    paths = []
    for number, text in enumerate(texts):
        path = tmp_path / f"{number}.log"
        path.write_text(text)
        paths.append(str(path))
    return examine_job(paths)


def as_document(examined: TriageResult) -> dict[str, Any]:
    """The JSON document of a triage."""
    return document.make_document(examined.verdict, examined.lines.line_of)


def culprits(examined: TriageResult) -> list[int | None]:
    """The ranks named as guilty."""
    return [who.rank for who in examined.verdict.culprits]
