"""Helpers of a process that ended, which nobody but the exception of their owner tells of."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import judged, steps

BROKEN = "concurrent.futures.process.BrokenProcessPool: "
LOKY = (
    "joblib.externals.loky.process_executor.TerminatedWorkerError: A worker process managed by the executor "
    "was unexpectedly terminated. This could be caused by a segmentation fault while calling the function or "
    "by an excessive memory usage causing the Operating System to kill the worker.\n"
)
DASK = "Worker tcp://{host}:4{pid} (pid={pid}) exceeded 95% memory budget. Restarting..."
WARNED = "2026-03-01 09:00:{n:02},120 - distributed.nanny.memory - WARNING - {said}\n"
GONE = (
    "distributed.scheduler.KilledWorker: Attempted to run task ('tokens', {n}) on 4 different workers, but "
    "all those workers died while running it. The last worker that attempt to run the task was "
    "tcp://{host}:4{pid}.\n"
)


def raised(error: str, prefix: str = "") -> str:
    """A traceback of a program's own that ends in an error."""
    lines = [
        "Traceback (most recent call last):",
        '  File "/job/prepare.py", line 61, in <module>',
        "    main()",
    ]
    return "".join(f"{prefix}{line}\n" for line in [*lines, *error.splitlines()])


@pytest.mark.parametrize("prefix", ["", "[rank2]: ", "2026-03-01 09:00:00 "])
@pytest.mark.parametrize(
    "error",
    [
        BROKEN
        + "A process in the process pool was terminated abruptly while the future was running or pending.",
        BROKEN + "A child process terminated abruptly, the process pool is not usable anymore",
        LOKY,
        "RuntimeError: One of the subprocesses has abruptly died during map operation.To debug the error, "
        "disable multiprocessing.",
        "billiard.exceptions.WorkerLostError: Worker exited prematurely: exitcode 155 Job: 3.",
    ],
)
def test_a_broken_pool_is_a_worker_that_ended(error: str, prefix: str, tmp_path: Path) -> None:
    verdict = judged(tmp_path, steps(1, 5) + raised(error, prefix)).verdict
    assert verdict.cause == "peer_died"
    assert "worker of a process pool" in verdict.headline
    assert [who.rank for who in verdict.culprits] == ([2] if "rank2" in prefix else [])


@pytest.mark.parametrize("signal", ["SIGKILL", "SIGSEGV", "SIGABRT"])
def test_the_signal_that_ended_it_is_told(signal: str, tmp_path: Path) -> None:
    number = {"SIGKILL": 9, "SIGSEGV": 11, "SIGABRT": 6}[signal]
    loky = raised(LOKY) + f"\nThe exit codes of the workers are {{{signal}(-{number}), EXIT(0)}}\n"
    billiard = raised(
        f"billiard.exceptions.WorkerLostError: Worker exited prematurely: signal {number} ({signal}) Job: 8."
    )
    for text in (loky, billiard):
        verdict = judged(tmp_path, steps(1, 5) + text).verdict
        assert verdict.cause == "peer_died"
        assert f"worker of a process pool was killed by {signal}" in verdict.headline


def test_an_exit_code_of_a_worker_is_no_signal(tmp_path: Path) -> None:
    text = raised(LOKY) + "\nThe exit codes of the workers are {EXIT(1)}\n"
    assert "ended, the log does not say how" in judged(tmp_path, text).verdict.headline


SPAWN = (
    'Traceback (most recent call last):\n  File "<string>", line 1, in <module>\n'
    '  File "/opt/python3.10/multiprocessing/spawn.py", line 116, in spawn_main\n'
    "    exitcode = _main(fd, parent_sentinel)\n"
    '  File "/opt/python3.10/multiprocessing/{file}", line 126, in _main\n'
    "    self = reduction.pickle.load(from_parent)\n{error}\n"
)


