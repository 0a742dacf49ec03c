"""Whose an error without a rank is: of all that ended, of the only rank, of the process that Ray names."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import culprits, judged, steps

TABLE = """\
============================================================
train.py FAILED
------------------------------------------------------------
Failures:
{others}------------------------------------------------------------
Root Cause (first observed failure):
[0]:
  time      : 2025-03-14_09:26:53
  host      : g1
  rank      : {first} (local_rank: {first})
  exitcode  : 1 (pid: {pid})
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
============================================================
"""
ENTRY = """\
[{n}]:
  time      : 2025-03-14_09:26:53
  host      : g1
  rank      : {rank} (local_rank: {rank})
  exitcode  : {code} (pid: {pid})
  error_file: <N/A>
  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html
"""
RAISED = """\
Traceback (most recent call last):
  File "/job/train.py", line 31, in <module>
    main()
  File "/job/data.py", line 12, in load
    return rows.lower()
AttributeError: 'dict' object has no attribute 'lower'
"""
FULL = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
USAGE = "train.py: error: unrecognized arguments: --fast\n"
ABSENT = 'FATAL:   "trainer": executable file not found in $PATH\n'


def table(first: int, *others: int, code: int = 1) -> str:
    """torchelastic's list of the ranks that ended."""
    entries = (ENTRY.format(n=n, rank=rank, code=code, pid=700 + rank) for n, rank in enumerate(others, 1))
    return TABLE.format(first=first, pid=700 + first, others="".join(entries))


@pytest.mark.parametrize("error", [RAISED, USAGE])
@pytest.mark.parametrize("ranks", [(0, 1), (2, 0, 1), (0, 3, 5, 6)])
def test_an_error_told_once_by_each_that_ended_is_of_them_all(
    error: str, ranks: tuple[int, ...], tmp_path: Path
) -> None:
    examined = judged(tmp_path, error * len(ranks) + table(*ranks))
    assert examined.verdict.cause == "user_code_exception"
    assert culprits(examined) == sorted(ranks)


def test_an_error_told_by_fewer_is_of_none_for_sure(tmp_path: Path) -> None:
    examined = judged(tmp_path, RAISED + table(0, 1))
    assert examined.verdict.cause == "user_code_exception"
    assert not examined.verdict.culprits


MIXED = """\
Traceback (most recent call last):
  File "/job/data.py", line 12, in load
Traceback (most recent call last):
    return rows.lower()    return rows.lower()

AttributeError: 'dict' object has no attribute 'lower'
^^AttributeError^^: 'dict' object has no attribute 'lower'^^
"""


def test_what_all_ranks_print_at_once_is_mixed(tmp_path: Path) -> None:
    assert culprits(judged(tmp_path, MIXED + table(0, 1, 2))) == [0, 1, 2]
    later = table(0, 1, 2).replace("09:26:53", "09:26:58", 1)
    for text in (MIXED + later, MIXED + RAISED.replace("Attribute", "Key") + table(0, 1, 2)):
        assert not judged(tmp_path, text).verdict.culprits


UNFIT = "ImportError: /opt/ops.so: undefined symbol: _ZN3c1021throwNullDataPtrErrorEv\n"


@pytest.mark.parametrize("error", [RAISED, UNFIT, UNFIT.replace("Import", "ImportErrorImport")])
@pytest.mark.parametrize("times", [3, 8])
def test_one_error_told_by_more_is_of_those_that_ended_by_it(error: str, times: int, tmp_path: Path) -> None:
    """The others said it just before their launcher ended them."""
    assert culprits(judged(tmp_path, error * times + table(0, 1))) == [0, 1]
    other = RAISED.replace("data.py", "loss.py")
    assert not judged(tmp_path, RAISED * times + other + table(0, 1)).verdict.culprits


def test_ranks_that_were_killed_raised_nothing(tmp_path: Path) -> None:
    assert not judged(tmp_path, RAISED * 2 + table(0, 1, code=-11)).verdict.culprits


