"""How processes ended, in the words of launchers, shells, MPI, schedulers and frameworks."""

from __future__ import annotations

import re

from nodedoctor.triage.patterns.exits import (
    LauncherSignalled,
    LeftFirst,
    PeersTerminated,
    ProcessExit,
    mpich_abort,
)
from nodedoctor.triage.patterns.job_stopped import CancelledByUser
from nodedoctor.triage.patterns.log_pattern import SIGNALS, bounded_integer, signal_number
from nodedoctor.triage.patterns.rows import read_rows


def _launcher_signalled(match: re.Match[str]) -> LauncherSignalled | CancelledByUser:
    signal = signal_number(next(filter(None, match.groups())))
    if signal == SIGNALS["SIGINT"]:
        return CancelledByUser("interrupted from the keyboard")
    return LauncherSignalled(signal)


def _ide_exit(match: re.Match[str]) -> ProcessExit | CancelledByUser:
    """What PyCharm prints of a run; its own stop button ends it with -1 on Windows."""
    code = bounded_integer(match["code"])
    if code == -1:
        return ProcessExit(1, has_code=False)
    process_exit = ProcessExit.from_groups(code)
    if process_exit.signal == SIGNALS["SIGINT"]:
        return CancelledByUser("interrupted from the keyboard")
    return process_exit


def _hydra_exit(match: re.Match[str]) -> ProcessExit:
    """MPICH's and Intel MPI's `EXIT CODE`: of a signal, the status of wait(2).

    That is the signal, with 128 added for a core dump; 1 and 2 are codes that programs end with.
    """
    code = bounded_integer(match["code"])
    return ProcessExit(-code if code in (4, 6, 7, 8, 9, 11, 15) else code)


