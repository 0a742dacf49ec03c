"""Errors near the end of a live log of which their callers say what became of them."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import judged

STEPS = [f"(Driver pid=31) step:{n} - kl:0.0{n} - time/step:41.{n}\n" for n in range(10, 60)]
KILLED = (
    "(raylet, ip=10.9.0.3) [2026-03-04 05:06:07,001 E 41 41] (raylet) node_manager.cc:3065: 1 Workers"
    " (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to other reasons at node\n"
)
ANSWERED = (
    "(Driver pid=31) WARNING: judge task 17 failed with ray.exceptions.OutOfMemoryError: Task was killed due"
    " to the node running low on memory.; retrying (1/4)\n"
)
WORKED = "(Driver pid=31) judge task 17 succeeded on retry 1\n"
RAISED = (
    "(Judge pid=52) Traceback (most recent call last):\n"
    '(Judge pid=52)   File "/job/judge.py", line 30, in run\n(Judge pid=52)     exec(answer)\n'
    "(Judge pid=52) IndexError: list index out of range\n"
)
DIED = (
    "ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing this task.\n"
    "\tclass_name: Trainer\n\tpid: 88\nThe actor is dead because its worker process has died. Worker exit"
    " type: SYSTEM_ERROR Worker exit detail: Worker unexpectedly exits with a connection error code 2. End of"
    " file.\n"
)


@pytest.mark.parametrize("later", [0, 1, 2])
@pytest.mark.parametrize("answer", [ANSWERED, ANSWERED + WORKED])
def test_a_task_that_its_caller_tries_again_ended_nothing(answer: str, later: int, tmp_path: Path) -> None:
    log = "".join(STEPS[:40]) + KILLED + answer + "".join(STEPS[40 : 40 + later])
    assert judged(tmp_path, log).verdict.outcome == "clean"
    assert judged(tmp_path, log + DIED).verdict.cause == "peer_host_oom"


def test_a_killed_worker_of_which_no_caller_speaks_stays(tmp_path: Path) -> None:
    assert judged(tmp_path, "".join(STEPS[:40]) + KILLED).verdict.cause == "peer_host_oom"
    last = ANSWERED.replace("retrying (1/4)", "giving up")
    assert judged(tmp_path, "".join(STEPS[:40]) + KILLED + last).verdict.cause == "peer_host_oom"


@pytest.mark.parametrize("later", [0, 1, 2])
@pytest.mark.parametrize("arrow", ["-> the answer did not run, reward 0.0", "-> counted as wrong"])
def test_an_arrow_behind_an_exception_says_what_came_of_it(arrow: str, later: int, tmp_path: Path) -> None:
    log = "".join(STEPS[:40]) + RAISED + f"(Judge pid=52) {arrow}\n" + "".join(STEPS[40 : 40 + later])
    assert judged(tmp_path, log).verdict.outcome == "clean"


@pytest.mark.parametrize(
    "behind",
    [
        "",
        "-> aborting the run",
        "-> exiting now",
        "=> creating model",
        "INFO: next\n(Judge pid=52) -> all is well",
    ],
)
def test_an_arrow_may_say_that_it_was_the_end(behind: str, tmp_path: Path) -> None:
    log = "".join(STEPS[:40]) + RAISED + (f"(Judge pid=52) {behind}\n" if behind else "")
    assert judged(tmp_path, log).verdict.cause == "user_code_exception"


@pytest.mark.parametrize("subject", ["judge task 17", "upload of step 30", "request 8"])
def test_a_task_that_succeeded_is_no_end_of_the_job(subject: str, tmp_path: Path) -> None:
    log = "".join(STEPS[:40]) + f"(Driver pid=31) {subject} succeeded on retry 1\n"
    assert "making progress where it ends" in judged(tmp_path, log).verdict.headline


@pytest.mark.parametrize(
    "words", ["succeeded on attempt 2", "job SUCCEEDED after 1 retry", "train.py succeeded on the second try"]
)
def test_a_job_that_succeeded_is_at_its_end(words: str, tmp_path: Path) -> None:
    assert "came to its end" in judged(tmp_path, "".join(STEPS[:40]) + f"{words}\n").verdict.headline
