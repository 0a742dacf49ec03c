"""Workers of an inference engine count ranks of their own, which are none of the job's."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import culprits, judged, raised, steps

ERROR = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.32 GiB.\n"
WORKERS = (
    "(EngineCore_DP0 pid=88) (Worker_TP{rank} pid=13{rank}) ERROR 03-15 20:40:22 [executor.py:671] ",
    "(VllmWorker rank={rank} pid=13{rank}) ERROR 03-15 20:40:22 [multiproc_worker_utils.py:238] ",
    "(Worker_TP{rank} pid=13{rank}) ERROR 03-15 20:40:22 [executor.py:671] ",
)


@pytest.mark.parametrize("worker", WORKERS)
@pytest.mark.parametrize("rank", [0, 3])
def test_an_engine_beside_a_trainer_has_no_ranks_of_the_job(worker: str, rank: int, tmp_path: Path) -> None:
    trainer = "".join(raised(r, "RuntimeError: server answered 500", "rollout()") for r in range(4))
    examined = judged(tmp_path, steps(1, 20) + worker.format(rank=rank) + ERROR + trainer)
    assert examined.verdict.cause == "peer_cuda_oom"
    assert [(who.rank, who.pid) for who in examined.verdict.culprits] == [(None, 130 + rank)]


@pytest.mark.parametrize("worker", WORKERS)
def test_an_engine_alone_has_ranks(worker: str, tmp_path: Path) -> None:
    examined = judged(tmp_path, worker.format(rank=3) + ERROR)
    assert culprits(examined) == [3]


def test_a_worker_of_an_environment_is_no_rank(tmp_path: Path) -> None:
    log = (
        "(EnvRunner rank=3 pid=55) KeyError: 'tool_calls'\n(PolicyWorker pid=77) [rank3]: RuntimeError: 500\n"
    )
    assert culprits(judged(tmp_path, log)) != [3]