@pytest.mark.parametrize(
    "error", ["_pickle.UnpicklingError: pickle data was truncated", "EOFError: Ran out of input"]
)
def test_a_process_whose_starter_ended_meanwhile_tells_no_cause(error: str, tmp_path: Path) -> None:
    own = raised("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
    spawned = SPAWN.format(file="spawn.py", error=error)
    assert judged(tmp_path, steps(1, 5) + spawned + own + spawned).verdict.cause == "peer_cuda_oom"
    assert judged(tmp_path, steps(1, 5) + spawned).verdict.cause == "undetermined"
    file = SPAWN.format(file="reader.py", error=error)
    assert judged(tmp_path, steps(1, 5) + file).verdict.cause == "user_code_exception"


@pytest.mark.parametrize("level", ["WARNING", "ERROR"])
def test_dask_says_which_worker_filled_its_memory(level: str, tmp_path: Path) -> None:
    full = WARNED.replace("WARNING", level).format(n=1, said=DASK.format(host="10.8.0.3", pid=5151))
    verdict = judged(tmp_path, full + raised(GONE.format(n=2, host="10.8.0.3", pid=5151))).verdict
    assert verdict.cause == "peer_host_oom"
    assert [(who.host, who.pid) for who in verdict.culprits] == [("10.8.0.3", 5151)]


@pytest.mark.parametrize("code", [-4, -9, -11, 137])
def test_a_command_that_pip_tried_is_no_process_of_the_job(code: int, tmp_path: Path) -> None:
    box = f"  git did not run successfully.\n  │ exit code: {code}\n  ╰─> [2 lines of output]\n"
    assert judged(tmp_path, box + steps(1, 60)).verdict.cause == "none"
    assert judged(tmp_path, steps(1, 60) + f"exit code: {code}\n").verdict.cause == "peer_died"


def test_tensorflow_names_the_gpu_that_is_full(tmp_path: Path) -> None:
    said = "OOM when allocating tensor with shape[8,64] and type float on /job:x/task:0/device:GPU:{gpu} by"
    for gpu in (0, 3):
        verdict = judged(tmp_path, f"ResourceExhaustedError: {said.format(gpu=gpu)} allocator\n").verdict
        assert (verdict.cause, [who.gpu for who in verdict.culprits]) == ("peer_cuda_oom", [gpu])


def test_without_the_nannys_word_dasks_workers_just_died(tmp_path: Path) -> None:
    verdict = judged(tmp_path, raised(GONE.format(n=2, host="10.8.0.3", pid=5151))).verdict
    assert (verdict.cause, verdict.culprits) == ("peer_died", ())


def test_a_worker_that_dask_started_again_ended_nothing(tmp_path: Path) -> None:
    full = WARNED.format(n=1, said=DASK.format(host="10.8.0.3", pid=5151))
    assert judged(tmp_path, steps(1, 30) + full + steps(31, 90)).verdict.cause == "none"


@pytest.mark.parametrize(("signal", "name"), [("Hangup", "SIGHUP"), ("Terminated", "SIGTERM")])
def test_a_signal_that_all_of_a_job_gets_comes_from_outside(signal: str, name: str, tmp_path: Path) -> None:
    killed = raised(f"RuntimeError: DataLoader worker (pid 25432) is killed by signal: {signal}. ")
    verdict = judged(tmp_path, steps(1, 9) + killed * 3).verdict
    assert (verdict.cause, list(verdict.culprits)) == ("peer_died", [])
    assert f"a data-loader worker was stopped by {name}" in verdict.headline


SHELL = (
    "Traceback (most recent call last):\n"
    '  File "/opt/env/lib/python3.9/site-packages/IPython/core/completer.py", line 2021, in _complete\n'
    "    interpreter = jedi.Interpreter(text, namespaces)\n"
    '  File "/opt/env/lib/python3.9/site-packages/jedi/inference/cache.py", line 43, in wrapper\n'
    "    rv = function(obj, *args, **kwargs)\n"
    "KeyError: ((), frozenset())\n"
)


def test_what_a_notebooks_shell_raises_of_itself_is_no_failure(tmp_path: Path) -> None:
    assert judged(tmp_path, SHELL).verdict.outcome in ("nothing", "undetermined")
    assert judged(tmp_path, steps(1, 9) + SHELL).verdict.outcome == "clean"
    own = SHELL.replace("/opt/env/lib/python3.9/site-packages/IPython/core/completer.py", "/job/train.py")
    assert judged(tmp_path, own).verdict.outcome == "failure"


@pytest.mark.parametrize(
    "said",
    [
        "cv2.error: OpenCV(4.12.0) /io/color.hpp:92: error: (-15:Bad number of channels)",
        "struct.error: unpack requires a buffer of 4 bytes",
        "socket.gaierror: [Errno -2] Name or service not known",
    ],
)
def test_libraries_of_c_name_their_exceptions_in_small_letters(said: str, tmp_path: Path) -> None:
    trace = 'Traceback (most recent call last):\n  File "/job/train.py", line 45, in step\n    go()\n'
    verdict = judged(tmp_path, trace + said + "\n> Invalid number\n").verdict
    assert verdict.outcome == "failure" and said[:20] in verdict.headline
