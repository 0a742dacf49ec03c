"""Who failed is named by what the log has: a rank, else a process, else the GPU or the host of it."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import culprits, elastic, judged, raised, steps
from say_ends import ENDS, Told

FULL = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU {gpu} has a total capacity"
)
FULL += " of 79.15 GiB of which 1.06 GiB is free.\n"
NOTICE = "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) local_rank: {rank}"
NOTICE += " (pid: 51{rank}) of binary: /usr/bin/python3\n"


@pytest.mark.parametrize("told", ENDS, ids=lambda told: told.__name__)
def test_who_ended_moves_with_the_numbers(told: Told, tmp_path: Path) -> None:
    for guilty, world in ((0, 2), (1, 2), (2, 4), (7, 8)):
        verdict = judged(tmp_path, told(guilty, world)).verdict
        assert verdict.outcome in ("failure", "undetermined")
        assert {who.rank for who in (*verdict.culprits, *verdict.parties)} == {guilty}, (guilty, world)
        assert f"rank {guilty}" in verdict.headline


@pytest.mark.parametrize("told", ENDS, ids=lambda told: told.__name__)
def test_steps_in_front_change_nothing(told: Told, tmp_path: Path) -> None:
    verdict = judged(tmp_path, steps(1, 30) + told(3, 4)).verdict
    assert verdict.outcome in ("failure", "undetermined")
    assert {who.rank for who in (*verdict.culprits, *verdict.parties)} == {3}


@pytest.mark.parametrize("ranks", [(0, 1), (2, 5), (0, 1, 2, 3)])
def test_all_that_a_launcher_lists_are_named(ranks: tuple[int, ...], tmp_path: Path) -> None:
    listed = ", ".join(map(str, ranks))
    text = f"ABORT!!! Out of all 8 trainers, the trainer process with rank=[{listed}] was aborted.\n"
    verdict = judged(tmp_path, text).verdict
    assert {who.rank for who in (*verdict.culprits, *verdict.parties)} == set(ranks)
    gloo = "".join(f"Process {rank} exit with status code 250.\n" for rank in ranks)
    verdict = judged(tmp_path, gloo).verdict
    assert {who.rank for who in (*verdict.culprits, *verdict.parties)} == set(ranks)


@pytest.mark.parametrize("gpus", [(1,), (0, 3)])
def test_a_gpu_names_who_has_no_rank(gpus: tuple[int, ...], tmp_path: Path) -> None:
    verdict = judged(tmp_path, "".join(FULL.format(gpu=gpu) for gpu in gpus)).verdict
    assert {who.gpu for who in verdict.culprits} == set(gpus) and culprits_have_no_rank(verdict.culprits)
    assert f"GPU{'s' * (len(gpus) > 1)} {gpus[0]}" in verdict.headline


def culprits_have_no_rank(people: object) -> bool:
    """True where nobody is named by a rank."""
    return all(who.rank is None for who in people)  # type: ignore[attr-defined]


@pytest.mark.parametrize("rank", [1, 2, 7])
def test_the_rank_of_a_gpu_is_the_one_that_failed(rank: int, tmp_path: Path) -> None:
    assert culprits(judged(tmp_path, FULL.format(gpu=rank) + NOTICE.format(rank=rank))) == [rank]
    cut = raised(rank, "")
    assert culprits(judged(tmp_path, FULL.format(gpu=rank) + cut[: cut.rindex("[rank")])) == [rank]


def test_a_gpu_of_another_number_is_no_rank(tmp_path: Path) -> None:
    """Where each process sees one GPU only, all of them call it 0."""
    for other in (1, 3):
        examined = judged(tmp_path, FULL.format(gpu=0) + NOTICE.format(rank=other))
        assert culprits(examined) == [None] and examined.verdict.culprits[0].gpu == 0
    listed = FULL.format(gpu=0) + elastic([(0, 1), (1, 1), (2, 1)], 0)
    assert 0 not in culprits(judged(tmp_path, listed))


def test_processes_are_named_where_no_rank_is(tmp_path: Path) -> None:
    head = "(VllmWorkerProcess pid={}) ERROR 11-21 10:20:30 multiproc_worker_utils.py:236] "
    said = "RuntimeError: Cannot re-initialize CUDA in forked subprocess.\n"
    verdict = judged(tmp_path, "".join(head.format(pid) + said for pid in (911, 912))).verdict
    assert [who.pid for who in verdict.culprits] == [911, 912] and "processes 911 and 912" in verdict.headline


def test_the_code_in_the_next_line_is_of_who_was_named(tmp_path: Path) -> None:
    bar = "=" * 40
    block = (
        f"{bar}\n=   BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES\n"
        f"=   PID 9665 RUNNING AT n4\n=   EXIT CODE: 9\n=   CLEANING UP REMAINING PROCESSES\n{bar}\n"
    )
    verdict = judged(tmp_path, block).verdict
    assert [(who.pid, who.host) for who in verdict.culprits] == [(9665, "n4")]
    assert verdict.headline == "process 9665 was killed by SIGKILL"


def test_a_pod_is_named_by_its_name(tmp_path: Path) -> None:
    events = "1.708507856644e+09\tDEBUG\tevents\t"
    text = f"{events}Error pod mnist-worker-3 container pytorch exitCode: 1 terminated message: \t{{}}\n"
    verdict = judged(tmp_path, text).verdict
    assert [who.host for who in (*verdict.culprits, *verdict.parties)] == ["mnist-worker-3"]


def test_the_rest_of_a_list_names_all_of_it(tmp_path: Path) -> None:
    """The head of torchelastic's list is cut off: what it tells of these ranks stays."""
    whole = elastic([(0, 1), (1, 1), (2, 1), (3, 1)], 0)
    rest = whole[whole.index("  host ") :]
    assert "[1]:" not in rest
    verdict = judged(tmp_path, rest).verdict
    assert {who.rank for who in verdict.parties} == {0, 1, 2, 3} and not verdict.culprits
    one = whole[whole.index("[4]:") : whole.rindex("-" * 60)]
    verdict = judged(tmp_path, one).verdict
    assert {who.rank for who in verdict.parties} == {3} and verdict.outcome == "undetermined"


