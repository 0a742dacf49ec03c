"""How those who started a program report that it failed.

They are workflow engines, operators, supervisors, CI, schedulers and shells.

Often it is all that a log has of the end: the program's own last words went elsewhere.
"""

from __future__ import annotations

import re

from nodedoctor.triage.patterns.exits import LauncherSignalled, PeersTerminated, ProcessExit, mpich_abort
from nodedoctor.triage.patterns.rows import read_rows

_CODE = r"(?P<code>-?[1-9]\d{0,2})\b"
_WHOLE_JOBS = rf"""
# Airflow (jobs/local_task_job_runner.py, task/task_runner), at the level of an information
ProcessExit  of_job
    \bTask exited with return code (?:{_CODE}|Negsignal\.(?P<signal>SIG[A-Z]{{2,6}})\b)
# Prefect (runner/runner.py, workers/process.py)
ProcessExit  of_job
    \bProcess for flow run '[^']{{1,80}}' exited with status code: {_CODE}
# Flyte (flyteplugins, flytek8s/pod_helper.go), Argo Workflows (workflow/controller/operator.go)
ProcessExit  of_job
    \] terminated with exit code \({_CODE}\)|\bError \(exit code (?P<code2>[1-9]\d{{0,2}})\)
# Vertex AI, AzureML
ProcessExit  of_job
    \bThe replica \S+ exited with a non-zero status of {_CODE}
    |\bUser process '[^']{{1,80}}' exited with status code (?P<code2>-?[1-9]\d{{0,2}})\b
# Ray's jobs (dashboard/modules/job/job_supervisor.py)
ProcessExit  of_job
    \bJob entrypoint command failed with exit code {_CODE}
# runners of GitLab and GitHub
ProcessExit  of_job
    \bJob failed: exit (?:code|status) {_CODE}
    |^(?:##\[error\])?Process completed with exit code (?P<code2>[1-9]\d{{0,2}})\b
# Kubeflow's operators and JobSet, Kubernetes' jobs, SageMaker, Ray's jobs, Metaflow, SkyPilot, Airflow
ProcessExit  of_job
    \b(?:PyTorch|TF|MPI|XGBoost|Paddle|JAX)Job \S+ is failed because\b|\bjobset failed due to\b
    |\bhas reached the specified backoff limit\b|\bBackoffLimitExceeded\b
    |\bTraining job failed$|\bReporting training FAILURE\b
    |(?:^| -- )Job 'raysubmit_\w+' failed$|^Workflow failed\.$|\bJob \d+ failed with return code(?: list)?:
    |\bMarking task as FAILED\b
"""
"""Of a whole job; its level is that of the reporter."""

_SHELLS = r"""
# zsh, fish, macOS's and bash's notices of jobs
ProcessExit
    ^zsh: (?P<signal>killed|terminated|segmentation fault|bus error|abort|illegal hardware instruction
    |floating point exception)(?: |$)
ProcessExit
    ^\[\d{1,3}\] {1,6}(?:[+-] {1,6})?\d{1,10} (?P<signal>killed|terminated|segmentation fault|bus error
    |abort) {1,8}\S
ProcessExit
    ^\[\d{1,3}\][+-]? {1,6}(?P<signal>Killed|Terminated|Segmentation fault|Bus error|Aborted
    |Illegal instruction|Floating point exception)\b
ProcessExit
    ^fish: Job \d{1,3}, .{1,200} terminated by signal (?P<signal>SIG(?!INT|HUP)[A-Z]{2,6}) \(
ProcessExit
    ^(?P<signal>Killed|Segmentation fault|Bus error|Abort trap): \d{1,2}$
    |^(?P<signal2>Illegal instruction|Floating point exception)(?: +\(core dumped\))?$
LauncherSignalled  signal=SIGHUP
    ^Hangup$
UNREAD_TROUBLE
    ^\[\d{1,3}\][+-]? {1,6}Exit [1-9]\d{0,2} {1,40}\S
# notebooks, of the process that runs their cells
UNREAD_TROUBLE
    \bKernel (?:died, waiting for restart|crashed while executing code|Restarting: The kernel appears)
# MPICH until 4.0 (src/mpi/init/abort.c), flux-core (src/shell/doom.c)
mpich_abort
    ^application called MPI_Abort\([^)]{1,60}, (?P<code>-?\d{1,9})\) - process (?P<rank>\d+)
ProcessExit  first
    \bdoom: rank (?P<rank>\d+) on host (?P<host>[\w.-]+) exited\b
# glibc's malloc and its guard of the stack, the C++ library; each aborts
UNREAD_TROUBLE
    \b(?:double free or corruption|corrupted size vs\. prev_size|corrupted double-linked list) ?\(?
    |\b(?:malloc|free|realloc|munmap_chunk|malloc_consolidate|calloc)\(\):[ ]
    (?:invalid|corrupted|unaligned|mismatching|memory)
    |\bstack smashing detected\b|^pure virtual method called$
# unittest, pytest
UNREAD_TROUBLE
    ^FAILED \((?:failures|errors)=[1-9]|^=+ [1-9]\d{0,5} (?:failed|errors?)\b.{0,120} in \d[\d.]*s\b
"""
"""Of a process that a shell, a launcher or the process's own library saw end."""

