"""What launchers say of the process that ended: who it was, told by any of the ranks of a world."""

from __future__ import annotations

from collections.abc import Callable

Told = Callable[[int, int], str]


def paddle(guilty: int, world: int) -> str:
    """Paddle's launcher until 2.2."""
    clock = "2026-11-21 10:20:3{}"
    return (
        f"INFO {clock.format(1)},611 launch_utils.py:307] terminate all the procs\n"
        f"ERROR {clock.format(1)},611 launch_utils.py:545] ABORT!!! Out of all {world} trainers, the trainer"
        f" process with rank=[{guilty}] was aborted. Please check its log.\n"
    )


def paddle_container(guilty: int, world: int) -> str:
    """Paddle's launcher since 2.3."""
    return (
        "LAUNCH INFO 2026-11-21 10:20:31,067 Pod failed\n"
        "LAUNCH ERROR 2026-11-21 10:20:31,067 Container failed !!!\n"
        f"Container rank {guilty} status failed cmd ['/usr/bin/python3', '-u', 'train.py', '--lr', '0.1']"
        f" code 1 log log/workerlog.{guilty}\nenv {{'LANG': 'C'}}\n"
    )


def horovod_gloo(guilty: int, world: int) -> str:
    """Horovod without MPI, as each of its processes ends."""
    return (
        f"Process {guilty} exit with status code 1.\nTraceback (most recent call last):\n"
        '  File "/opt/bin/horovodrun", line 8, in <module>\n    sys.exit(run_commandline())\n'
    )


def horovod_first(guilty: int, world: int) -> str:
    """Horovod's last words; what ends the container afterwards is no cause."""
    return (
        "RuntimeError: Horovod detected that one or more processes exited with non-zero status, thus causing"
        f" the job to be terminated. The first process to do so was:\nProcess name: {guilty}\nExit code: 1\n"
    )


def scheduler_of_a_server(guilty: int, world: int) -> str:
    """SGLang says who, and in the next line how."""
    return (
        f"[2026-11-21 10:20:30] Rank {guilty} scheduler is dead. Please check if there are relevant logs.\n"
        "[2026-11-21 10:20:32] Exit code: -9\n"
    )


def shard_of_a_server(guilty: int, world: int) -> str:
    """text-generation-inference puts the rank behind what it says."""
    waits = "".join(
        f"2026-11-21T10:20:2{n}.1Z  INFO shard-manager: text_generation_launcher: Waiting for shard to be"
        f" ready... rank={rank}\n"
        for n, rank in enumerate(range(world))
    )
    return (
        f"{waits}2026-11-21T10:20:30.7Z ERROR shard-manager: text_generation_launcher: Shard process was"
        f" signaled to shutdown with signal 11 rank={guilty}\nError: ShardCannotStart\n"
    )


def mvapich(guilty: int, world: int) -> str:
    """MVAPICH2's handler of signals."""
    return f"[n17:mpi_rank_{guilty}][error_sighandler] Caught error: Segmentation fault (signal 11)\n"


def mpd(guilty: int, world: int) -> str:
    """MPICH's old process manager."""
    return (
        f"rank {guilty} in job 7  n17_41122   caused collective abort of all ranks\n"
        f"  exit status of rank {guilty}: killed by signal 11 \n"
    )


def msrun(guilty: int, world: int) -> str:
    """MindSpore's scheduler does not hear one of its nodes any more."""
    where = "[mindspore/parallel/cluster/process_entity/_api.py:431]"
    head = f"[ERROR] ME(77:28159,MainProcess):2026-11-21-10:20:38.722.000 {where}"
    return f"{head} Time out nodes are ['{guilty}']\n"


def spawned_and_cut(guilty: int, world: int) -> str:
    """mp.spawn shows what one process raised, and the log ends within it."""
    return (
        "Exception:\n\n"
        f"-- Process {guilty} terminated with the following error:\nTraceback (most recent call last):\n"
        '  File "/job/spawn.py", line 20, in _wrap\n    fn(i, *args)\n'
    )


def spawned_with_a_check(guilty: int, world: int) -> str:
    """What stands in that traceback is of this process, whatever reads it."""
    return spawned_and_cut(guilty, world) + "RuntimeError: client.cc:1198 : Check failed: session.Run() OK\n"


def spawned_code(guilty: int, world: int) -> str:
    """mp.spawn, of a process that left with a code."""
    return (
        'Traceback (most recent call last):\n  File "/job/spawn.py", line 112, in join\n    (index, code)\n'
        f"Exception: process {guilty} terminated with exit code 17\n"
    )


def watchdog_of_all(guilty: int, world: int) -> str:
    """A C++ exception has no prefix; its watchdog tells the rank in the group of all ranks."""
    return (
        "terminate called after throwing an instance of 'c10::DistBackendError'\n"
        f"  what():  [PG ID 0 PG GUID 0(default_pg) Rank {guilty}] Process group watchdog thread terminated"
        " with exception: CUDA error: an illegal memory access was encountered\n"
    )


def scheduler_of_slices(guilty: int, world: int) -> str:
    """A scheduler of SGLang ends in a traceback that the log does not finish."""
    return (
        f"[2026-11-21 10:20:30 TP{guilty}] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/srv/scheduler.py", line 2015, in run_scheduler_process\n    scheduler.event_loop_normal()\n'
    )


ENDS: tuple[Told, ...] = (
    paddle,
    paddle_container,
    horovod_gloo,
    horovod_first,
    scheduler_of_a_server,
    shard_of_a_server,
    mvapich,
    mpd,
    msrun,
    spawned_and_cut,
    spawned_with_a_check,
    spawned_code,
    watchdog_of_all,
    scheduler_of_slices,
)
