"""Triage beside grep(1) on a large log, and beside torchfrtrace on the dumps of many ranks."""

from __future__ import annotations

import json
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from timing import Timing, best, measure, pss_mib

TRIAGE = [str(Path(sys.executable).parent / "nodedoctor"), "triage"]
RECORDS = 2000


def logs() -> None:
    """Logs that end in a timeout, beside three words of grep: NCCL INFO with steps, as JSON lines, bars.

    Sizes in MiB may be given in NODEDOCTOR_BENCH_MIB; each log must give the verdict. The best of three runs
    each, in turns; memory is that of all our processes together.
    """
    sizes = [float(size) for size in os.environ.get("NODEDOCTOR_BENCH_MIB", "7.9 500 2048").split()]
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.log"
        path.write_text("step 1 loss: 2.1\n")
        (line,) = best(_triage(path), runs=5)
        _row("nodedoctor triage, one line", line, line)
        for size in sizes:
            plain: Timing | None = None
            for name, wrap, rows in _FORMS:
                _write_log(path, int(size * (1 << 20)), wrap, rows)
                grep, own = best(["grep", "-cE", _WORDS, str(path)], _triage(path))
                _check(path)
                plain = plain or own
                print(
                    f"{f'{name}, {size:g} MiB':<36} {own.wall:7.2f} s wall  {own.cpu:7.2f} s CPU"
                    f"  {pss_mib(_triage(path)):5.0f} MiB  {own.wall / grep.wall:5.2f} x grep"
                    f"  {own.wall / line.wall:5.2f} x one line  {own.wall / plain.wall:5.2f} x plain"
                )


def _triage(path: Path) -> list[str]:
    return [*TRIAGE, "--text", "--no-node", str(path)]


def many() -> None:
    """Logs of 32 and of 1000 ranks, 3000 lines each, read on all cores and on one."""
    for ranks in (32, 1000):
        with tempfile.TemporaryDirectory() as folder:
            for rank in range(ranks):
                rows = (f"[rank{rank}]: step {n} loss: 2.{n} lr: 1e-4\n" for n in range(3000))
                end = "" if rank == 3 else _timeout(rank)
                (Path(folder) / f"rank{rank}.log").write_text("".join(rows) + end)
            own = measure(_triage(Path(folder)), runs=1)
            _check(Path(folder))
            _row(f"nodedoctor triage, {ranks} logs", own, own)
            print(f"{'memory of all processes':<36} {pss_mib(_triage(Path(folder))):7.0f} MiB")
            if taskset := shutil.which("taskset"):
                alone = measure([taskset, "-c", "0", *_triage(Path(folder))], runs=1)
                _row("the same on one core", alone, own)


def _check(path: Path) -> None:
    said = subprocess.run(_triage(path), capture_output=True, text=True).stdout
    assert "Rank 3 never entered" in said, said


def dumps() -> None:
    """Flight-recorder dumps of 64 and 1024 ranks, 2000 records each; one rank misses the last collective."""
    for ranks in (64, 1024):
        with tempfile.TemporaryDirectory() as folder:
            _write_dumps(Path(folder), ranks)
            own = measure([*TRIAGE, folder], runs=2)
            _row(f"nodedoctor triage, {ranks} ranks", own, own)
            peer = os.environ.get("TORCHFRTRACE") or shutil.which("torchfrtrace")
            if peer is None:
                print("torchfrtrace: not here (TORCHFRTRACE may name it)")
                continue
            _row(
                f"torchfrtrace, {ranks} ranks",
                measure([peer, folder, "-p", "comm_lib_trace_rank_"], runs=1),
                own,
            )


def _row(name: str, timing: Timing, own: Timing) -> None:
    print(
        f"{name:<36} {timing.wall:7.2f} s wall  {timing.cpu:7.2f} s CPU  {timing.rss_mib:5.0f} MiB"
        f"  {timing.wall / own.wall:5.2f} x"
    )