@pytest.mark.parametrize("said", [USAGE, ABSENT])
@pytest.mark.parametrize("world", [1, 2, 4])
def test_what_all_were_started_with_wrongly_is_of_all(world: int, said: str, tmp_path: Path) -> None:
    text = f"[INFO] [launch.py:163:main] dist_world_size={world}\n" + said * world
    assert culprits(judged(tmp_path, text)) == list(range(world))


@pytest.mark.parametrize(
    "said",
    [
        "INFO:root:Beginning (rank: 0/1)",
        "| distributed init (rank 0/1)",
        "Global rank 0 of 1",
        "world_size: 1",
    ],
)
@pytest.mark.parametrize(
    "error", [RAISED, "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"]
)
def test_the_only_rank_is_rank_0(said: str, error: str, tmp_path: Path) -> None:
    assert culprits(judged(tmp_path, said + "\n" + steps(1, 9) + error)) == [0]


@pytest.mark.parametrize("said", ["local rank 0/1", "tp rank 0/1", "expert rank 0 of 1", "rank 0/8"])
def test_a_rank_within_a_part_of_the_job_tells_no_world_of_one(said: str, tmp_path: Path) -> None:
    assert not judged(tmp_path, said + "\n" + steps(1, 9) + RAISED).verdict.culprits


TASK = "{begin}ray::{name} (pid={pid}, ip=10.1.2.{host}, actor_id=7c54, repr=<worker.Worker at 0x7f>)\n"
REMOTE = """\
  File "/job/actor.py", line 483, in update
    loss.backward()
{error}
"""
BEGINS = (
    "",
    "Unhandled error (suppress with 'RAY_IGNORE_UNHANDLED_ERRORS=1'): ",
    "Training:   0%|          | 0/559 [00:00<?, ?it/s]Unhandled error (suppress with 'X=1'): ",
    "ray.exceptions.RayTaskError(OutOfMemoryError): ",
)


@pytest.mark.sampled(6)
@pytest.mark.parametrize("begin", BEGINS)
@pytest.mark.parametrize("name", ["WorkerDict.actor_rollout_update_actor()", "train_loop", "Actor.step()"])
@pytest.mark.parametrize("error", [FULL, "KeyError: 'x'"])
@pytest.mark.parametrize("teller", ["", "(main_task pid=3900) "])
def test_ray_names_the_process_in_front_of_what_it_raised(
    begin: str, name: str, error: str, teller: str, tmp_path: Path
) -> None:
    told = [TASK.format(begin=begin, name=name, pid=pid, host=pid - 4000) for pid in (4011, 4012)]
    text = "".join(line + REMOTE.format(error=error) for line in told)
    text = "".join(teller + line for line in text.splitlines(keepends=True))
    verdict = judged(tmp_path, steps(1, 3) + text).verdict
    assert [(who.host, who.pid) for who in verdict.culprits] == [("10.1.2.11", 4011), ("10.1.2.12", 4012)]
    (tmp_path / "one").mkdir()
    one = judged(tmp_path / "one", steps(1, 3) + told[0] + REMOTE.format(error=error)).verdict
    assert [(who.host, who.pid) for who in one.culprits] == [("10.1.2.11", 4011)]


ENGINE = "(EngineCore pid=118) ERROR 11-07 18:21:23 [{file}] "
WORKER = "(Worker_TP{rank} pid={pid}) ERROR 11-07 18:21:23 [multiproc_executor.py:1007] "


