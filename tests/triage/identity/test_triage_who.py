"""Who is guilty moves with the numbers of the ranks, and less evidence names nobody else.

Each story is told as its programs print it, by any rank of worlds of several sizes.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
from say import as_document, caught, elastic, judged, raised, status, steps

Told = Callable[[int, int], str]


def _others(guilty: int, world: int) -> list[int]:
    return [rank for rank in range(world) if rank != guilty]


def gloo_closed(guilty: int, world: int) -> str:
    """One rank raises; what the others say is that its connections closed."""
    closed = "RuntimeError: [../third_party/gloo/gloo/transport/tcp/pair.cc:534] Connection closed by peer"
    heard = [raised(rank, f"{closed} [10.0.0.5]:{30000 + rank}") for rank in _others(guilty, world)]
    return raised(guilty, "ValueError: label 17 is out of range") + "".join(heard)


def memory_then_timeouts(guilty: int, world: int) -> str:
    """One rank is out of memory; the others wait ten minutes for it."""
    full = (
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity"
    )
    waits = "".join(caught(rank, at=f"10:20:30.{rank:09}") for rank in _others(guilty, world))
    return raised(guilty, f"{full} of 79.15 GiB of which 1.06 GiB is free.") + waits


def behind(guilty: int, world: int) -> str:
    """One rank had enqueued less than the others waited in."""
    lag = (
        f"[rank{guilty}]:[E1121 10:20:30.6 ProcessGroupNCCL.cpp:1746] [PG ID 0 PG GUID 0(default_pg) Rank"
        f" {guilty}] Received a dump signal due to a collective timeout from  rank 1 and we will try our best"
        " to dump the debug info. Last enqueued NCCL work: 76, last completed NCCL work: 76.\n"
    )
    waits = "".join(caught(rank, 77) + status(rank, 77, 79, 76) for rank in _others(guilty, world))
    return waits + lag


def slurm_memory(guilty: int, world: int) -> str:
    """The kernel kills one task, and Slurm ends the others."""
    return (
        "slurmstepd: error: Detected 1 oom_kill event in StepId=17.0. Some of the step tasks have been OOM"
        " Killed.\n"
        f"srun: error: n4: task {guilty}: Out Of Memory\nsrun: Terminating StepId=17.0\n"
        + "".join(f"srun: error: n4: task {rank}: Terminated\n" for rank in _others(guilty, world))
    )


def monitored_barrier(guilty: int, world: int) -> str:
    """Rank 0 counts who came; one that did not come only lets the others down, whoever is at fault."""
    return raised(0, f"RuntimeError: Rank {guilty} failed to pass monitoredBarrier in 60000 ms")


def spawned(guilty: int, world: int) -> str:
    """mp.spawn shows the exception of the process that failed."""
    return (
        f"torch.multiprocessing.spawn.ProcessRaisedException:\n\n-- Process {guilty} terminated with the"
        ' following error:\nTraceback (most recent call last):\n  File "/job/train.py", line 41, in work\n'
        "    loss = model(batch)\nKeyError: 'labels'\n"
    )


def mpi(guilty: int, world: int) -> str:
    """mpirun names the process that left first."""
    bar = "-" * 74
    return (
        f"{bar}\nmpirun detected that one or more processes exited with non-zero status, thus causing\nthe"
        " job to be terminated. The first process to do so was:\n\n"
        f"  Process name: [[4711,1],{guilty}]\n  Exit code:    1\n{bar}\n"
    )


def bus_error(guilty: int, world: int) -> str:
    """NCCL tells which rank has which GPU, the kernel which GPU fell off."""
    ranks = "".join(
        f"n4:{500 + r}:{600 + r} [{r}] NCCL INFO comm 0x55aa rank {r} nranks {world} cudaDev {r} nvmlDev {r}"
        f" busId {16 * (r + 1):x}000 commId 0x1ff - Init COMPLETE\n"
        for r in range(world)
    )
    bus = f"{16 * (guilty + 1):x}:00"
    return f"{ranks}[ 9911.200112] NVRM: Xid (PCI:0000:{bus}): 79, GPU has fallen off the bus.\n"


def engine_worker(guilty: int, world: int) -> str:
    """A worker of an inference engine is out of memory."""
    head = f"(VllmWorker rank={guilty} pid={900 + guilty}) ERROR 11-21 10:20:30 [multiproc_executor.py:379] "
    lines = (
        "WorkerProc hit an exception.",
        "Traceback (most recent call last):",
        '  File "/vllm/v1/worker/gpu_model_runner.py", line 1167, in load_model',
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.88 GiB.",
    )
    return "".join(f"{head}{line}\n" for line in lines)


def one_of_a_table(guilty: int, world: int) -> str:
    """A launcher sees one process end, and ends the others."""
    return elastic([(guilty, -9), *((rank, -15) for rank in _others(guilty, world))], guilty)


def step_of_slurm(guilty: int, world: int) -> str:
    """One task leaves with a code of its own, and Slurm ends the others."""
    return (
        f"srun: error: n4: task {guilty}: Exited with exit code 255\nsrun: Terminating job step 17.0\n"
        + "".join(f"srun: error: n4: task {rank}: Terminated\n" for rank in _others(guilty, world))
    )


def train_of_ray(guilty: int, world: int) -> str:
    """Ray Train says the number of the worker that was lost."""
    return (
        "(raylet) A worker died or was killed while executing a task by an unexpected system error. Worker"
        f" IP address: 10.0.7.57 Worker port: 10046 Worker PID: {900 + guilty} Worker exit type: SYSTEM_ERROR"
        " Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of file.\n"
        f"(TorchTrainer pid=893) Worker {guilty} has failed.\n"
    )


def horovod_came(guilty: int, world: int) -> str:
    """Old Horovod lists who came."""
    ready = ", ".join(str(rank) for rank in _others(guilty, world + 1))
    return (
        "WARNING: One or more tensors were submitted to be reduced, gathered or broadcasted by subset of"
        " ranks and are waiting for remainder of ranks for more than 60 seconds. Stalled ops:"
        f" allreduce.conv1.weight [ready ranks: {ready}]\n"
    )


def victim_at_the_root(guilty: int, world: int) -> str:
    """One rank raises, and the launcher puts one at the root that only gave up waiting for it."""
    victims = _others(guilty, world)
    waits = "".join(caught(rank) for rank in victims)
    table = elastic([(guilty, 1), *((rank, -6) for rank in victims)], victims[0])
    return raised(guilty, "KeyError: 'labels'") + waits + table


def late(guilty: int, world: int) -> str:
    """One rank enqueued the collective eight minutes after the others."""
    return "".join(map(caught, _others(guilty, world))) + caught(guilty, at="10:28:30.0")


def never_joined(guilty: int, world: int) -> str:
    """The store counts who came."""
    lost = f"Timed out after 601 seconds waiting for clients. {world - 1}/{world} clients joined."
    return "".join(
        raised(rank, f"torch.distributed.DistStoreError: {lost}") for rank in _others(guilty, world)
    )


def labelled(guilty: int, world: int) -> str:
    """`srun --label` puts the number of the task in front of each line."""
    steps = "".join(f"{rank}: step {n} loss 1.{n}\n" for n in range(1, 9) for rank in range(world))
    error = ("Traceback (most recent call last):", '  File "/job/t.py", line 4, in <module>', "    main()")
    told = "".join(f"{guilty}: {line}\n" for line in (*error, "ZeroDivisionError: division by zero"))
    return f"{steps}{told}srun: error: n4: task {guilty}: Exited with exit code 1\n"


STORIES: tuple[Told, ...] = (
    gloo_closed,
    memory_then_timeouts,
    behind,
    slurm_memory,
    monitored_barrier,
    spawned,
    mpi,
    bus_error,
    engine_worker,
    one_of_a_table,
    step_of_slurm,
    train_of_ray,
    horovod_came,
    victim_at_the_root,
    late,
    never_joined,
    labelled,
)
WORLDS = ((0, 2), (1, 2), (0, 4), (2, 4), (7, 8))


NOT_OF_ALL = {monitored_barrier: WORLDS[3:], never_joined: WORLDS[2:]}
"""Rank 0 does not miss itself, and where only one of two came, the count may be of any other group."""


def _named(tmp_path: Path, text: str) -> set[int]:
    return {who.rank for who in judged(tmp_path, text).verdict.culprits if who.rank is not None}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_the_culprit_moves_with_the_numbers(story: Told, tmp_path: Path) -> None:
    for guilty, world in NOT_OF_ALL.get(story, WORLDS):
        assert _named(tmp_path, story(guilty, world)) == {guilty}, (guilty, world)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.__name__)
def test_less_evidence_names_nobody_else(story: Told, tmp_path: Path) -> None:
    """Lines that are missing may hide who is guilty; they make nobody else so, but as a suspicion."""
    chance = random.Random(story.__name__)
    for guilty, world in ((1, 4), (3, 4)):
        lines = story(guilty, world).splitlines(keepends=True)
        for _ in range(6):
            kept = [line for line in lines if chance.random() < 0.7]
            verdict = judged(tmp_path, "".join(kept)).verdict
            named = {who.rank for who in verdict.culprits if who.rank is not None}
            assert named <= {guilty} or verdict.confidence == "low", "".join(kept)


def test_an_aborted_helper_is_no_watchdog(tmp_path: Path) -> None:
    """SIGABRT of a rank may be its watchdog's; of a worker that loads data it is its own."""
    text = raised(2, "RuntimeError: DataLoader worker (pid 486770) is killed by signal: Aborted. ")
    verdict = judged(tmp_path, text).verdict
    assert [who.rank for who in verdict.culprits] == [2]
    assert verdict.headline == "a data-loader worker of rank 2 was killed by SIGABRT"


