"""Who is named when the host's memory ran out: the one process that was killed, else the node."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import elastic, judged, steps

SLURM = (
    "slurmstepd: error: Detected 1 oom_kill event in StepId=511.batch. Some of the step tasks have been OOM"
    " Killed.\n",
    "slurmstepd: error: Detected 2 oom-kill event(s) in step 511.batch cgroup. Some of your processes may"
    " have been killed by the cgroup out-of-memory handler.\n",
    "slurmstepd: error: Exceeded job memory limit\n",
)
SHELLS = (
    "/var/spool/slurmd/job00511/slurm_script: line 31: {pid} Killed                  python3 train.py\n",
    "run.sh: line 7: {pid} Killed                  torchrun --nproc_per_node=8 train.py --lr 3e-4\n",
)
RAY = (
    "(raylet) [2026-11-07 10:41:25,118 E 811 902] (raylet) node_manager.cc:3010: System memory low at node"
    " with IP {host}. Used memory (228.11GB) / total capacity (236.50GB) (0.964524) exceeds threshold 0.95,"
    " killing latest task with name Rollout.step and actor ID 7ac1e9 to avoid running out of memory.\n",
    "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\n"
    "Memory on the node (IP: {host}, ID: 5ca111) where the task was running was 231.02GB / 236.50GB (0.98),"
    " which exceeds the memory usage threshold of 0.95.\n",
    "The actor is dead because its worker process has died. Worker exit type: USER_ERROR Worker exit detail:"
    " Task was killed due to the node running low on memory.\n\n"
    "Memory on the node (IP: {host}, ID: 5ca111) where the ta\n",
)


@pytest.mark.parametrize("limit", SLURM)
@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.parametrize("limit_first", [True, False])
def test_the_one_process_that_a_shell_saw_killed_is_named(
    tmp_path: Path, limit: str, shell: str, limit_first: bool
) -> None:
    killed = shell.format(pid=90210)
    verdict = judged(tmp_path, steps(1, 9) + (limit + killed if limit_first else killed + limit)).verdict
    assert (verdict.cause, [who.pid for who in verdict.culprits]) == ("peer_host_oom", [90210])
    assert verdict.headline.startswith("process 90210 used up")
    assert any("90210 Killed" in event.text for event in verdict.evidence)
    assert not any("who killed it" in fix.text for fix in verdict.fixes)


@pytest.mark.parametrize("rank", [3, 19])
def test_the_kernel_counts_otherwise_than_the_launcher_in_a_container(tmp_path: Path, rank: int) -> None:
    kernel = "[Nov20 10:11] Memory cgroup out of memory: Killed process 884211 (python) total-vm:91234kB\n"
    verdict = judged(tmp_path, steps(1, 9) + elastic([(rank, -9)], rank) + kernel).verdict
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("peer_host_oom", [rank])


@pytest.mark.parametrize("tasks", ["task 1", "tasks 1-2"])
def test_tasks_that_launch_ranks_are_no_ranks_that_memory_ran_out_for(tasks: str, tmp_path: Path) -> None:
    started = "E1121 10:30:00.000000 3999 torch/distributed/run.py:766] started\n"
    killed = f"srun: error: n2: {tasks}: Out Of Memory\n"
    verdict = judged(
        tmp_path, started + "[rank0]: step 1 loss 2.0\n[rank9]: step 1 loss 2.0\n" + killed
    ).verdict
    assert (verdict.cause, {who.rank for who in verdict.culprits}) == ("peer_host_oom", {None})


@pytest.mark.parametrize("limit", SLURM)
def test_of_two_that_were_killed_none_is_named(tmp_path: Path, limit: str) -> None:
    killed = "".join(SHELLS[0].format(pid=pid) for pid in (90210, 90211))
    verdict = judged(tmp_path, steps(1, 9) + killed + limit).verdict
    assert (verdict.cause, verdict.culprits) == ("peer_host_oom", ())


@pytest.mark.parametrize("text", RAY)
@pytest.mark.parametrize("host", ["10.4.0.17", "172.30.8.6"])
def test_the_node_whose_memory_ray_found_full_is_named(tmp_path: Path, text: str, host: str) -> None:
    verdict = judged(tmp_path, steps(1, 9) + text.format(host=host)).verdict
    assert (verdict.cause, [who.host for who in verdict.culprits]) == ("peer_host_oom", [host])
    assert verdict.headline.startswith(
        (f"the memory of {host} was used up", f"the memory of {host} was full")
    )
    two = judged(tmp_path, text.format(host=host) + text.format(host="10.4.0.18")).verdict
    assert (two.cause, two.culprits) == ("peer_host_oom", ())


@pytest.mark.parametrize("prefix", ["", "[1,7]<stderr>:", "[rank2]: "])
def test_the_node_of_the_process_that_open_mpi_lost_is_named(tmp_path: Path, prefix: str) -> None:
    """Not who lost it, whose line it is."""
    text = "An MPI communication peer process has unexpectedly disconnected.\n\n"
    text += "  Local host: {}\n  Peer host:  {}\n"
    told = "".join(f"{prefix}{line}\n" for line in text.format("gpu-3", "gpu-16").splitlines())
    verdict = judged(tmp_path, told).verdict
    assert [(who.host, who.rank) for who in verdict.culprits] == [("gpu-16", None)]
    other = "".join(f"{prefix}{line}\n" for line in text.format("gpu-3", "gpu-17").splitlines())
    assert judged(tmp_path, told + other).verdict.culprits == ()


def test_slurm_puts_the_node_behind_its_own_name(tmp_path: Path) -> None:
    said = SLURM[0].replace("slurmstepd:", "slurmstepd-gpu016:")
    assert [who.host for who in judged(tmp_path, steps(1, 9) + said).verdict.culprits] == ["gpu016"]


TABLE = """\
ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.
Memory on the node (IP: 10.9.0.4, ID: c1) where the lease (lease ID: 07, name=Trainer.fit, pid=5120,\
 memory used=1.44GB) was running was 402.10GB / 421.00GB (0.955), which exceeds the threshold of 0.95.
