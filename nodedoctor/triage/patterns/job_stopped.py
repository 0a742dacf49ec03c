"""Ordered ends and starts: time limits, cancellations, Ctrl-C, shutdowns, an attempt that begins again."""

from __future__ import annotations

import re

from nodedoctor.record import record
from nodedoctor.triage.patterns.rows import read_rows


@record
class CancelledByUser:
    """Somebody or the scheduler ended the job: no failure of the job.

    `whole_job`: Slurm ends the job itself, and not a step of it, which it also does for a failed task.
    """

    why: str
    whole_job: bool = False

    @property
    def outside(self) -> bool:
        """True when the scheduler gives its own reason, and not a failed task."""
        return self.whole_job or self.why in OUTSIDE or "preempt" in self.why

    @property
    def by_hand(self) -> bool:
        """True where somebody pressed Ctrl-C."""
        return "keyboard" in self.why


CANCELLED = "cancelled"
"""Without a reason: by somebody, or by Slurm itself, which so ends a step of which a task failed."""
OUTSIDE = ("time limit", "job requeue", "preemption")
"""Reasons that slurmstepd tells behind CANCELLED ... DUE TO (src/slurmd/slurmstepd/req.c)."""


def _cancelled_by_slurm(match: re.Match[str]) -> CancelledByUser | None:
    why = match["why"] or match["lower"] or CANCELLED
    if why.startswith(("NODE FAIL", "TASK FAIL")):
        return None
    return CancelledByUser(why.strip().lower(), whole_job=match["whole"] is not None)


_STATES = {"TIMEOUT": "time limit", "PREEMPTED": "preempted", "CANCELLED": CANCELLED}
"""States of a job that somebody or Slurm ended (`man sacct`), and why."""


def _cancelled_by_sacct(match: re.Match[str]) -> CancelledByUser:
    return CancelledByUser(_STATES[match["state"]])


