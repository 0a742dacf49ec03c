"""A job by one of the launchers besides torchrun: `launched_job.py LAUNCHER KIND SECONDS`.

After some steps one rank works for long in `evaluate`, where KIND is healthy, or sleeps in `load_batch`;
of Ray's actors all work for long, in one call. Other kinds are those of KINDS. Who begins to differ touches
the file SCRATCH/fault.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

LAUNCHER, KIND, SECONDS = sys.argv[1], sys.argv[2], float(sys.argv[3])
GUILTY = 1
STEPS, ODD_ONE = 16, 8


def evaluate() -> None:
    time.sleep(SECONDS)


def load_batch() -> None:
    time.sleep(SECONDS)


KINDS = {
    "healthy": evaluate,
    "exit 0": lambda: os._exit(0),
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "SIGSTOP": lambda: os.kill(os.getpid(), signal.SIGSTOP),
}


def misbehave() -> None:
    Path(os.environ.get("SCRATCH", "/tmp"), "fault").touch()
    KINDS.get(KIND, load_batch)()


def show(step: int) -> None:
    print(f"step {step} loss 1.0", flush=True)


def work(rank: int, port: int) -> None:
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    dist.init_process_group("gloo", rank=rank, world_size=3)
    for step in range(STEPS):
        time.sleep(0.1)
        dist.all_reduce(torch.ones(4))
        if rank == 0:
            show(step)
        if step == ODD_ONE and rank == GUILTY:
            misbehave()
    dist.destroy_process_group()  # a thread of gloo's that outlives it may abort the interpreter's end


def spawn() -> None:
    import socket

    import torch.multiprocessing

    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port = listener.getsockname()[1]
    torch.multiprocessing.spawn(work, args=(port,), nprocs=3)


def lightning() -> None:
    import lightning
    import torch

    class Model(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: torch.Tensor, _: int) -> torch.Tensor:
            time.sleep(0.1)
            if self.global_rank == 0:
                show(self.global_step)
                if self.global_step == ODD_ONE and KIND != "gathers":
                    misbehave()
            if self.global_step == ODD_ONE and self.global_rank == 1 and KIND == "gathers":
                self.log_all_losses()
            return self.layer(batch).sum()

        def log_all_losses(self) -> None:
            Path(os.environ.get("SCRATCH", "/tmp"), "fault").touch()
            self.all_gather(torch.ones(3))

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.SGD(self.parameters(), lr=0.01)

    silent = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    trainer = lightning.Trainer(accelerator="cpu", devices=2, strategy="ddp", max_epochs=1, **silent)
    trainer.fit(Model(), torch.utils.data.DataLoader(torch.randn(2 * STEPS, 4), batch_size=1))


def accelerate() -> None:
    """Runs itself again under `accelerate launch`, which unlike the others gives its ranks a RANK."""
    if "RANK" not in os.environ:
        launch = (sys.executable, "-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "3")
        os.execv(sys.executable, [*launch, *sys.argv])
    import torch
    from accelerate import Accelerator

    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    layer = torch.nn.Linear(4, 1)
    model, optimizer = accelerator.prepare(layer, torch.optim.SGD(layer.parameters(), lr=0.01))
    for step in range(STEPS):
        time.sleep(0.1)
        accelerator.backward(model(torch.randn(1, 4)).sum())
        optimizer.step()
        if accelerator.is_main_process:
            show(step)
        if step == ODD_ONE and accelerator.process_index == GUILTY:
            misbehave()
    accelerator.wait_for_everyone()
    accelerator.end_training()
    sys.stdout.flush()
    os._exit(0)  # threads of torch's that are left may abort the interpreter's end


def ray() -> None:
    import ray

    @ray.remote(num_cpus=0)
    class Actor:
        def __init__(self, number: int) -> None:
            self.number = number

        def step(self, call: int) -> None:
            time.sleep(0.2)
            if call == ODD_ONE and (KIND == "healthy" or self.number == GUILTY):
                misbehave()

    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    actors = [Actor.remote(number) for number in range(3)]
    for call in range(STEPS):
        ray.get([actor.step.remote(call) for actor in actors])
        show(call)


if __name__ == "__main__":
    {"accelerate": accelerate, "spawn": spawn, "lightning": lightning, "ray": ray}[LAUNCHER]()
