"""What processes print when people stop their job or server: they end in disorder, and nothing failed."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import as_document, caught, judged, raised, steps

from nodedoctor.triage.job import examine_job

PIPE = (
    "Exception in thread Thread-1 (_pin_memory_loop):\n"
    "Traceback (most recent call last):\n"
    '  File "/usr/lib/python3.10/threading.py", line 1016, in _bootstrap_inner\n'
    "    self.run()\n"
    '  File "/usr/lib/python3.10/multiprocessing/connection.py", line 379, in _recv\n'
    "    chunk = read(handle, remaining)\n"
    "ConnectionResetError: [Errno 104] Connection reset by peer\n"
)
PICKLE = (
    "Traceback (most recent call last):\n"
    '  File "<string>", line 1, in <module>\n'
    '  File "/usr/lib/python3.10/multiprocessing/spawn.py", line 126, in _main\n'
    "    self = reduction.pickle.load(from_parent)\n"
    "_pickle.UnpicklingError: pickle data was truncated\n"
)
INTERRUPTED = {
    "python": "Traceback (most recent call last):\n"
    '  File "/job/train.py", line 88, in <module>\n    main()\nKeyboardInterrupt\n',
    "a library that was being loaded": "Traceback (most recent call last):\n"
    '  File "/opt/env/lib/python3.7/site-packages/torch/__init__.py", line 196, in <module>\n'
    "    from torch._C import *\nRuntimeError: KeyboardInterrupt: \n",
    "lightning": "Detected KeyboardInterrupt, attempting graceful shutdown ...\n",
    "its own words": "2026-11-07 10:41:25 - LOGS - Keyboard interruption. Exiting from early training\n",
}
AFTER = {
    "a loader's pipe": PIPE,
    "a worker that was just started": PICKLE,
    "those that wait": "".join(caught(rank) for rank in (0, 1)),
    "a launcher": "W1107 10:41:25.000000 12 torch/multiprocessing/spawn.py:169] Terminating process 15 via"
    " signal SIGTERM\n"
    "torch.multiprocessing.spawn.ProcessExitedException: process 2 terminated with exit code 1\n",
}
ANSWERED = '(APIServer pid=41) INFO:     10.0.0.9:{port} - "POST /v1/chat/completions HTTP/1.1" 200 OK\n'
UP = "(APIServer pid=41) INFO:     Application startup complete.\n"
DEAD = (
    "(APIServer pid=41) ERROR 11-07 10:24:34 [async_llm.py:704] AsyncLLM output_handler failed.\n"
    "(APIServer pid=41) ERROR 11-07 10:24:34 [async_llm.py:704] Traceback (most recent call last):\n"
    "(APIServer pid=41) ERROR 11-07 10:24:34 [async_llm.py:704]   File"
    ' "/venv/lib/python3.12/site-packages/vllm/v1/engine/async_llm.py", line 655, in output_handler\n'
    "(APIServer pid=41) ERROR 11-07 10:24:34 [async_llm.py:704]     raise self._format_exception(outputs)\n"
    "(APIServer pid=41) ERROR 11-07 10:24:34 [async_llm.py:704] vllm.v1.engine.exceptions.EngineDeadError:"
    " EngineCore encountered an issue. See stack trace (above) for the root cause.\n"
)
ASKED = {
    "vllm": "(APIServer pid=41) INFO 11-07 10:24:34 [launcher.py:100] [shutdown] API server: shutdown"
    " triggered\n",
    "its engine": "(EngineCore pid=44) INFO 11-07 10:24:34 [core.py:1214] [shutdown] EngineCore: trigger"
    " received signal=SIGTERM\n",
    "sglang": "[2026-11-07 00:17:43] SIGTERM received. signum=None frame=None. Draining requests and shutting"
    " down...\n",
}
REFUSED = (
    "(APIServer pid=41) ERROR 11-07 14:16:20 [serving_chat.py:251] Error in preprocessing prompt inputs\n"
    "(APIServer pid=41) ERROR 11-07 14:16:20 [serving_chat.py:251] Traceback (most recent call last):\n"
    "(APIServer pid=41) ERROR 11-07 14:16:20 [serving_chat.py:251]   File"
    ' "/venv/lib/python3.12/site-packages/vllm/entrypoints/serving.py", line 675, in _validate\n'
    "(APIServer pid=41) ERROR 11-07 14:16:20 [serving_chat.py:251] ValueError: the prompt has 18244 tokens\n"
)


def answers(first: int, count: int) -> str:
    return "".join(ANSWERED.format(port=50000 + number) for number in range(first, first + count))


@pytest.mark.parametrize("how", INTERRUPTED)
@pytest.mark.parametrize("what", AFTER)
def test_disorder_behind_an_interrupt_is_no_failure(tmp_path: Path, how: str, what: str) -> None:
    verdict = judged(tmp_path, steps(1, 9) + INTERRUPTED[how] + AFTER[what]).verdict
    assert (verdict.outcome, verdict.cause) == ("clean", "none")


@pytest.mark.parametrize("how", INTERRUPTED)
def test_a_loader_that_ends_before_the_program_says_that_it_was_interrupted(tmp_path: Path, how: str) -> None:
    assert judged(tmp_path, steps(1, 9) + PIPE + INTERRUPTED[how]).verdict.outcome == "clean"


def test_a_closed_pipe_of_a_helper_names_no_peer(tmp_path: Path) -> None:
    assert judged(tmp_path, steps(1, 9) + PIPE).verdict.cause == "undetermined"


@pytest.mark.parametrize("how", INTERRUPTED)
@pytest.mark.parametrize(
    "before",
    [
        pytest.param("".join(caught(rank) for rank in range(3)), id="ranks had waited"),
        pytest.param(raised(3, "ValueError: no such shard"), id="a rank had failed"),
        pytest.param(raised(3, "torch.OutOfMemoryError: CUDA out of memory."), id="a GPU was full"),
    ],
)
def test_a_job_that_had_failed_was_stopped_because_of_it(tmp_path: Path, how: str, before: str) -> None:
    text = steps(1, 9) + before + INTERRUPTED[how] + AFTER["a launcher"]
    assert judged(tmp_path, text).verdict.outcome in ("failure", "undetermined")


def test_who_waited_in_a_job_that_never_moved(tmp_path: Path) -> None:
    text = INTERRUPTED["python"] + "".join(caught(rank) for rank in (0, 1))
    assert judged(tmp_path, text).verdict.outcome != "clean"


@pytest.mark.parametrize(
    "error", ["ValueError: no such shard", "torch.OutOfMemoryError: CUDA out of memory."]
)
def test_a_failure_of_its_own_behind_an_interrupt(tmp_path: Path, error: str) -> None:
    """The next run, in the same file: what it says of its own code is no disorder."""
    text = steps(1, 9) + INTERRUPTED["python"] + raised(3, error)
    assert judged(tmp_path, text).verdict.outcome == "failure"


@pytest.mark.parametrize("how", INTERRUPTED)
@pytest.mark.parametrize("dead", ["Killed\n", "srun: error: n4: task 3: Segmentation fault\n"])
def test_a_process_that_somebody_else_killed(tmp_path: Path, how: str, dead: str) -> None:
    assert judged(tmp_path, steps(1, 9) + INTERRUPTED[how] + dead).verdict.cause == "peer_died"


@pytest.mark.parametrize("how", INTERRUPTED)
@pytest.mark.parametrize("what", AFTER)
def test_a_stop_of_something_that_never_worked_excuses_nothing(tmp_path: Path, how: str, what: str) -> None:
    assert judged(tmp_path, INTERRUPTED[how] + AFTER[what]).verdict.outcome != "clean"


@pytest.mark.parametrize("by", ASKED)
def test_a_server_that_was_asked_to_stop(tmp_path: Path, by: str) -> None:
    crashed = "[2026-11-07 00:17:43] Subprocess detokenizer (pid=31) crashed with exit code -15.\n"
    verdict = judged(tmp_path, UP + answers(0, 9) + ASKED[by] + DEAD + crashed).verdict
    assert (verdict.outcome, verdict.headline) == ("clean", "no failure: the server was shut down in order")


def test_a_server_whose_engine_died_takes_itself_down(tmp_path: Path) -> None:
    down = "(APIServer pid=41) INFO 11-07 10:24:35 [launcher.py:122] Shutting down FastAPI HTTP server.\n"
    assert judged(tmp_path, UP + answers(0, 9) + DEAD + down).verdict.outcome != "clean"


def test_a_request_that_is_refused_ends_no_server(tmp_path: Path) -> None:
    verdict = judged(tmp_path, UP + answers(0, 5) + REFUSED + answers(5, 5)).verdict
    assert verdict.outcome == "clean"
    assert judged(tmp_path, UP + answers(0, 5) + REFUSED).verdict.outcome == "failure"


@pytest.mark.parametrize("status", [400, 413, 422])
def test_a_request_that_is_refused_as_the_clients_fault(tmp_path: Path, status: int) -> None:
    answer = ANSWERED.format(port=50009).replace("200 OK", f"{status} Refused")
    assert judged(tmp_path, UP + REFUSED + answer).verdict.outcome == "clean"
    broken = answer.replace(str(status), "500")
    assert judged(tmp_path, UP + REFUSED + broken).verdict.outcome == "failure"
    failed = raised(3, "ValueError: no such shard")
    assert judged(tmp_path, UP + failed + answer).verdict.outcome == "failure"


def asgi(error: str) -> str:
    """What uvicorn logs of an exception that a request's handler raised."""
    return "".join(
        f"(APIServer pid=41) {line}\n"
        for line in (
            "ERROR:    Exception in ASGI application",
            "Traceback (most recent call last):",
            '  File "/venv/lib/python3.12/site-packages/uvicorn/protocols/http/httptools_impl.py", line 409,'
            " in run_asgi",
            "    result = await app(",
            '  File "/venv/lib/python3.12/site-packages/vllm/renderers/params.py", line 418, in _check',
            "    raise error",
            error,
        )
    )