SIGNS = read_rows(
    r"""
# torchrun, Ray, Ray Train, DeepSpeed, Megatron-LM, Slurm, accelerate; the last, at a prompt of a shell
LAUNCHER_STARTED
    Setting OMP_NUM_THREADS environment variable for each process
    |\] (?:Starting|Rendezvous'ing) worker group|Rendezvous complete for workers
    |starting workers for entrypoint|Attempting to start training worker group of size \d
    |Started a local Ray instance|Connect(?:ing|ed) to existing Ray cluster
    |dist_world_size=\d|runner\.py:\d+:main\] cmd =|Initializing distributed: GLOBAL_RANK: \d+
    |[Jj]ob \S+ (?:was )?requeued|The following values were not passed to `accelerate launch`
    |^[^@\n]{0,60}[\w.-]{1,64}@[\w.-]{1,64}:\S{0,200}[#$] (?:\w+=\S+ )*(?:nohup |time |sudo )?
    (?:python[\d.]*|torchrun|accelerate launch|deepspeed|srun|mpirun|(?:(?:ba)?sh |\./)\S+\.sh)\b
# slurmstepd
_cancelled_by_slurm
    \*?\*? ?(?:(?P<whole>JOB)|STEP) \S+ (?:ON \S+ )?CANCELLED AT \S+
    (?: [Dd][Uu][Ee] to (?P<lower>.*?)| DUE TO (?P<why>[A-Z ]+))?(?: \*\*\*|$)
# sacct, of a whole job, whose state it may cut; what became of a step may follow from one of its tasks
_cancelled_by_sacct
    ^[ |]{0,9}\d{3,12}(?:_\d{1,6})?[ |].{0,200}[ |](?P<state>TIMEOUT|PREEMPTED|CANCELLED)(?:(?<=CANCELLED)
    (?:\+| by \d{1,9}))?[ |]{1,20}\d{1,3}:\d
# vLLM raises it for SIGTERM (vllm/entrypoints); Megatron-LM saves first (megatron/training/training.py)
CancelledByUser  why=terminated
    ^\s*KeyboardInterrupt: terminated$|^\W{0,3}exiting program after receiving SIGTERM\b
# programs that save before they obey
CancelledByUser  why=terminated
    \b(?:[Rr]eceived|[Cc]aught|[Gg]ot) (?:signal )?(?:SIGTERM|SIGUSR[12])\b
    .{0,60}\b(?:[Cc]heckpoint|[Ss]av(?:e|ing))
    |\bSIG(?:TERM|USR[12]) (?:was )?(?:received|caught)\b.{0,60}\b(?:[Cc]heckpoint|[Ss]av(?:e|ing))
CancelledByUser  why=interrupted from the keyboard
    ^\s*(?:\w+Error: )?KeyboardInterrupt\b(?!: terminated$)
    |\b[Kk]eyboard ?[Ii]nterrupt(?:ion|ed)?(?: detected| received)?[.,:;!](?! terminated$)
    \W{0,3}.{0,24}\b(?:[Ss]hut|[Ee]xit|[Ss]top|[Aa]bort|[Qq]uit|[Tt]erminat|[Ss]av|[Cc]lean)
# Kubernetes (kube-scheduler, kubelet), SkyPilot, Ray (gcs_server, the autoscaler), audit logs of Google and
# Amazon; vLLM preempts requests of its own when its cache is full
CancelledByUser  why=preempted
    [Pp]reempt(?:ed|ion) (?!by \S+ mode\b|mode\b|victims\b|is not helpful\b|\d+ (?:seq|req))
    |PREEMPTION|PreemptionByScheduler|was forcibly preempted|Terminated due to preemption|DRAIN_PREEMPTED
    |compute\.instances\.preempted
    |\b(?:[Rr]un|[Jj]ob|[Ii]nstance|[Nn]ode|[Pp]od|[Vv][Mm])s? (?:\S+ ){0,3}(?:was|were|been|got) preempted\b
    |Spot Instance [Ii]nterruption (?:[Ww]arning|[Nn]otice)|in response to imminent node shutdown
# Kubernetes (the job controller, the kubelet)
CancelledByUser  why=time limit
    was active (?:on the node )?longer than (?:the )?specified deadline|reason: DeadlineExceeded
# `ray job` (dashboard/modules/job/cli.py and job_manager.py), KubeRay's RayJob
CancelledByUser  why=cancelled
    (?:^| -- )Job '[\w.-]{1,99}' was stopped$|\bStatus for job '[\w.-]{1,99}': STOPPED\b
    |(?:^|: )Job (?:was intentionally|has been) stopped\.?$|\b[Jj]ob ?[Ss]tatus: +STOPPED\b
# torchelastic; nohup says so at the start of what somebody runs with it, in his language
RESTART_ATTEMPT
    will restart worker group|Restarting worker group|^nohup: (?:ignoring input|忽略输入)
# Kubeflow's operators, Metaflow, Airflow, Ray Train
RESTART_ATTEMPT
    Job \S+ is restarting because\b|\[FailurePolicy\] (?:Decision: )?(?:FailureDecision\.)?RETRY\b
    |\[State Transition\] [A-Z_]+ -> (?:RESTARTING|RESCHEDULING)\b
    |^Task is starting \(retry\)\.$|\bStarting attempt (?:[2-9]|\d\d) of \d
# Determined AI's master (internal/trial.go), which counts the restarts before: not of the last one
RESTART_ATTEMPT
    \btrial failed \(restart (\d{1,4})/(?!\1\))|\bfailure of trial after restart (\d{1,4})/(?!\2\b)
# LSF (IBM Spectrum LSF, "LSF job termination reasons"), OpenPBS and Torque (src/resmom/mom_main.c),
# HTCondor's event log (manual, "Job Event Log Codes")
CancelledByUser  why=time limit
    ^TERM_(?:RUNLIMIT|CPULIMIT|DEADLINE): |^=>> PBS: job killed: (?:walltime|cput)\b
CancelledByUser  why=cancelled
    ^TERM_(?:OWNER|ADMIN|FORCE_OWNER|FORCE_ADMIN|REMOVE_HUNG_JOB):[ ]
    |^009 \(\d+\.\d+\.\d+\) .{1,40} Job was aborted\b
CancelledByUser  why=preempted
    ^TERM_PREEMPT: |^004 \(\d+\.\d+\.\d+\) .{1,40} Job was evicted\b
# SGLang (srt/managers), vLLM, uvicorn
SHUT_DOWN
    \[shutdown\] (?:API server: shutdown triggered|\w+: trigger received signal)
    |SIG(?:TERM|INT) received\b.{0,60}(?:[Dd]raining|[Ss]hutting down)|Shutting down FastAPI HTTP server
    |[Ss]ignal received, starting graceful shutdown|^(?:Application shutdown complete\.|Shutting down)$
""",
    CancelledByUser, _cancelled_by_slurm, _cancelled_by_sacct,
)  # fmt: skip