@pytest.mark.parametrize("end", ["Killed", "Exited with exit code 1", "Out Of Memory"])
def test_a_task_that_is_a_launcher_is_no_rank(end: str, tmp_path: Path) -> None:
    text = f"srun: error: n7: task 1: {end}\n"
    assert _named(tmp_path, text) == {1}
    agent = (
        "W1121 10:20:30.1 41 torch/distributed/elastic/multiprocessing/api.py:900] Sending process 44 closing"
        " signal SIGTERM\n"
    )
    assert _named(tmp_path, text + agent) == set()


@pytest.mark.parametrize(
    "stop",
    [
        "srun: Terminating job step 17.0",
        "srun: launch/slurm: _step_signal: Terminating StepId=17.0",
        "slurmstepd: error: *** STEP 17.0 ON n1 CANCELLED AT 2026-07-14T08:00:36 ***",
    ],
)
@pytest.mark.parametrize("guilty", [0, 5])
@pytest.mark.parametrize("listed", [False, True])
def test_what_slurm_kills_behind_an_exit_is_not_guilty(
    listed: bool, guilty: int, stop: str, tmp_path: Path
) -> None:
    others = _others(guilty, 8)
    killed = [f"tasks {others[0]},{others[1]}", f"tasks {others[2]}-{others[2] + 1}"] if listed else []
    killed += [f"task {rank}" for rank in others]
    text = f"srun: error: n1: task {guilty}: Exited with exit code 1\n{stop}\n"
    text += "".join(f"srun: error: n1: {which}: Killed\n" for which in killed)
    verdict = judged(tmp_path, text).verdict
    assert [who.rank for who in verdict.culprits] in ([guilty], [])
    assert [who.rank for who in verdict.culprits or verdict.parties] == [guilty]
    assert "SIGKILL" not in verdict.headline


