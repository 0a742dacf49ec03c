"""Ray names the task that failed and its exception in front of a traceback: also of one that is cut off."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import judged

TASK = (
    "{p}Traceback (most recent call last):\n"
    '{p}  File "/job/run.py", line 12, in main\n{p}    ray.get(refs)\n'
    "{p}ray.exceptions.RayTaskError({error}): ray::Trainer.fit() (pid={pid}, ip=10.4.0.17)\n"
    '{p}  File "/job/trainer.py", line 450, in fit\n{p}    out = self.step()\n'
)
NEXT = (
    "{p}ray.exceptions.RayTaskError({error}): ray::Worker.step() (pid={pid}, ip=10.4.0.18)\n"
    '{p}  File "/job/worker.py", line 33, in step\n{p}    return self.model(batch)\n'
)


@pytest.mark.parametrize("prefix", ["", "(main_task pid=77) ", "2026-11-07 10:41:25 "])
@pytest.mark.parametrize("error", ["RuntimeError", "ValueError", "OutOfMemoryError"])
def test_the_task_is_named_and_its_exception(prefix: str, error: str, tmp_path: Path) -> None:
    text = TASK.format(p=prefix, error=error, pid=6120)
    verdict = judged(tmp_path, text).verdict
    assert [who.pid for who in verdict.culprits] == [6120]
    assert verdict.headline.startswith(f"process 6120 raised {error}; the log ends in its traceback")
    inner = judged(tmp_path, text + NEXT.format(p=prefix, error=error, pid=4402)).verdict
    assert [who.pid for who in inner.culprits] == [4402]


@pytest.mark.parametrize("error", ["ActorDiedError", "DistBackendError", "GetTimeoutError"])
def test_who_tells_of_another_ones_end_is_not_named(error: str, tmp_path: Path) -> None:
    verdict = judged(tmp_path, TASK.format(p="", error=error, pid=6120)).verdict
    assert not verdict.culprits and not verdict.parties


def test_a_whole_traceback_is_no_cut_one(tmp_path: Path) -> None:
    text = TASK.format(p="", error="RuntimeError", pid=6120) + "RuntimeError: a shard is empty\n"
    verdict = judged(tmp_path, text).verdict
    assert verdict.headline.startswith("process 6120 raised RuntimeError: a shard is empty")


def test_another_ones_traceback_is_not_the_tasks(tmp_path: Path) -> None:
    task = TASK.format(p="(main_task pid=77) ", error="RuntimeError", pid=6120)
    lines = ("Traceback (most recent call last):", '  File "/job/w.py", line 3, in f')
    other = "".join(f"(Worker pid=55) {line}\n" for line in lines)
    verdict = judged(tmp_path, task + other).verdict
    assert 55 not in [who.pid for who in verdict.culprits]
    assert "process 55 raised" not in verdict.headline
