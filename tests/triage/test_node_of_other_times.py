"""What a node reports of another time, or of another program, is no part of the judged job."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import culprits

from nodedoctor.triage.job import examine_job

OOM = "{at}Out of memory: Killed process {pid} ({name}) total-vm:9kB, anon-rss:8kB, UID:1002\n"
OLD_OOM = (
    "{at}{name} invoked oom-killer: gfp_mask=0x140dca, order=0, oom_score_adj=0\n"
    "{at}oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),global_oom,task={name},pid={pid},uid=1002\n"
)
XID = "{at}NVRM: Xid (PCI:0000:2a:00): 79, pid={pid}, name={name}, GPU has fallen off the bus.\n"
HUNG = "{at}INFO: task {name}:{pid} blocked for more than 120 seconds.\n"
REPORTS = (OOM, XID, HUNG)
DAYS = (
    "[Mon Sep 14 11:31:02 2026] ",
    "2026-11-26T11:31:02.000000+00:00 box1 kernel: ",
    "Dec  9 11:31:02 box1 kernel: ",
)
DURING = "[Sat Nov 28 18:0{}:41 2026] "
DONE = "2026-11-28 18:09:10 INFO training finished, model saved\n"
RAISED = (
    'Traceback (most recent call last):\n  File "/work/train.py", line 90, in <module>\n    main()\n'
    "KeyError: 'conversations'\n"
)


def log(last: str = "") -> str:
    rows = (f"2026-11-28 18:0{n}:00 INFO step {n * 100} loss {9 - n}.25\n" for n in range(1, 9))
    return "".join(rows) + last


def verdict(tmp_path: Path, job: str, kernel: str) -> tuple[str, str]:
    (tmp_path / "train.log").write_text(job)
    (tmp_path / "dmesg.txt").write_text("[Mon Sep  7 09:00:00 2026] Linux version 6.8.0\n" + kernel)
    examined = examine_job([str(tmp_path)]).verdict
    return examined.outcome, examined.cause


@pytest.mark.parametrize("at", DAYS)
@pytest.mark.parametrize("report", REPORTS)
@pytest.mark.parametrize("end", ["", DONE])
def test_what_a_node_reports_of_another_day_is_no_failure(
    end: str, report: str, at: str, tmp_path: Path
) -> None:
    kernel = report.format(at=at, pid=5512, name="python3")
    assert verdict(tmp_path, log(end), kernel) == ("clean", "none")


@pytest.mark.parametrize("at", DAYS)
@pytest.mark.parametrize("report", REPORTS)
def test_what_a_node_reports_of_another_day_explains_no_error(report: str, at: str, tmp_path: Path) -> None:
    kernel = report.format(at=at, pid=5512, name="python3")
    assert verdict(tmp_path, log(RAISED), kernel) == ("failure", "user_code_exception")


@pytest.mark.parametrize(("report", "cause"), [(OOM, "peer_host_oom"), (XID, "gpu_hardware_xid")])
def test_what_a_node_reports_of_the_same_hour_is_heard(report: str, cause: str, tmp_path: Path) -> None:
    kernel = report.format(at=DURING.format(8), pid=5512, name="python3")
    outcome, said = verdict(
        tmp_path, log("2026-11-28 18:08:50 ERROR rank 0 died with exit code -9\n"), kernel
    )
    assert (outcome, said) == ("failure", cause)


@pytest.mark.parametrize("report", [OOM, OLD_OOM])
@pytest.mark.parametrize("end", ["", DONE, RAISED])
def test_memory_for_another_program_is_no_failure_of_the_job(end: str, report: str, tmp_path: Path) -> None:
    kernel = report.format(at=DURING.format(5), pid=5512, name="jupyter-lab")
    outcome, cause = verdict(tmp_path, log(end), kernel)
    assert (outcome, cause) == (("failure", "user_code_exception") if end == RAISED else ("clean", "none"))


@pytest.mark.parametrize("kernel", ["", XID.format(at=DURING.format(8), pid=77, name="python3")])
@pytest.mark.parametrize(
    "error", ["CUDA error: uncorrectable ECC error encountered", "fatal: insufficient shared memory (shm)"]
)
def test_an_error_of_a_rank_is_none_of_its_node(error: str, kernel: str, tmp_path: Path) -> None:
    """Its log holds nothing else, and another rank came to the end."""
    (tmp_path / "rank_3.log").write_text(f"2026-11-28 18:08:50 ERROR {error}\n")
    for rank in range(3):
        (tmp_path / f"rank_{rank}.log").write_text(log(DONE if rank == 0 else ""))
    (tmp_path / "dmesg.txt").write_text(kernel)
    assert examine_job([str(tmp_path)]).verdict.outcome == "failure"


def test_memory_for_another_program_may_kill_a_rank_too(tmp_path: Path) -> None:
    killed = "slurm: line 9: 5600 Killed   torchrun train.py\n[rank1]: process exited with exitcode: -9\n"
    kernel = OOM.format(at=DURING.format(8), pid=5512, name="jupyter-lab")
    assert verdict(tmp_path, log(killed), kernel)[1] in ("peer_host_oom", "peer_died")


def test_the_rank_that_failed_is_named_beside_old_reports(tmp_path: Path) -> None:
    raised = "".join(f"[rank5]: {line}\n" for line in RAISED.splitlines())
    (tmp_path / "train.log").write_text(log(raised))
    (tmp_path / "dmesg.txt").write_text(XID.format(at=DAYS[0], pid=77, name="python3"))
    examined = examine_job([str(tmp_path)])
    assert culprits(examined) == [5]
    assert any("another time" in error.reason for error in examined.verdict.also_seen)


START = "ncclCommInitRankConfig comm 0x5 rank {rank} nranks 8 {bus} - Init COMPLETE\n"
TIMEOUT = (
    "[rank{rank}]:[E1128 18:08:01 ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught collective"
    " operation timeout: WorkNCCL(SeqNum=41, OpType=ALLREDUCE, NumelIn=9, NumelOut=9, Timeout(ms)=600000) ran"
    " for 600029 milliseconds before timing out.\n"
)


@pytest.mark.parametrize("silent", [1, 6])
def test_a_bus_of_every_node_is_of_the_rank_that_gave_up_no_wait(silent: int, tmp_path: Path) -> None:
    """Two nodes have a GPU on each bus, and the kernel's lines name no host."""
    for node in (0, 1):
        lines = ""
        for local in range(4):
            rank = 4 * node + local
            bus = f"cudaDev {local} nvmlDev {local} busId {local + 1}b000"
            lines += f"n{node}:90{local}:90{local} [{local}] NCCL INFO " + START.format(rank=rank, bus=bus)
            lines += TIMEOUT.format(rank=rank) if rank != silent else ""
        (tmp_path / f"n{node}.log").write_text(lines)
    xid = XID.format(at="[Sat Nov 28 17:58:01 2026] ", pid=77, name="python3")
    (tmp_path / "dmesg.txt").write_text(xid.replace("2a:00", f"{silent % 4 + 1}b:00"))
    examined = examine_job([str(tmp_path)])
    assert examined.verdict.cause == "gpu_hardware_xid" and culprits(examined) == [silent]
    (tmp_path / "dmesg.txt").write_text(xid.replace("2a:00", f"{(silent + 1) % 4 + 1}b:00"))
    assert culprits(examine_job([str(tmp_path)])) != [silent]