_LAUNCHERS = r"""
# our own black box (blackbox/finish.py)
LeftFirst
    ^nodedoctor: (?:rank (?P<rank>\d{1,6}), )?pid (?P<pid>\d{1,10})
    [ ]ended (?P<how>with exit code 0 )?before all others
ENDED_FIRST
    ^nodedoctor: (?:rank (?P<rank>\d{1,6}), )?pid (?P<pid>\d{1,10}) was the first to end
# torchelastic (torch/distributed/elastic)
ProcessExit  first  agent=notice
    failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<local>\d+) \(pid: (?P<pid>\d+)\)
_launcher_signalled
    Received (?:Signals\.)?(SIG[A-Z]+|\d+) death signal
    |SignalException: Process \d+ got signal: (?:Signals\.)?(\d+|SIG[A-Z]+)
FORCE_KILLED
    Unable to shutdown process (?P<pid>\d+) via (?:\d+|\S*SIG[A-Z]+), forcefully exit
PeersTerminated  one_by_one
    Sending process (?P<pid>\d+) closing signal
# srun, slurmstepd; DeepSpeed's launcher
PeersTerminated
    Job step aborted|sigkill_handler\] Killing subprocess (?P<pid>\d+)
PeersTerminated  for_a_task
    Terminating (?:StepId|job step)\b
# torchelastic's summary in a line
ProcessExit  first
    [Rr]oot (?:[Cc]ause|failure)(?: on|:)? rank:? ?(?P<rank>\d+)\b.{0,20}?
    (?:exit ?code:? ?(?P<code>-?0*[1-9]\d*)|(?P<signal>SIG[A-Z]+))
ProcessExit  first  agent=entry
    rank ?:? *(?P<rank>\d+) \(local[_ ]rank: ?(?P<local>\d+)\)\s*exitcode *: *
    (?P<code>-?\d+) \(pid: (?P<pid>\d+)\)
# torch.multiprocessing's, of the first that ended: how may be cut off
ProcessExit  first
    process (?P<rank>\d+) terminated with (?:signal (?P<signal>\w+)|exit code (?P<code>0*[1-9]\d*))
ProcessExit  first
    Exception: process (?P<rank>\d+) terminated with(?: signal| exit(?: code)?)?[ .]*$
ProcessExit  first
    ^(?:-- )?Process (?P<rank>\d+) terminated with the following error
# Abseil's handler of signals, which Ray installs
LauncherSignalled  signal=SIGTERM  what=process
    \bSIGTERM received at time=\d
# Lightning's exception for it, and those that programs raise in their handlers
LauncherSignalled  signal=SIGTERM  what=process
    ^(?:SystemExit: 143$|(?:\w+\.)*\w{0,40}SIGTERM\w{0,40}(?:Exception|Error|Interrupt)(?::[ ]|$)
    |(?:\w+\.)*\w{1,60}(?:Exception|Error|Interrupt|Exit): (?:[Rr]eceived|[Gg]ot|[Cc]aught)\s
    (?:signal )?(?:SIGTERM|15\b))
ProcessExit
    \b(?P<signal>SIG(?:SEGV|ABRT|BUS|FPE|ILL)) received at time=\d
# composer/cli/launcher.py, which looks at all and ends the others
ProcessExit  first
    ^(?:ERROR:composer\.cli\.launcher:)?Rank (?P<rank>\d+) crashed with exit code (?P<code>-?[1-9]\d{0,4})\.$
# launchers that count ranks
ProcessExit
    \b[Rr]ank (?P<rank>\d+)\b(?: \((?:PID|pid) (?P<pid>\d+)\))? (?:crashed|exited|died|failed|terminated
    |ended) with (?:exit |return )?(?:code|status):? (?P<code>-?[1-9]\d{0,4})\b
ProcessExit
    \b[Rr]ank (?P<rank>\d+)\)? (?:was )?(?:crashed|exited|died|failed|terminated|ended|killed)
    [ ](?:with|by|from|on)(?: signal:?)?[ ]
    (?P<signal>(?<=signal )\d{1,2}\b|(?<=signal: )\d{1,2}\b|SIG[A-Z]{3,4}\b)
ProcessExit
    \b[Rr]ank (?P<rank>\d+)\)? (?:exited|died|failed|ended) with (?P<code>-?[1-9]\d{0,2})\W{0,3}$
# handlers that programs and compiled frameworks install themselves
ProcessExit
    \bsignal\W{1,4}(?P<signal>SIG[A-Z]+|Aborted|Segmentation fault|Bus error|Floating point exception
    |Illegal instruction)\b.{0,24}\b(?:from|on|in|of) (?:[a-zA-Z_]{3,14} )?rank (?P<rank>\d+)
# gcloud, of a TPU pod
ProcessExit
    ^#* ?Command execution on worker (?P<rank>\d+) failed with exit status (?P<code>[1-9]\d{0,2})\b
# DeepSpeed's launcher
_launcher_signalled
    \bMain process received (SIG[A-Z]{3,4}), exiting
# srun
ProcessExit
    error: (?P<host>[\w.-]+): tasks? (?P<rank>\d+)(?![\d,-]): (?:(?P<signal>Killed|Segmentation fault
    |Bus error|Aborted|Floating point exception|Illegal instruction)|Exited with exit code (?P<code>\d+))
ProcessExit
    error: (?P<host>[\w.-]+): tasks (?P<tasks>\d+[-,][\d,-]*): (?:(?P<signal>Killed|Segmentation fault
    |Bus error|Aborted)|Exited with exit code (?P<code>\d+))
# DeepSpeed's launcher; the command in front is always that of the process that it started last
ProcessExit
    exits with return code = (?P<code>-?0*[1-9]\d*)
# containers; pip tells so of a command that it tried, behind a line of its box
ProcessExit
    (?:Exit [Cc]ode:\s+|"?exitCode"?: |(?<!│ )exit code:? )(?P<code>13[479]|143|-(?:4|6|7|8|9|11))\b
# the training operator and kubectl; a message about a pod does not say which container ended first
ProcessExit
    pod (?P<host>[\w.-]+) container \S+ exitCode: (?P<code>[1-9]\d*)
    |Pod: (?:[\w-]+\.)?[\w-]+ exited with code (?P<code2>[1-9]\d*)
# Kubernetes, about a pod that has not begun
UNREAD_TROUBLE
    \bFailedScheduling\b
[peer_died]
# Kubernetes; pyxis (pyxis_slurmstepd.c), which starts enroot's containers under Slurm
container-never-started  hint
  a container could not be made or started
    \b(?:ImagePullBackOff|ErrImagePull|CreateContainer(?:Config)?Error)\b
    |\bpyxis: (?:container start failed|couldn't start container|failed to (?:import|create|start) )
crash-loop  hint
  a container ends each time that it is started (CrashLoopBackOff)
    \bCrashLoopBackOff\b|Back-off restarting failed container
# Kubernetes (pkg/controller/tainteviction), of the pods of a node that does not answer or is emptied
pod-evicted
  Kubernetes took a pod off its node, which did not answer or was being emptied
    \bTaintManagerEviction\b.{0,80}\bMarking for deletion\b
# shells, of a command that may begin with its rank
ProcessExit
    ^(?:\S*: line \d+: +(?P<pid>\d+) +)?(?P<signal>Killed|Terminated|Segmentation fault|Bus error|Aborted)
    (?=(?:.{0,400}?[ ]RANK=(?P<rank>\d{1,6})[ ])?)
    (?: +\(core dumped\)(?: +\S.*)?|(?(pid) +\S.*| {2,}\S.*))?$
ProcessExit
    ^\S*: line \d+: +(?P<pid>\d+) +(?P<signal>Floating point exception|Illegal instruction)
    (?: +\(core dumped\))?(?: +\S.*)?$
LauncherSignalled  signal=SIGHUP
    ^\S*: line \d+: +(?P<pid>\d+) +Hangup(?: +\S.*)?$
# UCX, Python's faulthandler and subprocess
ProcessExit
    (?:(?:\[(?P<host>[\w.-]+):(?P<pid>\d+)(?::\d+){1,2}\] )?Caught signal (?P<signal>11|7)[ ]
    |Fatal Python error: (?P<signal2>Segmentation fault|Bus error|Aborted|Floating point exception
    |Illegal instruction)|died with <Signals\.(?P<signal3>SIG(?:KILL|SEGV|BUS))
    |(?<!traceback : )Signal (?P<signal4>11|7) \(SIG)
# subprocess, of a command that Windows ended
ProcessExit
    returned non-zero exit status (?P<code>322122\d{4})\b
# PyCharm and its kin (com.intellij.execution.process); containers' rows read its codes of signals
_ide_exit
    ^Process finished with exit code (?P<code>(?!13[479]\b|143\b)-?[1-9]\d{0,9})\b
# gdb, of a process that runs under it and of a core dump
ProcessExit
    ^(?:Program|Thread \d{1,6} "[^"]{0,40}") (?:received|terminated with) signal[ ]
    (?P<signal>SIG(?:SEGV|ABRT|BUS|FPE|ILL|KILL))\b
# glog's and Ray's handlers of signals
ProcessExit
    (?P<signal>SIG(?:SEGV|ABRT|BUS|FPE|ILL|TERM(?= \(@)))(?: \(@.{1,80}?)? received
    (?: by PID (?P<pid>\d+))?
# Open MPI's handler of signals, MPICH's and Intel MPI's hydra
ProcessExit
    (?:^|\[(?P<host>[\w.-]+):(?P<pid>\d+)\] )Signal: [A-Z][A-Za-z -]{2,30} \((?P<signal>4|6|7|8|11)\)
    |EXIT STRING: [A-Z][A-Za-z ]{2,30} \(signal (?P<signal2>\d{1,2})\)|KILLED BY SIGNAL: (?P<signal3>\d{1,2})
[user_code_exception]
# argparse, Python, and runc, Podman, Apptainer
not-begun  quoted  personal
  the program rejected its arguments, or did not find the file to run
    ^\S{1,80}: error: (?:unrecognized arguments|the following arguments are required|argument \S+: )
    |^\S*python[\d.]*: (?:can't open file '|No module named |Error while finding module)
    |"[^"]{1,80}": executable file not found in \$PATH
panic  quoted  personal
  a Rust library panicked
    ^thread '[^']{0,60}' (?:\(\d+\) )?panicked at[ ]
# glibc's assert(3) and abseil's and glog's CHECK, which then end the process
assertion  quoted  personal
  a check in compiled code failed
    : Assertion [`'].{1,300}' failed\.|\bCheck failed: |^Assertion failed:[ ]
# systemd, of a unit: the job's or any other one's, so that a mere code says little
UNREAD_TROUBLE
    \.(?:service|scope): Main process exited, code=exited, status=[1-9]\d*
ProcessExit
    \.(?:service|scope): Main process exited, code=(?:killed|dumped), status=(?P<signal>[1-9]\d*)
# other launchers
ProcessExit
    (?<!\.service: Main )[Pp]rocess\b.{0,60}(?:failed|exited|ended|terminated|died|crashed)\b.{0,24}
    (?:exit|return|status|with) ?(?:code|status)? ?[:=]? ?(?P<code>-?[1-9]\d{0,4}|-10737\d{5}|322122\d{4})\b
    (?!.*\bsignal\b)
    (?:.{0,12}\bpid ?[:=] ?(?P<pid>\d+))?
"""


