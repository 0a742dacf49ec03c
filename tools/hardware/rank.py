"""One rank of a job that torchrun started: who it is, and its device.

Runs on Python 3.8.
"""

import os

import torch
import torch.distributed as dist


def join(cpu):
    """Join the process group, by NCCL or by gloo; the rank, the number of ranks, and the device."""
    rank, ranks, local = (int(os.environ[name]) for name in ("RANK", "WORLD_SIZE", "LOCAL_RANK"))
    gpus = torch.cuda.device_count()
    device = torch.device("cpu") if cpu else torch.device("cuda", local % gpus)
    if not cpu:
        torch.cuda.set_device(device)
    if ranks > gpus:
        # NCCL takes several ranks on one GPU only where each seems to be on a host of its own.
        os.environ["NCCL_HOSTID"] = f"rank-{rank}"
    dist.init_process_group("gloo" if cpu else "nccl")
    return rank, ranks, device