_RECORDS = r"""
# Slurm (sacct, scontrol show job, seff, its mail)
ProcessExit  of_job
    ^\S{1,40} .{0,120}\bFAILED {1,20}(?P<code>[1-9]\d{0,2}):\d
    |\bJobState=FAILED\b(?:.{0,80}\bExitCode=(?P<code2>[1-9]\d{0,2}):)?
    |^State: FAILED \(exit code (?P<code3>[1-9]\d{0,2})\)
    |\bSlurm (?:Array )?[Jj]ob_id=.{1,200} Failed, .{0,80}\bExitCode (?P<code4>[1-9]\d{0,2})
"""
"""What a scheduler keeps of a job."""

_SMALL = r"(?!130\b|143\b|-15\b|-2\b)-?(?:[1-9]\d?|1\d\d|255)\b(?!\.\d)"
"""A code of a process that was not asked to end; from 200 on it may be a status of HTTP."""
STATES_EXIT = re.compile(
    rf"\b(?:exit|exited with|code|status|rc|error)\W{{1,12}}{_SMALL}\W{{0,3}}$", re.IGNORECASE
)
"""That something ended with a code, in whatever words, at the end of a line."""
_PROGRAMS = rf"""
# make, just, npm, GNU time, pdsh, PM2, supervisord, Docker, Snakemake, Metaflow
UNREAD_TROUBLE
    \bmake(?:\[\d+\])?: \*\*\* \[.{{1,200}}\] (?:Error {_SMALL}|Killed|Aborted|Terminated|Segmentation fault)
    |^error: [Rr]ecipe `.{{1,80}}` failed\b|^npm ERR! code (?:ELIFECYCLE|{_SMALL})
    |\bgave up: \S+ entered FATAL state
    |^Command (?:exited with non-zero status {_SMALL}|terminated by signal \d)
    |^pdsh@\S+: \S+: ssh exited with exit code {_SMALL}|\bApp \[\S+\] exited with code \[{_SMALL}\]
    |\bexited: \S+ \((?:exit status {_SMALL}|terminated by SIG(?!TERM|INT)\w+(?: \(core dumped\))?);[ ]
    not expected\)
    |^docker: Error response from daemon:[ ]|^Error in rule \w+:$|^Task failed\.$
# scripts in their own words, Docker Compose
UNREAD_TROUBLE
    (?:\bexited with |\bfailed with |\bended with |\bdied with |\bcrashed with |\bterminated with )
    (?:an? )?(?:non-?zero )?(?:(?:exit|return) )?(?:code|status)(?: of)?\W{{0,3}}{_SMALL}
UNREAD_TROUBLE
    (?:\breturned exit code|^\++ exit)\W{{1,3}}{_SMALL}$
    |^\W{{0,16}}(?:[Ee]xit [Cc]ode|[Ee]xit status|[Ee]xited with|[Rr]eturn code)\W{{1,9}}{_SMALL}$
# monitors and launchers of programs, which end what they watch
UNREAD_TROUBLE
    \b(?:[Kk]illing|[Tt]erminating|[Aa]borting)\s(?:the\s|this\s)?(?:whole\s|entire\s|remaining\s)?
    (?:process group|job|training|workload|run|(?:all\s)?(?:\d{{1,6}}\s)?(?:ranks|workers|processes))\b
    |\b[Ss]en(?:t|ding)\sSIG(?:KILL|TERM|ABRT)\sto\s(?:all\s|the\s)?(?:\d{{1,6}}\s)?
    (?:ranks|workers|processes|process group)\b
    |\baction=(?:abort|kill|terminate)\b|[;,.]\sgiving up\.?$|\b[Rr]estarting\s(?:the\s)?workload\b
# Docker Compose, of the containers that still run, where one of them may end the others
PeersTerminated
    ^Aborting on container exit\.\.\.$
"""
"""Of one program among several, perhaps: where the job goes on it was none of its own."""

SIGNS = read_rows(
    _WHOLE_JOBS + _SHELLS + _RECORDS + _PROGRAMS,
    ProcessExit, PeersTerminated, LauncherSignalled, mpich_abort,
)  # fmt: skip