def test_an_exception_that_is_logged_behind_a_refusal_is_of_the_request(tmp_path: Path) -> None:
    refusal = ANSWERED.format(port=50009).replace("200 OK", "400 Bad Request")
    behind = asgi("vllm.exceptions.VLLMValidationError: the prompt has 40101 tokens")
    down = "(APIServer pid=41) INFO:     Application shutdown complete.\n"
    for times in (1, 2, 9):
        told = (refusal + behind) * times
        assert judged(tmp_path, UP + answers(0, 9) + told + down).verdict.cause == "none"
    broken = refusal.replace("400 Bad Request", "500 Internal Server Error")
    assert judged(tmp_path, UP + answers(0, 9) + broken + behind).verdict.outcome == "failure"
    failed = raised(3, "ValueError: no such shard")
    assert judged(tmp_path, UP + answers(0, 9) + refusal + failed).verdict.outcome == "failure"
    assert judged(tmp_path, UP + answers(0, 9) + refusal + behind + failed).verdict.outcome == "failure"


def test_a_wait_that_an_answer_ended_does_not_spoil_an_orderly_end(tmp_path: Path) -> None:
    slow = (
        "(EngineCore pid=44) INFO 11-07 10:20:34 [shm_broadcast.py:681] No available shared memory broadcast"
        " block found in 60 seconds. This typically happens when some processes are hanging.\n"
    )
    verdict = judged(tmp_path, UP + slow + answers(0, 9) + ASKED["vllm"] + DEAD).verdict
    assert (verdict.outcome, verdict.headline) == ("clean", "no failure: the server was shut down in order")
    assert judged(tmp_path, UP + answers(0, 9) + slow + DEAD).verdict.outcome != "clean"


