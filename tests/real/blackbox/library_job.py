"""Three gloo ranks that train with torch's own wrappers, and rank 1 differs: `library_job.py KIND`.

When rank 1 begins to differ it touches the file SCRATCH/fault.
"""

from __future__ import annotations

import datetime
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

RANK = int(os.environ["RANK"])
GUILTY, ODD_ONE, STEPS = 1, 6, 12
LONG = float(os.environ.get("LONG", "12"))
SCRATCH = Path(os.environ.get("SCRATCH", "/tmp"))


class TwoHeads(torch.nn.Module):
    """A model of which one head may stay unused."""

    def __init__(self) -> None:
        super().__init__()
        self.body, self.left, self.right = (torch.nn.Linear(8, 8) for _ in range(3))

    def forward(self, batch: torch.Tensor, both: bool = True) -> torch.Tensor:
        found = self.left(self.body(batch))
        return found + self.right(found) if both else found


def is_odd(number: int) -> bool:
    """True for the step in which rank 1 differs; notes that it does."""
    odd = RANK == GUILTY and number == ODD_ONE
    if odd:
        (SCRATCH / "fault").touch()
    return odd


def show(number: int) -> None:
    time.sleep(0.2)
    if RANK == 0:
        print(f"step {number} loss: 1.0", flush=True)


def train(model: torch.nn.Module, number: int, **options: bool) -> None:
    model(torch.randn(2, 8), **options).sum().backward()
    model.zero_grad()


def accumulates() -> None:
    """One micro-batch more of which the gradients are reduced."""
    model = DistributedDataParallel(TwoHeads())
    for number in range(STEPS):
        train(model, number)
        if is_odd(number):
            train(model, number)
        dist.all_reduce(torch.ones(3))  # the loss for the log
        show(number)


def group_order() -> None:
    model, data = dist.new_group(), dist.new_group()

    def reduce_loss() -> None:
        dist.all_reduce(torch.ones(4), group=data)

    def sum_norm() -> None:
        dist.all_reduce(torch.ones(4), group=model)

    for number in range(STEPS):
        calls = (reduce_loss, sum_norm)
        for call in reversed(calls) if is_odd(number) else calls:
            call()
        show(number)


def forward_more() -> None:
    """One forward more through parameters that are sharded: an evaluation on one rank only."""
    model = TwoHeads()
    mesh = dist.device_mesh.init_device_mesh("cpu", (dist.get_world_size(),))
    fully_shard(model, mesh=mesh, reshard_after_forward=True)
    for number in range(STEPS):
        if is_odd(number):
            evaluate_on_main_process(model)
        train(model, number)
        show(number)


def evaluate_on_main_process(model: torch.nn.Module) -> None:
    with torch.no_grad():
        model(torch.randn(2, 8))


def unused() -> None:
    model = DistributedDataParallel(TwoHeads())
    for number in range(STEPS):
        train(model, number, both=not is_odd(number))
        show(number)


def uneven() -> None:
    """A rank with fewer batches has done its epoch, and waits at its end."""
    model = DistributedDataParallel(TwoHeads())
    for number in range(STEPS):
        if is_odd(number):
            break
        train(model, number)
        show(number)
    wait_for_everyone()


def wait_for_everyone() -> None:
    dist.barrier()


def fails_always() -> None:
    """torchrun starts all ranks again, until it gives up."""
    for number in range(STEPS):
        dist.all_reduce(torch.ones(4))
        show(number)
        if is_odd(number):
            raise ValueError("batch 6 has no labels")


def slow() -> None:
    """Healthy: compiles, evaluates and saves for long, while others wait."""
    model = DistributedDataParallel(TwoHeads())
    for number in range(STEPS):
        train(model, number)
        show(number)
        if number in (4, 7, 10) and RANK == 0:
            {4: compile_kernels, 7: evaluate, 10: save_checkpoint}[number]()


def compile_kernels() -> None:
    ends = time.monotonic() + LONG
    while time.monotonic() < ends:
        compile("+".join(map(str, range(2000))), "kernel", "eval")


def evaluate() -> None:
    time.sleep(LONG)


def save_checkpoint() -> None:
    ends = time.monotonic() + LONG
    with (SCRATCH / "checkpoint").open("wb") as file:
        while time.monotonic() < ends:
            file.write(os.urandom(1 << 16))
            file.flush()
            time.sleep(0.1)


def irregular() -> None:
    """Healthy: sequences of very different length; one rank computes for long, now and then."""
    model = DistributedDataParallel(TwoHeads())
    for number in range(STEPS):
        if number % 4 == RANK:
            ends = time.monotonic() + LONG * (number % 3) / 2
            while time.monotonic() < ends:
                torch.randn(64, 64) @ torch.randn(64, 64)
        train(model, number)
        show(number)


KINDS: dict[str, Callable[[], None]] = {
    "accumulation": accumulates,
    "group order": group_order,
    "FSDP forward": forward_more,
    "unused parameter": unused,
    "uneven data": uneven,
    "restarts": fails_always,
    "healthy slow": slow,
    "healthy irregular": irregular,
}


if __name__ == "__main__":
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=300))
    KINDS[sys.argv[1]]()
    dist.destroy_process_group()
