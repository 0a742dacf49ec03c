"""Whose move it is: told by the evidence where it says more than its cause."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import judged, raised

FULL = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.50 GiB. GPU {gpu} has a total capacity"
    " of 79.15 GiB of which 310.00 MiB is free. {held} Of the allocated memory {own} GiB is allocated by"
    " PyTorch, and 210.00 MiB is reserved by PyTorch but unallocated."
)
OTHERS = "Process 81 has 66.20 GiB memory in use. "
ITSELF = "Including non-PyTorch memory, this process has 11.90 GiB memory in use."
OLD = (
    "RuntimeError: CUDA out of memory. Tried to allocate 64.00 MiB (GPU 0; 15.90 GiB total capacity; {own}"
    " GiB already allocated; 40.00 MiB free; {reserved} GiB reserved in total by PyTorch)"
)
SAID = {
    "another process holds the GPU": (FULL.format(gpu=1, held=OTHERS + ITSELF, own="10.90"), "NODE"),
    "all ranks on one GPU": (FULL.format(gpu=0, held=OTHERS + ITSELF, own="10.90"), "CONFIG"),
    "its own pid in a container": (
        FULL.format(gpu=1, held="Process 71 has 78.60 GiB memory in use.", own="77.30"),
        "CONFIG",
    ),
    "its own pid and another's in a container": (
        FULL.format(gpu=1, held=OTHERS + "Process 71 has 12.10 GiB memory in use.", own="11.20"),
        "NODE",
    ),
    "memory that is not its own, before torch 2.1": (OLD.format(own="3.10", reserved="3.40"), "NODE"),
    "its own memory, before torch 2.1": (OLD.format(own="14.10", reserved="14.90"), "CONFIG"),
    "another process of an RL job": (
        FULL.format(gpu=1, held=OTHERS + ITSELF, own="10.90") + "\n(WorkerDict pid=71) verl stops",
        "CONFIG",
    ),
    "a node that was lost": ("srun: error: Node failure on gpu-17", "NODE"),
    "a container without shared memory": (
        "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared"
        " memory (shm).",
        "CONFIG",
    ),
    "a terminal that was closed": (
        "torch.distributed.elastic.multiprocessing.api.SignalException: Process 12 got signal: 1",
        "CONFIG",
    ),
}


@pytest.mark.parametrize("name", SAID)
def test_whose_move_it_is(name: str, tmp_path: Path) -> None:
    text, owner = SAID[name]
    said = raised(1, text) if "GPU 1" in text or "GPU 0 has" in text else text + "\n"
    assert judged(tmp_path, said).verdict.owner == owner


def test_a_process_is_named_alone_only_where_it_was(tmp_path: Path) -> None:
    alone = FULL.format(gpu=1, held=OTHERS + ITSELF, own="10.90")
    several = FULL.format(gpu=1, held=OTHERS + "Process 93 has 1.20 GiB memory in use. " + ITSELF, own="9.70")
    assert ": process 81 held 66 of" in judged(tmp_path, raised(1, alone)).verdict.headline
    assert ": 2 other processes, most of all process 81, held 67 of" in (
        judged(tmp_path, raised(1, several)).verdict.headline
    )


def test_sizes_beyond_the_gpu_say_nothing_of_others(tmp_path: Path) -> None:
    text = FULL.format(gpu=0, held="Process 9 has 17179869184.00 GiB memory in use. " + ITSELF, own="70.00")
    headline = judged(tmp_path, raised(0, text)).verdict.headline
    assert headline == "rank 0 ran out of GPU memory: 1.50 GiB wanted, 0.303 of 79.15 GiB free"


def test_a_full_gpu_names_who_holds_it(tmp_path: Path) -> None:
    verdict = judged(tmp_path, raised(1, SAID["another process holds the GPU"][0])).verdict
    assert verdict.headline == "rank 1 ran out of GPU memory: process 81 held 66 of its 79 GiB"


@pytest.mark.parametrize(
    ("last", "whose"), [("srun: error: n1: task 1: Out Of Memory\n", "rank 1 on n1"), ("", "a process")]
)
def test_who_used_up_the_memory_of_the_host(last: str, whose: str, tmp_path: Path) -> None:
    said = "[rank1]: step 5 loss 2.0\nslurmstepd: error: Detected 1 oom_kill event in StepId=1.0. "
    verdict = judged(tmp_path, said + "Some of the step tasks have been OOM Killed.\n" + last).verdict
    assert verdict.headline == f"{whose} used up the host's memory (reported by Slurm)"
