"""A gloo job of four ranks that fails in one of many ways: `torchrun ... triage_job.py FAULT RANK`."""

from __future__ import annotations

import ctypes
import datetime
import os
import signal
import sys
import threading
import time
from pathlib import Path

import torch
import torch.distributed as dist
import torch.utils.data

FAULT, GUILTY = sys.argv[1], int(sys.argv[2])
TIMEOUT = float(os.environ.get("TIMEOUT", "8"))
DUMPS = os.environ.get("DUMPS", "")
RANK = int(os.environ["RANK"])


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=TIMEOUT))
    print(f"[rank{RANK}]: world_size={dist.get_world_size()}", flush=True)
    for number in range(5):
        dist.all_reduce(torch.ones(64))
        if RANK == 0:
            print(f"step {number} loss: 1.0", flush=True)
    if DUMPS:
        threading.Thread(target=record, daemon=True).start()
    if FAULT == "node" and int(os.environ["GROUP_RANK"]) == GUILTY:
        lose_node()
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
    # Without this a rank that leaves while another one's threads still hold a connection may end by SIGABRT.
    dist.destroy_process_group()


def lose_node() -> None:
    """The node's first rank ends its launcher and all ranks at once, so that nobody can report it."""
    if os.environ["LOCAL_RANK"] != "0":
        signal.pause()
    launcher = os.getppid()
    os.kill(launcher, signal.SIGSTOP)
    children = Path(f"/proc/{launcher}/task/{launcher}/children").read_text().split()
    for pid in (*(int(child) for child in children if int(child) != os.getpid()), launcher, os.getpid()):
        os.kill(pid, signal.SIGKILL)


class Shards(torch.utils.data.Dataset[torch.Tensor]):
    """Data behind a storage that does not answer."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        read_from_dead_storage()
        return torch.ones(1)


def read_from_dead_storage() -> None:
    time.sleep(10 * TIMEOUT)


def misbehave() -> None:
    if FAULT == "loader":
        next(iter(torch.utils.data.DataLoader(Shards(), num_workers=2)))
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
    if FAULT == "oom":
        Path(os.environ["MEMORY_CGROUP"], "cgroup.procs").write_text(str(os.getpid()))
        hoard = bytearray(os.urandom(1 << 20))
        for _ in range(1024):  # the group's limit ends it long before; without one, this ends at 1 GiB
            hoard += hoard[: 1 << 20]
    if FAULT == "exception":
        raise ValueError("could not convert string to float: 'NaN?' in shard 17")
    if FAULT == "saving":
        print(f"[rank{RANK}]: Saving model checkpoint to /ckpt/step-5", flush=True)
        time.sleep(10 * TIMEOUT)


def record() -> None:
    """Dump the flight recorder while the others wait; four dumps at once take seconds on a slow machine."""
    time.sleep(TIMEOUT / 4)
    Path(f"{DUMPS}/comm_lib_trace_rank_{RANK}").write_bytes(torch._C._distributed_c10d._dump_fr_trace())


if __name__ == "__main__":
    main()