_MPI = r"""
# HPE's PALS
ProcessExit
    ^(?P<host>[\w.-]+): rank (?P<rank>\d+) (?:died from signal (?P<signal>\d{1,2})
    |exited with code (?P<code>[1-9]\d{0,2}))\b
# MPICH's mpd, until 1.4
ProcessExit
    \bexit status of rank (?P<rank>\d+): (?:killed by signal (?P<signal>\d{1,2})
    |return code (?P<code>[1-9]\d{0,2}))
# the name of a node can push the signal to the next line: Open MPI breaks its messages at 80
ProcessExit  first
    process rank (?P<rank>\d+) with PID (?:(?P<pid>\d+)|\S+) on node (?P<host>\S+) exited on
    (?: signal (?P<signal>\d+)|(?: signal)?\s*$)
# MVAPICH2 (src/util/debugger/error_handling.c)
ProcessExit
    ^\[(?P<host>[\w.-]+):mpi_rank_(?P<rank>\d+)\]\[error_sighandler\] Caught error: .{1,40}
    \(signal (?P<signal>\d{1,2})\)
# what Open MPI's error handler prints before it aborts the job (ompi/errhandler)
ProcessExit  first  ends_all
    (?:MPI_ABORT was invoked on rank[ ]
    |(?:\[(?P<host>[\w.-]{1,255}):(?P<pid>\d+)\] )?\*\*\* reported by process \[\d{1,20},)(?P<rank>\d+)
# MPICH's word for a program that called MPI_Abort (src/mpi/init/abort.c)
mpich_abort
    ^Abort\((?P<code>\d{1,9})\) on node \d+ \(rank (?P<rank>\d+) in comm \S+\): application called
# Cray's MPICH
ProcessExit  first  ends_all
    \bMPICH ERROR \[Rank (?P<rank>\d+)\] \[job id \S+\] \[[^\]]{8,40}\] \[(?P<host>[\w.-]+)\] - Abort\(
# MPICH's and Intel MPI's; only the latter tells the rank
ProcessExit  first
    ^=\s+(?:RANK (?P<rank>\d+) )?PID (?P<pid>\d+) RUNNING AT (?P<host>\S+)
_hydra_exit
    ^=\s+EXIT CODE: (?P<code>[1-9]\d{0,4})$
ProcessExit
    (?:EXIT STRING: .{1,40}\(signal |KILLED BY SIGNAL: )(?P<signal>\d+)\b
# Open MPI's mpirun
PeersTerminated
    detected that one or more processes exited with non-zero|Per user-direction, the job has been aborted
ProcessExit  first
    ^\s*Process name: \[(?:\[\d+,\d+\]|[\w.-]{1,255}@\d+),(?P<rank>\d+)\]
"""


