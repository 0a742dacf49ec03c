"""An error that its program handled decides nothing, whatever the error is and wherever it is in a log."""

from __future__ import annotations

import pytest
from say import judged
from test_triage_laws import CASES, Case, _ranks, _verdict, _whole

from nodedoctor.triage.patterns.handling import PHRASES, is_handled

ERRORS = (
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has 79 GiB",
    "RuntimeError: CUDA error: an illegal memory access was encountered",
    "torch.distributed.DistNetworkError: Connection reset by peer",
    "torch.distributed.DistStoreError: Timed out after 301 seconds waiting for clients. 1/2 clients joined.",
    "RuntimeError: NCCL error: unhandled system error, NCCL version 2.21.5",
    "OSError: [Errno 28] No space left on device",
    "TimeoutError: The client socket has timed out after 600s while trying to connect to (10.0.0.1, 29500).",
    "FileNotFoundError: [Errno 2] No such file or directory: '/data/cache/shard-001.tar'",
    "ValueError: could not parse the answer",
)
FRAMES = (
    *(phrase.example for phrase in PHRASES),
    "INFO retry 1/3 after {}",
    "Attempt 1 of 5 failed: {}",
    "2026-11-20 10:00:01,123 - trainer - WARNING - attempt 1 failed with {}, retrying in 5 s",
    "[W] cache: {}",
    "DEBUG probe failed: {}",
    "2026-11-20T10:00:01Z info sidecar saw {}",
    "Got {}, sleeping 10 s before the next attempt",
    "download failed: {}. Trying mirror 2",
    "using cached copy since {}",
    "{}\nRetrying in 5 seconds",
    "warning: {}, using the default",
    "health check saw {} earlier; ok now",
    "TEST test_limits PASSED ({})",
    "worker 3 recovered after {}",
    "upload of the checkpoint failed ({}). Will be tried again with the next one.",
    "first read failed with {}; copying it instead",
    "callback on_step: {} (callback disabled)",
)
RETOLD = (
    "observation: {}",
    "tool call failed: {}",
    "Trial 12 pruned. Reason: {}",
    "step 0 reward=0.0 error={}",
    "cache: {} (will be regenerated)",
    "> {}",
    "2026-11-20T10:00:00Z INFO  loader: {}",
    "W 2026-11-20 10:00:00.123 loader.py:40 | {}",
    "rollout 41 aborted: {}",
    "test_case 12 -> {}",
    "!! {} !! guard caught it",
    "stderr of the executor (exit 1):\n{}",
    'sample 9 dropped:\nTraceback (most recent call last):\n  File "/job/load.py", line 4, in fetch\n{}',
)
"""Words of a program about an error that it had caught; whether it ended then they do not say."""
SENTENCES = (
    "sandbox returned: stderr='{}'",
    "grader: question 7 of the set raised {}, counted as wrong",
    "loading the fast attention raised {}; the slow one is set",
    "the sandbox crashed with {} - reward -1",
)
"""The same in so many words that the error is a part of a sentence."""


def _tried() -> list[tuple[str, Case]]:
    """Each frame around each error, once, before one log after the other."""
    lines = [frame.format(error) for frame in FRAMES for error in ERRORS]
    return [(line, CASES[number % len(CASES)]) for number, line in enumerate(lines)]


@pytest.mark.sampled(6)
@pytest.mark.parametrize("frame", range(len(FRAMES)))
def test_a_handled_error_changes_no_verdict(frame, tmp_path):
    changed = []
    for line, case in _tried()[frame * len(ERRORS) : (frame + 1) * len(ERRORS)]:
        before = _whole(case, tmp_path)
        name, text = next(iter(case.texts.items()))
        now = _verdict({**case.texts, name: f"{line}\n{text}"}, tmp_path)
        if (now.cause, _ranks(now)) != (before.cause, _ranks(before)):
            changed.append(f"{case.name}: {line}: {before.cause} -> {now.cause}")
    assert not changed, "\n".join(changed)


WAITED = (
    "[rank1]:[E1126 10:00:00.000000 ProcessGroupNCCL.cpp:632] [Rank 1] Watchdog caught collective operation"
    " timeout: WorkNCCL(SeqNum=5, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600001"
    " milliseconds before timing out.\n"
)


def test_what_is_cited_as_a_whole_is_cited_by_a_mail(tmp_path):
    """One line behind a mark of a quotation is retold; a mail puts one in front of all that it cites."""
    log = (
        "RuntimeError: The NVIDIA driver on your system is too old (found version 11040).",
        "E0305 08:11:00.002 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1)"
        " local_rank: 0 (pid: 2231) of binary: /usr/bin/python",
    )
    for mark in ("", "> "):
        cited = "On the last node:\n\n" + "".join(f"{mark}{line}\n" for line in log)
        assert _verdict({"job.log": cited}, tmp_path).cause == "driver_problem", mark


