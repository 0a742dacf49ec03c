"""Four Ray actors that train with gloo and take their rank themselves; actor 2 falls asleep."""

from __future__ import annotations

import datetime
import json
import os
import time

import ray
import torch
import torch.distributed as dist

GUILTY = 2


@ray.remote(num_cpus=0)
class Worker:
    """One rank, which sets what launchers set in its own process, as Ray's trainers do."""

    def __init__(self, rank: int, size: int, port: int) -> None:
        place = {"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": rank, "MASTER_PORT": port}
        os.environ.update({name: str(value) for name, value in place.items()} | {"MASTER_ADDR": "127.0.0.1"})

    def train(self) -> None:
        torch.set_num_threads(1)
        dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=120))
        for step in range(8):
            dist.all_reduce(torch.ones(8))
            print(f"step {step} loss 1.0", flush=True)
        if dist.get_rank() == GUILTY:
            self.load_batch()
        dist.all_reduce(torch.ones(8))

    def load_batch(self) -> None:
        time.sleep(600)


def main() -> None:
    """The driver passes a runtime_env of its own, as jobs do, or one that it is given."""
    armed = json.loads(os.environ.get("ARMED", "{}"))
    ray.init(address="auto", runtime_env=armed or {"env_vars": {"TRAINING": "1"}}, log_to_driver=False)
    workers = [Worker.remote(rank, 4, 29541) for rank in range(4)]
    ray.get([worker.train.remote() for worker in workers])


main()