def _plain() -> Iterator[str]:
    for number in range(100_000):
        rank = number % 8
        yield (
            f"[2026-11-21 06:11:{number % 60:02d}] node-1:2871{rank}:2871{rank} [{rank}] NCCL INFO Channel"
            f" {number % 32:02d}/32 : {rank}[{rank}] -> {(rank + 1) % 8}[{(rank + 1) % 8}] via P2P/CUMEM/read"
        )
        if number % 50 == 0:
            yield f"[rank{rank}]: step {number} loss 2.{number % 1000:03d}"


def _bars() -> Iterator[str]:
    """Bars drawn again a hundred times before a line ends."""
    for number in range(1000):
        yield "".join(
            f"\rtrain: {k}%|{'#' * (k // 4):<25}| {100 * number + k}/200000 [00:{k:02d}<01:40, 3.2it/s]"
            for k in range(100)
        )


def _in_json(line: str) -> str:
    return json.dumps({"time": "2026-11-21T06:11:00Z", "stream": "stderr", "log": line + "\n"})


_WORDS = "Watchdog caught|NCCL WARN|Error"
_FORMS: tuple[tuple[str, Callable[[str], str], Callable[[], Iterator[str]]], ...] = (
    ("NCCL INFO and steps", str, _plain),
    ("the same as JSON lines", _in_json, _plain),
    ("bars with carriage returns", str, _bars),
)


def _write_log(path: Path, size: int, wrap: Callable[[str], str], rows: Callable[[], Iterator[str]]) -> None:
    block = "".join(wrap(row) + "\n" for row in rows()).encode()
    with path.open("wb") as file:
        while file.tell() < size:
            file.write(block[: size - file.tell()])
        file.write(b"\n")
        for rank in (0, 1, 2, 4, 5, 6, 7):
            file.write((wrap(_timeout(rank).rstrip("\n")) + "\n").encode())


def _timeout(rank: int) -> str:
    work = "WorkNCCL(SeqNum=7, OpType=ALLREDUCE, NumelIn=64, NumelOut=64, Timeout(ms)=600000)"
    return (
        f"[rank{rank}]:[E1121 10:20:30.000000000 ProcessGroupNCCL.cpp:632] [Rank {rank}] Watchdog caught"
        f" collective operation timeout: {work} ran for 600017 milliseconds before timing out.\n"
    )


def _write_dumps(folder: Path, ranks: int) -> None:
    """As torch lays them out: the counters first, then the records."""
    config = {"0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(ranks)))}}
    for rank in range(ranks):
        count = RECORDS - (rank == ranks // 3)
        status = {"last_enqueued_collective": count, "last_started_collective": count}
        document: dict[str, Any] = {
            "version": "2.10",
            "pg_config": config,
            "pg_status": {"0": {**status, "last_completed_collective": RECORDS - 1}},
            "comm_lib_version": "2.27",
            "entries": [_record(number, number < RECORDS) for number in range(1, count + 1)],
        }
        with (folder / f"comm_lib_trace_rank_{rank}").open("wb") as file:
            pickle.dump(document, file, protocol=2)


def _record(seq: int, done: bool) -> dict[str, Any]:
    library = "/v/lib/python3.11/site-packages/torch/distributed/distributed_c10d.py"
    frames = [("all_reduce", library, 3245), ("step", "/job/train.py", 41), ("main", "/job/train.py", 90)]
    return {
        "frames": [{"name": name, "filename": file, "line": line} for name, file, line in frames],
        "record_id": seq,
        "pg_id": 0,
        "process_group": ("0", "default_pg"),
        "collective_seq_id": seq,
        "p2p_seq_id": 0,
        "op_id": seq,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": 1_795_240_306_478_488_974 + seq,
        "input_sizes": [[4096]],
        "input_dtypes": ["Float"],
        "output_sizes": [[4096]],
        "output_dtypes": ["Float"],
        "state": "completed" if done else "started",
        "time_discovered_started_ns": 1,
        "time_discovered_completed_ns": 2 if done else None,
        "retired": done,
        "timeout_ms": 600000,
        "is_p2p": False,
    }
