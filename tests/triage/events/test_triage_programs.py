"""What JAX, inference engines, HCCL, AMD's driver, NCCL's last error and kept stacks say of a failure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from say import as_document, culprits, judged, raised

from nodedoctor.triage.job import examine
from nodedoctor.triage.model import Who

TASK = "/job:jax_worker/replica:0/task:"
SERVICE = (
    "2026-11-21 15:47:38.568412: E xla/tsl/distributed_runtime/coordination/coordination_service.cc:1170] "
)
ENGINE = "(EngineCore_DP0 pid=1174) ERROR 11-21 06:21:53 [multiproc_executor.py:273] "
DEAD = (
    "vllm.v1.engine.exceptions.EngineDeadError: EngineCore encountered an issue. See stack trace (above).\n"
)
JAX_BARRIER = (
    "jaxlib.xla_extension.XlaRuntimeError: DEADLINE_EXCEEDED: Barrier timed out. Id:"
    " save.0. This usually happens"
    " because a task triggered the barrier too early or too slowly.\n# of tasks that"
    " reached the barrier: 2/4.\n"
    f"The first task at the barrier: {TASK}1. Some timed out task names:\n{TASK}3\n{TASK}0\n"
)
SAID = {
    "a JAX task was lost": (
        f"{SERVICE}{TASK}3 has been set to ERROR in coordination service: UNAVAILABLE: Task {TASK}3 heartbeat"
        " timeout. This indicates that the remote task has failed, got preempted, or crashed.\n",
        "peer_died",
        [3],
    ),
    "a barrier of JAX": (JAX_BARRIER, "cpu_stuck_or_slow_rank", [0, 3]),
    "JAX ended itself": (
        "F1121 17:42:48.594200 1044529 client.h:77] Terminating process because the JAX distributed service"
        " detected fatal errors. This most likely indicates that another task died.\n",
        "undetermined",
        [],
    ),
    "XLA's rendezvous": (
        "F1121 10:00:20.000000 1000 rendezvous.cc:52] [id=6] Termination timeout for `[6]"
        " [rank=6] Initialize clique`"
        " of 40 seconds exceeded. Exiting to ensure a consistent program state.\n",
        "undetermined",
        [],
    ),
    "a worker of vLLM": (
        f"{ENGINE}Worker proc VllmWorker-2 died unexpectedly, shutting down executor.\n{DEAD}",
        "peer_died",
        [2],
    ),
    "vLLM waits for a worker": (
        "(EngineCore pid=222) INFO 11-21 11:16:19 [shm_broadcast.py:705] No available"
        " shared memory broadcast block"
        f" found in 60 seconds.\n(EngineCore pid=222) TimeoutError: RPC call to"
        f" sample_tokens timed out.\n{DEAD}",
        "undetermined",
        [],
    ),
    "SGLang's watchdog": (
        "[2026-11-21 00:57:15 TP4] Watchdog timeout (self.watchdog_timeout=300)\n"
        "[2026-11-21 00:57:15 TP6] Watchdog timeout (self.watchdog_timeout=300)\n"
        "[2026-11-21 00:57:20] Received sigquit from a child process. It usually means the"
        " child failed.\nKilled\n",
        "undetermined",
        [],
    ),
    "an exception in SGLang": (
        "[2026-11-21 00:57:15 TP2] Scheduler hit an exception: Traceback (most recent call last):\n"
        '  File "/sgl/scheduler.py", line 1, in run\n    step()\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 2 has"
        " a total capacity of\n"
        "[2026-11-21 00:57:20] Received sigquit from a child process. It usually means the"
        " child failed.\nKilled\n",
        "peer_cuda_oom",
        [2],
    ),
    "HCCL could not connect": (
        raised(1, "RuntimeError: InnerRunOpApi OPS function error: HcclAllreduce, error code is 6")
        + "[rank1]: EI0006: [PID: 1292363] 2026-11-21-18:07:20.444.436 Getting socket times out. Reason:"
        " Remote Rank did not send the data in time.\n",
        "undetermined",
        [],
    ),
    "amdgpu's reset": (
        "Nov 21 10:00:00 n1 kernel: amdgpu 0000:c5:00.0: amdgpu: GPU reset begin!. Source:  3\n",
        "gpu_hardware_xid",
        [],
    ),
    "ROCm out of memory": (
        "[rank3]: RuntimeError: HIP out of memory. Tried to allocate 2.00 GiB.\n",
        "peer_cuda_oom",
        [3],
    ),
    "three of four came": (
        "[rank0]: torch.distributed.DistStoreError: Timed out after 601 seconds waiting"
        " for clients. 3/4 clients"
        " joined.\n",
        "network_socket_interface",
        [],
    ),
    "a memory limit that was only touched": (
        "slurmstepd: error: Exceeded step memory limit at some point.\n" + raised(1, "ValueError: bad shard"),
        "user_code_exception",
        [1],
    ),
}


@pytest.mark.parametrize("name", SAID)
def test_what_is_said(name: str, tmp_path: Path) -> None:
    text, cause, ranks = SAID[name]
    examined = judged(tmp_path, text)
    assert (examined.verdict.cause, culprits(examined)) == (cause, ranks)
    assert examined.verdict.outcome in ("failure", "undetermined")


def test_three_of_three_logs_name_who_did_not_come(tmp_path: Path) -> None:
    line = "[rank{}]: torch.distributed.DistStoreError: Timed out after 601 seconds waiting for clients. "
    examined = judged(tmp_path, *(line.format(rank) + "3/4 clients joined.\n" for rank in (0, 1, 3)))
    assert culprits(examined) == [2]
    assert "1 of 4 processes never joined" in examined.verdict.headline


@pytest.mark.parametrize(
    "said", ["Cuda failure 719 'unspecified launch failure'", "NET/Plugin: bad handshake 17"]
)
def test_the_line_behind_last_error_is_read(said: str, tmp_path: Path) -> None:
    head = "DistBackendError: NCCL error in: x.cpp:1, unhandled cuda error, NCCL 2.27.5\n"
    document = as_document(
        judged(tmp_path, f"{head}ncclInternalError: Internal check failed.\nLast error:\n{said}\n")
    )
    assert said in str(document["headline"]) + str([line["text"] for line in document["evidence"]])


def test_error_files_of_torchelastic_name_their_rank(tmp_path: Path) -> None:
    for rank, said in ((0, "RuntimeError: NCCL communicator was aborted"), (1, "ValueError: bad shard 17")):
        folder = tmp_path / "attempt_0" / str(rank)
        folder.mkdir(parents=True)
        trace = f'Traceback (most recent call last):\n  File "x.py", line 3, in main\n    load()\n{said}\n'
        message = {"message": said, "extraInfo": {"py_callstack": trace, "timestamp": f"179524030{rank}"}}
        (folder / "error.json").write_text(json.dumps({"message": message}))
    examined = examine([str(tmp_path)])
    assert examined.verdict.cause == "user_code_exception" and culprits(examined) == [1]


def stack(pid: int, *frames: str) -> str:
    """A dump of py-spy."""
    head = f"Process {pid}: python train.py\nPython v3.11.7 (/usr/bin/python3.11)\n\nThread {pid} (active)"
    idle = 'Thread 77 (idle): "Thread-1"\n    wait (threading.py:331)\n'
    return head + ': "MainThread"\n' + "".join(f"    {frame}\n" for frame in frames) + idle


WAITS = ("all_reduce (torch/distributed/distributed_c10d.py:2501)", "step (train.py:40)")
READS = ("read (ssl.py:1103)", "load (train.py:12)")


def test_kept_stacks_show_who_is_elsewhere(tmp_path: Path) -> None:
    for rank in range(4):
        (tmp_path / f"rank{rank}.txt").write_text(stack(4000 + rank, *(READS if rank == 2 else WAITS)))
    examined = examine([str(tmp_path)])
    assert examined.verdict.cause == "cpu_stuck_or_slow_rank" and culprits(examined) == [2]
    assert "read (ssl.py:1103)" in examined.verdict.headline


def test_one_kept_stack_accuses_nobody(tmp_path: Path) -> None:
    examined = judged(tmp_path, stack(4000, *READS))
    assert examined.verdict.outcome == "undetermined" and not culprits(examined)
    assert "ssl.py" in examined.verdict.evidence[0].text


@pytest.mark.parametrize(
    ("world", "role"),
    [
        ("PolicyModelActor", "policy"),
        ("RefWorker", "reference"),
        ("ReferenceModelActor", "reference"),
        ("ActorRolloutRefWorker", "policy"),
        ("CriticWorker", "critic"),
        ("RewardModelActor", "reward"),
        ("AsyncVLLMInferenceEngine", "rollout"),
        ("WorkerDict", ""),
        ("default", ""),
        ("Refinery", ""),
    ],
)
def test_roles_by_the_names_of_actors(world: str, role: str) -> None:
    assert Who(world=world).role == role


def test_a_headline_says_the_role(tmp_path: Path) -> None:
    who = "(PolicyWorker pid=42) [rank3]: "
    text = f"{who}Traceback (most recent call last):\n{who}ValueError: x\n"
    document = as_document(judged(tmp_path, text))
    assert document["headline"].startswith("policy rank 3") and document["culprits"][0]["role"] == "policy"
