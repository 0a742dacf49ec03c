"""Jobs of real GPUs that were judged wrong at first: stops behind a hang, quiet ends, mere exit codes."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import caught, culprits, elastic, judged, raised, status, steps

STOPS = {
    "nothing": "",
    "SIGTERM": "W1121 10:21:10.361000 3239 torch/distributed/elastic/agent/server/api.py:739] Received 15"
    " death signal, shutting down workers\n"
    "torch.distributed.elastic.multiprocessing.api.SignalException: Process 3239 got signal: 15\n",
    "SIGKILL": "exit code 137\n",
}
NOW = "destroy_process_group() was not called before program exit"
AT_EXIT = (
    "[rank{rank}]:[W1121 10:10:{second}.033307172 ProcessGroupNCCL.cpp:1575] Warning: WARNING:"
    " destroy_process_group() was not called before program exit, which can leak resources. (function"
    " operator())\n"
)


def waiting(*ranks: int) -> str:
    """Ranks whose watchdog gave up in the same collective."""
    return "".join(caught(rank) + status(rank, 7, 7, 6) for rank in ranks)


def asked_to_dump(rank: int) -> str:
    """A rank that had not come, and is alive: others asked it for its records."""
    return (
        f"[rank{rank}]:[E1121 10:20:31.100000000 ProcessGroupNCCL.cpp:1914] [PG ID 0 PG GUID 0(default_pg)"
        f" Rank {rank}] Received a dump signal due to a collective timeout from  rank 0 and we will try our"
        " best to dump the debug info. Last enqueued NCCL work: 6, last completed NCCL work: 6.\n"
    )


@pytest.mark.parametrize("stop", STOPS.values(), ids=STOPS)
@pytest.mark.parametrize("guilty", [1, 2, 3])
def test_a_stop_behind_a_hang_explains_nothing(guilty: int, stop: str, tmp_path: Path) -> None:
    others = [rank for rank in range(4) if rank != guilty]
    examined = judged(tmp_path, steps(1, 6) + waiting(*others) + asked_to_dump(guilty), stop)
    assert (examined.verdict.cause, culprits(examined)) == ("cpu_stuck_or_slow_rank", [guilty])
    in_one = judged(tmp_path, steps(1, 6) + waiting(*others) + asked_to_dump(guilty) + stop)
    assert culprits(in_one) == [guilty]


def test_a_stop_of_a_job_that_worked_is_the_cause(tmp_path: Path) -> None:
    examined = judged(tmp_path, steps(1, 6) + STOPS["SIGTERM"])
    assert examined.verdict.cause == "peer_died"


@pytest.mark.parametrize(
    "words", [NOW, "process group has NOT been destroyed before we destruct ProcessGroupNCCL"]
)
@pytest.mark.parametrize("early", [0, 3])
def test_a_program_that_ended_while_others_waited(early: int, words: str, tmp_path: Path) -> None:
    others = [rank for rank in range(4) if rank != early]
    end = AT_EXIT.format(rank=early, second=20).replace(NOW, words)
    examined = judged(tmp_path, steps(1, 6) + end + waiting(*others))
    assert (examined.verdict.cause, culprits(examined)) == ("collective_mismatch", [early])
    late = judged(tmp_path, steps(1, 6) + waiting(*others) + end.replace("10:10:", "10:30:"))
    assert late.verdict.cause != "collective_mismatch"


def test_an_error_in_front_of_the_same_line_is_why_it_ended(tmp_path: Path) -> None:
    text = steps(1, 6) + raised(3, "ValueError: unexpected label 17") + AT_EXIT.format(rank=3, second=20)
    examined = judged(tmp_path, text + waiting(0, 1, 2))
    assert (examined.verdict.cause, culprits(examined)) == ("user_code_exception", [3])


@pytest.mark.parametrize("code", [1, 3, 42])
def test_a_rank_that_ended_with_a_code_and_no_word(code: int, tmp_path: Path) -> None:
    lost = "".join(
        f"[2026-11-21 10:29:5{rank}] node-1:400{rank}:433{rank} [0] misc/socket.cc:72 NCCL WARN"
        f" socketProgress: Connection closed by remote peer node-1<3632{rank}>\n"
        for rank in (0, 1, 3)
    )
    launcher = elastic([(0, -15), (1, -15), (2, code), (3, -6)], 2)
    examined = judged(tmp_path, steps(1, 6) + lost + launcher)
    assert culprits(examined) == [2]
    assert examined.verdict.headline == f"rank 2 ended with exit code {code}, and left no line that says why"
