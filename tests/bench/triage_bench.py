"""Triage beside grep(1) on a large log, and beside torchfrtrace on the dumps of many ranks."""

from __future__ import annotations

import os
import pickle
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from timing import Timing, measure

TRIAGE = [str(Path(sys.executable).parent / "nodedoctor"), "triage"]
LOG_BYTES = 2 << 30
RECORDS = 2000


def logs() -> None:
    """A 2 GiB log of eight ranks with NCCL_DEBUG=INFO that ends in a timeout, beside three words of grep."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "train.log"
        _write_log(path)
        env = {**os.environ, "LC_ALL": "C"}
        grep = measure(["grep", "-cE", "Watchdog caught|NCCL WARN|Error", str(path)], runs=3, env=env)
        _row("grep -cE 'Watchdog caught|...'", grep, grep)
        _row("nodedoctor triage train.log", measure([*TRIAGE, str(path)], runs=3), grep)


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


def _write_log(path: Path) -> None:
    lines = []
    for number in range(200_000):
        rank = number % 8
        lines.append(
            f"[2026-11-21 06:11:{number % 60:02d}] node-1:2871{rank}:2871{rank} [{rank}] NCCL INFO Channel"
            f" {number % 32:02d}/32 : {rank}[{rank}] -> {(rank + 1) % 8}[{(rank + 1) % 8}] via P2P/CUMEM/read"
        )
        if number % 50 == 0:
            lines.append(f"[rank{rank}]: step {number} loss 2.{number % 1000:03d}")
    block = ("\n".join(lines) + "\n").encode()
    with path.open("wb") as file:
        while file.tell() < LOG_BYTES:
            file.write(block)
        for rank in (0, 1, 2, 4, 5, 6, 7):
            file.write(_timeout(rank).encode())


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