def test_what_follows_ctrl_c_is_no_failure(tmp_path: Path) -> None:
    stop = (
        "WARNING:torch.distributed.elastic.agent.server.api:Received 2 death signal, shutting down workers\n"
    )
    cut = 'Traceback (most recent call last):\n  File "/job/run.py", line 194, in main\n    call()\n'
    assert judged(tmp_path, steps(1, 9) + stop + cut).verdict.outcome == "clean"
    assert judged(tmp_path, steps(1, 9) + cut).verdict.outcome == "undetermined"


VLLM = "INFO 11-21 10:20:{at} [loggers.py:87] Engine 000: Avg prompt throughput: 0.0 tokens/s, Avg generation"
VLLM += " throughput: {speed} tokens/s, Running: {running} reqs, Waiting: 0 reqs, GPU KV cache usage: 5.9%\n"
SGLANG = (
    "[2026-11-21 10:20:{at} TP0] Decode batch. #running-req: {running}, #token: 83, token usage: 0.00, gen"
)
SGLANG += " throughput (token/s): {speed}, #queue-req: 0\n"


@pytest.mark.parametrize("said", [VLLM, SGLANG])
def test_a_server_that_generates_does_work(said: str, tmp_path: Path) -> None:
    work = "".join(said.format(at=at, speed=f"{at}.4", running=3) for at in (11, 21, 31))
    verdict = judged(tmp_path, work).verdict
    assert verdict.outcome == "clean" and "answering" in verdict.headline
    stands = "".join(said.format(at=at, speed="0.0", running=3) for at in (11, 21, 31))
    assert judged(tmp_path, stands).verdict.outcome not in ("clean", "recovered")


def test_a_server_without_requests_is_up(tmp_path: Path) -> None:
    idle = "".join(VLLM.format(at=at, speed="0.0", running=0) for at in (11, 21, 31))
    verdict = judged(tmp_path, idle).verdict
    assert verdict.outcome == "clean" and "up" in verdict.headline


