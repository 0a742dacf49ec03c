"""Ray's notices: which worker is dead. Its list of possible reasons is constant text and no evidence."""

from __future__ import annotations

from nodedoctor.record import record
from nodedoctor.triage.events.log_pattern import LogPattern, log_pattern


@record
class ActorDied:
    """A Ray worker process is gone; `exit_type` is Ray's word for how."""

    exit_type: str


@record
class ActorPid:
    """The pid line under an ActorDiedError."""


OF_ANOTHER = (ActorDied, ActorPid)
"""What a process says of another one: the driver, or an actor that waits, of the actor that is dead."""


@record
class TaskFailed:
    """`ray.get` shows the first failed task in list order, which is seldom the first that failed.

    `teller` is the process that prints it, where the line has its id in front.
    """

    error: str
    teller: int | None = None


SIGNS: tuple[LogPattern, ...] = (
    log_pattern(  # an object is lost when the worker that made it, or that owns it, is gone
        r"(?:Actor(?:Died|Unavailable)|RayActor|OwnerDied|ObjectLost|ObjectReconstructionFailed|LocalRayletDied)"
        r"Error",
        lambda _: ActorDied(""),
    ),
    log_pattern(
        r"[Ww]orker process ?\((?P<pid>\d+)\) have not registered within the timeout\. The process is dead",
        lambda _: ActorDied("START"),
    ),
    log_pattern(
        r"Worker IP address: (?P<host>\S+).*Worker PID: (?P<pid>\d+)(?: Worker exit type: "
        r"(?P<type>[A-Z_]+))?",
        lambda found: ActorDied(found["type"] or ""),
    ),
    log_pattern(
        r"worker process has died\.(?: Worker exit type: (?P<type>[A-Z_]+))?",
        lambda found: ActorDied(found["type"] or ""),
    ),
    log_pattern(r"^\s+pid: (?P<pid>\d+)$", lambda _: ActorPid()),
    # verl ends the names of its actors in the number of their node and their rank on it
    log_pattern(r"^\s+name: \w+_0:(?P<rank>\d{1,3})$", lambda _: ActorPid()),
    # Ray Train's index of the worker whose task failed first (ray/train/_internal/utils.py)
    log_pattern(r"^Worker (?P<rank>\d+) has failed\.$", lambda _: ActorPid()),
    log_pattern(
        r"(?:RayTaskError(?:\((?P<error>\w+)\))?.*|\bray::[\w.:<>-]{1,200}(?:\(\))? \()pid=(?P<pid>\d+)"
        r"(?:, ip=(?P<host>[\w.:-]+))?",
        lambda f: TaskFailed(f["error"] or ""),
    ),
    log_pattern(
        r"WorkerCrashedError|worker died or was killed while executing a task", lambda _: ActorDied("CRASHED")
    ),
)
