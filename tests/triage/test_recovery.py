"""Every error of the judged run decides something, or is told with the reason why it does not."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import caught, judged, status, steps
from test_triage_laws import CASES, Case

from nodedoctor.triage.read.parallel import read_all
from nodedoctor.triage.read.reader import SourceReading
from nodedoctor.triage.read.sources import find_sources
from nodedoctor.triage.timeline.model import QUIET
from nodedoctor.triage.timeline.recovery.set_aside import JOB_RULES, LINE_RULES, LOG_RULES, decide_in_log
from nodedoctor.triage.timeline.runs import separate_runs
from nodedoctor.triage.verdict.document import make_document

OOM = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
TRACE = f'Traceback (most recent call last):\n  File "/job/fit.py", line 3, in step\n    loss()\n{OOM}\n'
ENDED = "{'train_runtime': 80.1, 'train_loss': 2.0}\n"

HANDLED = {
    "the program says how it went on": f"INFO retry 1/3 after {OOM}\n" + steps(1, 9),
    "the program tells it as a warning": f"2026-11-20 10:00:01,123 - fit - WARNING - {OOM}\n" + steps(1, 9),
    "the job counted on behind it": steps(1, 30) + TRACE + steps(30, 90),
    "the run reports its own success behind it": TRACE + "step 1 loss: 2.0\n" + ENDED,
}


@pytest.mark.parametrize("reason", HANDLED)
def test_a_reason_stands_beside_each_error_that_decides_nothing(reason: str, tmp_path: Path) -> None:
    verdict = judged(tmp_path, HANDLED[reason]).verdict
    assert verdict.cause != "peer_cuda_oom"
    assert reason in {one.reason for one in verdict.also_seen}


def test_errors_that_are_alike_are_told_once_with_their_number(tmp_path: Path) -> None:
    text = "".join(f"INFO retry 1/3 after {OOM}\nstep {n} loss: 2.{n}\n" for n in range(1, 40))
    found = judged(tmp_path, text)
    (one,) = make_document(found.verdict, found.lines.line_of)["also_seen"]
    assert (one["event"], one["fate"], one["count"], one["line"]) == ("gpu_full", "handled", 39, 1)


@pytest.mark.parametrize("end", ("Done\n", "Training completed in 80.1 s\n", "exit code: 0\n"))
def test_what_a_script_says_behind_a_failure_is_no_success(end: str, tmp_path: Path) -> None:
    assert judged(tmp_path, steps(1, 9) + TRACE + end).verdict.outcome == "failure"


@pytest.mark.sampled(6)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_no_error_is_lost_without_a_reason(case: Case, tmp_path: Path) -> None:
    for name, text in case.texts.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        reading = SourceReading()
        read_all(find_sources([str(path)]).sources, reading)
        *_, last = separate_runs(reading.events)
        kept, aside = decide_in_log(list(last.events))
        errors = [event for event in last.events if event.kind not in QUIET]
        told = [*kept, *(one.event for one in aside)]
        assert {id(event) for event in errors} <= {id(event) for event in told}
        assert not {id(event) for event in kept} & {id(one.event) for one in aside}


def test_each_rule_has_a_reason_of_its_own() -> None:
    reasons = [rule.reason for rule in (*LOG_RULES, *JOB_RULES, *LINE_RULES)]
    assert len(set(reasons)) == len(reasons)


SAVE = (
    "[rank{n}]: Traceback (most recent call last):\n"
    '[rank{n}]:   File "/job/recipe.py", line 94, in train\n'
    "[rank{n}]:     self.{name}(epoch)\n"
    '[rank{n}]:   File "/job/recipe.py", line 45, in {name}\n'
    "[rank{n}]:     dist.barrier()\n"
    "[rank{n}]: RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:81] Timed out waiting 1800000ms for recv"
    " operation to complete\n"
)
ECC = "CUDA error: uncorrectable ECC error encountered"
ADDRESS = "connecting to address  with family 512 is neither AF_INET(2) nor AF_INET6(10)"
KINDS = {
    "a barrier in a save": (
        steps(1, 60) + "".join(SAVE.format(n=n, name="save_checkpoint") for n in (1, 2)) + "Saving\n",
        "timeout_too_short_legit_work",
    ),
    "the group of a checkpoint": (
        steps(1, 60)
        + "".join(
            caught(n) + status(n, 7, 7, 6, "31(CKPT_SAVE)")
            for n in (1, 2, 3)
        ),
        "timeout_too_short_legit_work",
    ),
    "a GPU that dies while others still count": (
        steps(1, 60)
        + f"[Rank 1] NCCL watchdog thread terminated with exception: {ECC}\n"
        + steps(61, 70)
        + f"  what():  [Rank 1] NCCL watchdog thread terminated with exception: {ECC}\n",
        "gpu_hardware_xid",
    ),
    "an interface that does not exist": (
        "NCCL INFO NCCL_SOCKET_IFNAME set to eth7\nncclInternalError: Internal check failed.\nLast error:\n"
        f"ncclSocketInit: {ADDRESS}\n",
        "network_socket_interface",
    ),
    "a section of a rank monitor": (
        steps(1, 60)
        + "2026-06-18 01:33:20,110 [WARNING] [n2] rank_monitor_server.py:5 (rank=17) Section 'step' has been"
        " open for 600.11 seconds. Timeout is 600.00 seconds.\n",
        "cpu_stuck_or_slow_rank",
    ),
    "a stall of Horovod while rank 0 evaluates": (
        steps(1, 60)
        + "Starting evaluation on rank 0\nStalled ops: grad_7 [missing ranks: 0]\n" * 2,
        "cpu_stuck_or_slow_rank",
    ),
    "code that a reward function runs": (
        steps(1, 20)
        + 'Traceback (most recent call last):\n  File "<string>", line 3, in <module>\nKeyError: 4\n'
        + "{'train_runtime': 9123.2, 'train_loss': 0.0041, 'epoch': 1.0}\n",
        "none",
    ),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_what_decides_is_kept(kind: str, tmp_path: Path) -> None:
    text, cause = KINDS[kind]
    assert judged(tmp_path, text).verdict.cause == cause


OWN_ERRORS = {
    "a full GPU": "OOM with 16 samples: CUDA out of memory. Tried to allocate 2.00 GiB",
    "a CUDA kernel": "probe 16: CUDA error: an illegal memory access was encountered",
    "shared memory": "ERROR: Unexpected bus error encountered in worker. This might be caused by"
    " insufficient shared memory (shm).",
}
RESULTS = {
    "transformers": ENDED,
    "lightning": "`Trainer.fit` stopped: `max_epochs=1` reached.\n",
}


@pytest.mark.parametrize("result", RESULTS)
@pytest.mark.parametrize("error", OWN_ERRORS)
@pytest.mark.parametrize("prefix", ["", "[INFO] ", "2026-11-20 10:00:01,123 - INFO - "])
def test_a_result_outweighs_what_a_process_said_of_itself(
    prefix: str, error: str, result: str, tmp_path: Path
) -> None:
    before = f"{prefix}a run begins\n{prefix}{OWN_ERRORS[error]}\n{prefix}step 1 loss: 2.0\n"
    assert judged(tmp_path, before).verdict.outcome == "failure"
    assert judged(tmp_path, before + RESULTS[result]).verdict.outcome == "clean"


@pytest.mark.parametrize("error", OWN_ERRORS)
def test_a_result_of_another_rank_outweighs_nothing(error: str, tmp_path: Path) -> None:
    text = f"[rank1]: {OWN_ERRORS[error]}\n[rank0]: {ENDED}"
    assert judged(tmp_path, text).verdict.outcome == "failure"


TRIED = (
    "{}; decreasing batch size to 8",
    "{} with 16 samples, reduced the micro-batch to 8",
    "16 samples do not fit ({}), trying 8",
    "{}: trying a smaller one",
)


@pytest.mark.parametrize("words", TRIED)
def test_a_program_that_looks_for_a_size_that_fits_goes_on(words: str, tmp_path: Path) -> None:
    text = f"INFO a run begins\nINFO {words.format('CUDA out of memory')}\nINFO size found\n"
    assert judged(tmp_path, text).verdict.outcome != "failure"
