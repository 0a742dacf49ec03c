"""Whose a traceback is that has no prefix: its logger's message, its launcher's list, its pod."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import caught, culprits, elastic, judged, steps

TRACE = (
    "Traceback (most recent call last):\n"
    '  File "/job/train.py", line 41, in step\n'
    "    batch = next(loader)\n"
    "KeyError: 7\n"
)
LOGGERS = {
    "brackets": "[2026-01-07 10:20:11] [rank {rank}] [{level}] {text}\n",
    "dashes": "2026-01-07 10:20:11,123 - rank{rank} - {level} - {text}\n",
    "fields": "2026-01-07 10:20:11 | {level} | rank={rank} | {text}\n",
    "basic": "{level}:trainer:Rank {rank}: {text}\n",
    "of a world": "2026-01-07 10:20:11 | {level:8} | trainer.loop:run:88 - [R{rank:02}/04] {text}\n",
}


def lines(form: str, ranks: int) -> str:
    return "".join(
        form.format(rank=rank, level="INFO", text=f"step {step} loss 2.{step}")
        for step in range(20)
        for rank in range(ranks)
    )


@pytest.mark.parametrize("rank", [0, 3])
@pytest.mark.parametrize("by", LOGGERS)
def test_a_logged_traceback_is_of_the_rank_of_its_message(tmp_path: Path, by: str, rank: int) -> None:
    message = LOGGERS[by].format(rank=rank, level="ERROR", text="step failed")
    examined = judged(tmp_path, lines(LOGGERS[by], 4) + message + TRACE)
    assert (examined.verdict.cause, culprits(examined)) == ("user_code_exception", [rank])


@pytest.mark.parametrize("level", ["INFO", "WARNING"])
@pytest.mark.parametrize("by", LOGGERS)
def test_a_message_that_is_no_error_owns_no_traceback(tmp_path: Path, by: str, level: str) -> None:
    message = LOGGERS[by].format(rank=3, level=level, text="step done")
    examined = judged(tmp_path, lines(LOGGERS[by], 4) + message + TRACE)
    assert culprits(examined) == []


def test_a_line_of_torch_owns_no_traceback(tmp_path: Path) -> None:
    examined = judged(tmp_path, steps(1, 9) + caught(3) + TRACE)
    assert 3 not in culprits(examined)


PODS = {
    "stern": "sft-worker-1 pytorch ",
    "kail": "ns/sft-worker-1[pytorch]: ",
    "kubectl": "[pod/sft-worker-1/pytorch] ",
    "pdsh": "gpu-18: ",
    "pdsh, node": "node2: ",
    "compose": "worker-1  | ",
}


@pytest.mark.parametrize("by", PODS)
def test_the_list_of_failures_is_read_behind_a_pod_or_host(tmp_path: Path, by: str) -> None:
    table = elastic([(11, -9)], 11).replace("(local_rank: 11)", "(local_rank: 3)")
    table = table.replace("local_rank: 11 (pid", "local_rank: 3 (pid")
    text = "".join(PODS[by] + line + "\n" for line in table.splitlines())
    other = "".join(PODS[by].replace("1", "0") + line + "\n" for line in steps(1, 20).splitlines())
    examined = judged(tmp_path, other + text)
    assert (examined.verdict.cause, culprits(examined)) == ("peer_died", [11])


def notice(code: int, local: int, pid: int) -> str:
    return (
        "ERROR:torch.distributed.elastic.multiprocessing.api:failed "
        f"(exitcode: {code}) local_rank: {local} (pid: {pid}) of binary: /usr/bin/python3\n"
    )


@pytest.mark.parametrize("local", [1, 3, 7])
def test_local_ranks_of_two_agents_are_no_ranks(tmp_path: Path, local: int) -> None:
    text = steps(1, 20) + notice(-9, local, 811) + notice(-6, 0, 4242)
    verdict = judged(tmp_path, text).verdict
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("peer_died", [None])


@pytest.mark.parametrize("local", [1, 3, 7])
def test_a_notice_that_came_twice_is_of_one_agent(tmp_path: Path, local: int) -> None:
    text = steps(1, 20) + notice(-9, local, 811) + notice(-9, local, 811)
    assert culprits(judged(tmp_path, text)) == [local]


def test_a_notice_that_names_its_rank_is_of_one_agent(tmp_path: Path) -> None:
    """Two things are read from one such line, and only one has the process id."""
    text = steps(1, 20) + notice(-9, 0, 811).replace(
        "api:failed", "api:Child process (rank 0) exited: failed"
    )
    assert culprits(judged(tmp_path, text)) == [0]


@pytest.mark.parametrize("rank", [9, 11])
def test_an_exception_without_a_rank_is_of_the_one_that_did_not_abort_itself(
    tmp_path: Path, rank: int
) -> None:
    local = f"(local_rank: {rank - 8})"
    failed = elastic([(rank, 1)], rank).replace(f"(local_rank: {rank})", local)
    waits = "".join(caught(other) for other in range(4))
    examined = judged(
        tmp_path, steps(1, 20) + TRACE + failed + waits + elastic([(r, -6) for r in range(4)], 0)
    )
    assert (examined.verdict.cause, culprits(examined)) == ("user_code_exception", [rank])
