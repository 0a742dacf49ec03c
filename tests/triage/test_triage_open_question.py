"""What an open verdict says: who waited, who ended, where the log breaks off, and what was said first."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import caught, culprits, elastic, judged, raised, status


def test_all_came_says_the_desync_report(tmp_path: Path) -> None:
    ranks = "0, 1, 2, 3, 4, 5"
    text = (
        "[rank4]:[E1121 10:00:00.1 ProcessGroupNCCL.cpp:1936] Rank 4\n\t - [4] Timeout at collective:"
        f" BROADCAST, #88\n\t   - [{ranks}] joined but didn't finish collective #88 (count from 1)\n"
    )
    verdict = judged(tmp_path, text).verdict
    assert verdict.outcome == "undetermined" and not verdict.culprits
    assert verdict.headline.startswith("all 6 ranks entered BROADCAST, number 88, and none left it")


def test_a_stall_of_horovod_that_passed_is_no_failure(tmp_path: Path) -> None:
    stall = "[2026-11-21 10:00:00.8: W horovod/common/operations.cc:588] grads_7 [missing ranks: 1]\n"
    assert judged(tmp_path, stall + "Training completed\n").verdict.outcome == "clean"


def test_nobody_lacks_an_error_whose_error_is_there(tmp_path: Path) -> None:
    error = "RuntimeError: Rank 1 successfully reached monitoredBarrier, but received errors from rank 0\n"
    verdict = judged(tmp_path, error + elastic([(0, -15), (1, 1)], 1)).verdict
    assert "not in these logs" not in verdict.headline and "monitoredBarrier" in verdict.headline


def test_a_status_alone_tells_the_number_of_the_collective(tmp_path: Path) -> None:
    verdict = judged(tmp_path, status(2, 716, 747, 715)).verdict
    assert "rank 2 gave up waiting in collective number 716, with 31 more" in verdict.headline


def test_a_log_that_ends_in_a_traceback_says_where(tmp_path: Path) -> None:
    text = "".join(f"step {n} loss 2.{n}\n" for n in range(1, 20)) + raised(3, "")
    verdict = judged(tmp_path, text[: text.rindex("[rank3]: \n")]).verdict
    assert verdict.outcome == "undetermined" and "rank 3" in verdict.headline
    assert "train.py, line 41" in verdict.headline


def test_a_traceback_without_its_end_is_nothing_when_the_job_goes_on(tmp_path: Path) -> None:
    cut = raised(3, "")
    cut = cut[: cut.rindex("[rank3]: \n")]
    text = "".join(f"step {n} loss 2.{n}\n" for n in range(1, 20))
    more = "".join(f"step {n} loss 2.{n}\n" for n in range(20, 90))
    assert judged(tmp_path, text + cut + more).verdict.outcome == "clean"


def test_an_open_question_quotes_the_first_trouble(tmp_path: Path) -> None:
    text = "[rank2]: RuntimeError: NCCL communicator was aborted\n"
    assert "NCCL communicator was aborted" in judged(tmp_path, text).verdict.headline


def test_all_that_waited_in_one_collective_are_named(tmp_path: Path) -> None:
    verdict = judged(tmp_path, caught(2, seq=9, out=4096 * 8) + caught(5, seq=9, out=4096 * 8)).verdict
    assert verdict.headline.startswith("ranks 2 and 5 waited for 600 s in ALLREDUCE")


@pytest.mark.parametrize("length", [15, 24, 40])
def test_a_cut_announcement_of_the_watchdog_is_one(length: int, tmp_path: Path) -> None:
    line = caught(5)
    verdict = judged(tmp_path, line[: line.index("Watchdog") + length] + "\n").verdict
    assert verdict.headline == "rank 5 gave up waiting; no line tells the collective or its number"


def test_a_store_that_failed_for_itself_accuses_nobody(tmp_path: Path) -> None:
    text = (
        "[rank1]: torch.distributed.DistBackendError: [1] is setting up NCCL communicator and retrieving"
        " ncclUniqueId from [0] via c10d key-value store by key '0', but store->get('0') got error:"
        " bad family\n"
    )
    verdict = judged(tmp_path, text).verdict
    assert verdict.cause == "undetermined" and "bad family" in verdict.evidence[0].text


def test_the_same_process_id_on_two_hosts_is_two_processes(tmp_path: Path) -> None:
    ray = (
        "(raylet) A worker died or was killed while executing a task by an unexpected system error. Worker IP"
        " address: 10.1.0.{} Worker port: 10005 Worker PID: 833 Worker exit type: SYSTEM_ERROR\n"
    )
    heard = "(WorkerDict pid=833, ip=10.1.0.7) [rank12]: loading weights\n"
    heard += "(WorkerDict pid=833, ip=10.1.0.7) [rank12]: UserWarning: rank=12 uses defaults\n"
    assert culprits(judged(tmp_path, heard + ray.format(8))) == [None]
    assert culprits(judged(tmp_path, heard + ray.format(7))) == [12]
