"""Ray's notices of dead workers; its list of possible reasons proves nothing."""

from __future__ import annotations

import re

from nodedoctor.record import record
from nodedoctor.triage.marks import Mark
from nodedoctor.triage.patterns.rows import read_rows


@record
class ActorDied:
    """A Ray worker process is gone; `never_began`: it ended before the raylet knew it.

    `of_task`: it ran a task, or an actor's method. Ray runs tasks again by itself (`max_retries` is 3).
    """

    never_began: bool = False
    of_task: bool = False


OF_ANOTHER = (ActorDied, Mark.ACTOR_PID)
"""What a process says of another one: the driver, or an actor that waits, of the actor that is dead."""


@record
class TaskFailed:
    """`ray.get` shows the first failed task of its list, rarely the first failure.

    `printer` is the process that prints it, where the line has its id in front.
    """

    error: str = ""
    printer: int | None = None


def _worker_died(match: re.Match[str]) -> ActorDied:
    return ActorDied(of_task="while executing a task" in match.string)


SIGNS = read_rows(
    r"""
# an object is lost when the worker that made it, or that owns it, is gone
ActorDied
    (?:Actor(?:Died|Unavailable)|RayActor|OwnerDied|ObjectLost|ObjectReconstructionFailed
    |LocalRayletDied)Error
# the raylet (src/ray/raylet/worker_pool.cc)
ActorDied  never_began
    [Ww]orker process ?\((?P<pid>\d+)\) have not registered within the timeout\. The process is dead
_worker_died
    Worker IP address: (?P<host>\S+).*Worker PID: (?P<pid>\d+)(?: Worker exit type: [A-Z_]+)?
ActorDied
    worker process has died\.(?: Worker exit type: [A-Z_]+)?
ACTOR_PID
    ^\s+pid: (?P<pid>\d+)$
# verl ends the names of its actors in the number of their node and their rank on it
ACTOR_PID
    ^\s+name: \w+_0:(?P<rank>\d{1,3})$
# Ray Train's index of the worker whose task failed first (ray/train/_internal/utils.py)
ACTOR_PID
    ^Worker (?P<rank>\d+) has failed\.$
# python/ray/exceptions.py
TaskFailed
    (?:RayTaskError(?:\((?P<error>\w+)\))?.*|\bray::[\w.:<>-]{1,200}(?:\(\))? \()pid=(?P<pid>\d+)
    (?:, ip=(?P<host>[\w.:-]+))?
ActorDied  of_task
    WorkerCrashedError|worker died or was killed while executing a task
[version_mismatch]
# ray/_private/utils.py, check_version_info: the lines behind it have the versions of both
ray-versions  personal
  this process has another Ray or Python than the cluster was started with
    Version mismatch: The cluster was started with:
[shm_or_limits]
# python/ray/exceptions.py: plasma, the store, lies in /dev/shm
object-store-full  personal
  Ray's object store is full, which lies in the host's shared memory
    \bObjectStoreFullError\b
[user_code_exception]
# its autoscaler (autoscaler/_private/event_summarizer.py): no kind of node is large enough
no-capacity  quoted
  Ray has no nodes for what the job asks for
    No available node types can fulfill resource requests? .{0,200}
""",
    ActorDied,
    TaskFailed,
    _worker_died,
)  # fmt: skip
