"""64 ranks of torch on the CPU, eight in each node's log; one sleeps instead of entering a collective.

`python sleeping_rank.py FOLDER` writes FOLDER/node-0.log to node-7.log in a minute, on two cores. All run on
one machine: the nodes are only those of the logs.
"""

import datetime
import logging
import os
import signal
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist

RANKS, PER_NODE = 64, 8
ASLEEP, LAST_STEP = 37, 5
TIMEOUT = datetime.timedelta(seconds=20)
"""Of a collective, in place of the usual ten or thirty minutes."""
GRACE = 10
"""Seconds from the first rank that fails until the launcher kills the others."""


def train(rank: int) -> None:
    """Add a gradient in every step; one rank does not come back from loading a batch."""
    logging.basicConfig(level=logging.INFO, format=f"%(asctime)s [rank{rank}] %(message)s")
    dist.init_process_group("gloo", rank=rank, world_size=RANKS)
    group = dist.new_group(timeout=TIMEOUT)
    logging.info("world_size=%d local_rank=%d pid %d", RANKS, rank % PER_NODE, os.getpid())
    for step in range(1, 100):
        load_batch(rank, step)
        dist.all_reduce(torch.ones(1024), group=group)
        logging.info("step %d loss %.3f", step, 1 / step)


def load_batch(rank: int, step: int) -> None:
    """What a data loader does that waits for a lock."""
    if rank == ASLEEP and step > LAST_STEP:
        time.sleep(3600)


def start(rank: int, folder: Path) -> int:
    """Start one rank, its output at the end of its node's log; the process, 0 in the rank itself."""
    if pid := os.fork():
        return pid
    log = os.open(folder / f"node-{rank // PER_NODE}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(log, 1)
    os.dup2(log, 2)
    return 0


def launch(folder: Path) -> None:
    """Start the ranks from one process, which has loaded torch; after a failure kill those that are left."""
    folder.mkdir(parents=True)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT="29537", GLOO_SOCKET_IFNAME="lo")
    pids = []
    for rank in range(RANKS):
        pid = start(rank, folder)
        if not pid:
            return train(rank)
        pids.append(pid)
    first, _ = os.wait()
    time.sleep(GRACE)
    for pid in set(pids) - {first}:
        os.kill(pid, signal.SIGKILL)


if __name__ == "__main__":
    launch(Path(sys.argv[1]))