PID\tMEM(GB)\tCOMMAND
"""
SERVICE = "/home/ed/.venv/lib/python3.11/site-packages/ray/core/src/ray/gcs/gcs_server --log_dir=/tmp"


@pytest.mark.parametrize(
    ("row", "hog"),
    [
        (f"4411\t2.01\t{SERVICE}", None),
        (f"4411\t222.01\t{SERVICE}", None),  # Ray's own service is no process of the job, whatever it holds
        ("5121\t1.97\tray::Trainer.fit", None),  # four of 402 GB fill nothing
        ("5121\t197.00\tray::Trainer.fit", 5121),
        ("5300\t88.40\t/opt/conda/bin/python3.11 build_index.py", 5300),
    ],
)
def test_only_a_process_that_holds_enough_filled_the_node(tmp_path: Path, row: str, hog: int | None) -> None:
    verdict = judged(tmp_path, TABLE + row + "\n5120\t1.44\tray::Trainer.fit\n").verdict
    assert verdict.cause == "peer_host_oom"
    if hog is None:
        assert [(who.host, who.pid) for who in verdict.culprits] == [("10.9.0.4", None)]
        assert "killed process 5120, its newest" in verdict.headline
    else:
        assert [who.pid for who in verdict.culprits] == [hog]


@pytest.mark.parametrize("sizes", [(101.9, 101.2, 99.8, 98.7), (180.0, 171.5), (130.0, 129.1, 60.0)])
def test_of_processes_that_hold_about_as_much_none_filled_the_node(
    sizes: tuple[float, ...], tmp_path: Path
) -> None:
    rows = "".join(f"{5300 + n}\t{size}\tray::Trainer.fit\n" for n, size in enumerate(sizes))
    verdict = judged(tmp_path, TABLE + rows).verdict
    assert [(who.host, who.pid) for who in verdict.culprits] == [("10.9.0.4", None)]
    assert "killed process 5120, its newest" in verdict.headline


OBJECT = "Failed to put object 00ff in object store because it is full. Object size is 4294967296 bytes."
STORE_FULL = (
    "ray.exceptions.ObjectStoreFullError: " + OBJECT,
    "(Reader pid=55) ray.exceptions.ObjectStoreFullError: " + OBJECT,
    "ray.exceptions.RayTaskError(ObjectStoreFullError): ray::Reader.load() (pid=55, ip=10.0.0.7)\n"
    '  File "/job/read.py", line 9, in load\n    return ray.put(table)\n'
    "ray.exceptions.ObjectStoreFullError: " + OBJECT,
    "ray.exceptions.OutOfDiskError: Local disk is full",
)


@pytest.mark.parametrize("words", STORE_FULL)
def test_rays_full_store_is_a_limit_of_the_host(words: str, tmp_path: Path) -> None:
    trace = (
        'Traceback (most recent call last):\n  File "/job/run.py", line 3, in <module>\n    ray.get(refs)\n'
    )
    verdict = judged(tmp_path, steps(1, 9) + trace + words + "\n").verdict
    assert (verdict.outcome, verdict.cause) == ("failure", "shm_or_limits")
    went_on = judged(
        tmp_path, steps(1, 9) + f"WARNING: ray.put failed: {words}, will try again\n" + steps(10, 30)
    )
    assert went_on.verdict.outcome == "clean"