@pytest.mark.parametrize(
    ("name", "signal"), [("Segmentation fault", "SIGSEGV"), ("Termination signal", "SIGTERM")]
)
def test_a_signal_that_paddle_tells(tmp_path: Path, name: str, signal: str) -> None:
    text = (
        f"{steps(1, 9)}Error Message Summary:\nFatalError: `{name}` is detected by the operating system.\n"
        f"  [SignalInfo: *** {signal} (@0x4903) received by PID 18750 (TID 0x7ff6) from PID 18691 ***]\n"
    )
    verdict = judged(tmp_path, text).verdict
    assert verdict.cause == ("peer_died" if signal == "SIGSEGV" else "undetermined")


def test_an_exception_that_ends_a_process_is_of_no_request(tmp_path: Path) -> None:
    """No process id tells who is who: what the interpreter prints is not what a logger prints."""
    refused = 'INFO:     10.0.0.9:1 - "POST /v1/chat/completions HTTP/1.1" 400 Bad Request\n'
    failed = raised(0, "ValueError: no such shard").replace("[rank0]: ", "")
    assert judged(tmp_path, failed + refused).verdict.outcome == "failure"


def test_requests_that_are_answered_say_nothing_of_a_trainer_that_failed(tmp_path: Path) -> None:
    failed = raised(3, "ValueError: no such shard")
    assert judged(tmp_path, UP + answers(0, 5) + failed + answers(5, 99)).verdict.outcome == "failure"


def test_a_health_check_is_no_work(tmp_path: Path) -> None:
    checks = answers(0, 9).replace("POST /v1/chat/completions", "GET /health")
    assert judged(tmp_path, UP + REFUSED + checks).verdict.outcome == "failure"