@pytest.mark.parametrize("said", [VLLM, SGLANG])
@pytest.mark.parametrize(
    "death", ["Killed", "RuntimeError: CUDA error: an illegal memory access was encountered"]
)
def test_a_server_that_worked_before_it_died_is_dead(said: str, death: str, tmp_path: Path) -> None:
    work = "".join(said.format(at=at, speed=f"{at}.4", running=3) for at in (11, 21, 31))
    assert judged(tmp_path, f"{work}{death}\n").verdict.outcome == "failure"


@pytest.mark.parametrize("version", ["36.0", "v2.10", "1.0"])
def test_a_number_of_a_job_counts_no_failures(version: str, tmp_path: Path) -> None:
    text = f"srun: error: Task launch for {version} failed on node n17: Job credential expired\n"
    verdict = judged(tmp_path, text).verdict
    assert verdict.headline == "the node n17 did not start its task: Job credential expired"
    assert judged(tmp_path, "launch of 3 tasks: 0 failed\n").verdict.outcome == "nothing"


def test_swin_counts_epochs_and_steps_in_brackets(tmp_path: Path) -> None:
    line = "[2026-11-21 10:20:34 tiny] (main.py 295): INFO Train: [30/300][{}/2859]\teta 0:25:26 lr 0.0008\n"
    rises = "".join(line.format(step) for step in range(210, 290, 10))
    assert judged(tmp_path, rises).verdict.outcome == "clean"
    assert judged(tmp_path, line.format(210) * 8).verdict.outcome != "clean"


@pytest.mark.parametrize("signal", ["Killed", "Segmentation fault", "Aborted"])
def test_a_loader_of_paddle_is_of_the_one_that_failed(signal: str, tmp_path: Path) -> None:
    text = (
        "SystemError: (Fatal) DataLoader process (pid   1104) exited is killed by signal:"
        f" {signal}. (at x.cc:1)\n"
        "ABORT!!! Out of all 4 trainers, the trainer process with rank=[2] was aborted.\n"
    )
    examined = judged(tmp_path, text)
    assert examined.verdict.cause == "peer_died" and culprits(examined) == [2]


def gathered(failed: tuple[int, ...], error: str = "KeyError: 'missing key layers.7'") -> str:
    """What each rank shows of a checkpoint that could not be loaded."""
    one = (
        'Traceback (most recent call last): (RANK {})\n  File "/job/utils.py", line 4, in'
        ' reduce_scatter\n    local_data = map_fun()\n  File "/job/planner.py", line 33, in go\n    read()\n'
    )
    head = "torch.distributed.checkpoint.api.CheckpointException: CheckpointException ranks:dict_keys("
    head += f"{[*failed]})\n"
    return head + "".join(one.format(rank) + error + "\n" for rank in failed)


@pytest.mark.parametrize("failed", [(1,), (0, 2), (0, 1, 2, 3)])
@pytest.mark.parametrize("printers", [(0,), (3,), (0, 1, 2, 3)])
def test_the_rank_in_the_head_of_a_traceback_is_whose_it_is(
    failed: tuple[int, ...], printers: tuple[int, ...], tmp_path: Path
) -> None:
    shown = gathered(failed).splitlines()
    text = "".join(f"[rank{rank}]: {line}\n" for rank in printers for line in shown)
    verdict = judged(tmp_path, text).verdict
    assert verdict.cause == "user_code_exception"
    assert {who.rank for who in verdict.culprits} == set(failed)


@pytest.mark.parametrize("failed", [(2,), (1, 2)])
def test_a_log_that_ends_in_a_gathered_traceback_blames_no_printer(
    failed: tuple[int, ...], tmp_path: Path
) -> None:
    cut = gathered(failed, "").rstrip("\n").splitlines()
    verdict = judged(tmp_path, "".join(f"[rank3]: {line}\n" for line in cut)).verdict
    named = {who.rank for who in (*verdict.culprits, *verdict.parties)}
    assert named <= set(failed) and 3 not in named and 2 in named


