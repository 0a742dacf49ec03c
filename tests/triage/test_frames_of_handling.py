"""An error in a frame of handling changes no verdict: the frame tells, and not the words of a table."""

from __future__ import annotations

import pytest
from say import judged, steps
from test_handled_errors import ERRORS
from test_triage_laws import CASES, _ranks, _said, _verdict, _whole

from nodedoctor.triage.patterns.unclassified import is_report

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
STACK = 'Traceback (most recent call last):\n  File "/j/io.py", line 41, in {function}\n    run()\n{error}\n'
KILLED = "*** SIGSEGV ***\nsrun: error: gpu-04: task 3: Segmentation fault (core dumped)\n"
IN_FRONT = (
    "failed to import the fused kernels, using those of torch. Reason:",
    "Warning: flash attention unavailable, using the other one",
    "ERROR:loader:failed to fetch sample 81, trying another",
    "[WARNING|hooks.py:911] the hook raised an error, dropping it",
    "the cache could not be read; building it anew",
)
BEHIND = (
    "WARNING: fetching failed, using the local copy instead",
    "[guard] suppressed the error above, the loop goes on",
    "INFO: batch left out, taking the next one",
    "(what is above is not fatal, the training goes on)",
    "Reconnected to the store after 1 attempt.",
    "result of task 7 set to none; training with the others",
)


def _framed(front: str, error: str, function: str = "fetch") -> tuple[str, ...]:
    stack = STACK.format(function=function, error=error)
    return (f"{front}\n{stack}",) if front in IN_FRONT else (f"{stack}{front}\n",)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("frame", (*IN_FRONT, *BEHIND))
def test_a_stack_that_begins_in_a_function_was_caught_there(frame, tmp_path):
    """A line beside it says what the program does instead: that is believed, whatever the error is."""
    for number, error in enumerate(ERRORS):
        (text,) = _framed(frame, error)
        assert judged(tmp_path, text + steps(1, 9)).verdict.outcome == "clean", text
        case = CASES[number * 5 % len(CASES)]
        name, log = next(iter(case.texts.items()))
        plain = _said(_verdict({**case.texts, name: f"the data is mapped\n{log}"}, tmp_path))
        assert _said(_verdict({**case.texts, name: text + log}, tmp_path)) == plain, (case.name, text)


@pytest.mark.parametrize("frame", (IN_FRONT[1], IN_FRONT[4], BEHIND[2], BEHIND[5]))
def test_a_stack_that_begins_at_the_module_is_the_interpreters(frame, tmp_path):
    (text,) = _framed(frame, OOM, "<module>")
    assert judged(tmp_path, text + KILLED).verdict.cause == "peer_cuda_oom", text


@pytest.mark.parametrize("end", ("exiting", "shutting down", "giving up", "aborting the run", "raising it"))
def test_a_program_that_tells_its_end_beside_a_stack_goes_nowhere(end, tmp_path):
    for text in (
        STACK.format(function="fit", error=OOM) + f"ERROR: the step failed, {end}\n",
        f"ERROR: the step failed, {end}\n" + STACK.format(function="fit", error=OOM),
    ):
        assert judged(tmp_path, text + steps(1, 1)).verdict.cause == "peer_cuda_oom", text


def test_another_try_in_front_of_a_stack_may_be_the_last_one(tmp_path):
    text = "WARNING: fetching failed, retrying in 4 s\n" + STACK.format(function="fit", error=OOM)
    assert judged(tmp_path, text).verdict.cause == "peer_cuda_oom"


BARE = (
    "CUDA out of memory. Tried to allocate 20.00 MiB",
    "CUDA error: an illegal memory access was encountered",
    "CUDA error 802: system not yet initialized",
    "GPU is lost",
    "No space left on device",
    "undefined symbol: ncclCommShrink",
    *ERRORS[:3],
)
SENTENCES = (
    "preempting request 17: {}, it will be computed anew",
    "metrics could not be pushed with {}, those of this step are lost but training proceeds",
    "peer 10.0.0.7 flapped: {}; the link is up again",
    "the reward function raised {}, returning 0.0",
    "the batch of 16 met {} - half of it was taken",
    "the probe got {} (best of 3 taken)",
    "[probe] {} -> ok after 2 tries",
    "shard 9: {} => taken from the mirror",
)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("sentence", SENTENCES)
def test_an_error_in_the_middle_of_a_sentence_decides_only_where_no_other_end_follows(sentence, tmp_path):
    for error in BARE:
        line = sentence.format(error)
        assert judged(tmp_path, f"{line}\n{KILLED}").verdict.cause == "peer_died", line
        assert judged(tmp_path, f"{line}\n{steps(1, 9)}").verdict.outcome == "clean", line