def test_a_library_that_a_program_only_warns_of(tmp_path: Path) -> None:
    missing = (
        "(EngineCore pid=44) WARNING 11-07 16:32:09 [import_utils.py:408] ImportError: libnvrtc.so.13: cannot"
        " open shared object file: No such file or directory\n"
    )
    assert judged(tmp_path, missing + steps(1, 9)).verdict.outcome == "clean"
    plain = missing.partition("] ")[2]
    assert judged(tmp_path, plain).verdict.cause == "version_mismatch"


def test_the_end_of_a_run_in_mlperfs_log(tmp_path: Path) -> None:
    end = ':::MLLOG {"key": "run_stop", "value": null, "metadata": {"lineno": 976, "status": "success"}}\n'
    assert judged(tmp_path, end).verdict.outcome == "clean"
    assert judged(tmp_path, end.replace("success", "aborted")).verdict.outcome != "clean"


@pytest.mark.parametrize("rank", [0, 3])
def test_who_was_ended_from_outside_is_named_and_not_blamed(rank: int, tmp_path: Path) -> None:
    said = (
        f"torch.multiprocessing.spawn.ProcessExitedException: process {rank} terminated with signal SIGTERM\n"
    )
    verdict = judged(tmp_path, steps(1, 9) + said).verdict
    assert (verdict.outcome, verdict.culprits) == ("undetermined", ())
    assert {who.rank for who in verdict.parties} == {rank} and f"rank {rank} " in verdict.headline


STOPPED = {
    "a time limit": "slurmstepd: error: *** STEP 712.1 ON node-1 CANCELLED AT 2026-11-07T10:41:25 DUE TO TIME"
    " LIMIT ***\n",
    "a preemption": "slurmstepd: error: *** JOB 712 ON node-1 CANCELLED AT 2026-11-07T10:41:25 DUE TO"
    " PREEMPTION ***\n",
}


@pytest.mark.parametrize("how", STOPPED)
def test_a_job_that_was_done_and_then_hung_is_not_started_again(how: str, tmp_path: Path) -> None:
    done = steps(1, 9) + "[after training is done] datetime: 2026-11-07 10:31:08\n"
    for text, decision in (
        (done + STOPPED[how], "none"),
        (steps(1, 9) + STOPPED[how] + "Training finished\n", "restart"),  # as a script says in any case
        (steps(1, 9) + STOPPED[how], "restart"),
    ):
        document = as_document(judged(tmp_path, text))
        assert (document["outcome"], document["decision"]) == ("clean", decision), text


PINNING = (
    "Exception in thread Thread-4 (_pin_memory_loop):\n"
    "Traceback (most recent call last):\n"
    '  File "/usr/lib/python3.10/threading.py", line 1016, in _bootstrap_inner\n    self.run()\n'
    '  File "/usr/lib/python3.10/multiprocessing/queues.py", line 122, in get\n    return loads(res)\n'
    '  File "/usr/lib/python3.10/multiprocessing/connection.py", line 388, in _recv\n    read(handle)\n'
    "ConnectionResetError: [Errno 104] Connection reset by peer\n"
)


@pytest.mark.parametrize("thread", [PINNING, PIPE])
@pytest.mark.parametrize("label", ["", "[rank0]: "])
def test_a_thread_that_ends_with_a_training_that_is_done_is_no_failure(
    thread: str, label: str, tmp_path: Path
) -> None:
    own = "".join(f"{label}{line}\n" for line in thread.splitlines())
    done = f"{label}Training finished.\n"
    for text in (steps(1, 9) + own + done, steps(1, 9) + done + own, own + steps(1, 2) + done):
        assert judged(tmp_path, text).verdict.outcome == "clean", text
    for text in (steps(1, 9) + own, steps(1, 9) + own + "Done\n"):
        assert judged(tmp_path, text).verdict.outcome != "clean", text


NOTICES = ("Detected KeyboardInterrupt, attempting graceful shutdown ...\n", "KeyboardInterrupt\n")


