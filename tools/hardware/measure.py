"""Measure what nodedoctor measures, by torch alone: copies, matrices, collectives.

    python measure.py copies|gemm [cpu]
    python -m torch.distributed.run --nproc-per-node N measure.py collectives [cpu]

One JSON line a number, as soon as it is known: what, gpu (of a pair: source and target), value, unit.
Runs on Python 3.8.
"""

import json
import sys
import time

import torch

MIB = 1 << 20
REPEATS = 10
ROUNDS = 3  # of REPEATS; the best counts, as the first pays for the clocks to rise


def main():
    """Measure what the first word names."""
    what, cpu = sys.argv[1], sys.argv[2:] == ["cpu"]
    {"copies": copies, "gemm": gemm, "collectives": collectives}[what](cpu)


def place_of(device):
    """A GPU's number, or the processor."""
    return device.index if device.type == "cuda" else "cpu"


def report(what, value, unit, **place):
    """Print one number."""
    print(json.dumps(dict(place, what=what, value=round(value, 3), unit=unit)), flush=True)


def seconds_each(device, work, *given):
    """The time of one call of `work`, the best of some rounds."""

    def wait():
        if device.type == "cuda":
            torch.cuda.synchronize(device)

    best = float("inf")
    for _ in range(ROUNDS):
        work(*given)
        wait()
        begin = time.perf_counter()
        for _ in range(REPEATS):
            work(*given)
        wait()
        best = min(best, (time.perf_counter() - begin) / REPEATS)
    return best


def devices(cpu):
    """The GPUs that this torch sees, or the processor."""
    count = 0 if cpu else torch.cuda.device_count()
    return [torch.device("cpu")] if cpu else [torch.device("cuda", index) for index in range(count)]


def copies(cpu):
    """Copy inside each GPU, with the host, and between each ordered pair of GPUs."""
    size = (16 if cpu else 512) * MIB
    found = devices(cpu)
    for device in found:
        here, there = (torch.empty(size, dtype=torch.uint8, device=device) for _ in range(2))
        took = seconds_each(device, there.copy_, here)
        report("memory", 2 * size / took / 1e9, "GB/s", gpu=place_of(device))  # read and written
        host = torch.empty(size // 2, dtype=torch.uint8, pin_memory=not cpu)
        part = here[: size // 2]
        took = seconds_each(device, part.copy_, host, True)
        report("host to GPU", size / 2 / took / 1e9, "GB/s", gpu=place_of(device))
        took = seconds_each(device, host.copy_, part, True)
        report("GPU to host", size / 2 / took / 1e9, "GB/s", gpu=place_of(device))
    for source in range(len(found)):
        for target in range(len(found)):
            if source != target:
                pair(found[source], found[target], size)


def pair(source, target, size):
    """Copy from one GPU to another."""
    left = torch.empty(size, dtype=torch.uint8, device=source)
    right = torch.empty(size, dtype=torch.uint8, device=target)
    took = seconds_each(target, right.copy_, left)
    report("GPU to GPU", size / took / 1e9, "GB/s", source=source.index, target=target.index)


def gemm(cpu):
    """Multiply matrices of bfloat16 on each GPU, of the size that nodedoctor takes."""
    size = 512 if cpu else 8192
    for device in devices(cpu):
        left, right = (torch.randn(size, size, device=device).to(torch.bfloat16) for _ in range(2))
        took = seconds_each(device, torch.matmul, left, right)
        report("gemm", 2 * size**3 / took / 1e12, "TFLOP/s", gpu=place_of(device))


def collectives(cpu):
    """All-reduce and all-gather over all ranks; the bus bandwidth as nccl-tests counts it."""
    import torch.distributed as dist
    from rank import join

    rank, ranks, device = join(cpu)
    for size in (16 * MIB,) if cpu else (16 * MIB, 256 * MIB):
        whole = torch.ones(size // 4, device=device)
        part = torch.ones(size // 4 // ranks, device=device)
        parts = [torch.empty_like(part) for _ in range(ranks)]
        for name, factor, work, given in (
            ("all-reduce", 2, dist.all_reduce, (whole,)),
            ("all-gather", 1, dist.all_gather, (parts, part)),
        ):
            busbw = size / seconds_each(device, work, *given) / 1e9 * factor * (ranks - 1) / ranks
            if rank == 0:
                report(name, busbw, "GB/s", ranks=ranks, mib=size // MIB)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
