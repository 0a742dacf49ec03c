"""Jobs that a scheduler ended and started again, in one log."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import culprits, judged

ENDED = {
    "node": "slurmstepd: error: *** JOB 771 ON b3 CANCELLED AT 2026-03-04T05:06:07 DUE TO NODE FAILURE, SEE"
    " SLURMCTLD LOG FOR DETAILS ***\n",
    "memory": "slurmstepd: error: Detected 1 oom_kill event in StepId=771.0. Some of the step tasks have been"
    " OOM Killed.\nsrun: error: b3: task 2: Out Of Memory\n",
}
CAUSES = {"node": "peer_died", "memory": "peer_host_oom"}
FORMS = ["step {k}/4000 loss 1.{k:03d}\n", " iteration {k:5d}/  4000 | lm loss: 1.{k:03d}E+00 | nans: 0 |\n"]
DONE = "[after training is done] datetime: 2026-03-04 09:12:10\n"


def counted(form: str, first: int, end: int) -> str:
    return "".join(form.format(k=k) for k in range(first, end))


@pytest.mark.sampled(6)
@pytest.mark.parametrize("end", ["", DONE])
@pytest.mark.parametrize("resumed", [1, 41, 55])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("why", ENDED)
def test_the_later_run_counts(why: str, form: str, resumed: int, end: str, tmp_path: Path) -> None:
    log = counted(form, 1, 60) + ENDED[why] + counted(form, resumed, 180) + end
    verdict = judged(tmp_path, log).verdict
    assert (verdict.outcome, verdict.cause) == ("recovered", "none"), verdict.headline


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("why", ENDED)
def test_what_was_printed_late_is_no_later_run(why: str, form: str, tmp_path: Path) -> None:
    log = counted(form, 1, 60) + ENDED[why] + counted(form, 59, 61)
    assert judged(tmp_path, log).verdict.cause == CAUSES[why]


@pytest.mark.parametrize("why", ENDED)
def test_the_later_run_may_fail_in_another_way(why: str, tmp_path: Path) -> None:
    full = "[rank5]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.37 GiB.\n"
    examined = judged(tmp_path, counted(FORMS[0], 1, 60) + ENDED[why] + counted(FORMS[0], 41, 90) + full)
    assert (examined.verdict.cause, culprits(examined)) == ("peer_cuda_oom", [5])