@pytest.mark.parametrize("sentence", ("{}", "stopped: {}, aborting", "rank 3 ended with {}", "{} (16 of 16)"))
def test_an_error_that_no_program_puts_in_its_sentence_decides(sentence, tmp_path):
    for error in BARE[:6]:
        line = sentence.format(error)
        assert judged(tmp_path, f"{line}\n{KILLED}").verdict.cause != "peer_died", line


def test_a_line_of_no_process_announces_only_what_is_next_to_it(tmp_path):
    """Of what is between them each may be of the process whose stack it is."""
    other = "2026-01-07 10:20:11,123 - rank1 - INFO - loss 2.19\n"
    stack = STACK.format(function="fetch", error="KeyError: 7")
    for line in ("recovered from a read that took too long:\n", "sample 9 is broken, using another:\n"):
        near, far = (judged(tmp_path, steps(1, 9) + line + between + stack) for between in ("", other * 4))
        assert near.verdict.outcome != "failure" and far.verdict.outcome == "failure"


def test_a_line_behind_one_error_announces_no_other(tmp_path):
    text = STACK.format(function="fetch", error="KeyError: 7") + "Falling back to eager mode.\n"
    verdict = judged(tmp_path, text + STACK.format(function="fit", error=OOM)).verdict
    assert verdict.cause == "peer_cuda_oom"


def test_what_was_handled_is_no_failure_that_the_job_got_past(tmp_path):
    text = STACK.format(function="fetch", error=OOM) + "Skipping this batch.\n"
    log = "loading\nINFO:     Application startup complete.\n"
    assert judged(tmp_path, text + log).verdict.outcome == "clean"


@pytest.mark.parametrize("error", ERRORS)
def test_what_a_rank_retells_is_survived_where_it_fails_of_another_error(error, tmp_path):
    told = f"[rank1]: the batch of 16 met {error} - half of it was taken\n"
    last = STACK.format(function="<module>", error="KeyError: 'image'")
    end = "".join(f"[rank1]: {line}\n" for line in last.splitlines())
    verdict = judged(tmp_path, told + end).verdict
    assert "KeyError" in verdict.headline and verdict.confidence == "high"


REPORTS = (
    "container 3 failed",
    "unit db.service failed",
    "worker was killed",
    "rpc error: code = Unavailable",
    "fetch: could not reach the server",
    "worker-2: failed to start",
)
REMARKS = (
    "eval: 3 failed, 97 passed",
    "3 failed",
    "loss is not available yet",
    "it may be unavailable",
    "tests: 12 failed",
    "metrics are not available",
)


@pytest.mark.parametrize("text", (*REPORTS, *REMARKS))
def test_who_fails_has_a_name_and_what_only_is_so_is_no_event(text, tmp_path):
    assert is_report(text) == (text in REPORTS)
    outcome = judged(tmp_path, steps(1, 20) + text + "\n").verdict.outcome
    assert outcome == ("undetermined" if text in REPORTS else "clean")


@pytest.mark.slow
@pytest.mark.parametrize("frame", (*SENTENCES, *IN_FRONT, *BEHIND))
def test_no_frame_changes_the_cause_or_the_ranks_of_any_log(frame, tmp_path):
    changed = []
    for number, case in enumerate(CASES):
        error = ERRORS[number % len(ERRORS)]
        text = f"{frame.format(error)}\n" if frame in SENTENCES else _framed(frame, error)[0]
        before = _whole(case, tmp_path)
        name, log = next(iter(case.texts.items()))
        now = _verdict({**case.texts, name: text + log}, tmp_path)
        if (now.cause, _ranks(now)) != (before.cause, _ranks(before)):
            changed.append(f"{case.name}: {text}: {before.cause} -> {now.cause}")
    assert not changed, "\n".join(changed)
