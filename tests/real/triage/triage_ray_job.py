"""Three actors of Ray of which one ends: `triage_ray_job.py kill|exception|none`."""

from __future__ import annotations

import os
import signal
import sys
import time

import ray


@ray.remote(num_cpus=1)
class Trainer:
    """A worker of a training job, without the training."""

    def __init__(self, rank: int) -> None:
        self.rank = rank

    def pid(self) -> int:
        return os.getpid()

    def step(self, fault: str) -> int:
        if self.rank == 1 and fault == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        if self.rank == 1 and fault == "exception":
            raise ValueError("shard 17 has no tokens")
        time.sleep(1)
        return self.rank


if __name__ == "__main__":
    ray.init(num_cpus=3, include_dashboard=False, object_store_memory=80_000_000)
    trainers = [Trainer.remote(rank) for rank in range(3)]
    print("guilty:", ray.get(trainers[1].pid.remote()), flush=True)
    print(ray.get([trainer.step.remote(sys.argv[1]) for trainer in trainers]), flush=True)
    print("training finished", flush=True)
