"""What a node's kernel says decides only where its time can be that of the job."""

from __future__ import annotations

import datetime
from pathlib import Path

import pytest

from nodedoctor.triage.job import examine_job
from nodedoctor.triage.model import Verdict
from nodedoctor.triage.patterns.host_limits import HostOom
from nodedoctor.triage.timeline.node_reports import faults_of_report

JOB = datetime.datetime(2026, 11, 21, 10, 20, 0)
RAISED = (
    'Traceback (most recent call last):\n  File "/job/train.py", line 4, in <module>\nValueError: no shard\n'
)
SILENT = "[rank0]: RuntimeError: NCCL communicator was aborted on rank 3.\n"


def judged(tmp_path: Path, log: str, minutes: int, *, dated: bool) -> Verdict:
    """A log, with a report of a node on which the kernel killed a process so long after it."""
    when = (JOB + datetime.timedelta(minutes=minutes)).isoformat(timespec="microseconds")
    killed = (
        f"{when}+00:00 Memory cgroup out of memory: Killed process 77 (python) total-vm:9kB, anon-rss:9kB"
    )
    finding = {"status": "warn", "summary": "OOM kill", "evidence": [{"text": killed}], "waived": None}
    report = {"node": {"hostname": "a"}, "results": [{"check": "kernel.oom", "findings": [finding]}]}
    node = faults_of_report("node.json", report)
    assert [type(event.what) for event in node.events] == [HostOom]
    path = tmp_path / "train.log"
    stamp = f"{JOB.isoformat(sep=' ')},000 " if dated else ""
    path.write_text("".join(stamp + line for line in log.splitlines(keepends=True)))
    return examine_job([str(path)], [node]).verdict


@pytest.mark.parametrize("minutes", [-9, 0, 9])
def test_in_the_time_of_a_job_the_kernel_outweighs_the_program(tmp_path: Path, minutes: int) -> None:
    assert judged(tmp_path, RAISED, minutes, dated=True).cause == "peer_host_oom"


@pytest.mark.parametrize("minutes", [-600, -30, 30, 600])
def test_at_another_time_it_says_nothing(tmp_path: Path, minutes: int) -> None:
    found = judged(tmp_path, RAISED, minutes, dated=True)
    assert found.cause == "user_code_exception" and "Killed process 77" not in str(found)


def test_beside_a_log_without_times_it_is_a_note(tmp_path: Path) -> None:
    found = judged(tmp_path, RAISED, 0, dated=False)
    assert (found.cause, found.confidence) == ("user_code_exception", "high")
    assert any("Killed process 77" in note for note in found.coverage.notes)


def test_where_such_a_log_has_no_cause_it_is_one_with_low_confidence(tmp_path: Path) -> None:
    found = judged(tmp_path, SILENT, 0, dated=False)
    assert (found.cause, found.confidence) == ("peer_host_oom", "low")