@pytest.mark.parametrize(
    "error", ["OSError: [Errno 122] Disk quota exceeded: '/home/ed/.cache'", FULL, "KeyError: 'experts'"]
)
def test_an_engine_that_repeats_what_its_worker_raised(error: str, tmp_path: Path) -> None:
    """Nor is the worker that it then calls dead the one that the engine's own number belongs to."""
    worker, engine = WORKER.format(rank=0, pid=127), ENGINE.format(file="core.py:1330")
    text = (
        f"{worker}WorkerProc hit an exception.\n{worker}Traceback (most recent call last):\n"
        f'{worker}  File "/job/vllm/runner.py", line 640, in profile_run\n{worker}    self.dummy()\n'
        f"{worker}{error}\n"
        f"{engine}EngineCore failed to start.\n{engine}Traceback (most recent call last):\n"
        f'{engine}  File "/job/executor.py", line 394, in get_response\n{engine}    raise RuntimeError(\n'
        f"{engine}RuntimeError: Worker failed with error '{error}', please check the stack trace above\n"
    )
    ended = ENGINE.format(file="multiproc_executor.py:284")
    ended += "Worker proc VllmWorker-1 died unexpectedly (exit code: None), shutting down executor.\n"
    for log in (text, text + ended):
        (tmp_path / "log").unlink(missing_ok=True)
        verdict = judged(tmp_path, log).verdict
        assert [who.pid for who in verdict.culprits] == [127]
    assert [(who.rank, who.pid) for who in judged(tmp_path, ended).verdict.culprits] == [(1, None)]


@pytest.mark.parametrize(
    "wrapper", ["papermill.exceptions.PapermillExecutionError: ", "nbclient.exceptions.CellExecutionError: "]
)
def test_who_runs_a_notebook_only_shows_what_it_raised(wrapper: str, tmp_path: Path) -> None:
    text = (
        f'Traceback (most recent call last):\n  File "/opt/run.py", line 8, in run\n    raise error\n'
        f"{wrapper}: \n"
        'Exception encountered at "In [4]":\n'
        "ValueError                                Traceback (most recent call last)\nCell In[4], line 5\n"
        "----> 5 load(rows)\n\nValueError: 3 columns passed, 4 wanted\n"
    )
    assert "3 columns passed" in judged(tmp_path, text).verdict.headline


@pytest.mark.parametrize(
    "said",
    [
        "NotImplementedError: Unsloth cannot find any torch accelerator? You need a GPU.",
        "RuntimeError: Failed to infer device type, please set `VLLM_LOGGING_LEVEL=DEBUG`",
        "RuntimeError: No supported gpu backend found!",
    ],
)
def test_a_framework_that_finds_no_gpu_says_so(said: str, tmp_path: Path) -> None:
    assert judged(tmp_path, said + "\n").verdict.cause == "driver_problem"


NCCL_TESTS = """\
# nThread 1 nGpus 1 minBytes 8 maxBytes 134217728 step: 2(factor) warmup iters: 5 iters: 20 agg iters: 1
#  Rank  0 Group  0 Pid  21044 on node-1 device  0 [0x1b] NVIDIA H100
{said}
 .. node-1 pid 21044: Test failure common.cu:77
 .. node-1 pid 21044: Test failure common.cu:910
"""


@pytest.mark.parametrize(
    ("said", "cause"),
    [
        (
            "Test NCCL failure common.cu:52 'remote process exited or there was a network error / '",
            "undetermined",
        ),
        (
            "Test NCCL failure common.cu:64 'unhandled system error (run with NCCL_DEBUG=INFO) / '",
            "undetermined",
        ),
        ("Test CUDA failure common.cu:73 'out of memory'", "peer_cuda_oom"),
        ("Test CUDA failure common.cu:73 'no CUDA-capable device is detected'", "driver_problem"),
    ],
)
@pytest.mark.parametrize("behind", ["", "# Avg bus bandwidth    : 0.880000\n# Out of bounds values : 0 OK\n"])
def test_a_test_of_nccl_tests_that_fails_is_no_healthy_job(
    said: str, cause: str, behind: str, tmp_path: Path
) -> None:
    """Another one of them may follow in the same log, and come to its end."""
    verdict = judged(tmp_path, NCCL_TESTS.format(said=f"node-1: {said}") + behind).verdict
    assert verdict.cause == cause
    assert verdict.outcome in ("failure", "undetermined")


