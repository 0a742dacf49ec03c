"""Stand-ins for ranks: processes with a rank that wait in what looks like torch's all_reduce, and one that
does not."""

from __future__ import annotations

import os
import sys
from collections.abc import Collection
from pathlib import Path

RANK = """
import ctypes, multiprocessing, os, subprocess, sys, time
sys.path.insert(0, {packages!r})
from torch.distributed.distributed_c10d import all_reduce, broadcast

def load_shard():
    time.sleep(600)

def evaluate():
    time.sleep({seconds})

def write_checkpoint():
    with open({scratch!r}, "wb") as file:
        for _ in range({seconds} * 10):
            file.write(os.urandom(1 << 16))
            file.flush()
            time.sleep(0.1)

def crunch():
    end = time.monotonic() + {seconds}
    while time.monotonic() < end:
        sum(range(10000))

def compile_kernels():
    code = "import time; end = time.time() + {seconds}; all(iter(lambda: time.time() < end, False))"
    subprocess.run([sys.executable, "-c", code])

def generate(seconds):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sorted(os.urandom(1 << 12))

def rl_phases():
    for seconds in (0.2, {seconds} / 2, 0.2, {seconds} / 3):
        generate(seconds)
        write_checkpoint_of(0.3)

def write_checkpoint_of(seconds):
    with open({scratch!r}, "wb") as file:
        file.write(os.urandom(1 << 20))
    time.sleep(seconds)

def slow_steps():
    for step in range(7, 7 + {seconds} // 2):
        time.sleep(2)
        print(f"step {{step}} loss 1.0", flush=True)

def from_loader(work):
    queue = multiprocessing.Queue()
    multiprocessing.Process(target=work, args=(queue,), daemon=True).start()
    return queue.get()

def killed(queue):
    os.kill(os.getpid(), 9)

def read_a_pipe(queue):
    reader, writer = os.pipe()
    queue.put(os.read(reader, 1))

def fill_memory(group):
    with open(group + "/cgroup.procs", "w") as file:
        file.write(str(os.getpid()))
    hoard = bytearray(os.urandom(1 << 20))
    for _ in range(1024):  # the group's limit ends it long before
        hoard += hoard[: 1 << 20]

def spin():
    while True:
        sum(range(10000))

def main():
    rank = int(os.environ["RANK"])
    if rank in {undumpable}:
        ctypes.CDLL(None).prctl(4, 0, 0, 0, 0)  # PR_SET_DUMPABLE
    for step in range(6):
        time.sleep(0.1)
        if rank == 0:
            say(f"step {{step}} loss 1.0")
    if rank == 1:
        {fault}
        say("step 99 loss 1.0")
        os._exit(0)
    all_reduce({seconds})
    {after}

def say(line):
    if not {quiet}:
        print(line, flush=True)

main()
"""
WAIT = """
import time

def all_reduce(seconds):
    time.sleep(seconds)

def broadcast(seconds):
    time.sleep(seconds)
"""


NOBODY = 65534
# Root may look at everything. This user may enter what is root's, too, as the interpreter is there in CI.
ORDINARY = (
    "setpriv",
    f"--reuid={NOBODY}",
    f"--regid={NOBODY}",
    "--clear-groups",
    "--inh-caps=+dac_override",
    "--ambient-caps=+dac_override",
    "env",
    "PYTHONDONTWRITEBYTECODE=1",  # in our own folders, from which root would then import nothing
)


def as_an_ordinary_user(folder: Path) -> tuple[str, ...]:
    """What starts a command as one; the folder is theirs then."""
    if os.geteuid() != 0:
        return ()
    os.chown(folder, NOBODY, NOBODY)
    return ORDINARY


def job(
    folder: Path,
    fault: str,
    *,
    ranks: int = 3,
    seconds: int = 600,
    after: str = "pass",
    quiet: bool = False,
    undumpable: Collection[int] = (),
) -> list[str]:
    """A shell command that starts the ranks; rank 1 does `fault`, the others wait `seconds` for it and then
    do what comes after; a quiet job prints no steps. Undumpable ranks show an ordinary user little of
    themselves, as programs do that have taken rights or given them up.
    """
    packages = folder / "packages" / "torch" / "distributed"
    packages.mkdir(parents=True)
    (packages / "distributed_c10d.py").write_text(WAIT)
    for place in (packages, packages.parent):
        (place / "__init__.py").write_text("")
    script = folder / "train.py"
    values = {
        "packages": str(folder / "packages"),
        "scratch": str(folder / "scratch"),
        "seconds": seconds,
        "after": after,
        "undumpable": tuple(undumpable),
    }
    script.write_text(RANK.format(fault=fault, quiet=quiet, **values))
    each = f'RANK=$rank WORLD_SIZE={ranks} LOCAL_WORLD_SIZE={ranks} LOCAL_RANK=$rank "{python()}" {script} &'
    places = " ".join(map(str, range(ranks)))
    return ["sh", "-c", f"trap 'trap - TERM; kill 0' TERM; for rank in {places}; do {each} done; wait"]


def python() -> str:
    """A Python that runs our sitecustomize: without -I, as jobs are started."""
    return os.path.realpath(sys.executable)