_HELPERS = r"""
# torch/utils/data (dataloader.py, csrc/DataLoader.cpp)
ProcessExit  helper=data-loader worker
    DataLoader (?:worker|process) \(pid(?:\(s\))? +\d+(?:[, ]+\d+)*\) (?:exited )?is killed by signal:[ ]
    (?P<signal>Killed|Segmentation fault|Aborted)
# a line of its rank: the kernel tells of the same process
RANK_OF_PID
    DataLoader worker \(pid(?:\(s\))? +(?P<pid>\d+)(?:[, ]+\d+)*\)
# these are sent to all processes of a session, or of a job
LauncherSignalled  what=data-loader worker
    DataLoader worker \(pid(?:\(s\))? +\d+(?:[, ]+\d+)*\) (?:exited )?is killed by signal:[ ]
    (?P<signal>Hangup|Terminated)
ProcessExit  helper=data-loader worker
    Unexpected (?P<signal>segmentation fault|floating-point exception) encountered in worker
[peer_died]
# how it ended may be cut off: the end of what a viewer shows, or of what was pasted
loader-ended  personal
  a data-loader worker ended, the log does not say how
    DataLoader (?:worker|process) \(pid(?:\(s\))? +\d+(?:[, ]+\d+)*\) (?:exited unexpectedly
    |exited(?: un[a-z]{0,8})?[ .]*$|(?:exited )?is killed(?: by?(?: s[ignal]{0,5}:?)?)?[ .]*$)
# joblib's loky (process_executor.py), billiard (pool.py)
ProcessExit  helper=worker of a process pool
    exit codes of the workers are \{.{0,80}?(?P<signal>SIG(?:KILL|SEGV|ABRT|BUS|FPE|ILL))\(-\d
    |Worker exited prematurely: signal \d+ \((?P<signal2>SIG(?:KILL|SEGV|ABRT|BUS|FPE|ILL))\)
# Lib/concurrent/futures/process.py, joblib, datasets (utils/py_utils.py), billiard
pool-broken  personal
  a worker of a process pool ended, the log does not say how
    process in the process pool was terminated abruptly
    |child process terminated abruptly, the process pool is not usable
    |worker process managed by the executor was unexpectedly terminated
    |subprocesses has abruptly died during map operation|Worker exited prematurely: exitcode \d
# distributed (nanny.py, scheduler.py)
ProcessExit  helper=worker of Dask
    ^Worker process \d+ was killed by signal (?P<signal>\d{1,2})$
dask-workers-died
  the Dask workers that ran one task ended
    Attempted to run task .{1,300} on \d+ different workers, but all those workers died|\bKilledWorker:[ ]
"""


