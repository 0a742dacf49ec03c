"""What a model reads or writes, as programs label samples, quotes errors and reports none."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import judged, steps

ERRORS = (
    "The OOM killer terminated worker 5 with exit code 137.",
    "Rank 3 died with exit code -9 and the others waited.",
    "slurmstepd: error: Detected 1 oom_kill event in StepId=1.0",
    "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.",
    "NVRM: Xid (PCI:0000:18:00): 79, GPU has fallen off the bus.",
)
LABELS = (
    "prompt: {}", 'completion[1]: "{}"', "[gen] completion: {}", "Question: {}", "assistant: {}", "user={}",
    "generation 3: {}", "chosen: {}",
)  # fmt: skip


@pytest.mark.sampled(6)
@pytest.mark.parametrize("label", LABELS)
@pytest.mark.parametrize("error", ERRORS)
def test_a_labelled_sample_is_no_report(label: str, error: str, tmp_path: Path) -> None:
    log = steps(1, 20) + label.format(error) + "\n" + steps(20, 40)
    assert judged(tmp_path, log).verdict.outcome == "clean"


@pytest.mark.parametrize("label", ["{}", "launcher: {}"])
def test_without_such_a_label_it_is_one(label: str, tmp_path: Path) -> None:
    log = steps(1, 20) + label.format(ERRORS[3]) + "\n"
    assert judged(tmp_path, log).verdict.cause == "peer_cuda_oom"


@pytest.mark.parametrize("rank", [0, 6])
@pytest.mark.parametrize(
    "words",
    [
        "no heartbeat from rank {} for 1800s, ending all workers",
        "lost heartbeat of rank {}",
        "rank {} missed its heartbeat",
        "Rank {} has not sent any heartbeat since 10:20",
    ],
)
def test_a_monitor_of_heartbeats_names_the_rank(words: str, rank: int, tmp_path: Path) -> None:
    verdict = judged(tmp_path, steps(1, 20) + "monitor: " + words.format(rank) + "\n").verdict
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("cpu_stuck_or_slow_rank", [rank])


@pytest.mark.parametrize("name", ["rollout", "episode"])
def test_rollouts_and_episodes_count(name: str, tmp_path: Path) -> None:
    counted = "".join(f"{name} {number}: reward 0.4{number}\n" for number in range(9))
    assert judged(tmp_path, counted).verdict.outcome == "clean"


def test_a_server_of_data_that_is_not_reached_is_no_peer(tmp_path: Path) -> None:
    error = "ConnectionError: Couldn't reach 'team/books' on the Hub (LocalEntryNotFoundError)"
    log = f'Traceback (most recent call last):\n  File "/job/t.py", line 3, in main\n{error}\n'
    assert judged(tmp_path, log).verdict.cause == "user_code_exception"
