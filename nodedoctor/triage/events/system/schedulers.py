"""How LSF, PBS, HTCondor and Kaldi's wrappers tell in a job's own log that they ended it, or how it ended.

LSF's report of a job (IBM Spectrum LSF, "LSF job termination reasons"), OpenPBS's and Torque's node daemons
(src/resmom/mom_main.c) and HTCondor's event log (manual, "Job Event Log Codes").
"""

from __future__ import annotations

from nodedoctor.triage.events.log_pattern import LogPattern, bounded_integer, log_pattern
from nodedoctor.triage.events.progress import JobFinished
from nodedoctor.triage.events.system.exits import ProcessExit
from nodedoctor.triage.events.system.lifecycle import CancelledByUser
from nodedoctor.triage.events.system.oom import HostOom

_LARGEST_SIGNAL = 64

SIGNS: tuple[LogPattern, ...] = (
    log_pattern(
        r"^TERM_(?:RUNLIMIT|CPULIMIT|DEADLINE): |^=>> PBS: job killed: (?:walltime|cput)\b",
        lambda _: CancelledByUser("time limit"),
    ),
    log_pattern(
        r"^TERM_(?:OWNER|ADMIN|FORCE_OWNER|FORCE_ADMIN|REMOVE_HUNG_JOB): "
        r"|^009 \(\d+\.\d+\.\d+\) .{1,40} Job was aborted\b",
        lambda _: CancelledByUser("cancelled"),
    ),
    log_pattern(
        r"^TERM_PREEMPT: |^004 \(\d+\.\d+\.\d+\) .{1,40} Job was evicted\b",
        lambda _: CancelledByUser("preempted"),
    ),
    log_pattern(
        r"^TERM_(?:MEMLIMIT|SWAP): ",
        lambda _: HostOom("LSF"),
    ),
    log_pattern(
        r"^=>> PBS: job killed: (?:v?mem|pv?mem) \S+ exceeded limit",
        lambda _: HostOom("PBS"),
    ),
    log_pattern(
        r"\bJob has gone over (?:cgroup )?memory limit of \d+",
        lambda _: HostOom("HTCondor"),
    ),
    log_pattern(
        r"^Exited with exit code (?P<code>[1-9]\d{0,2})\.$"
        r"|^\s*\(1\) Normal termination \(return value (?P<value>-?[1-9]\d{0,2})\)",
        lambda found: ProcessExit(
            bounded_integer((found["code"] or found["value"]).lstrip("-")), of_job=True
        ),
    ),
    log_pattern(
        r"^Exited (?:by signal|with signal termination:) (?P<signal>\d{1,2})\b"
        r"|^\s*\(0\) Abnormal termination \(signal (?P<number>\d{1,2})\)",
        lambda found: ProcessExit(
            -bounded_integer(found["signal"] or found["number"], _LARGEST_SIGNAL), of_job=True
        ),
    ),
    log_pattern(
        r"^Successfully completed\.$|^\s*\(1\) Normal termination \(return value 0\)",
        lambda _: JobFinished(),
    ),
    log_pattern(  # Kaldi's and ESPnet's wrappers of schedulers (utils/parallel/queue.pl, run.pl)
        r"\b(?:queue|slurm|pbs|run|ssh)\.pl: job failed with status (?P<code>[1-9]\d{0,2}), log is in ",
        lambda found: ProcessExit(bounded_integer(found["code"])),
    ),
    log_pattern(  # what they write at the end of the log of each job
        r"^(?:# )?Ended \(code (?P<code>\d{1,3})\) at ",
        lambda found: ProcessExit(bounded_integer(found["code"])) if int(found["code"]) else JobFinished(),
    ),
)