def test_who_was_cut_off_in_a_collective_may_be_a_victim(tmp_path: Path) -> None:
    file = "/opt/site-packages/torch/distributed/distributed_c10d.py"
    waits = f'Traceback (most recent call last):\n  File "{file}", line 4551, in barrier\n    work.wait()\n'
    text = "".join(f"[rank2]: {line}\n" for line in waits.splitlines())
    verdict = judged(tmp_path, text).verdict
    assert not verdict.culprits and not verdict.parties and verdict.outcome == "undetermined"


@pytest.mark.parametrize(
    "said",
    [
        "[n17:4711:1] Caught signal 11 (Segmentation fault)",
        "[n17:4711:0:4711] Caught signal 7 (Bus error: nonexistent physical address)",
        "*** SIGSEGV (@0x0) received by PID 4711 (TID 0x7f24e61fe700) from PID 0; stack trace: ***",
        "[n17:4711] Signal: Segmentation fault (11)",
        "[2026-11-21 10:20:30] Child process unexpectedly failed with exitcode=-11. pid=4711",
    ],
)
def test_handlers_of_signals_name_their_process(said: str, tmp_path: Path) -> None:
    verdict = judged(tmp_path, said + "\n").verdict
    assert verdict.cause == "peer_died" and [who.pid for who in verdict.culprits] == [4711]


@pytest.mark.parametrize("signal", ["SIGSEGV", "SIGABRT", "SIGBUS", "SIGFPE"])
@pytest.mark.parametrize(
    "said",
    [
        'Thread 12 "pt_main_thread" received signal {}, a fault.',
        "Program received signal {}, a fault.",
        "Program terminated with signal {}, a fault.",
    ],
)
def test_a_debugger_saw_how_a_process_ended(said: str, signal: str, tmp_path: Path) -> None:
    verdict = judged(tmp_path, said.format(signal) + "\n").verdict
    assert verdict.cause == "peer_died" and signal in verdict.headline
    passing = 'Thread 3 "pt_nccl_watchdg" received signal SIGUSR1, User defined signal 1.\n'
    assert judged(tmp_path, passing).verdict.outcome == "nothing"


@pytest.mark.parametrize(
    "measure", ["mean ar error (without repeats): 0.0449", "test error: 3.17", "error=0.5"]
)
def test_an_error_with_a_decimal_number_is_a_measure(measure: str, tmp_path: Path) -> None:
    assert judged(tmp_path, f"buckets made\n{measure}\n").verdict.outcome == "nothing"
    told = judged(tmp_path, f"buckets made\n{measure}\nfatal error 17.2.\n").verdict
    assert told.outcome == "undetermined"


@pytest.mark.parametrize("code", [1, 2, 127])
@pytest.mark.parametrize("launchers", [1, 3])
def test_a_step_that_a_scheduler_ends_for_a_task_is_not_ended_by_a_person(
    code: int, launchers: int, tmp_path: Path
) -> None:
    """The death signal that the other launchers get follows from the task that ended before."""
    ended = f"srun: error: gpu-17: task 1: Exited with exit code {code}\n"
    stopped = "srun: Terminating StepId=4411.0\nslurmstepd: error: *** STEP 4411.0 ON gpu-16 CANCELLED AT"
    stopped += " 2026-11-07T10:41:25 ***\n"
    signal = (
        "WARNING:torch.distributed.elastic.agent.server.api:Received 15 death signal, shutting down workers\n"
    )
    sending = (
        "WARNING:torch.distributed.elastic.multiprocessing.api:Sending process 41 closing signal SIGTERM\n"
    )
    alone = judged(tmp_path, steps(1, 9) + stopped + (signal + sending) * launchers).verdict
    assert "launcher was stopped by SIGTERM" in alone.headline
    verdict = judged(tmp_path, steps(1, 9) + ended + stopped + (signal + sending) * launchers).verdict
    assert "SIGTERM" not in verdict.headline
    assert [who.rank for who in (*verdict.culprits, *verdict.parties)] == [1]


