"""One rank of a small job that ends badly on purpose; torchrun starts it.

    python -m torch.distributed.run --nproc-per-node N job.py hang|killed|oom|assert [cpu]

A few steps of all-reduce go well, then the last rank does what the word says. Alone on one GPU, `hang` fills
the stream with a kernel that takes a minute. Ends by itself after LONGEST seconds. Runs on Python 3.8.
"""

import os
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist
from rank import join

HEALTHY_STEPS = 12
LONGEST = 75  # seconds; the step of run.sh ends before
SLEEP_CYCLES = 120 * 10**9  # of the GPU's clock, at 2 GHz a minute


def main():
    """Train for some steps, then fail."""
    kind, cpu = sys.argv[1], sys.argv[2:] == ["cpu"]
    end_at_last(LONGEST)
    rank, ranks, device = join(cpu)
    for step in range(1, HEALTHY_STEPS + 1):
        train_step(device, step, rank)
    if rank == ranks - 1:
        fail = {"hang": hang, "killed": kill_self, "oom": fill_memory, "assert": index_out_of_bounds}[kind]
        fail(device, ranks)
    train_step(device, HEALTHY_STEPS + 1, rank)
    print(f"rank {rank} came to its end", flush=True)


def train_step(device, step, rank):
    """Compute a little, reduce over all ranks, report."""
    weights = torch.ones(1 << 20, device=device)
    dist.all_reduce(weights)
    loss = 1.0 / step + 0.0 * weights.sum().item()
    if rank == 0:
        print(f"step {step} loss: {loss:.4f}", flush=True)
    time.sleep(0.25)


def hang(device, ranks):
    """Stay away from the next collective; alone, keep the stream busy for longer than anybody waits."""
    if ranks > 1:
        threading.Event().wait()
    torch.cuda._sleep(SLEEP_CYCLES)


def kill_self(device, ranks):
    """Die as by the kernel's OOM killer."""
    os.kill(os.getpid(), signal.SIGKILL)


def fill_memory(device, ranks):
    """Take GPU memory until there is no more; none of it is written."""
    taken = []
    while True:
        taken.append(torch.empty(1 << 30, dtype=torch.uint8, device=device))


def index_out_of_bounds(device, ranks):
    """Read beyond the end of a table, which the kernel asserts on the GPU."""
    table = torch.zeros(10, 10, device=device)
    print(table[torch.tensor([1000], device=device)].sum().item(), flush=True)


def end_at_last(seconds):
    """Leave this process after so long, whatever the main thread waits for."""
    timer = threading.Timer(seconds, os._exit, (1,))
    timer.daemon = True
    timer.start()


if __name__ == "__main__":
    main()
