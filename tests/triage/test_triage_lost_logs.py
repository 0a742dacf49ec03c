"""A rank whose log is not among those of all others is not the one that held them up."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import caught, culprits, elastic, steps

from nodedoctor.triage.job import examine_job
from nodedoctor.triage.verdict.result import TriageResult

WORLD = 8


def folder_of_logs(folder: Path, missing: int, *, own: str | None, launcher: str = "") -> TriageResult:
    """What is said of ranks that waited, each in its own log, and one with another log, or none."""
    folder.mkdir()
    for rank in range(WORLD):
        if rank != missing:
            (folder / f"rank{rank}.log").write_text(f"world_size={WORLD}\n{steps(1, 5)}{caught(rank)}")
        elif own is not None:
            (folder / f"rank{rank}.log").write_text(own)
    if launcher:
        (folder / "torchrun.log").write_text(launcher)
    return examine_job([str(folder)])


@pytest.mark.sampled(6)
@pytest.mark.parametrize("missing", range(WORLD))
@pytest.mark.parametrize("own", [None, ""], ids=["no-log", "empty-log"])
def test_a_rank_without_a_log_is_not_named(missing: int, own: str | None, tmp_path: Path) -> None:
    examined = folder_of_logs(tmp_path / "logs", missing, own=own)
    assert (examined.verdict.cause, culprits(examined)) == ("undetermined", [])


@pytest.mark.sampled(6)
@pytest.mark.parametrize("missing", range(WORLD))
def test_a_rank_whose_log_shows_no_wait_is_named(missing: int, tmp_path: Path) -> None:
    assert culprits(folder_of_logs(tmp_path / "logs", missing, own=steps(1, 5))) == [missing]
    waits = "".join(caught(rank) for rank in range(WORLD) if rank != missing)
    (tmp_path / "all.log").write_text(f"world_size={WORLD}\n{steps(1, 5)}{waits}")
    assert culprits(examine_job([str(tmp_path / "all.log")])) == [missing]


@pytest.mark.parametrize("missing", [0, 3, 7])
def test_a_rank_that_aborted_with_all_others_waited_too(missing: int, tmp_path: Path) -> None:
    launcher = elastic([(rank, -6) for rank in range(WORLD)], missing)
    examined = folder_of_logs(tmp_path / "logs", missing, own=steps(1, 5), launcher=launcher)
    assert culprits(examined) == []


LOST = (
    "hc{node}:81:99 [0] misc/socket.cc:50 NCCL WARN socketProgress: Connection closed by remote peer"
    " hc{peer}<48112>\n[rank{rank}]: ncclRemoteError: A call failed possibly due to a network error or a"
    " remote process exiting prematurely.\n"
)
ABORTED = (
    "hc{node}:81:99 [0] NCCL INFO comm 0x5d rank {rank} nranks 8 cudaDev 0 busId 1b000 - Abort COMPLETE\n"
)
CUT_OFF = (
    "[rank{rank}]:[W304 05:06:07.100200300 TCPStore.cpp:106] [c10d] sendBytes failed on SocketImpl(fd=62,"
    " addr=[::ffff:10.9.0.3]:41710, remote=[::ffff:10.9.0.1]:29500): Broken pipe\n"
)


@pytest.mark.parametrize("lost", [1, 3, 6])
def test_the_log_that_ends_without_a_word_is_that_of_the_lost_rank(lost: int, tmp_path: Path) -> None:
    for rank in range(WORLD):
        ends = (LOST, LOST + CUT_OFF)[rank % 2] if abs(rank - lost) == 1 else (ABORTED, CUT_OFF)[rank % 2]
        end = "" if rank == lost else ends.format(rank=rank, node=rank // 2, peer=lost // 2)
        (tmp_path / f"worker{rank}.log").write_text(f"world_size={WORLD}\n{steps(1, 20)}{end}")
    examined = examine_job([str(tmp_path)])
    assert (examined.verdict.cause, culprits(examined)) == ("peer_died", [lost])
    (tmp_path / f"worker{lost}.log").write_text(
        f"world_size={WORLD}\n{steps(1, 20)}{CUT_OFF.format(rank=lost)}"
    )
    assert culprits(examine_job([str(tmp_path)])) == []
