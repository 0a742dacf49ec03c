"""An article, a help text or a chat in a log speaks of errors in whole sentences, and reports none."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import judged, steps

from nodedoctor.triage.patterns.prose import is_prose_about_error

ERRORS = (
    "CUDA out of memory",
    "RuntimeError: CUDA error: an illegal memory access was encountered",
    "torch.OutOfMemoryError: CUDA out of memory",
    "Bus error",
    "Segmentation fault (core dumped)",
    "Connection reset by peer",
    "Watchdog caught collective operation timeout",
    "No space left on device",
    "Too many open files",
    "undefined symbol: ncclCommRegister",
    "uncorrectable ECC error encountered",
    "GPU has fallen off the bus",
    "ModuleNotFoundError: No module named 'flash_attn'",
    "exited on signal 9 (Killed)",
    "unhandled system error",
    "No route to host",
    "Killed",
)
TALK = (
    'The error says "{}" means that your batch is too large.',
    "If you see {}, reduce the batch size.",
    "When the error `{}` appears, restart the node.",
    "A common error is {}, which usually points to the network.",
    "You may get `{}` when the model does not fit.",
    "How to fix the error {} in training",
    "This happens when you hit {} during evaluation.",
    '# Solving "{}" in practice',
    "We often saw {} on older drivers.",
    "Q: why do I get {}?",
    "The message '{}' is printed by the peers, not by the guilty rank.",
    "Errors such as {} are consequences.",
    "In that case the log shows {} on all other ranks.",
    "Whenever {} occurs, look at the first rank.",
    "What does {} mean?",
    'A colleague once had "{}" after such lines, so I am worried.',
    'Last week our other job printed "{}" and went on all the same.',
    "Yesterday it ended with {} after an hour.",
    "Might the {} of our other run be related?",
    "Is it the same as #123 ({})?",
    "Anna says it was {} again. Could that be?",
    "Before it was {}, after the upgrade it is gone.",
    "In the failed run {} came first, this one is fine.",
    "On Friday we had {}, that is fixed.",
    "[Bug]: {} with two nodes",
)
REPORTS = (
    "{}",
    "Error: {}",
    "fatal: {}",
    "[rank1]: {}",
    "rank 3 stopped: {}",
    "step 12 failed: {}",
    "2026-11-21 10:00:00,123 ERROR {}",
    "terminate called after throwing an instance of 'std::runtime_error': {}",
    "worker 4 reports: {}",
    "We could not go on: {}",
    "trainer: we lost a worker ({})",
    "I 11-29 10:21:11 controller.py:221] the job failed with {}",
    "{}. Is another process using the GPU?",
    "my-trainer-0 died of {}",
    'my_trainer: child 3 wrote "{}" and is gone now',
)
PROGRESS = steps(1, 40) + "Training completed\n"


@pytest.mark.sampled(2)
@pytest.mark.parametrize("sentence", TALK)
def test_a_sentence_about_an_error_is_none(sentence: str, tmp_path: Path) -> None:
    alarmed = []
    for error in ERRORS:
        for text in (sentence.format(error) + "\n" + PROGRESS, PROGRESS + sentence.format(error) + "\n"):
            verdict = judged(tmp_path, text).verdict
            if verdict.outcome != "clean":
                alarmed.append((error, verdict.cause))
    assert alarmed == []


@pytest.mark.sampled(5)
@pytest.mark.parametrize("sentence", TALK)
def test_an_article_alone_has_no_cause(sentence: str, tmp_path: Path) -> None:
    for error in ERRORS:
        text = f"Some notes on training.\n{sentence.format(error)}\nThat is all there is to say.\n"
        assert judged(tmp_path, text).verdict.cause in ("none", "undetermined"), error


@pytest.mark.parametrize("error", ["CUDA out of memory", "Bus error", "No space left on device", "OOMKilled"])
def test_an_error_with_a_question_mark_is_a_question(error: str, tmp_path: Path) -> None:
    assert (
        judged(tmp_path, PROGRESS + f"{error}? No, that was on another machine.\n").verdict.outcome == "clean"
    )


@pytest.mark.parametrize("report", REPORTS)
def test_what_a_program_reports_is_no_talk(report: str) -> None:
    for error in ERRORS:
        text = report.format(error)
        start = text.index(error)
        assert not is_prose_about_error(text, start, start + len(error)), text


@pytest.mark.parametrize(
    "text",
    [
        "RuntimeError: CUDA error: out of memory. This may indicate that a GPU is shared.",
        "unhandled cuda error (run with NCCL_DEBUG=INFO for details). It can also be caused by a peer.",
        "slurmstepd: error: Some of your processes may have been killed by the cgroup out-of-memory handler.",
        "AbortedError (see above for traceback): Connection reset by peer, which the launcher tells, too",
    ],
)
def test_programs_explain_their_errors_too(text: str, tmp_path: Path) -> None:
    assert judged(tmp_path, steps(1, 9) + text + "\n").verdict.outcome != "clean"
