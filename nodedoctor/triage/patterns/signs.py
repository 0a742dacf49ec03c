"""All signs of all families, and which kinds of events are errors, progress or beginnings."""

from __future__ import annotations

from nodedoctor.triage.lines.required_literals import required_literals
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.patterns import (
    corruption,
    cuda,
    exit_signs,
    exits,
    frameworks,
    hangs,
    host_limits,
    job_stopped,
    kubernetes,
    machine,
    nccl,
    nccl_diag,
    progress,
    ras,
    ray,
    reported_ends,
    store,
    watchdog,
)
from nodedoctor.triage.patterns.completed import REPORTS_OF_SUCCESS
from nodedoctor.triage.patterns.last_lines import LastLines
from nodedoctor.triage.patterns.log_pattern import LogPattern, Symptom
from nodedoctor.triage.patterns.trace import ExceptionRaised
from nodedoctor.triage.patterns.unclassified import (
    UnclassifiedError,
)

SIGNS: tuple[LogPattern, ...] = (
    *watchdog.SIGNS,
    *store.SIGNS,
    *hangs.SIGNS,
    *nccl.SIGNS,
    *nccl_diag.SIGNS,
    *cuda.SIGNS,
    *corruption.SIGNS,
    *host_limits.SIGNS,
    *machine.SIGNS,
    *exit_signs.SIGNS,
    *reported_ends.SIGNS,
    *ray.SIGNS,
    *ras.SIGNS,
    *job_stopped.SIGNS,
    *frameworks.SIGNS,
    *progress.SIGNS,
)
"""Every sign of every family."""


LIVENESS = (progress.TrainingStep, Mark.JOB_FINISHED, progress.LongWork, Mark.SERVER_READY)
"""What does not count as trouble."""


SIDE_FACTS = (
    frameworks.CollectiveShape,
    *corruption.ASIDE,
    nccl.BusBandwidth,
    nccl.VirtualInterface,
    machine.DriveError,
    machine.GpuOnBus,
    machine.HostAddress,
    machine.TasksPlaced,
    Mark.OF_GPU,
    ras.HangFolder,
    Mark.RANK_OF_PID,
    Mark.RANK_OF_POD,
    Mark.POD_LISTED,
    kubernetes.PodAddress,
    Mark.STORAGE_FRAME,
    Mark.STORE_LOST,
    Mark.SESSION_CUT,
    Mark.ENDED_FIRST,
    Mark.SEVERAL_NODES,
    progress.AgentRanks,
    progress.GroupJoined,
    progress.PidRoster,
    progress.WorldSize,
    progress.SettingMentioned,
    Mark.RESOURCE_TRACKER_WARNING,
    UnclassifiedError,
    LastLines,
    Mark.HANG_SUSPECTED,
    hangs.StragglerNamed,
)
"""Facts that a line has besides: it may still be one about progress."""


NON_ERRORS = SIDE_FACTS + LIVENESS
"""Events that are no trouble."""


ENDS = (ExceptionRaised, exits.ProcessExit, exits.LauncherSignalled, Mark.FORCE_KILLED, watchdog.TimedOut)
"""Ends, behind which the program may have been started again."""


NEW_RUNS = (Mark.LAUNCHER_STARTED, Mark.RESTART_ATTEMPT)
"""Beginnings of a run, behind which every rank begins again."""


SUSPICIONS = (
    Symptom, cuda.GpuFull, host_limits.HostOom, ExceptionRaised, nccl.NcclError, store.PeerGone,
    *corruption.SUSPICIONS,
)  # fmt: skip
"""Errors that the program may have handled: the words around them decide."""


ERRORS_LOGGED_AS_WARNING = (
    exits.PeersTerminated, Mark.FORCE_KILLED, exits.LauncherSignalled, machine.NodeLost,
    Mark.DUMP_REQUESTED, watchdog.CollectiveStatus, Mark.COMMUNICATOR_DESTROYED, Mark.PROGRAM_ENDED,
    Mark.GIL_HELD, watchdog.WatchdogStuck,
    Mark.RESTART_ATTEMPT, Mark.LAUNCHER_STARTED, job_stopped.CancelledByUser, Mark.SHUT_DOWN,
    nccl.Communicator,
    Mark.DELIBERATE_SLEEP, Mark.RESOURCE_TRACKER_WARNING, Mark.UNREAD_TROUBLE, machine.KernelTaskHung,
    machine.XidReported, ras.RasCommunicator, ras.RasCount, ras.RasSection,
    Mark.RAS_RUNNING, Mark.RAS_RANK, Mark.RAS_TABLE, Mark.RAS_INCOMPLETE,
    Mark.RAS_PROCESS, Mark.ACTOR_PID, host_limits.MemoryUser, store.BarrierMissed, watchdog.ProcessAborting,
)  # fmt: skip
"""Errors that torchelastic, Ray, the kernel's loggers and NCCL print at the level of a warning or below."""


ALSO_AT_WARNING = (*NON_ERRORS, *ERRORS_LOGGED_AS_WARNING)
"""Events that keep their manner in a line whose exception is handled."""


NEEDLES: tuple[str, ...] = (
    *(
        n
        for n in {needle: None for sign in SIGNS for needle in sign.needles}
        if len(n) > 6 or n in ("Xid (", "Killed")
    ),
    *(needle for report in REPORTS_OF_SUCCESS for needle in required_literals(report.pattern)),
    "Traceback (most recent",
    "Last error:",
    "Missing ranks:",
    '"MainThread"',
)
"""Words that find every line that matters, without the short ones that ordinary lines are full of."""
