"""A gloo job whose ranks print each step before they wait for each other.

    python -m torch.distributed.run --nproc-per-node 4 late_job.py RANK STEPS

RANK takes 0.4 s longer than the others for each step; -1 for nobody. All of them differ a little, and rank 0
saves now and then. On a loaded machine ranks differ by a tenth of a second: a rank that is late must be so by
more than twice that.
"""

from __future__ import annotations

import random
import sys
import time

import torch
import torch.distributed

LATE, STEPS = int(sys.argv[1]), int(sys.argv[2])


def main() -> None:
    torch.distributed.init_process_group("gloo")
    rank = torch.distributed.get_rank()
    for step in range(STEPS):
        time.sleep(0.1 + random.uniform(0, 0.02) + (0.4 if rank == LATE else 0))
        print(f"[rank {rank}] step {step} loss 1.0", flush=True)
        torch.distributed.all_reduce(torch.ones(8))
        if rank == 0 and step % 20 == 10:
            time.sleep(0.5)
    torch.distributed.destroy_process_group()


main()