@pytest.mark.sampled(6)
@pytest.mark.parametrize(
    "error", ["NameError: name 'exit' is not defined", "RuntimeError: dataset is closed"]
)
@pytest.mark.parametrize("notice", NOTICES)
@pytest.mark.parametrize("ranks", [1, 3])
def test_what_a_library_raises_behind_its_interruption_follows_from_it(
    ranks: int, notice: str, error: str, tmp_path: Path
) -> None:
    for rank in range(ranks):
        own = raised(rank, error).replace(
            "/job/train.py", "/venv/lib/python3.12/site-packages/lightning/call.py"
        )
        last = own if ranks > 1 else own.replace("[rank0]: ", "")
        text = f"world_size={ranks}\n" + steps(1, 30) + "^C\n" + notice + (last if rank == ranks - 1 else "")
        (tmp_path / f"rank{rank}.log").write_text(text)
    assert examine_job([str(tmp_path)]).verdict.outcome == "clean"
    late = (tmp_path / "rank0.log").read_text() + steps(31, 30) + raised(0, error)
    (tmp_path / "rank0.log").write_text(late)  # which had gone on
    assert examine_job([str(tmp_path)]).verdict.outcome == "failure"


@pytest.mark.parametrize("notice", NOTICES)
def test_what_another_rank_raised_is_no_consequence_of_an_interruption(notice: str, tmp_path: Path) -> None:
    for rank in range(3):
        end = raised(2, "KeyError: 'x'") if rank == 2 else "^C\n" + notice
        (tmp_path / f"rank{rank}.log").write_text("world_size=3\n" + steps(1, 30) + end)
    verdict = examine_job([str(tmp_path)]).verdict
    assert (verdict.outcome, [who.rank for who in verdict.culprits]) == ("failure", [2])


OF_RAY_JOBS = (
    "2026-11-07 10:41:25,911\tWARN cli.py:84 -- Job 'raysubmit_Zz81' was stopped",
    "Job 'nightly-sft-12' was stopped",
    "Status for job 'nightly-sft-12': STOPPED\nStatus message: Job was intentionally stopped.",
    "Job has been stopped",
    "  Job Status:             STOPPED",
)


@pytest.mark.parametrize("words", OF_RAY_JOBS)
@pytest.mark.parametrize(
    "signal", ["", "(Trainer pid=71) *** SIGTERM received at time=1790000000 on cpu 3 ***\n"]
)
def test_a_ray_job_that_somebody_stops_was_ended_in_order(words: str, signal: str, tmp_path: Path) -> None:
    verdict = judged(tmp_path, f"{steps(1, 20)}{signal}{words}\n").verdict
    assert (verdict.outcome, verdict.cause) == ("clean", "none") and "cancelled" in verdict.headline
    (tmp_path / "status.txt").write_text(f"{words}\n")
    (tmp_path / "job.log").write_text(steps(1, 20) + signal)
    verdict = examine_job([str(tmp_path / "job.log"), str(tmp_path / "status.txt")]).verdict
    assert (verdict.outcome, verdict.cause) == ("clean", "none")


@pytest.mark.parametrize("words", OF_RAY_JOBS)
def test_a_ray_job_that_is_stopped_because_it_had_failed(words: str, tmp_path: Path) -> None:
    for error in ("ValueError: no such shard", "torch.OutOfMemoryError: CUDA out of memory."):
        text = f"{steps(1, 20)}{raised(3, error)}{words}\n"
        assert judged(tmp_path, text).verdict.outcome == "failure"


@pytest.mark.parametrize(
    "words", ["Job 'a1' was started", "the job was stopped at step 20", "Job status: RUNNING"]
)
def test_other_words_about_a_job_stop_none(words: str, tmp_path: Path) -> None:
    verdict = judged(tmp_path, f"{steps(1, 20)}{words}\n").verdict
    assert "in order" not in verdict.headline


STOP_SIGNALS = (
    "[2026-11-07 10:41:26,003 E 42 42] (raylet) node_manager.cc:1088: Raylet received SIGTERM, shutting down",
    "2026-11-07 10:41:26,003 - ERROR - rank 3: no step was finished behind SIGTERM",
    "ERROR:launcher:worker 3 ended by signal 15",
)


@pytest.mark.parametrize("words", STOP_SIGNALS)
@pytest.mark.parametrize("how", STOPPED)
def test_a_complaint_of_the_signal_follows_from_the_schedulers_stop(
    how: str, words: str, tmp_path: Path
) -> None:
    verdict = judged(tmp_path, f"{steps(1, 20)}{STOPPED[how]}{words}\n").verdict
    assert (verdict.outcome, verdict.cause) == ("clean", "none")
    for error in ("Xid storm on node 3, giving up", "could not write the checkpoint"):
        other = f"{steps(1, 20)}{STOPPED[how]}2026-11-07 10:41:26,003 - ERROR - {error}\n"
        assert judged(tmp_path, other).verdict.outcome != "clean", error
    assert judged(tmp_path, f"{steps(1, 20)}{words}\n").verdict.outcome != "clean"
