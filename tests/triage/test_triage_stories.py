"""Whole jobs, as their logs tell them: the cause, the guilty rank, and nobody blamed who only waited."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import as_document, caught, culprits, elastic, judged, raised, status, steps
from schemas import assert_fits_schema

from nodedoctor.report import job_text
from nodedoctor.triage.job import examine_job

LOGS = Path(__file__).parent / "logs"
REPORT = Path(__file__).parents[2] / "nodedoctor" / "report"
CLOSED = (
    "RuntimeError: [/w/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:29596. "
    "This is typically caused by a remote worker crashing."
)
GLOO = (
    "RuntimeError: [/w/gloo/transport/tcp/unbound_buffer.cc:78] Timed out waiting 30000ms for recv operation"
    " to complete"
)
ACTOR = (
    "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
    "\tclass_name: PolicyWorker\n\tactor_id: d5\n\tpid: 4243\n\tnamespace: x\n\tip: 10.0.0.2\n"
    "The actor is dead because its worker process has died. Worker exit type: SYSTEM_ERROR Worker "
    "exit detail: Worker"
    " unexpectedly exits with a connection error code 2. End of file. There are some potential root "
    "causes. (1) The"
    " process is killed by SIGKILL by OOM killer due to high memory usage. (2) ray stop --force is "
    "called. (3) The"
    " worker is crashed unexpectedly due to SIGSEGV or other unexpected errors.\n"
)

STORIES: dict[str, tuple[str, str, list[int]]] = {
    "one rank of four never came": (
        steps(1, 4) + caught(0) + caught(1) + caught(3) + elastic([(0, -6), (1, -15), (2, -15), (3, -15)], 0),
        "cpu_stuck_or_slow_rank",
        [2],
    ),
    "only one rank's line": (caught(368), "undetermined", []),
    "all ranks timed out alike": ("world_size=2\n" + caught(0) + caught(1), "undetermined", []),
    "one rank skipped a call": (
        caught(0, seq=9, op="BROADCAST", numel=1) + caught(1, seq=8) + caught(2, seq=8) + caught(3, seq=8),
        "collective_mismatch",
        [0],
    ),
    "two ranks differ": (caught(0, seq=9) + caught(1, seq=8, numel=1), "collective_mismatch", []),
    "one rank had another size": (
        caught(0) + caught(1) + caught(2, numel=8192) + caught(3),
        "collective_mismatch",
        [2],
    ),
    "a rank was behind by its own word": (
        caught(0)
        + status(0, 7, 7, 6)
        + caught(2)
        + "[rank1]:[E1121 10:20:31.000000000 ProcessGroupNCCL.cpp:1682] [PG ID 0 PG GUID "
        "0(default_pg) Rank 1] Received a"
        " dump signal due to a collective timeout from  rank 0 and we will try our best to dump the "
        "debug info. Last"
        " enqueued NCCL work: 6, last completed NCCL work: 6.This is most likely caused by incorrect "
        "usages\n",
        "cpu_stuck_or_slow_rank",
        [1],
    ),
    "a rank came late": (
        caught(0, at="10:20:30.000000000", ms=45000)
        + "[rank5]:[E1121 10:21:05.000000000 ProcessGroupNCCL.cpp:542] [Rank 5] Collective "
        "WorkNCCL(SeqNum=7, OpType="
        "ALLREDUCE, NumelIn=4096, NumelOut=4096, Timeout(ms)=45000) raised the following async "
        "exception: NCCL error:"
        " remote process exited or there was a network error, NCCL version 2.22.3\n"
        "ncclRemoteError: A call failed possibly due to a network error or a remote process exiting "
        "prematurely.\n",
        "cpu_stuck_or_slow_rank",
        [5],
    ),
    "out of GPU memory first": (
        raised(
            2,
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 2 has a "
            "total capacity",
        )
        + caught(0)
        + caught(1)
        + caught(3),
        "peer_cuda_oom",
        [2],
    ),
    "an exception first": (
        raised(3, "ValueError: could not convert string to float") + raised(0, CLOSED) + raised(1, CLOSED),
        "user_code_exception",
        [3],
    ),
    "killed": (
        raised(0, CLOSED) + raised(2, CLOSED) + elastic([(0, -15), (1, -9), (2, -15)], 1),
        "peer_died",
        [1],
    ),
    "killed for memory": (
        elastic([(0, -15), (1, -9)], 1)
        + "[ 2393.036221] Memory cgroup out of memory: Killed process 4001 (python3) total-vm:1875232kB\n",
        "peer_host_oom",
        [1],
    ),
    "frozen": (
        caught(0) + "W1121 10:30:30.000000 3999 torch/distributed/elastic/multiprocessing/api.py:923] Unable "
        "to shutdown process"
        " 4001 via 15, forcefully exiting via 9\n" + elastic([(0, -6), (1, -9)], 0),
        "cpu_stuck_or_slow_rank",
        [1],
    ),
    "a monitored barrier": (
        "[rank1]:[E1121 05:53:48.524353148 ProcessGroupGloo.cpp:67] Rank 1 successfully reached "
        "monitoredBarrier, but"
        " received errors while waiting for send/recv from rank 0. Please check rank 0 logs for "
        "faulty rank.\n"
        "[rank0]:[E1121 05:53:48.540399324 ProcessGroupGloo.cpp:67] [Rank 0]: Ranks 2, 5 failed to pass"
        " monitoredBarrier in 5000 ms\n",
        "cpu_stuck_or_slow_rank",
        [2, 5],
    ),
    "gloo, one rank silent": (
        raised(0, GLOO)
        + raised(1, GLOO)
        + raised(3, GLOO)
        + elastic([(0, 1), (1, -15), (2, -15), (3, -15)], 0),
        "cpu_stuck_or_slow_rank",
        [2],
    ),
    "tokenising longer than the timeout": (
        "Running tokenizer on dataset:   9%|#6        | 280000/2969526 [29:55<4:48:08, 155.57 examples/s]"
        + "".join(
            f"[E ProcessGroupNCCL.cpp:475] [Rank {rank}] Watchdog caught collective operation "
            f"timeout: WorkNCCL(SeqNum=2,"
            " OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=1800000) ran for 1800328 "
            "milliseconds before timing"
            " out.\n"
            for rank in (2, 1, 3)
        ),
        "timeout_too_short_legit_work",
        [0],
    ),
    "the store's host waits at a prompt": (
        "[rank1]: torch.distributed.DistBackendError: [1] is setting up NCCL communicator and "
        "retrieving ncclUniqueId"
        " from [0] via c10d key-value store by key '0', but store->get('0') got error: Socket Timeout\n",
        "cpu_stuck_or_slow_rank",
        [0],
    ),
    "the store's host is gone": (
        "[rank1]: torch.distributed.DistBackendError: [1] is setting up NCCL communicator and "
        "retrieving ncclUniqueId"
        " from [0] via c10d key-value store by key '0', but store->get('0') got error: Connection "
        "reset by peer\n",
        "peer_died",
        [0],
    ),
    "a GPU fell off the bus": (
        "[Sat Nov 21 10:10:00 2026] NVRM: Xid (PCI:0000:3b:00): 79, pid=4001, name=python, GPU has "
        "fallen off the bus.\n" + elastic([(0, -15), (1, -6)], 1) + caught(0),
        "gpu_hardware_xid",
        [1],
    ),
    "Slurm's memory limit": (
        "slurmstepd: error: Detected 1 oom_kill event in StepId=99.0. Some of the step tasks have "
        "been OOM Killed.\n"
        "srun: error: node5: task 3: Out Of Memory\n",
        "peer_host_oom",
        [3],
    ),
    "InfiniBand gave up": (
        "node-2:5776:5902 [0] transport/net_ib.cc:1296 NCCL WARN NET/IB : Got completion from peer "
        "10.2.0.5<33092> with"
        " status=IBV_WC_RETRY_EXC_ERR(12) opcode=0 len=0 vendor_err=129 hca mlx5_0\n",
        "network_ib",
        [],
    ),
    "no interface": (
        "[2026-11-21 06:11:44] vm:28710:28710 [32764] bootstrap.cc:126 (bootstrapNetInit) NCCL WARN "
        "Bootstrap : no socket"
        " interface found\n",
        "network_socket_interface",
        [None],
    ),
    "shared memory": (
        "a:1:2 [0] misc/shmutils.cc:72 NCCL WARN Error: failed to extend /dev/shm/nccl-UbzKZ9 to "
        "9637892 bytes, error: No"
        " space left on device (28)\n",
        "shm_or_limits",
        [None],
    ),
    "one GPU for two ranks": (
        "h:1:2 [0] init.cc:738 NCCL WARN Duplicate GPU detected : rank 0 and rank 1 both on CUDA "
        "device 1000\n",
        "user_code_exception",
        [0, 1],
    ),
    "the Fabric Manager is down": (
        "RuntimeError: CUDA error: system not yet initialized\n",
        "nvlink_fabric",
        [],
    ),
    "a libnccl of another torch": (
        "ImportError: /venv/lib/python3.12/site-packages/torch/lib/libtorch_cuda.so: undefined "
        "symbol: ncclCommShrink\n",
        "version_mismatch",
        [],
    ),
    "an old driver": (
        "RuntimeError: The NVIDIA driver on your system is too old (found version 12020).\n",
        "driver_problem",
        [],
    ),
    "Ray knows only that it is dead": (
        "(PolicyWorker pid=4242) step done rank=0\n(PolicyWorker pid=4243) step done rank=1\n" + ACTOR,
        "peer_died",
        [1],
    ),
    "Ray's memory monitor kills the newest, not the hog": (
        "(PolicyWorker pid=6009) step done rank=2\n(PolicyWorker pid=6010) step done rank=3\n"
        "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low on memory.\n"
        "Memory on the node (IP: 10.0.0.2, ID: f9) where the lease (lease ID: 03, "
        "name=PolicyWorker.train, pid=6010,"
        " memory used=0.16GB) was running was 4.74GB / 23.54GB (0.2), which exceeds the memory usage "
        "threshold of 0.2.\n"
        "PID\tMEM(GB)\tCOMMAND\n6009\t3.24\tray::PolicyWorker.train\n6010\t0.16\tray::PolicyWorker.train\n",
        "peer_host_oom",
        [2],
    ),
    "one rank had fewer steps": (
        "rank=2 training finished\n" + raised(0, CLOSED) + raised(1, CLOSED) + raised(3, CLOSED),
        "collective_mismatch",
        [2],
    ),
    "all but one saw a connection close": (
        raised(0, CLOSED) + raised(1, CLOSED) + raised(3, CLOSED),
        "peer_died",
        [2],
    ),
    "an abort of the watchdog is no death of its own": (
        "[rank0]: ncclRemoteError: A call failed possibly due to a network error or a remote process exiting"
        " prematurely.\n" + elastic([(0, -6), (1, -15)], 0),
        "undetermined",
        [],
    ),
    "a victim that cannot be stopped is no culprit": (
        caught(0)
        + caught(1)
        + "W1121 10:30:30.000000 3999 torch/distributed/elastic/multiprocessing/api.py:923] Unable "
        "to shutdown"
        " process 4001 via 15, forcefully exiting via 9\n" + elastic([(0, -6), (1, -9)], 0),
        "undetermined",
        [],
    ),
    "mp.spawn names the process": (
        "Traceback (most recent call last):\n"
        '  File "train.py", line 5, in <module>\n'
        "    mp.spawn(main, nprocs=4)\n"
        "torch.multiprocessing.spawn.ProcessRaisedException: \n\n"
        "-- Process 3 terminated with the following error:\n"
        "Traceback (most recent call last):\n"
        '  File "train.py", line 20, in main\n'
        '    x = batch["image"]\n'
        "KeyError: 'image'\n",
        "user_code_exception",
        [3],
    ),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("name", STORIES)
def test_story(name: str, tmp_path: Path) -> None:
    text, cause, ranks = STORIES[name]
    examined = judged(tmp_path, text)
    assert (examined.verdict.cause, culprits(examined)) == (cause, ranks)
    assert examined.verdict.outcome == ("undetermined" if cause == "undetermined" else "failure")
    assert_fits_schema(as_document(examined), "triage")
    assert examined.verdict.headline[:1].upper() in job_text.render(as_document(examined))


BANNER = (
    "W1121 10:31:00.000000 5000 torch/distributed/run.py:774] Setting OMP_NUM_THREADS environment variable "
    "for each process to be 1 in default, to avoid your system being overloaded\n"
)

CALM = {
    "progress": steps(1, 10),
    "a scary line in a job that went on": "RuntimeError: CUDA out of memory. Tried to allocate 2 GiB\n"
    + steps(1, 10),
    "a warning while starting": "[c10d] The client socket has failed to connect to [h]:29500 (errno: 111)\n"
    + steps(1, 9),
    "time limit": steps(1, 3)
    + "slurmstepd: error: *** JOB 9 ON n5 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***\n",
    "cancelled": steps(1, 3) + "slurmstepd: error: *** STEP 9.0 ON n5 CANCELLED AT 2026-01-01T00:00:00 ***\n",
    "trouble after the end": steps(1, 3) + "Training completed\n" + caught(0),
}


@pytest.mark.parametrize("name", CALM)
def test_healthy(name: str, tmp_path: Path) -> None:
    examined = judged(tmp_path, CALM[name])
    assert (examined.verdict.outcome, examined.verdict.cause) == ("clean", "none")
    assert_fits_schema(as_document(examined), "triage")


def test_nothing_at_all_is_not_healthy(tmp_path: Path) -> None:
    assert judged(tmp_path, "NCCL version 2.21.5+cuda12.4\n").verdict.outcome == "undetermined"


def test_the_last_attempt_is_judged(tmp_path: Path) -> None:
    first = raised(1, "ValueError: bad shard") + elastic([(0, -15), (1, 1)], 1)
    second = BANNER + steps(1, 6) + raised(0, CLOSED) + elastic([(0, -15), (2, -9)], 2)
    examined = judged(tmp_path, first + second)
    assert (examined.verdict.cause, culprits(examined), examined.verdict.incidents) == ("peer_died", [2], 2)


def test_ray_folds_lines_so_silence_proves_nothing(tmp_path: Path) -> None:
    text = caught(0) + caught(1) + caught(3).rstrip() + " [repeated 2x across cluster]\n"
    assert judged(tmp_path, text).verdict.cause == "undetermined"


def test_subgroups_are_not_compared(tmp_path: Path) -> None:
    """Group ranks that do not equal the global ones belong to groups of which nothing is known."""
    text = caught(8, seq=3).replace("[Rank 8]", "[Rank 0]") + caught(9, seq=90).replace(
        "[Rank 9]", "[Rank 0]"
    )
    assert judged(tmp_path, text).verdict.cause == "undetermined"


def test_a_variable_that_nothing_reads_is_a_subject_where_the_log_names_it(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("export NCCL_TIMEOUT=3600\n" + (LOGS / "skyrl_policy_train.log").read_text())
    claims = dict(examine_job([str(log)]).verdict.not_the_cause)
    assert "SKYRL_WORKER_NCCL_TIMEOUT_IN_S" in claims["NCCL_TIMEOUT"]


def test_skyrl_article() -> None:
    verdict = examine_job([str(LOGS / "skyrl_policy_train.log")]).verdict
    assert (verdict.outcome, verdict.culprits) == ("undetermined", ())
    claims = {claim: why for claim, why in verdict.not_the_cause}
    assert "1.09 GB" in claims["network bandwidth or the amount of data"]
    assert "NCCL_TIMEOUT" not in claims
    assert verdict.fixes == ()
    commands = [command for step in verdict.next for command in step.commands]
    assert (
        "export TORCH_NCCL_TRACE_BUFFER_SIZE=2000" in commands
    )  # torch 2.7 does not know TORCH_FR_BUFFER_SIZE
    assert "export RAY_DEDUP_LOGS=0" in commands
    assert verdict.collective is not None and verdict.collective.numel_out == 545000960


def test_gemma_article() -> None:
    verdict = examine_job([str(LOGS / "gemma_allreduce.log")]).verdict
    assert (verdict.outcome, verdict.culprits) == ("undetermined", ())
    cause, why = verdict.alternatives[0]
    assert cause == "collective_mismatch" and "vision tower" in why
    assert any(
        "ddp_timeout" in claim and "not the default group" in why for claim, why in verdict.not_the_cause
    )
    assert "only rank 3" in verdict.next[0].text


def reset(rank: int) -> str:
    """What gloo says on a rank whose peer is gone."""
    return raised(rank, "RuntimeError: [pair.cc:537] Read error [127.0.0.1]:25476: Connection reset by peer.")


def alive(*ranks: int) -> str:
    """A line of each rank by which it is known."""
    return "".join(f"[rank{rank}]: world_size=4\n" for rank in ranks)


def test_a_lost_node_is_named_by_its_silent_log(tmp_path: Path) -> None:
    examined = judged(tmp_path, alive(0, 1) + reset(0) + reset(1), alive(2, 3))
    assert (examined.verdict.cause, culprits(examined)) == ("peer_died", [2, 3])


def test_without_that_log_nobody_is_named_but_the_peers_are(tmp_path: Path) -> None:
    verdict = judged(tmp_path, alive(0, 1) + reset(0) + reset(1)).verdict
    assert (verdict.cause, verdict.culprits) == ("peer_died", ())
    assert [who.rank for who in verdict.parties] == [2, 3]


def test_silent_ranks_with_logs_of_their_own_are_not_one_node(tmp_path: Path) -> None:
    """One of them was killed and the other ended with it: which one is not to be seen."""
    examined = judged(tmp_path, alive(0, 1) + reset(0) + reset(1), alive(2), alive(3))
    assert culprits(examined) == []