@pytest.mark.parametrize("per_task", [2, 4, 8])
def test_a_task_that_prints_for_other_ranks_is_no_rank(per_task: int, tmp_path: Path) -> None:
    """What srun says of such a task is about a node."""
    ranks = [task * per_task + per_task - 1 for task in range(3)]
    text = "".join(f"{task}: {caught(rank)}" for task, rank in enumerate(ranks))
    examined = judged(tmp_path, text + "srun: error: n2: task 2: Aborted (core dumped)\n")
    assert [standing["rank"] for standing in as_document(examined)["ranks"]] == ranks


def test_who_tells_of_others_is_a_messenger(tmp_path: Path) -> None:
    text = raised(1, "ValueError: rank 1 has loaded its part, but other ranks did not finish in 300 s")
    assert _named(tmp_path, text) == set()


def test_who_is_compared_is_suspected(tmp_path: Path) -> None:
    text = raised(0, "RuntimeError: disagreement between rank0 and rank6: rank0: [1207], rank6: [1212]")
    assert [who.rank for who in judged(tmp_path, text).verdict.parties] == [0, 6]


def test_intel_mpi_tells_who_it_was_and_the_signal(tmp_path: Path) -> None:
    bar = "=" * 40
    text = (
        f"{bar}\n=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n"
        f"=   RANK 3 PID 9665 RUNNING AT n4\n=   KILLED BY SIGNAL: 9 (Killed)\n{bar}\n"
    )
    verdict = judged(tmp_path, text).verdict
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("peer_died", [3])


