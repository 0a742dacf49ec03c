"""Ordered ends and starts: time limits, cancellations, Ctrl-C, an attempt that begins again."""

from __future__ import annotations

from nodedoctor.record import record
from nodedoctor.triage.events.log_pattern import LogPattern, log_pattern


@record
class CancelledByUser:
    """Somebody or the scheduler ended the job: no failure of the job."""

    why: str

    @property
    def outside(self) -> bool:
        """True when the scheduler tells a reason of its own; a step is cancelled for a failed task, too."""
        return self.why in OUTSIDE or "preempt" in self.why

    @property
    def by_hand(self) -> bool:
        """True where somebody pressed Ctrl-C."""
        return "keyboard" in self.why


OUTSIDE = ("time limit", "job requeue", "preemption")
"""Reasons that slurmstepd tells behind CANCELLED ... DUE TO (src/slurmd/slurmstepd/req.c)."""


@record
class RestartAttempt:
    """A new attempt begins; what stands before it is an earlier incident."""


@record
class LauncherStarted:
    """A launcher starts, or workers meet at a rendezvous: after a death, this is a new run."""


SIGNS: tuple[LogPattern, ...] = (
    log_pattern(
        r"Setting OMP_NUM_THREADS environment variable for each process"
        r"|\] (?:Starting|Rendezvous'ing) worker group|Rendezvous complete for workers"
        r"|starting workers for entrypoint|Started a local Ray instance"
        r"|Connect(?:ing|ed) to existing Ray cluster"
        r"|dist_world_size=\d|runner\.py:\d+:main\] cmd ="
        r"|Initializing distributed: GLOBAL_RANK: \d+|[Jj]ob \S+ (?:was )?requeued"
        r"|The following values were not passed to `accelerate launch`"
        # at a prompt of a shell
        r"|^[^@\n]{0,60}[\w.-]{1,64}@[\w.-]{1,64}:\S{0,200}[#$] (?:\w+=\S+ )*"
        r"(?:nohup |time |sudo )?(?:python[\d.]*|torchrun|accelerate launch|deepspeed|srun|mpirun"
        r"|(?:(?:ba)?sh |\./)\S+\.sh)\b",
        lambda _: LauncherStarted(),
    ),
    log_pattern(
        r"\*?\*? ?(?:JOB|STEP) \S+ (?:ON \S+ )?CANCELLED AT \S+(?: [Dd][Uu][Ee] to (?P<lower>.*?)"
        r"| DUE TO (?P<why>[A-Z ]+))?(?: \*\*\*|$)",
        lambda found: (
            None
            if (found["why"] or "").startswith(("NODE FAIL", "TASK FAIL"))
            else CancelledByUser((found["why"] or found["lower"] or "cancelled").strip().lower())
        ),
    ),
    log_pattern(  # vLLM raises it for SIGTERM (vllm/entrypoints)
        r"^\s*KeyboardInterrupt: terminated$",
        lambda _: CancelledByUser("terminated"),
    ),
    log_pattern(
        r"^\s*(?:\w+Error: )?KeyboardInterrupt\b(?!: terminated$)"
        r"|\b[Kk]eyboard ?[Ii]nterrupt(?:ion|ed)?(?: detected| received)?[.,:;!](?! terminated$)"
        r"\W{0,3}.{0,24}\b(?:[Ss]hut|[Ee]xit|[Ss]top|[Aa]bort|[Qq]uit|[Tt]erminat|[Ss]av|[Cc]lean)",
        lambda _: CancelledByUser("interrupted from the keyboard"),
    ),
    log_pattern(
        r"DeadlineExceeded|[Pp]reempt(?:ed|ion) |PREEMPTION",
        lambda _: CancelledByUser("preempted"),
    ),
    log_pattern(
        # nohup says so at the start of what somebody runs with it, in his language
        r"will restart worker group|Restarting worker group|^nohup: (?:ignoring input|忽略输入)",
        lambda _: RestartAttempt(),
    ),
)