@pytest.mark.sampled(6)
@pytest.mark.parametrize("frame", (*RETOLD, *SENTENCES))
def test_what_a_program_retells_decides_only_where_no_end_stands_behind_it(frame, tmp_path):
    for error in ERRORS:
        line = frame.format(error)
        before, now = (_verdict({"job.log": text}, tmp_path) for text in (WAITED, f"{line}\n{WAITED}"))
        assert (now.cause, _ranks(now)) == (before.cause, _ranks(before)), line


@pytest.mark.sampled(6)
@pytest.mark.parametrize("frame", (*RETOLD, *SENTENCES))
@pytest.mark.parametrize(
    "end",
    (
        "step 3/100 loss 2.5\n",
        "Training complete.\n",
        "  0%|    | 0/20 [00:00<?]\n100%|####| 20/20 [00:12<00:00]\n",
    ),
)
def test_what_a_program_retells_is_survived_where_the_training_goes_on(frame, end, tmp_path):
    """A few steps are enough: it had caught the error, which a traceback of the interpreter leaves open."""
    steps = "".join(f"step {number}/100 loss 2.{number}\n" for number in range(3))
    for error in ERRORS:
        text = f"{frame.format(error)}\n{steps if end.startswith('step') else ''}{end}"
        verdict = judged(tmp_path, text).verdict
        assert verdict.outcome in ("clean", "recovered"), (text, verdict.headline)


@pytest.mark.parametrize("frame", RETOLD)
def test_what_a_program_retells_last_is_its_end(frame, tmp_path):
    line = frame.format("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB")
    for end in ("", "error: gpu-04: task 3: Exited with exit code 1\n"):
        assert judged(tmp_path, f"loading the model\n{line}\n{end}").verdict.cause == "peer_cuda_oom"


@pytest.mark.parametrize("error", ERRORS)
def test_a_line_about_one_error_announces_no_other(error, tmp_path):
    if error.startswith("OSError"):
        return
    last = "OSError: [Errno 28] No space left on device: '/data/out'"
    for line in ("WARNING loader: {}; attempt 2/8", "sample 9 dropped: {}", "stderr of the probe: {}"):
        verdict = judged(tmp_path, f"{line.format(error)}\n{last}\n").verdict
        assert verdict.cause == "shm_or_limits", line.format(error)


@pytest.mark.parametrize("work", ("Downloading model shard 3", "evaluating the checkpoint of step 40"))
def test_work_that_failed_at_once_was_not_long(work, tmp_path):
    verdict = judged(tmp_path, f"{work} failed with subprocess.TimeoutExpired: Command 'x'\n{WAITED}").verdict
    assert verdict.cause != "timeout_too_short_legit_work"


@pytest.mark.parametrize(("function", "cause"), [("<module>", "peer_cuda_oom"), ("evaluate", "undetermined")])
def test_what_leaves_the_program_itself_is_its_end(function, cause, tmp_path):
    """loguru catches what a decorated function raises; behind the first of a program comes nothing."""
    text = (
        f"2026-05-23 19:40:43 | ERROR    | __main__:138 - An error has been caught in function '{function}',"
        " process 'MainProcess' (5705), thread 'MainThread' (1399):\nTraceback (most recent call last):\n"
        '  File "train.py", line 138, in <module>\n    main(exp, args)\n'
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n"
    )
    assert judged(tmp_path, f"loading the model\n{text}").verdict.cause == cause


@pytest.mark.sampled(6)
@pytest.mark.parametrize("frame", FRAMES)
def test_a_healthy_log_stays_healthy_beside_handled_errors(frame, tmp_path):
    steps = "".join(f"step {n}/100 loss: 2.{n:02}\n" for n in range(1, 101))
    for error in ERRORS:
        line = frame.format(error)
        verdict = judged(tmp_path, f"{line}\n{steps}Training completed in 512.3 s\n").verdict
        assert verdict.cause in ("none", "undetermined"), line


@pytest.mark.parametrize("phrase", PHRASES, ids=lambda phrase: phrase.name)
def test_every_phrase_has_an_example_of_its_own(phrase):
    assert is_handled(phrase.example.format("x"))


@pytest.mark.parametrize(
    "text",
    (
        "Attempt 3/3 failed: CUDA out of memory",  # the last one
        "RuntimeError: Caught RuntimeError in DataLoader worker process 0.",
        "RuntimeError: Expected all tensors to be on the same device, but found at least two devices",
        "Watchdog caught collective operation timeout: WorkNCCL(SeqNum=3)",
        "Caught signal 11 (Segmentation fault: address not mapped to object)",
        "requests.exceptions.ConnectionError: Max retries exceeded with url: /api",
        "torch.distributed.DistBackendError: unexpected error in the process group",
    ),
)
def test_words_of_errors_themselves_handle_nothing(text):
    assert not is_handled(text)
