"""Tracebacks of errors that were caught or ignored, mixed and labelled; work that is seen without steps."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import elastic, judged, steps

IGNORED = "Exception ignored in: <function Loader.__del__ at 0x7b12>"
TRACE = [
    "Traceback (most recent call last):",
    '  File "/opt/env/loader.py", line 1328, in __del__',
    "    self._shutdown_workers()",
    "AssertionError: can only test a child process",
]


@pytest.mark.parametrize("order", ["0011", "0101", "01110000"])
def test_ignored_errors_of_two_processes_may_be_mixed(order: str, tmp_path: Path) -> None:
    texts = [[IGNORED, *TRACE], [IGNORED, *TRACE]]
    mixed = [texts[int(who)].pop(0) for who in order]
    mixed += [*texts[0], *texts[1]]
    text = "\n".join(mixed) + "\n"
    assert judged(tmp_path, steps(1, 30) + text).verdict.outcome == "clean"
    third = "\n".join(TRACE) + "\n"  # that nobody ignored
    assert judged(tmp_path, steps(1, 30) + text + third).verdict.outcome == "failure"


def test_an_error_far_behind_an_announcement_is_not_ignored(tmp_path: Path) -> None:
    odd = f"{IGNORED}\nan error without a class\n" + "the loader is taken down\n" * 20
    assert judged(tmp_path, steps(1, 30) + odd + "\n".join(TRACE) + "\n").verdict.outcome == "failure"


@pytest.mark.parametrize(
    ("label", "outcome"),
    [
        ("[INFO:swift] ", "clean"),
        ("2026-11-07 10:41:25,100 - app - INFO - ", "clean"),
        ("2026-11-07 10:41:25,100 - app - DEBUG - ", "clean"),
        ("[ERROR:swift] ", "failure"),
        ("", "failure"),
    ],
)
@pytest.mark.parametrize("bar", ["", "Map:   0%|          | 0/2589 [00:00<?, ? examples/s]"])
def test_what_a_logger_tells_at_info_it_has_caught(
    label: str, outcome: str, bar: str, tmp_path: Path
) -> None:
    if bar and not label.startswith("["):
        return  # only a label in brackets is told from the bar in front of it
    text = steps(1, 30) + bar + label + "\n".join(TRACE) + "\n\n"
    assert judged(tmp_path, text).verdict.outcome == outcome
    shared = "".join(f"[INFO:swift] {line}\n" for line in text.replace(label, "").splitlines())
    assert (
        judged(tmp_path, shared).verdict.outcome == "failure"
    )  # a label in front of everything says nothing


@pytest.mark.parametrize(
    "form", ["[{e}, {s:5d}] loss: 2.{s}", "[{e},   {s:3d}/  476] train_loss: 4.{s} masks: 44.2"]
)
def test_an_epoch_and_a_step_in_front_of_a_loss_count(form: str, tmp_path: Path) -> None:
    work = "".join(form.format(e=e, s=s) + "\n" for e in (1, 2) for s in range(0, 300, 50))
    verdict = judged(tmp_path, work).verdict
    assert (verdict.outcome, verdict.confidence) == ("clean", "high")
    assert judged(tmp_path, work + elastic([(0, 1)], 0)).verdict.outcome != "clean"
    assert judged(tmp_path, form.format(e=1, s=50) + "\n" + elastic([(0, 1)], 0)).verdict.outcome != "clean"


DESTROYED = "gpu-1:41{n}:41{n} [{n}] NCCL INFO comm 0x5593b0 rank {n} nranks 4 cudaDev {n} busId {n}b000"
DESTROYED += " - Destroy COMPLETE\n"


def test_communicators_that_were_taken_down_in_order_are_an_end(tmp_path: Path) -> None:
    text = "".join(DESTROYED.format(n=n) for n in range(4))
    assert judged(tmp_path, text).verdict.outcome == "clean"
    assert judged(tmp_path, text.replace("Destroy", "Init")).verdict.outcome == "undetermined"
    assert judged(tmp_path, text + "Segmentation fault (core dumped)\n").verdict.outcome == "failure"


@pytest.mark.parametrize(
    "line",
    [
        "Results saved to: ./result/seed0.json",
        "Full results saved to ./out/a.json",
        "Saved: results/mmlu/summary.json",
    ],
)
def test_results_that_were_saved_show_work_and_overcome_nothing(line: str, tmp_path: Path) -> None:
    assert judged(tmp_path, f"scoring 40 prompts\n{line}\n").verdict.outcome == "clean"
    assert judged(tmp_path, "\n".join(TRACE) + f"\n{line}\n").verdict.outcome == "failure"
    assert judged(tmp_path, f"{line}\ncould not reach the server\n").verdict.outcome != "clean"


@pytest.mark.parametrize("why", ["Unable to satisfy cpu bind request", "Permission denied"])
def test_a_task_that_srun_may_not_start_as_asked_is_no_lost_node(why: str, tmp_path: Path) -> None:
    text = f"srun: error: Task launch for StepId=4411.2 failed on node gpu-7: {why}\n"
    verdict = judged(tmp_path, text).verdict
    assert (verdict.cause, verdict.owner) == ("user_code_exception", "CONFIG")
    lost = judged(tmp_path, text.replace(why, "Communication connection failure")).verdict
    assert (lost.cause, lost.owner) == ("peer_died", "NODE")


SAGEMAKER = (
    "Error for Training job tune-7: Failed. Reason: AlgorithmError: ExecuteUserScriptError:{0}ExitCode 1{0}"
    'ErrorMessage "{1}"{0}Command "/opt/py/bin/python tune.py --epochs 3", exit code: 1\n'
)
AGGREGATED = {
    "ModuleNotFoundError: No module named 'packer'": "user_code_exception",
    ":RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0)": "peer_cuda_oom",
    "torch.cuda.OutOfMemoryError: CUDA out of memory.": "peer_cuda_oom",
    "OSError: [Errno 28] No space left on device": "shm_or_limits",
    "RuntimeError: CUDA error: uncorrectable ECC error encountered": "gpu_hardware_xid",
}


@pytest.mark.parametrize("between", ["\n", " "], ids=["lines", "one line"])
@pytest.mark.parametrize("error", AGGREGATED)
def test_sagemaker_quotes_the_last_words_of_the_program(error: str, between: str, tmp_path: Path) -> None:
    verdict = judged(tmp_path, SAGEMAKER.format(between, error)).verdict
    assert (verdict.outcome, verdict.cause) == ("failure", AGGREGATED[error])
    assert "Command" not in verdict.headline
