"""Which process and which section of a log a launcher gives to a rank."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import culprits, judged, steps

SPAWNED = (
    "[2026-03-04 05:06:07,101] [INFO] [launch.py:256:main] process {pid} spawned with command: ['python',"
    " '-u', 'tune.py', '--local_rank={rank}', '--zero', '3']\n"
)
LISTED = (
    "ada      {pid}  101  3.1 9911 88120 ?  Rl  05:06  12:01 /usr/bin/python -u tune.py"
    " --local_rank={rank} --zero 3\n"
)
KILLED = "[ 9111.100100] Out of memory: Killed process {pid} (python) total-vm:88120kB, anon-rss:77120kB\n"
LAST = (
    "[2026-03-04 05:16:07,101] [INFO] [launch.py:315:sigkill_handler] Killing subprocess 6110\n"
    "[2026-03-04 05:16:08,101] [ERROR] [launch.py:321:sigkill_handler] ['python', '-u', 'tune.py',"
    " '--local_rank=3', '--zero', '3'] exits with return code = -9\n"
)


@pytest.mark.parametrize("form", [SPAWNED, LISTED])
@pytest.mark.parametrize("rank", range(4))
def test_the_kernels_process_is_the_rank_that_its_launcher_started(
    form: str, rank: int, tmp_path: Path
) -> None:
    table = "".join(form.format(pid=6110 + local, rank=local) for local in range(4))
    log = table + steps(1, 20) + KILLED.format(pid=6110 + rank) + LAST
    examined = judged(tmp_path, log)
    assert (examined.verdict.cause, culprits(examined)) == ("peer_host_oom", [rank])


def test_a_local_rank_of_several_nodes_is_none_of_the_job(tmp_path: Path) -> None:
    table = "".join(SPAWNED.format(pid=6110 + local, rank=local) for local in range(4))
    log = "nnodes=2, num_local_procs=4, node_rank=1\n" + table + steps(1, 20) + KILLED.format(pid=6112)
    assert culprits(judged(tmp_path, log)) != [2]


def section(rank: int, text: str) -> str:
    return (
        f"Global rank {rank} (PID {810 + rank}) exited with code 1\n"
        f"----------Begin global rank {rank} STDOUT----------\n\n"
        f"----------End global rank {rank} STDOUT----------\n"
        f"----------Begin global rank {rank} STDERR----------\n{text}"
        f"----------End global rank {rank} STDERR----------\n"
    )


ERROR = (
    'Traceback (most recent call last):\n  File "/job/data.py", line 9, in read\n'
    "    raise KeyError(k)\nKeyError: 7\n"
)
LOST = (
    "torch.distributed.DistBackendError: NCCL error in: NCCLUtils.hpp:268, remote process exited or there was"
    " a network error, NCCL version 2.21.5\n"
)


@pytest.mark.parametrize("guilty", [0, 1, 3])
@pytest.mark.parametrize("behind", [False, True])
def test_a_section_is_what_its_rank_printed(guilty: int, behind: bool, tmp_path: Path) -> None:
    ranks = sorted(range(4), reverse=behind)
    sections = "".join(section(rank, ERROR if rank == guilty else LOST) for rank in ranks)
    crashed = f"ERROR:composer.cli.launcher:Rank {guilty} crashed with exit code 1.\n"
    examined = judged(tmp_path, steps(1, 20) + crashed + sections)
    assert (examined.verdict.cause, culprits(examined)) == ("user_code_exception", [guilty])


@pytest.mark.parametrize("heading", ["[Rank {}]:", "[Rank {} Error Snippet]:"])
@pytest.mark.parametrize("rank", [2, 17])
def test_the_section_of_a_rank_in_ray_trains_error_is_its(heading: str, rank: int, tmp_path: Path) -> None:
    text = (
        "2026-11-15 11:00:02,112 ERROR controller.py:412 -- [FailurePolicy] RAISE\n"
        f"Error: Training failed due to worker errors:\n{heading.format(rank)}\n"
        '  File "/app/collate.py", line 19, in collate\n    y = LABELS[x]\nKeyError: 9\n'
        "ray.train.v2.api.exceptions.WorkerGroupError: Training failed due to worker errors:\n"
    )
    verdict = judged(tmp_path, steps(1, 9) + text).verdict
    assert (verdict.cause, [who.rank for who in verdict.culprits]) == ("user_code_exception", [rank])
