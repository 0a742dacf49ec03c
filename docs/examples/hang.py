"""Three ranks that add a number in every step; in step 6 rank 1 waits for a lock that nobody gives back."""

import os
import socket
import subprocess
import sys
import threading
import time

RANKS = 3


def all_reduce(links: list[socket.socket]) -> None:
    """Send to all others, and wait for all of them."""
    for link in links:
        link.send(b"1")
    for link in links:
        link.recv(1)


def load_batch(step: int) -> None:
    """What a data loader with a deadlock does."""
    time.sleep(0.2)
    if step == 6 and os.environ["RANK"] == "1":
        lock = threading.Lock()
        lock.acquire()
        lock.acquire()


def train(links: list[socket.socket]) -> None:
    """One rank."""
    for step in range(1000):
        load_batch(step)
        all_reduce(links)
        print(f"[rank{os.environ['RANK']}] step {step} loss {1 / (step + 1):.3f}", flush=True)


def launch() -> None:
    """Start the ranks, each connected with every other."""
    pairs = {(a, b): socket.socketpair() for a in range(RANKS) for b in range(a)}
    ranks = []
    for rank in range(RANKS):
        ends = [pair[key.index(rank)] for key, pair in pairs.items() if rank in key]
        env = {**os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(RANKS)}
        argv = [sys.executable, __file__, *(str(end.fileno()) for end in ends)]
        ranks.append(subprocess.Popen(argv, env=env, pass_fds=[end.fileno() for end in ends]))
    for rank in ranks:
        rank.wait()


if __name__ == "__main__":
    if len(sys.argv) > 1:
        train([socket.socket(fileno=int(number)) for number in sys.argv[1:]])
    else:
        launch()