@pytest.mark.parametrize("name", ["Evaluation  ", "Test:  ", "Epoch (train): ", ""])
def test_a_meter_with_a_name_counts(name: str, tmp_path: Path) -> None:
    scare = (
        "g1:31:31 [0] misc/nvmlwrap.cc:100 NCCL WARN nvmlInit_v2() failed: Driver/library version mismatch"
    )
    rows = "".join(f"{name}[{n:4}/1600]  eta: 0:02:10    time: 1.4072\n" for n in range(0, 1600, 30))
    assert judged(tmp_path, f"{scare}\n{scare.replace('31', '32')}\n{rows}").verdict.cause == "none"


@pytest.mark.parametrize("prefix", ["", "gpu1: "])
def test_a_counter_behind_an_epoch_that_all_lines_share_counts(prefix: str, tmp_path: Path) -> None:
    scare = (
        "gpu1:31:31 [0] misc/nvmlwrap.cc:100 NCCL WARN nvmlInit_v2() failed: Driver/library version mismatch"
    )
    rows = "".join(
        f"{prefix}Train: 0 [{n:4}/1600 ({n // 16:3}%)]  Loss: {5 - n / 400:.3f}\n" for n in range(0, 1600, 30)
    )
    assert judged(tmp_path, f"{scare}\n{scare.replace('31', '32')}\n{rows}").verdict.cause == "none"


@pytest.mark.parametrize(
    "behind", ["WARNING:root:the mirror is slow: No space left on device, using /tmp\n", "bye\n"]
)
def test_ranks_that_say_the_same_long_thing_show_no_width_of_a_terminal(behind: str, tmp_path: Path) -> None:
    """The longest line is there once for each of them: nothing was broken, and nothing belongs to it."""
    told = [TASK.format(begin=BEGINS[1], name="step()", pid=pid, host=11) for pid in (4011, 4012, 4013)]
    error = (
        FULL + " GPU 0 has 44.10 GiB of which 3.75 GiB is free. Of that memory 38.20 GiB is PyTorch's." * 3
    )
    text = "".join(line + REMOTE.format(error=error) for line in told)
    verdict = judged(tmp_path, steps(1, 3) + text + behind).verdict
    assert verdict.cause == "peer_cuda_oom"
    assert [who.pid for who in verdict.culprits] == [4011, 4012, 4013]
    assert behind.strip() not in " ".join(line.text for line in verdict.evidence)


def test_a_worker_that_only_its_engine_tells_of(tmp_path: Path) -> None:
    engine = ENGINE.format(file="core.py:1330")
    text = (
        f"{engine}Traceback (most recent call last):\n"
        f'{engine}  File "/job/executor.py", line 394, in get_response\n{engine}    raise e\n'
        f"{engine}RuntimeError: Worker failed with error 'shape mismatch: [5] against [1, 8]', please check\n"
    )
    verdict = judged(tmp_path, text).verdict
    assert (verdict.cause, list(verdict.culprits)) == ("user_code_exception", [])
    assert "shape mismatch: [5] against [1, 8]" in verdict.headline


@pytest.mark.parametrize("size", [2, 4, 7])
def test_as_many_of_one_error_as_there_are_ranks(size: int, tmp_path: Path) -> None:
    said = f"[INFO] [launch.py:163:main] dist_world_size={size}\nusing world size: {size}\n"
    assert culprits(judged(tmp_path, said + RAISED * size)) == list(range(size))
    (tmp_path / "fewer").mkdir()
    assert culprits(judged(tmp_path / "fewer", said + RAISED * (size - 1))) == []
    (tmp_path / "other").mkdir()
    other = RAISED.replace("line 31", "line 44").replace("'lower'", "'upper'")
    assert culprits(judged(tmp_path / "other", said + RAISED * (size - 1) + other)) == []


