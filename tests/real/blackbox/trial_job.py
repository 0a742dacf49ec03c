"""Three gloo ranks of which rank 1 hangs, or works for long while the others wait: `trial_job.py KIND`.

When rank 1 begins to differ it touches the file SCRATCH/fault.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import multiprocessing
import os
import queue
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

RANK = int(os.environ["RANK"])
GUILTY = 1
LONG = float(os.environ.get("LONG", "18"))
"""Seconds that work takes, of which there are several thresholds."""
SCRATCH = Path(os.environ.get("SCRATCH", "/tmp"))

Queue = multiprocessing.Queue  # type: ignore[type-arg]


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=300))
    group = dist.new_group([0, GUILTY])
    model = DistributedDataParallel(torch.nn.Linear(8, 8))
    for number in range(6):
        step(number)
    if RANK == GUILTY:
        (SCRATCH / "fault").touch()
        KINDS[sys.argv[1]]()
        if sys.argv[1] == "two groups":
            of_its_group(group)
    elif sys.argv[1] == "leaves early":
        model(torch.randn(2, 8)).sum().backward()
    if sys.argv[1] == "slow steps":
        for number in range(6, 6 + int(LONG / 3)):
            time.sleep(3)
            step(number)
    dist.all_reduce(torch.ones(64))
    step(99)
    dist.destroy_process_group()


def step(number: int) -> None:
    dist.all_reduce(torch.ones(64))
    if RANK == 0:
        print(f"step {number} loss: 1.0", flush=True)
    time.sleep(0.2)


def asleep() -> None:
    time.sleep(600)


def locked() -> None:
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def reads_a_pipe() -> None:
    reader, _writer = os.pipe()
    os.read(reader, 1)


def locked_file() -> None:
    """As by a process that ended badly: one that is no rank keeps the lock."""
    with (SCRATCH / "shared.lock").open("w") as file:
        subprocess.Popen(("flock", file.name, "sleep", "300"))
        time.sleep(1)
        fcntl.flock(file, fcntl.LOCK_EX)


def polls_a_lock() -> None:
    """As filelock does."""
    path = SCRATCH / "cache.lock"
    path.touch()
    while True:
        try:
            os.close(os.open(path, os.O_CREAT | os.O_EXCL))
            return
        except FileExistsError:
            time.sleep(0.05)


def reads_a_socket() -> None:
    """As from a server of data that says nothing more; it has a port of this machine."""
    listener = socket.create_server(("127.0.0.1", 0))
    with socket.create_connection(listener.getsockname()) as connection:
        listener.accept()[0].detach()
        connection.recv(1)


def saves_into_fifo() -> None:
    """A checkpoint through a pipe to an uploader, which has stopped reading."""
    path = SCRATCH / "upload"
    os.mkfifo(path)
    subprocess.Popen(("sh", "-c", f"exec 3<{path}; exec sleep 300"))
    with path.open("wb") as file:
        torch.save(torch.zeros(1 << 20), file)


def from_thread() -> None:
    """A thread that fills a queue ends by an exception that nobody sees."""
    filled: queue.Queue[int] = queue.Queue()

    def fill() -> None:
        with contextlib.suppress(ZeroDivisionError):
            filled.put(1 // 0)

    threading.Thread(target=fill).start()
    filled.get()


class LockedData(torch.utils.data.Dataset[int]):
    """Its worker takes a lock that is never given back."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        if index == 3:
            locked()
        return index


def loads() -> None:
    for _ in torch.utils.data.DataLoader(LockedData(), num_workers=1):
        pass


def loops() -> None:
    number = 0
    while True:
        number += 1


def from_loader(work: Callable[[Queue], None]) -> None:
    queue: Queue = multiprocessing.Queue()
    multiprocessing.Process(target=work, args=(queue,), daemon=True).start()
    queue.get()


def dies(queue: Queue) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def is_stuck(queue: Queue) -> None:
    reads_a_pipe()


def other_collective() -> None:
    dist.broadcast(torch.ones(64), 2)


def of_its_group(group: dist.ProcessGroup) -> None:
    dist.all_reduce(torch.ones(64), group=group)


def out_of_memory() -> None:
    Path(os.environ["MEMORY_CGROUP"], "cgroup.procs").write_text(str(os.getpid()))
    hoard = bytearray(os.urandom(1 << 20))
    for _ in range(1024):  # the group's limit ends it long before
        hoard += hoard[: 1 << 20]


def saves() -> None:
    """As to a slow file server: a piece a moment."""
    ends = time.monotonic() + LONG
    with (SCRATCH / "checkpoint").open("wb") as file:
        while time.monotonic() < ends:
            file.write(os.urandom(1 << 16))
            file.flush()
            time.sleep(0.1)


def compiles() -> None:
    code = f"import time; end = time.time() + {LONG}; all(iter(lambda: time.time() < end, False))"
    subprocess.run([sys.executable, "-c", code], check=False)


def computes() -> None:
    ends = time.monotonic() + LONG
    while time.monotonic() < ends:
        torch.randn(64, 64) @ torch.randn(64, 64)


def phases() -> None:
    """Of a reinforcement learning job: generating takes fifty times as long as an update."""
    update = LONG / 102
    for seconds in (update, 50 * update, update, 50 * update):
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            sorted(os.urandom(1 << 12))
        (SCRATCH / "rollouts").write_bytes(os.urandom(1 << 20))


def exits() -> None:
    print("nothing left to do", flush=True)
    os._exit(0)


KINDS: dict[str, Callable[[], None]] = {
    "asleep": asleep,
    "locked": locked,
    "pipe": reads_a_pipe,
    "file lock": locked_file,
    "polled lock": polls_a_lock,
    "socket": reads_a_socket,
    "FIFO": saves_into_fifo,
    "thread": from_thread,
    "worker's lock": loads,
    "loop": loops,
    "exit 0": exits,
    "loader dead": lambda: from_loader(dies),
    "loader stuck": lambda: from_loader(is_stuck),
    "SIGSTOP": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "OOM": out_of_memory,
    "mismatch": other_collective,
    "two groups": lambda: None,
    "leaves early": dist.barrier,
    "saving": saves,
    "compiling": compiles,
    "computing": computes,
    "RL phases": phases,
    "slow steps": lambda: None,
}


if __name__ == "__main__":
    main()