@pytest.mark.parametrize("before", ["", "  ", "(TaskRunner pid=77) ", "2026-11-07T10:41:25.565839352Z "])
@pytest.mark.parametrize(("name", "rank"), [("a1b2WorkerDict_0:5", 5), ("WorkerDict_2:5", None), ("", None)])
def test_a_dead_actor_of_ray_has_the_pid_that_ray_lists(
    before: str, name: str, rank: int | None, tmp_path: Path
) -> None:
    """The rank that its name tells does not take the pid away."""
    block = ["ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task."]
    block += [
        "\tclass_name: WorkerDict",
        "\tactor_id: d5",
        "\tpid: 4243",
        *([f"\tname: {name}"] if name else []),
    ]
    block += ["\tnamespace: x", "\tip: 10.0.0.2", "The actor is dead because its worker process has died."]
    verdict = judged(tmp_path, "".join(f"{before}{line}\n" for line in block)).verdict
    assert [(who.rank, who.pid) for who in verdict.culprits] == [(rank, 4243)]


@pytest.mark.parametrize(
    "line",
    [
        "Failed to modify QP to RTR: Connection timed out",
        "Unable to create QP.",
        "[uct] error: failed to create the queue pair: Cannot allocate memory",
        "E1107 10:41:25 rdma_endpoint.cpp:412] Failed to modify QP to INIT, check local context port num",
    ],
)
def test_queue_pairs_are_of_the_fabric_whoever_sets_them_up(line: str, tmp_path: Path) -> None:
    assert judged(tmp_path, f"{line}\n" * 3).verdict.cause == "network_ib"


def test_hpes_launcher_tells_who_ended(tmp_path: Path) -> None:
    text = "x31.hsn.example.org: rank {} died from signal 11 and dumped core\n"
    verdict = judged(tmp_path, steps(1, 9) + text.format(6)).verdict
    assert (verdict.cause, [(who.host, who.rank) for who in verdict.culprits]) == (
        "peer_died", [("x31.hsn.example.org", 6)],
    )  # fmt: skip
    coded = judged(tmp_path, steps(1, 9) + "x31: rank 2 exited with code 9\n").verdict
    assert "rank 2" in coded.headline and "exit code 9" in coded.headline


@pytest.mark.parametrize("signal", ["SIGTERM", "SIGSEGV"])
def test_what_rays_handler_of_signals_prints(signal: str, tmp_path: Path) -> None:
    line = "[2026-11-07 16:39:31,431 E 531 531] logging.cc:460: "
    line += f"*** {signal} received at time=1794 on cpu 72 ***\n"
    verdict = judged(tmp_path, steps(1, 9) + line).verdict
    assert verdict.cause == "peer_died" and signal in verdict.headline


def test_nothing_but_sigterm_leaves_open_who_sent_it(tmp_path: Path) -> None:
    text = (
        "[2026-11-07 23:35:11,089] [ERROR] [launch.py:321:sigkill_handler] ['python', 'train.py'] exits with"
    )
    verdict = judged(tmp_path, steps(1, 9) + text + " return code = -15\n").verdict
    assert verdict.outcome == "undetermined"
    assert "ended by SIGTERM, and no line says who sent it" in verdict.headline


@pytest.mark.parametrize("rank", [0, 1, 5])
def test_the_first_of_all_actors_that_a_driver_asked_is_not_blamed(rank: int, tmp_path: Path) -> None:
    block = (
        "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
        f"\tclass_name: WorkerDict\n\tpid: 4243\n\tname: a1b2WorkerDict_0:{rank}\n"
        "The actor is dead because its worker process has died.\n"
    )
    verdict = judged(tmp_path, steps(1, 9) + block).verdict
    assert [who.rank for who in verdict.culprits] == ([rank] if rank else [])
    assert [who.rank for who in verdict.parties] == ([] if rank else [rank])
    by_raylet = "(raylet) A worker died. Worker IP address: 10.0.0.2 Worker PID: 4243\n"
    verdict = judged(tmp_path, steps(1, 9) + by_raylet + block).verdict
    assert [who.pid for who in verdict.culprits] == [4243]
