"""What is printed behind a run's own last words, or in front of a test session's, is no failure."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import judged, raised, steps

from nodedoctor.triage.job import examine_job

RESULTS = "(TaskRunner pid=3012) (\"Final validation metrics: {'val/gsm8k/acc/mean@1': 0.71}\")\n"
TEARDOWN = {
    "a worker": "(raylet) A worker died or was killed while executing a task by an unexpected system error."
    " Worker IP address: 10.0.0.4 Worker port: 43447 Worker PID: 3344 Worker exit type: SYSTEM_ERROR\n",
    "SIGTERM": "(WorkerDict pid=3110) *** SIGTERM received at time=1754040011 on cpu 12 ***\n",
    "its store": "(raylet) [2026-01-07 11:20:11,003 E 210 210] gcs_rpc_client.h:151: Failed to connect to GCS"
    " at address 10.0.0.1:6379 within 5 seconds.\n",
}


@pytest.mark.parametrize("by", TEARDOWN)
def test_what_ray_says_behind_the_results_is_teardown(tmp_path: Path, by: str) -> None:
    verdict = judged(tmp_path, steps(1, 30) + RESULTS + TEARDOWN[by]).verdict
    assert (verdict.outcome, verdict.cause) == ("clean", "none")


@pytest.mark.parametrize("by", ["a worker", "SIGTERM"])
def test_without_results_it_is_a_failure(tmp_path: Path, by: str) -> None:
    assert judged(tmp_path, steps(1, 30) + TEARDOWN[by]).verdict.outcome == "failure"


@pytest.mark.parametrize("by", TEARDOWN)
def test_another_failure_behind_the_results_is_one(tmp_path: Path, by: str) -> None:
    oom = "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    verdict = judged(tmp_path, steps(1, 30) + RESULTS + oom + TEARDOWN[by]).verdict
    assert verdict.cause == "peer_cuda_oom"


TRAINED = "Training completed after 3 iterations at 2026-01-07 11:20:09. Total running time: 8min 51s\n"
CRASHED = "(TorchTrainer pid=3110, ip=10.0.0.4) *** {} received at time=1754040011 on cpu 12 ***\n"


@pytest.mark.parametrize("signal", ["SIGSEGV", "SIGABRT", "SIGBUS", "SIGTERM"])
def test_a_worker_that_ray_train_ends_may_crash(tmp_path: Path, signal: str) -> None:
    told = CRASHED.format(signal)
    verdict = judged(tmp_path, steps(1, 30) + TRAINED + told).verdict
    assert (verdict.outcome == "clean") is (signal != "SIGABRT")
    assert judged(tmp_path, steps(1, 30) + told).verdict.outcome != "clean"
    driver = told.partition(") ")[2]  # of no worker of Ray's
    outcome = judged(tmp_path, steps(1, 30) + TRAINED + driver).verdict.outcome
    assert (outcome == "failure") is (signal != "SIGTERM")


THREAD = (
    "Exception in thread Thread-{n} (_beat):\nTraceback (most recent call last):\n"
    '  File "/usr/lib/python3.12/threading.py", line 1073, in _bootstrap_inner\n    self.run()\n'
    '  File "/job/beat.py", line 40, in _beat\n    post(url)\n{error}\n'
)
THREAD_ERRORS = (
    "requests.exceptions.ConnectTimeout: HTTPSConnectionPool(host='beat.example.com', port=443): timed out",
    "ValueError: no such run",
    "OSError: [Errno 28] No space left on device",
)
SUCCESS = (
    "{'train_runtime': 1805.9, 'train_samples_per_second': 2.66, 'train_loss': 1.71, 'epoch': 1.0}\n",
    "`Trainer.fit` stopped: `max_epochs=3` reached.\n",
)


@pytest.mark.parametrize("success", SUCCESS)
@pytest.mark.parametrize("error", THREAD_ERRORS)
def test_a_thread_that_fails_behind_the_success_ends_nothing(
    tmp_path: Path, error: str, success: str
) -> None:
    thread = THREAD.format(n=7, error=error)
    verdict = judged(tmp_path, steps(1, 30) + success + thread).verdict
    assert (verdict.outcome, verdict.cause) == ("clean", "none")
    main = thread.partition("\n")[2]  # the program's own, which ends it
    assert judged(tmp_path, steps(1, 30) + success + main).verdict.outcome == "failure"
    again = steps(1, 30) + success + steps(1, 30) + thread  # of a second training
    assert judged(tmp_path, again).verdict.outcome == "failure"


@pytest.mark.parametrize(
    "error",
    [
        "RuntimeError: can't create new thread at interpreter shutdown",
        "RuntimeError: cannot schedule new futures after interpreter shutdown",
        "ImportError: sys.meta_path is None, Python is likely shutting down",
    ],
)
def test_what_finds_the_interpreter_gone_is_no_cause(tmp_path: Path, error: str) -> None:
    verdict = judged(tmp_path, steps(1, 30) + THREAD.format(n=4, error=error)).verdict
    assert verdict.cause in ("none", "undetermined")
    first = raised(1, "KeyError: 'tokens'")
    assert judged(tmp_path, steps(1, 30) + first + THREAD.format(n=4, error=error)).verdict.cause == (
        "user_code_exception"
    )


@pytest.mark.parametrize(
    "last", ["3 passed in 81.20s", "3 passed, 1 skipped, 2 warnings in 81.20s (0:01:21)"]
)
def test_what_tests_that_passed_raised_was_expected(tmp_path: Path, last: str) -> None:
    log = "tests/test_rank.py::test_fails " + "PASSED\n" + raised(1, "RuntimeError: boom")
    verdict = judged(tmp_path, f"{log}======= {last} =======\n").verdict
    assert (verdict.outcome, verdict.cause) == ("clean", "none")


@pytest.mark.parametrize("last", ["1 failed, 3 passed in 81.20s", "3 passed, 1 error in 81.20s"])
def test_what_tests_that_failed_raised_was_not(tmp_path: Path, last: str) -> None:
    log = "tests/test_rank.py::test_fails " + "FAILED\n" + raised(1, "RuntimeError: boom")
    assert judged(tmp_path, f"{log}======= {last} =======\n").verdict.outcome == "failure"


@pytest.mark.parametrize(
    "line",
    [
        "NET/Socket : message truncated : receiving 696320 bytes instead of 32768",
        "NET/Socket : peer 10.0.0.4<53210> message truncated : receiving 524288 bytes instead of 65536. If"
        " you believe your socket network is in healthy state, there may be a mismatch in collective sizes",
    ],
)
def test_a_message_of_another_size_is_a_mismatch_of_calls_or_settings(tmp_path: Path, line: str) -> None:
    verdict = judged(tmp_path, f"gpu-1:77:99 [0] transport/net_socket.cc:468 NCCL WARN {line}\n").verdict
    assert (verdict.cause, verdict.confidence) == ("collective_mismatch", "medium")
    assert "NCCL_PROTO" in verdict.headline


def test_sagemaker_shows_rank_and_host_in_front(tmp_path: Path) -> None:
    trace = raised(5, "FileNotFoundError: shard5").replace("[rank5]: ", "[1,mpirank:5,algo-2]<stderr>:")
    out = "".join(f"[1,mpirank:{rank},algo-{1 + rank // 4}]<stdout>:rank {rank} ready\n" for rank in range(8))
    verdict = judged(tmp_path, out + trace).verdict
    assert [(who.rank, who.host) for who in verdict.culprits] == [(5, "algo-2")]


@pytest.mark.parametrize("error", THREAD_ERRORS)
def test_a_thread_that_fails_behind_the_end_of_a_training_ends_nothing(tmp_path: Path, error: str) -> None:
    thread = THREAD.format(n=7, error=error)
    assert judged(tmp_path, steps(1, 30) + "Training complete\n" + thread).verdict.outcome == "clean"
    complaint = "ERROR: the upload failed\n"  # a script's own words may follow a program that failed
    assert judged(tmp_path, steps(1, 30) + "Training complete\n" + complaint).verdict.outcome != "clean"


@pytest.mark.parametrize("end", ["PC: @ 0x7f71 (unknown) epoll_wait\n", ""])
def test_who_watches_over_a_job_may_end_its_processes_and_report_success(tmp_path: Path, end: str) -> None:
    stopped = f"*** SIGTERM received at time=1781 on cpu 3 ***\n{end}"
    success = "Job 'raysubmit_h4x' succeeded\n"
    assert judged(tmp_path, steps(1, 30) + stopped + success).verdict.outcome == "clean"
    assert judged(tmp_path, steps(1, 30) + stopped).verdict.outcome == "failure"


@pytest.mark.parametrize(
    "error",
    [
        "training stopped by RuntimeError: CUDA error: an illegal memory access was encountered, see above",
        "rank 2 reported NCCL error: unhandled system error, see its log",
    ],
)
def test_who_cancels_a_job_says_nothing_of_its_success(tmp_path: Path, error: str) -> None:
    cancel = "slurmstepd: error: *** JOB 4411 ON gpu-16 CANCELLED AT 2026-11-07T10:41:25 ***\n"
    assert judged(tmp_path, steps(1, 30) + f"{error}\n{cancel}").verdict.outcome != "clean"


@pytest.mark.parametrize(
    "error", ["RuntimeError: Loss is nan", "KeyError: 'tokens'", "ValueError: bad shard"]
)
@pytest.mark.parametrize(
    "sentence",
    ["the training loop died of {}; training halted", "trainer: {} - rank 3 is out", "{}; last attempt"],
)
def test_a_log_whose_last_words_name_an_error_is_open(tmp_path: Path, sentence: str, error: str) -> None:
    """Unless the job had outlived the same words before."""
    words = sentence.format(error) + "\n"
    assert judged(tmp_path, steps(1, 30) + words).verdict.outcome != "clean"
    if sentence.startswith("trainer"):
        assert judged(tmp_path, steps(1, 9) + words + steps(10, 30) + words).verdict.outcome == "clean"


CLOSING = (
    "misc/socket.cc:58 NCCL WARN socketProgress: Connection closed by remote peer gg<40121>\n",
    "proxy.cc:1521 NCCL WARN [Service thread] Could not receive type from localRank 0, res=3, closed=0\n",
)


@pytest.mark.parametrize("noisy", [0, 2])
def test_what_nccl_writes_while_all_ranks_end_in_order_is_teardown(noisy: int, tmp_path: Path) -> None:
    """Its files have no times: the connections were closed when the ranks were done."""
    for rank in range(3):
        head = f"gg:90{rank}:90{rank} [{rank}] "
        start = f"NCCL INFO ncclCommInitRank comm 0x5 rank {rank} nranks 3 cudaDev {rank} - Init COMPLETE\n"
        closing = "".join(head + line for line in CLOSING) if rank == noisy else ""
        (tmp_path / f"nccl.gg.90{rank}.log").write_text(head + start + closing)
        done = f"[rank{rank}]: training finished\n"
        work = "".join(f"[rank{rank}]: {line}\n" for line in steps(1, 30).splitlines())
        (tmp_path / f"rank{rank}.log").write_text(work + done)
    assert examine_job([str(tmp_path)]).verdict.outcome == "clean"
    log = tmp_path / "rank1.log"
    log.write_text(log.read_text().replace("[rank1]: training finished\n", ""))
    assert examine_job([str(tmp_path)]).verdict.outcome != "clean"
