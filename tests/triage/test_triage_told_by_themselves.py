"""Who ended a job is named by his own words: of a crash, of MPI's error, of a comparison."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import culprits, judged, steps

HANDLER = (
    "[gpu-{node}:{pid}] *** Process received signal ***\n"
    "[gpu-{node}:{pid}] Signal: Segmentation fault (11)\n"
    "[gpu-{node}:{pid}] [ 0] linux-vdso.so.1(__kernel_rt_sigreturn+0x0)[0x400027ce07dc]\n"
    "[gpu-{node}:{pid}] *** End of error message ***\n"
)
SEEN = "srun: error: gpu-{node}: task {task}: {how}\n"
STOP = "srun: Terminating StepId=4411.2\n"


def crashes(tasks: dict[int, int], told: bool = True, how: str = "Segmentation fault (core dumped)") -> str:
    """Tasks on nodes that crash: the launcher stops the step when it has seen the first of them."""
    rows = [SEEN.format(node=node, task=task, how=how) for task, node in tasks.items()]
    own = "".join(HANDLER.format(node=node, pid=5100 + task) for task, node in tasks.items()) if told else ""
    others = "srun: error: gpu-1: task 1: Terminated\n"
    return own + rows[0] + STOP + "".join(rows[1:]) + others


@pytest.mark.parametrize("tasks", [{0: 1, 2: 2}, {5: 2, 3: 1, 4: 1}])
def test_all_that_told_their_crash_are_named(tasks: dict[int, int], tmp_path: Path) -> None:
    found = judged(tmp_path, steps(1, 9) + crashes(tasks))
    assert (found.verdict.cause, culprits(found)) == ("peer_died", sorted(tasks))


@pytest.mark.parametrize("how", ["Bus error", "Segmentation fault"])
def test_crashes_that_only_the_launcher_saw_are_of_one_of_them(how: str, tmp_path: Path) -> None:
    verdict = judged(tmp_path, crashes({3: 1, 2: 2}, told=False, how=how)).verdict
    assert {who.rank for who in verdict.parties} == {2, 3} and not verdict.culprits
    killed = judged(tmp_path, crashes({3: 1, 2: 2}, told=False, how="Killed"))
    assert culprits(killed) == [3]  # the other one was killed for it


UCX = "[1770001823.09{n}560] [gpu-17:51{rank}:1]          ib_md.c:478  UCX  {level} {said}\n"
REFUSED = "ibv_reg_mr(address=0x2aab4bc00000, length=131072, access=0xf) failed: {why}"
MPI = (
    "[gpu-17:51{rank}] *** An error occurred in MPI_Bcast\n"
    "[gpu-17:51{rank}] *** reported by process [1908146176,{rank}]\n"
    "[gpu-17:51{rank}] *** on communicator MPI_COMM_WORLD\n"
    "[gpu-17:51{rank}] *** MPI_ERRORS_ARE_FATAL (processes in this communicator will now abort)\n"
)
KILLED = (
    "slurmstepd: error: *** STEP 4411.0 ON gpu-17 CANCELLED AT 2026-11-07T10:41:25 ***\n"
    "srun: error: gpu-17: tasks 0-3: Killed\n"
)


@pytest.mark.parametrize("rank", [0, 3])
@pytest.mark.parametrize(
    ("why", "cause"), [("Bad address", "network_ib"), ("Cannot allocate memory", "shm_or_limits")]
)
def test_who_aborts_the_job_was_killed_by_nobody(rank: int, why: str, cause: str, tmp_path: Path) -> None:
    said = UCX.format(n=3, rank=rank, level="ERROR", said=REFUSED.format(why=why))
    debug = UCX.format(n=2, rank=1, level="DEBUG", said="mm failed to allocate 1065072 bytes with hugetlb")
    text = debug * 4 + said + MPI.format(rank=rank) + KILLED
    found = judged(tmp_path, text)
    assert (found.verdict.cause, culprits(found)) == (cause, [rank])
    alone = judged(tmp_path, debug * 4 + MPI.format(rank=rank) + KILLED).verdict
    assert {who.rank for who in (*alone.culprits, *alone.parties)} == {
        rank
    } and "SIGKILL" not in alone.headline


def test_what_ucx_says_at_its_level_is_no_more(tmp_path: Path) -> None:
    lines = "".join(
        UCX.format(n=n, rank=n % 4, level=level, said=said)
        for n in range(9)
        for level, said in (
            ("WARN ", "unused environment variable: UCX_FOO (maybe: UCX_TLS?)"),
            ("DIAG ", "failed to find a device, trying the next"),
            ("DEBUG", "failed to register region 0x2aad [0x2aab..0x2aac]: Input/output error"),
        )
    )
    assert judged(tmp_path, steps(1, 30) + lines).verdict.outcome == "clean"


TABLE = (
    "accelerate.utils.operations.DistributedOperationException: Cannot apply desired operation due to shape "
    "mismatches. All shapes across devices must be valid.\n\n"
    "Operation: `accelerate.utils.operations.gather`\n"
    "Input shapes:\n"
)


@pytest.mark.parametrize("odd", [0, 2])
def test_accelerates_comparison_names_who_differs(odd: int, tmp_path: Path) -> None:
    shapes = ["[4, 128]"] * 4
    shapes[odd] = "[3, 128]"
    rows = "".join(f"  - Process {rank}: {shape}\n" for rank, shape in enumerate(shapes))
    found = judged(tmp_path, TABLE + rows)
    assert (found.verdict.cause, culprits(found)) == ("collective_mismatch", [odd])
    two = "".join(f"  - Process {rank}: {shape}\n" for rank, shape in enumerate(("[1, 5]", "[1, 2, 5]")))
    assert {who.rank for who in judged(tmp_path, TABLE + two).verdict.parties} == {0, 1}
    assert judged(tmp_path, rows + steps(1, 30)).verdict.outcome == "clean"  # a list alone


FULL = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.23 GiB. {end}"
REST = "GPU {gpu} has a total capacity of 19.58 GiB of which 1.06 GiB is free. \n"


@pytest.mark.parametrize("gpu", [0, 5])
def test_a_message_that_was_broken_in_front_of_its_gpu_names_it(gpu: int, tmp_path: Path) -> None:
    broken = FULL.format(end="\n") + REST.format(gpu=gpu)
    assert [who.gpu for who in judged(tmp_path, broken).verdict.culprits] == [gpu]
    assert [
        who.gpu for who in judged(tmp_path, FULL.format(end="") + REST.format(gpu=gpu)).verdict.culprits
    ] == [gpu]
    far = FULL.format(end="\n") + "the batch was too large\n" * 20 + REST.format(gpu=gpu)
    assert not judged(tmp_path, far).verdict.culprits


PRRTE = (
    "prterun detected that one or more processes exited with non-zero status,\n"
    "thus causing the job to be terminated. The first process to do so was:\n\n"
    "   Process name: [prterun-gpu-9-338{n}@1,{rank}]\n   Exit code:    2\n"
)
POD = "##### Command execution on worker {rank} failed with exit status 1. Continuing.\n"
RAISED = (
    "Traceback (most recent call last):\n  File \"/job/train.py\", line 18, in <module>\nKeyError: 'lr'\n"
)


@pytest.mark.parametrize("rank", [0, 4])
def test_openmpis_new_launcher_names_who_ended_first(rank: int, tmp_path: Path) -> None:
    found = judged(tmp_path, RAISED + PRRTE.format(n=6, rank=rank))
    assert (found.verdict.cause, culprits(found)) == ("user_code_exception", [rank])


@pytest.mark.parametrize("workers", [2, 8])
def test_all_workers_of_a_pod_that_failed_alike_are_named(workers: int, tmp_path: Path) -> None:
    ends = "".join(POD.format(rank=rank) for rank in range(workers))
    found = judged(tmp_path, RAISED * workers + ends)
    assert (found.verdict.cause, culprits(found)) == ("user_code_exception", list(range(workers)))


ENGINE = "(EngineCore_DP0 pid=4785) ERROR 01-18 22:19:2{n} [{where}] {said}\n"


@pytest.mark.parametrize("rank", [0, 1])
def test_what_an_engine_raises_of_its_executor_is_no_failure_of_its_own(rank: int, tmp_path: Path) -> None:
    text = ENGINE.format(
        n=5,
        where="multiproc_executor.py:231",
        said=f"Worker proc VllmWorker-{rank} died unexpectedly, shutting down executor.",
    )
    for said in (
        "Traceback (most recent call last):",
        '  File "/opt/vllm/v1/engine/core.py", line 954, in _handle',
        '    raise RuntimeError("Executor failed.")',
        "RuntimeError: Executor failed.",
    ):
        text += ENGINE.format(n=6, where="core.py:868", said=said)
    found = judged(tmp_path, text)
    assert (found.verdict.cause, culprits(found)) == ("peer_died", [rank])


def test_crashes_that_were_all_seen_behind_the_stop_name_nobody(tmp_path: Path) -> None:
    seen = "".join(SEEN.format(node=1, task=task, how="Segmentation fault") for task in (2, 3))
    verdict = judged(tmp_path, steps(1, 9) + STOP + seen).verdict
    assert verdict.outcome != "clean" and not verdict.culprits and not verdict.parties


@pytest.mark.parametrize("rank", [0, 7])
def test_crays_mpich_names_who_aborts(rank: int, tmp_path: Path) -> None:
    head = f"MPICH ERROR [Rank {rank}] [job id 2843.3] [Tue Feb 14 16:11:55 2026] [nid007] - Abort(161) (rank"
    head += f" {rank} in comm 0): Fatal error in PMPI_Init: Other MPI error, error stack:\n"
    why = "create_endpoint(1382).......: OFI EP enable failed (ofi_init.c:1382:create_endpoint:{})\n"
    found = judged(tmp_path, head + why.format("Address already in use"))
    assert (found.verdict.cause, culprits(found)) == ("network_socket_interface", [rank])
    other = judged(tmp_path, head + why.format("No such device")).verdict
    assert {who.rank for who in (*other.culprits, *other.parties)} == {rank}