BOUND = """\
[E socket.cpp:1021] [c10d] The server socket has failed to listen on any local network address.
Traceback (most recent call last):
  File "/opt/conda/bin/torchrun", line 8, in <module>
    sys.exit(main())
  File "/opt/conda/lib/python3.10/site-packages/torch/distributed/run.py", line 794, in main
    run(args)
RuntimeError: The server socket has failed to listen on any local network address. The server socket has\
 failed to bind to [::]:29871 (errno: 98 - Address already in use).
"""


@pytest.mark.parametrize("hosts", [("node-a", "node-b"), ("node-c", "node-a", "node-b")])
def test_nodes_whose_launchers_ended_of_the_same_error(hosts: tuple[str, ...], tmp_path: Path) -> None:
    ends = [f"srun: error: {host}: task {n}: Exited with exit code 1\n" for n, host in enumerate(hosts)]
    verdict = judged(tmp_path, BOUND * len(hosts) + "".join(ends)).verdict
    assert verdict.cause == "network_socket_interface"
    assert [(who.rank, who.host) for who in verdict.culprits] == [(None, host) for host in sorted(hosts)]
    assert "is taken by another process" in verdict.headline
    fewer = judged(tmp_path, BOUND + "".join(ends)).verdict  # one said it, and which one is not told
    assert (fewer.cause, fewer.culprits) == (verdict.cause, ())


BARRIER = (
    "RuntimeError: Timed out initializing process group in store based barrier on rank: {rank}, for key:"
    " store_based_barrier_key:1 (world_size={world}, {count}={came}, timeout=0:30:00)\n"
)


@pytest.mark.parametrize("count", ["worker_count", "num_workers_joined"])
@pytest.mark.parametrize(("world", "missing"), [(2, 1), (4, 2)])
def test_who_never_came_is_who_raised_the_error_of_nobody(
    count: str, world: int, missing: int, tmp_path: Path
) -> None:
    waited = "".join(
        BARRIER.format(rank=rank, world=world, count=count, came=world - 1)
        for rank in range(world)
        if rank != missing
    )
    named = judged(tmp_path, RAISED + waited)
    assert named.verdict.cause == "user_code_exception"
    assert culprits(named) == [missing]
    alone = judged(tmp_path, waited).verdict
    assert alone.headline.startswith(f"1 of {world} processes never joined")
    more = judged(tmp_path, RAISED * 3 + waited).verdict
    assert (more.cause, more.culprits) == ("user_code_exception", ())
    stale = judged(tmp_path, waited.replace(f"{count}={world - 1}", f"{count}={world + 2}")).verdict
    assert "never joined" not in stale.headline


SENT_HOME = "W0314 09:26:53.100000 699 torch/distributed/elastic/multiprocessing/api.py:908] "
SENT_HOME += "Sending process {pid} closing signal SIGTERM\n"
NAMELESS = "ModuleNotFoundError: No module named 'six'\n"


@pytest.mark.sampled(6)
@pytest.mark.parametrize("world", [2, 8])
@pytest.mark.parametrize("first", [0, 1])
@pytest.mark.parametrize("listed", [True, False])
def test_as_many_of_one_error_as_there_were_processes_are_of_all(
    world: int, first: int, listed: bool, tmp_path: Path
) -> None:
    """The launcher saw one of them end, and ended the others: they had said the same by then."""
    others = [rank for rank in range(world) if rank != first]
    home = "".join(SENT_HOME.format(pid=700 + rank) for rank in others)
    ended = table(first, *others) if listed else table(first)
    for rank in others:
        ended = ended.replace(f"exitcode  : 1 (pid: {700 + rank})", f"exitcode  : -15 (pid: {700 + rank})")
    told = RAISED.splitlines(keepends=True)
    errors = [
        "".join(told[: 1 + n % 3]) + "".join(told[3:-1]) + NAMELESS for n in range(world)
    ]  # mixed: no two show the same frames
    assert culprits(judged(tmp_path, "".join(errors) + home + ended)) == list(range(world))
    fewer = judged(tmp_path, "".join(errors[1:]) + home + ended)
    assert culprits(fewer) in ([first], [])
    other = "".join(errors[1:]) + RAISED.replace("AttributeError", "KeyError")
    assert len(culprits(judged(tmp_path, other + home + ended))) < world