_SCHEDULERS = r"""
# LSF (IBM Spectrum LSF, "LSF job termination reasons"), HTCondor's event log (manual, "Job Event Log Codes")
ProcessExit  of_job
    ^Exited with exit code (?P<code>[1-9]\d{0,2})\.$
    |^\s*\(1\) Normal termination \(return value -?(?P<code2>[1-9]\d{0,2})\)
ProcessExit  of_job
    ^Exited (?:by signal|with signal termination:) (?P<signal>\d{1,2})\b
    |^\s*\(0\) Abnormal termination \(signal (?P<signal2>\d{1,2})\)
# Determined AI's master, which tells it in the words of its agent
ProcessExit  of_job
    \bcontainer failed with non-zero exit code: (?P<code>[1-9]\d{0,2})\b
# Kaldi's and ESPnet's wrappers of schedulers (utils/parallel/queue.pl, run.pl), and the logs of their jobs
ProcessExit
    \b(?:queue|slurm|pbs|run|ssh)\.pl: job failed with status (?P<code>[1-9]\d{0,2}), log is in[ ]
ProcessExit
    ^(?:# )?Ended \(code (?P<code>0*[1-9]\d{0,2})\) at[ ]
"""


_FRAMEWORKS = r"""
# horovod/runner/gloo_run.py: each process as it ends, then the one that was first
ProcessExit
    \bProcess (?P<rank>\d+) exit with status code (?P<code>[1-9]\d{0,2})\.
ProcessExit  first
    \bProcess name: (?P<rank>\d+)\s*$
# Paddle (distributed/fleet/launch_utils.py); since 2.3 it counts the containers of its pod (launch/job)
ProcessExit  first
    trainer process(?:es)? with rank=\[(?P<tasks>\d[\d, ]*)\] (?:was|were) aborted
ProcessExit
    \bContainer rank (?P<local>\d+) status failed cmd \[.*\] code (?P<code>-?[1-9]\d{0,2})\b
# MindSpore's msrun (parallel/cluster/process_entity/_api.py); the second, whom its scheduler no longer hears
ProcessExit
    \bWorker process (?P<pid>\d+) exit with exception
ProcessExit  first
    \bTime out nodes are \[(?P<tasks>'\d+'(?:, ?'\d+')*)\]
# text-generation-inference (launcher/src/main.rs)
ProcessExit
    \bShard process was signaled to shutdown with signal (?P<signal>\d{1,2})(?: rank=(?P<rank>\d+))?
ProcessExit
    \bShard (?P<rank>\d+) (?:failed to start|crashed)\b
# SGLang (srt/managers): a scheduler's code stands in the next line; then SGLang kills its whole tree
ProcessExit  first
    \b[Rr]ank (?P<local>\d+) scheduler (?:is dead|died)\b
PeersTerminated  by_kill
    Received sigquit from a child proces
"""


SIGNS = read_rows(
    _LAUNCHERS + _MPI + _HELPERS + _SCHEDULERS + _FRAMEWORKS,
    ProcessExit, PeersTerminated, LauncherSignalled, LeftFirst,
    _launcher_signalled, _ide_exit, _hydra_exit, mpich_abort,
)  # fmt: skip
