"""A gloo job of four ranks that fails in one of many ways: `torchrun ... triage_job.py FAULT RANK`."""

from __future__ import annotations

import ctypes
import datetime
import os
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist

FAULT, GUILTY = sys.argv[1], int(sys.argv[2])
TIMEOUT = float(os.environ.get("TIMEOUT", "8"))
DUMPS = os.environ.get("DUMPS", "")
RANK = int(os.environ["RANK"])


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=TIMEOUT))
    for number in range(5):
        dist.all_reduce(torch.ones(64))
        if RANK == 0:
            print(f"step {number} loss: 1.0", flush=True)
    if DUMPS:
        threading.Thread(target=record, daemon=True).start()
    if RANK == GUILTY:
        misbehave()
    if FAULT == "skip" and RANK != GUILTY:
        dist.broadcast(torch.ones(1000), 0)
    dtype = torch.float64 if FAULT == "dtype" and RANK == GUILTY else torch.float32
    dist.all_reduce(torch.ones(32 if FAULT == "size" and RANK == GUILTY else 64, dtype=dtype))
    for _ in range(5):
        dist.all_reduce(torch.ones(64))
    dist.barrier()
    print("training finished", flush=True)


def misbehave() -> None:
    if FAULT == "sleep":
        time.sleep(10 * TIMEOUT)
    if FAULT == "gil":
        ctypes.PyDLL(None).sleep(int(10 * TIMEOUT))  # PyDLL keeps Python's lock while in C
    if FAULT == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    if FAULT == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if FAULT == "segv":
        ctypes.string_at(0)
    if FAULT == "exception":
        raise ValueError("could not convert string to float: 'NaN?' in shard 17")
    if FAULT == "saving":
        print(f"[rank{RANK}]: Saving model checkpoint to /ckpt/step-5", flush=True)
        time.sleep(10 * TIMEOUT)


def record() -> None:
    """Dump the flight recorder shortly before the others give up."""
    time.sleep(TIMEOUT - 3)
    with open(f"{DUMPS}/comm_lib_trace_rank_{RANK}", "wb") as file:
        file.write(torch._C._distributed_c10d._dump_fr_trace())


if __name__ == "__main__":
    main()
