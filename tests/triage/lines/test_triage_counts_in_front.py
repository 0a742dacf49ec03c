"""Counts at the beginning of lines are progress, and no part of what a logger or a collector puts there."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import judged

WRAPPERS = [
    "",
    "2026-03-04T05:{m:02d}:{s:02d}.{n:09d}Z ",
    "2026-03-04T05:{m:02d}:{s:02d}.{n:09d}Z stderr F ",
    "2026-03-04T05:{m:02d}:{s:02d}.{n:09d}Z (Learner pid=77) ",
    "(Learner pid=77) ",
]
COUNTS = [
    "step:{k} - policy/kl:0.{k:03d} - time/update_weights:4.{k}",
    "trainer/global_step:{k} - policy/kl:0.{k:03d}",
    "episode:{k} | return: {k}.5",
    "kl:0.{k:03d} - step:{k} - tokens:{k}11",
]
KILLED = (
    "{front}(raylet, ip=10.9.0.3) [2026-03-04 05:06:07,001 E 41 41] (raylet) node_manager.cc:3065: 1 Workers"
    " (tasks / actors) killed due to memory pressure (OOM), 0 Workers crashed due to other reasons at node\n"
)


def wrapped(wrapper: str, number: int, text: str) -> str:
    return wrapper.format(m=number // 60, s=number % 60, n=number) + text


@pytest.mark.sampled(6)
@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("wrapper", WRAPPERS)
def test_a_wrapper_around_every_line_changes_nothing(wrapper: str, count: str, tmp_path: Path) -> None:
    rows = [wrapped(wrapper, k, count.format(k=k)) + "\n" for k in range(1, 60)]
    killed = KILLED.format(front=wrapped(wrapper.partition("(")[0], 30, ""))
    verdict = judged(tmp_path, "".join([*rows[:30], killed, *rows[30:]])).verdict
    assert verdict.outcome == "clean", verdict.headline
    assert judged(tmp_path, "".join([*rows[:30], killed])).verdict.cause == "peer_host_oom"


@pytest.mark.parametrize("name", ["trainer:12{k}", "data.loader:{k}", "updater:run:{k}", "stepper:4{k}"])
def test_the_place_in_a_source_file_is_no_count(name: str, tmp_path: Path) -> None:
    rows = [f"2026-03-04 05:06:{k:02d},001 {name.format(k=k)} - waiting for shard {k}\n" for k in range(40)]
    error = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.37 GiB.\n"
    assert judged(tmp_path, "".join(rows[:20]) + error + "".join(rows[20:])).verdict.cause == "peer_cuda_oom"


def test_columns_in_which_a_step_rises_are_no_prefix(tmp_path: Path) -> None:
    rows = [
        f" [2026-03-04 05:06:{k:02d}.104] iteration {k:8d}/   90000 | consumed: {16 * k:12d} |"
        f" ms: {50 + k}.1 | lm loss: 2.{900 - k}E+00 | skipped iterations:   0 |\n"
        for k in range(1, 50)
    ]
    verdict = judged(tmp_path, "".join(rows)).verdict
    assert (verdict.outcome, verdict.confidence) == ("clean", "high")
