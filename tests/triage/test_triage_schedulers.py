"""What LSF, PBS and HTCondor say in a job's own log of how it ended."""

from __future__ import annotations

from pathlib import Path

import pytest
from say import judged, steps

REPORT = (
    "\n------------------------------------------------------------\nSender: LSF System <lsfadmin@g12>\n"
    "Subject: Job 8812: <train> in cluster <c1> {how}\n\nJob was executed on host(s) <4*g12>, in queue <q>\n"
    "Started at Fri Mar 14 08:10:05 2025\nTerminated at Fri Mar 14 09:45:31 2025\n\n{reason}\n"
    "Resource usage summary:\n\n    CPU time :                                   8.14 sec.\n"
    "    Max Memory :                                 911 MB\n"
)
CONDOR = "009 (88.000.000) 2025-03-14 06:41:33 Job was aborted.\n\tvia condor_rm (by user ann)\n...\n"
ENDED = "005 (88.000.000) 2025-03-14 06:41:33 Job terminated.\n\t{how}\n...\n"
HELD = (
    "012 (88.000.000) 2025-03-14 06:41:33 Job was held.\n"
    "\tError from slot1@g12: Job has gone over cgroup memory limit of 65536 megabytes.\n"
    "\tCode 34 Subcode 102\n...\n"
)


def lsf(reason: str, how: str = "Exited") -> str:
    """The report that LSF puts behind the output of a job."""
    return REPORT.format(reason=reason + "\n", how=how)


def sacct(state: str, code: str = "0:0") -> str:
    """The rows of a job and its batch script; the state is cut to its column."""
    cut = state if len(state) < 11 else state[:9] + "+"
    row = "{job:15} {name:>8} {state:>10} {code:>8}\n".format
    head = row(job="JobID", name="JobName", state="State", code="ExitCode")
    rows = (("4411", "llama"), ("4411.batch", "batch"))
    return head + "".join(row(job=job, name=name, state=cut, code=code) for job, name in rows)


CASES: dict[str, tuple[str, str, str]] = {
    "LSF, memory limit": (
        lsf("TERM_MEMLIMIT: job killed after reaching LSF memory usage limit.\nExited with exit code 137."),
        "peer_host_oom",
        "failure",
    ),
    "sacct, memory": (sacct("OUT_OF_MEMORY", "0:125"), "peer_host_oom", "failure"),
    "sacct, time limit": (sacct("TIMEOUT"), "none", "clean"),
    "sacct, by its owner": (sacct("CANCELLED by 1002"), "none", "clean"),
    "sacct, for another job": (sacct("PREEMPTED"), "none", "clean"),
    "sacct, well": (sacct("COMPLETED"), "none", "clean"),
    "LSF, run limit": (
        lsf("TERM_RUNLIMIT: job killed after reaching LSF run time limit.\nExited with exit code 140."),
        "none",
        "clean",
    ),
    "LSF, by its owner": (
        lsf("TERM_OWNER: job killed by owner.\nExited with exit code 130."),
        "none",
        "clean",
    ),
    "LSF, a signal": (lsf("Exited with signal termination: 11."), "peer_died", "failure"),
    "LSF, a code": (lsf("Exited with exit code 1."), "undetermined", "undetermined"),
    "LSF, well": (lsf("Successfully completed.", "Done"), "none", "clean"),
    "Kaldi's queue.pl, a signal": (
        "queue.pl: job failed with status 139, log is in exp/log/train.3.log\n",
        "peer_died",
        "failure",
    ),
    "Kaldi's slurm.pl, a code": (
        "slurm.pl: job failed with status 1, log is in exp/log/train.3.log\n",
        "undetermined",
        "undetermined",
    ),
    "Kaldi's log, well": (
        "# Ended (code 0) at Sun Jun 22 08:40:55 2025, elapsed time 312 seconds\n",
        "none",
        "clean",
    ),
    "Kaldi's log, a signal": (
        "# Ended (code 137) at Sun Jun 22 08:40:55 2025, elapsed time 312 seconds\n",
        "peer_died",
        "failure",
    ),
    "Kaldi's log, a code": (
        "# Ended (code 1) at Sun Jun 22 08:40:55 2025, elapsed time 312 seconds\n",
        "undetermined",
        "undetermined",
    ),
    "PBS, wall time": ("=>> PBS: job killed: walltime 3640 exceeded limit 3600\n", "none", "clean"),
    "PBS, memory": (
        "=>> PBS: job killed: mem 4194304kb exceeded limit 2097152kb\n",
        "peer_host_oom",
        "failure",
    ),
    "HTCondor, removed": (CONDOR, "none", "clean"),
    "HTCondor, memory": (HELD, "peer_host_oom", "failure"),
    "HTCondor, a signal": (
        ENDED.format(how="(0) Abnormal termination (signal 11)"),
        "peer_died",
        "failure",
    ),
    "HTCondor, a code": (
        ENDED.format(how="(1) Normal termination (return value 1)"),
        "undetermined",
        "undetermined",
    ),
    "HTCondor, well": (ENDED.format(how="(1) Normal termination (return value 0)"), "none", "clean"),
}


@pytest.mark.sampled(6)
@pytest.mark.parametrize("begin", ["", steps(1, 40)], ids=["alone", "behind steps"])
@pytest.mark.parametrize("name", CASES)
def test_a_scheduler_says_how_the_job_ended(name: str, begin: str, tmp_path: Path) -> None:
    text, cause, outcome = CASES[name]
    verdict = judged(tmp_path, begin + text).verdict
    assert (verdict.cause, verdict.outcome) == (cause, outcome)


@pytest.mark.parametrize("limit", ["TERM_RUNLIMIT", "TERM_OWNER"])
def test_an_error_before_an_ordered_end_stays_the_cause(limit: str, tmp_path: Path) -> None:
    error = "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
    text = steps(1, 9) + error + lsf(f"{limit}: job killed.\nExited with exit code 140.")
    verdict = judged(tmp_path, text).verdict
    assert verdict.cause == "peer_cuda_oom"
    assert [who.rank for who in verdict.culprits] == [3]
