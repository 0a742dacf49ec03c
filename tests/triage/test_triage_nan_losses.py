"""A job whose loss is NaN and stays so goes on by itself: it is no healthy one."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import judged

LINES = {
    "megatron": " iteration {step:8d}/ 5000 | lm loss: {loss} | loss scale: 1.0 | grad norm: 0.4 |\n",
    "transformers": "{{'loss': {loss}, 'grad_norm': 0.4, 'learning_rate': 1e-4, 'epoch': 0.{step}}}\n",
    "lightning": "Epoch 0:  3%|# | {step}/9000 [02:00<9:00, 1.3it/s, v_num=3, train_loss={loss}]\n",
    "torchtitan": "[rank0]:[titan] 2026-01-07 10:00:00,120 - root - INFO - step: {step} loss: {loss}\n",
    "own words": "step {step} | train loss {loss} | lr 1e-4\n",
}
NAN = ("nan", "NaN", "NAN")


def steps(line: str, first: int, count: int, loss: str) -> str:
    return "".join(line.format(step=step, loss=loss) for step in range(first, first + count))


@pytest.mark.parametrize("nan", NAN)
@pytest.mark.parametrize("by", LINES)
def test_losses_that_stay_nan_are_a_failure(tmp_path: Path, by: str, nan: str) -> None:
    log = steps(LINES[by], 100, 30, "2.31") + steps(LINES[by], 130, 30, nan)
    verdict = judged(tmp_path, log).verdict
    assert (verdict.outcome, verdict.cause, verdict.culprits) == ("failure", "user_code_exception", ())
    assert "NaN" in verdict.headline and verdict.fixes


@pytest.mark.parametrize("count", [1, 9, 10, 40])
@pytest.mark.parametrize("by", LINES)
def test_losses_that_are_numbers_again_are_none(tmp_path: Path, by: str, count: int) -> None:
    log = steps(LINES[by], 100, count, "nan") + steps(LINES[by], 140, 30, "2.31")
    assert judged(tmp_path, log).verdict.outcome == "clean"


@pytest.mark.parametrize("by", LINES)
def test_a_few_nans_at_the_end_decide_nothing(tmp_path: Path, by: str) -> None:
    log = steps(LINES[by], 100, 30, "2.31") + steps(LINES[by], 130, 3, "nan")
    assert judged(tmp_path, log).verdict.outcome == "clean"


@pytest.mark.parametrize(
    "beside",
    ["loss=nan, reduced_train_loss=2.31", "loss: 2.31, grad_norm: nan", "loss: 2.31 eval_loss: nan"],
)
def test_another_number_that_is_nan_is_no_loss(tmp_path: Path, beside: str) -> None:
    log = "".join(f"step {step} {beside}\n" for step in range(100, 160))
    assert judged(tmp_path, log).verdict.outcome == "clean"


def test_a_time_limit_does_not_hide_it(tmp_path: Path) -> None:
    limit = (
        "slurmstepd: error: *** STEP 41.0 ON gpu-1 CANCELLED AT 2026-01-07T13:58:06 DUE TO TIME LIMIT ***\n"
    )
    verdict = judged(tmp_path, steps(LINES["megatron"], 100, 30, "nan") + limit).verdict
    assert (verdict.outcome, verdict.cause) == ("failure", "user_code_exception")


def test_what_ended_the_job_explains_more(tmp_path: Path) -> None:
    oom = "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    verdict = judged(tmp_path, steps(LINES["megatron"], 100, 30, "nan") + oom).verdict
    assert verdict.cause == "peer_cuda_oom"