@pytest.mark.parametrize("lost", [0, 1])
def test_the_node_whose_log_ends_without_a_word_is_named(lost: int, tmp_path: Path) -> None:
    nodes = [range(4), range(4, 8)]
    steps = [
        "".join(f"[rank{r}]: step {n} loss 1.{n}\n" for n in range(1, 9) for r in node) for node in nodes
    ]
    waits = "".join(map(caught, nodes[1 - lost]))
    told = judged(tmp_path, *(steps[n] + (waits if n != lost else "") for n in (0, 1))).verdict
    assert [who.rank for who in told.culprits] == list(nodes[lost]) and told.confidence == "low"
    alone = judged(tmp_path, steps[1 - lost] + waits).verdict
    assert not alone.culprits
    mixed = judged(tmp_path, "".join(steps) + waits).verdict
    assert not mixed.culprits


MISTAKES = (
    "ValueError: Global rank 4 is not part of group <torch.distributed.distributed_c10d.ProcessGroup object>",
    "AttributeError: 'NoneType' object has no attribute 'ProcessGroup'",
    "TypeError: new_process_group() got an unexpected keyword argument 'Gloo'",
    "KeyError: 'NCCL'",
    "AssertionError: this process group has no ranks of its own",
)


@pytest.mark.parametrize("error", MISTAKES)
@pytest.mark.parametrize("ranks", [(5,), (1, 3)])
def test_a_mistake_about_a_process_group_is_no_echo_of_another_rank(
    error: str, ranks: tuple[int, ...], tmp_path: Path
) -> None:
    verdict = judged(tmp_path, steps(1, 5) + "".join(raised(rank, error) for rank in ranks)).verdict
    assert verdict.cause == "user_code_exception"
    assert [who.rank for who in verdict.culprits] == list(ranks)


def test_a_mistake_that_tells_of_an_end_may_follow_from_it(tmp_path: Path) -> None:
    told = judged(tmp_path, raised(1, "ValueError: the NCCL watchdog of rank 0 exited")).verdict
    assert told.cause != "user_code_exception" and not told.culprits


LOOKED = """\
Traceback (most recent call last):
  File "/job/data.py", line 12, in open
    rows = load(path)
  File "{cache}", line 56, in __getitem__
    value = self._cache[key]
KeyError: '/data/rows.nc'

During handling of the above exception, another exception occurred:

Traceback (most recent call last):
  File "/job/data.py", line 12, in open
    rows = load(path)
PermissionError: [Errno 13] Permission denied: '/data/rows.nc'
"""


@pytest.mark.parametrize(
    ("cache", "shown"),
    [
        ("/opt/lib/python3.11/site-packages/xarray/backends/lru_cache.py", "PermissionError"),
        ("/job/cache.py", "KeyError"),  # the program's own: what it does afterwards may be its clean-up
    ],
)
def test_what_a_library_had_not_yet_is_no_reason(cache: str, shown: str, tmp_path: Path) -> None:
    verdict = judged(tmp_path, steps(1, 9) + LOOKED.format(cache=cache)).verdict
    assert verdict.headline.startswith(f"the program raised {shown}")