def test_what_the_logger_had_caught_counts_less_than_what_nobody_did(tmp_path: Path) -> None:
    head = "2025-03-14 09:20:07,133 ERROR utils.py:532 -- Unexpected error while the limits were read\n"
    verdict = judged(
        tmp_path, head + RAISED + "2025-03-14 09:20:09,001 INFO worker.py:1 -- begin\n" + FULL + "\n"
    ).verdict
    assert verdict.cause == "peer_cuda_oom"
    assert judged(tmp_path, RAISED + "begin\n" * 100 + FULL + "\n").verdict.cause == "user_code_exception"
    assert judged(tmp_path, head + RAISED).verdict.cause == "user_code_exception"


@pytest.mark.parametrize("kind", ["NPU", "XPU", "GPU"])
def test_every_kind_of_device_is_named(kind: str, tmp_path: Path) -> None:
    name = "CUDA" if kind == "GPU" else kind
    text = "".join(
        f"  what():  {name} out of memory. Tried to allocate 4.00 GiB ({kind} {n}; 61.28 GiB in all)\n"
        for n in (13, 4)
    )
    assert {who.gpu for who in judged(tmp_path, text).verdict.culprits} == {13, 4}


def test_ranks_that_take_the_gpu_of_their_number_are_named_by_it(tmp_path: Path) -> None:
    """Where one of several that are full has a rank, and it is its GPU's number."""
    full = [f"{FULL[:-1]}. GPU {n} has a total capacity of 79.15 GiB\n" for n in (1, 5, 0)]
    spawned = "torch.multiprocessing.spawn.ProcessRaisedException: \n\n"
    spawned += "-- Process 0 terminated with the following error:\n"
    told = 'Traceback (most recent call last):\n  File "/job/train.py", line 9, in main\n    step()\n'
    assert culprits(judged(tmp_path, "".join(told + one for one in full[:2]) + spawned + told + full[2])) == [
        0,
        1,
        5,
    ]
    moved = full[2].replace("GPU 0", "GPU 3")
    assert culprits(judged(tmp_path, "".join(told + one for one in full[:2]) + spawned + told + moved)) == [0]


@pytest.mark.parametrize(
    "error", [NAMELESS, "ImportError: /opt/amp.so: undefined symbol: _ZN3c104cuda29c10\n"]
)
def test_what_a_sign_reads_from_an_exception_counts_as_often(error: str, tmp_path: Path) -> None:
    text = (RAISED.rpartition("AttributeError")[0] + error) * 16
    home = "".join(SENT_HOME.format(pid=700 + rank) for rank in range(16) if rank != 3)
    assert culprits(judged(tmp_path, text + home + table(3))) == list(range(16))


@pytest.mark.parametrize(("label", "ranks"), [("DP13 TP13 EP13", [13]), ("TP13 EP13", [13]), ("DP1 TP3", [])])
def test_sglangs_ranks_of_tensors_and_experts_are_global_where_they_are_the_same(
    label: str, ranks: list[int], tmp_path: Path
) -> None:
    head = f"[2026-01-14 12:10:42 {label}] Scheduler hit an exception: Traceback (most recent call last):\n"
    assert culprits(judged(tmp_path, head + RAISED.partition("\n")[2])) == ranks


def test_what_one_rank_logs_and_raises_is_not_of_two(tmp_path: Path) -> None:
    logged = "2025-03-14 09:26:52,133 ERROR train.py:40 -- the step failed\n" + RAISED
    home = SENT_HOME.format(pid=701)
    assert culprits(judged(tmp_path, logged + RAISED + home + table(0))) == [0]
    assert culprits(judged(tmp_path, RAISED + RAISED + home + table(0))) == [0, 1]
