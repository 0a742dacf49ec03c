"""Helpers that a process started and that ended: workers that load data, process pools, Dask's workers.

From torch/utils/data (dataloader.py, csrc/DataLoader.cpp), Lib/concurrent/futures/process.py, joblib's
loky (process_executor.py), billiard (pool.py), datasets (utils/py_utils.py) and distributed (nanny.py,
scheduler.py).
"""

from __future__ import annotations

from nodedoctor.triage.events.log_pattern import LogPattern, bounded_integer, log_pattern, symptom_pattern
from nodedoctor.triage.events.system.exits import LauncherSignalled, ProcessExit, signal_of

_LOADER = "data-loader worker"
_POOL = "worker of a process pool"

SIGNS: tuple[LogPattern, ...] = (
    log_pattern(
        r"DataLoader (?:worker|process) \(pid(?:\(s\))? +(?P<worker>\d+)(?:[, ]+\d+)*\) (?:exited )?is killed"
        r" by signal: (?P<signal>Killed|Segmentation fault|Aborted)",
        lambda found: ProcessExit(signal_of(found["signal"]), helper=_LOADER),
    ),
    log_pattern(  # these are sent to all processes of a session, or of a job
        r"DataLoader worker \(pid(?:\(s\))? +\d+(?:[, ]+\d+)*\) (?:exited )?is killed by signal: "
        r"(?P<signal>Hangup|Terminated)",
        lambda found: LauncherSignalled(-signal_of(found["signal"]), _LOADER),
    ),
    log_pattern(
        r"Unexpected (?P<signal>segmentation fault|floating-point exception) encountered in worker",
        lambda found: ProcessExit(-11 if found["signal"][0] == "s" else -8, helper=_LOADER),
    ),
    symptom_pattern(
        "peer_died",
        "loader-ended",
        # how it ended may be cut off: the end of what a viewer shows, or of what was pasted
        r"DataLoader (?:worker|process) \(pid(?:\(s\))? +(?P<worker>\d+)(?:[, ]+\d+)*\) "
        r"(?:exited unexpectedly|exited(?: un[a-z]{0,8})?[ .]*$"
        r"|(?:exited )?is killed(?: by?(?: s[ignal]{0,5}:?)?)?[ .]*$)",
        "a data-loader worker ended, the log does not say how",
        personal=True,
    ),
    log_pattern(
        r"exit codes of the workers are \{.{0,80}?(?P<signal>SIG(?:KILL|SEGV|ABRT|BUS|FPE|ILL))\(-\d"
        r"|Worker exited prematurely: signal \d+ \((?P<lost>SIG(?:KILL|SEGV|ABRT|BUS|FPE|ILL))\)",
        lambda found: ProcessExit(signal_of(found["signal"] or found["lost"]), helper=_POOL),
    ),
    symptom_pattern(
        "peer_died",
        "pool-broken",
        r"process in the process pool was terminated abruptly"
        r"|child process terminated abruptly, the process pool is not usable"
        r"|worker process managed by the executor was unexpectedly terminated"
        r"|subprocesses has abruptly died during map operation|Worker exited prematurely: exitcode \d",
        "a worker of a process pool ended, the log does not say how",
        personal=True,
    ),
    log_pattern(
        r"^Worker process (?P<worker>\d+) was killed by signal (?P<signal>\d{1,2})$",
        lambda found: ProcessExit(-bounded_integer(found["signal"], 64), helper="worker of Dask"),
    ),
    symptom_pattern(
        "peer_died",
        "dask-workers-died",
        r"Attempted to run task .{1,300} on \d+ different workers, but all those workers died"
        r"|\bKilledWorker: ",
        "the workers of Dask ended that ran one task",
    ),
)
