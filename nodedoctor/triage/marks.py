"""Events without fields, which are marks, and the names of all events in documents."""

from __future__ import annotations

from enum import Enum
from typing import Any, TypeAlias


class Mark(Enum):
    """An event that has no fields; its value is its name in documents."""

    FORCE_KILLED = "forced"
    """A process ignored SIGTERM for 30 s and had to be killed: it was frozen, or stuck in a call."""
    LAUNCHER_STARTED = "begun"
    """A launcher starts, or workers meet at a rendezvous: after a death, this is a new run."""
    RESTART_ATTEMPT = "attempt"
    """A new attempt begins; the lines before it are an earlier incident."""
    RETRY_STARTED = "tried"
    """A script begins its next try of the same work."""
    SERVER_READY = "serving"
    """A server says that it is up."""
    SHUT_DOWN = "shut_down"
    """A server takes itself down: it was asked to, or something in it failed before."""
    REQUEST_REFUSED = "refused"
    """A server refused a client's request: what it logs of that request is no failure."""
    JOB_FINISHED = "finished"
    """The job says it ended well."""

    UNREAD_TROUBLE = "unread_trouble"
    """A line that announces trouble, by its severity or its words, and that no pattern reads."""
    RECOVERED_FROM_ERROR = "went_on"
    """A program's logger printed many ordinary lines after its last error."""
    SURVIVED_ERROR = "outlived"
    """So much was printed behind the last error of a log that it did not end its process."""
    OUTPUT_CONTINUED = "talked_on"
    """So much was printed behind the last complaint of a log that it is none of its last words."""
    NOT_A_LOG = "article"
    """Most of the text is written for people: an article, an issue or a chat about a failure."""

    STORAGE_FRAME = "storage_frame"
    """A call of a file system in a stack of the kernel's."""
    STACKS_TAKEN = "stacks_taken"
    """Somebody looked at the stacks of the processes then."""
    RANK_OF_PID = "rank_of_pid"
    """A line that ties this process to a global rank."""
    RANK_OF_POD = "rank_of_pod"
    """A pod with one GPU, whose environment has its rank."""
    POD_LISTED = "pod_listed"
    """A row of `kubectl get pods`: a pod that may be none of the job's."""
    SEVERAL_NODES = "several_nodes"
    """The job was started on more nodes than one: a local rank is no rank."""
    ACTOR_PID = "actor_pid"
    """The pid line under an ActorDiedError."""
    PEER_HOST = "peer_host"
    """Open MPI's name of the node whose process it lost; the line is below that of the loss."""
    STORE_LOST = "store_lost"
    """The server of torch's store went away, as it does at the end of any job."""
    ENDED_FIRST = "ended_first"
    """Our own black box saw who was the first to end; how it and the others ended it did not see."""
    SESSION_CUT = "session_cut"
    """The ssh session of a person was cut off: the node went down, or only the connection did."""
    HEARTBEAT_LOST = "heartbeat_lost"
    """A coordinator hears nothing of some tasks any more; lines behind it name them."""
    MISSING_RANK_CAME = "missing_came"
    """A rank for which the others had waited printed something again."""
    BARRIER_VICTIM = "barrier_victim"
    """This rank reached the monitored barrier and was let down."""
    DELIBERATE_SLEEP = "asleep"
    """A rank says it is waiting or sleeping on purpose."""
    RESOURCE_TRACKER_WARNING = "gone"
    """Python's tracker of shared resources outlived its processes: all that used them have ended."""
    GIL_HELD = "gil_held"
    """The process could not get Python's lock: some thread of it sits inside a call that keeps it."""

    SET_UP = "set_up"
    """NCCL is being set up in a process: its first lines."""
    DUMP_REQUESTED = "blamed"
    """A rank was asked to dump because of another one, the first victim that reported."""
    COMMUNICATOR_DESTROYED = "left"
    """A rank took its communicators down: if others still wait, it left early."""
    PROGRAM_ENDED = "program_ended"
    """A rank's program came to its end, says its process group: by its last line, or by an error above."""
    RAS_PROCESS = "ras_process"
    """A process named in an error: its pid, node and GPU."""
    RAS_DEAD = "ras_dead"
    """A process that RAS cannot reach and calls dead."""
    RAS_INCOMPLETE = "ras_incomplete"
    """Some ranks did not answer RAS; the lines below name them."""
    RAS_RANK = "ras_rank"
    """A rank that RAS lists under a line of its answer."""
    RAS_TABLE = "ras_table"
    """A heading or a row of the tables in RAS's answer; the lines below say what is wrong."""
    RAS_UNMOVED = "ras_unmoved"
    """RAS was asked twice, and counted the same operations: nothing moved in between."""
    RAS_RUNNING = "ras_running"
    """A group of communicators that runs and answers."""
    HANG_SUSPECTED = "hang_suspected"
    """A monitor, a program or a person says that the job, or a rank of it, hangs."""
    STOPPED_ITSELF = "stopped_itself"
    """A controller or the program ends the run, of what it saw of its health."""
    HANG_CONFIRMED = "hang_confirmed"
    """Ray Train's detector asked RAS again and again: no collective of some communicators went on."""
    LAUNCHED_FEWER = "launched_fewer"
    """A rank had launched fewer collectives than the others when nothing went on any more."""

    RECORDED_CALL = "flight_recorder"
    """What a flight recorder's dump shows about one rank, in words."""
    LIVE_PROCESS = "live_process"
    """What a process of a running job does, which is no trouble."""

    OF_GPU = "of_gpu"
    """The rest of a message of a full GPU, with the GPU's number: it was broken when it was pasted."""
    REPLICAS_DIFFER = "replicas_differ"
    """The parameters of a model differ between its data-parallel copies."""
    ODD_HASH = "odd_hash"
    """A rank's parameters are not those of the first replica of its group."""
    REPEAT_DIFFERS = "repeat_differs"
    """The same step, computed again from the same state, gave another result."""
    REPEAT_AGREES = "repeat_agrees"
    """Another GPU got the same unexpected result: it is the program's."""
    NOT_A_NUMBER = "not_a_number"
    """A process found a NaN in what it had computed itself, before it met the other ranks' numbers."""
    PRINTED_NAN = "printed_nan"
    """A NaN among the numbers that a training loop prints: of the process's own, or of all."""
    LOSS_STAYS_NAN = "loss_stays_nan"
    """Many lines in a row print a loss, and each is NaN."""
    LOSS_IS_FINITE = "loss_is_finite"
    """A line behind them prints a loss that is a number again."""
    CURVE_CALM = "curve_calm"
    """The loss or the gradient norm is printed, and does not rise."""
    CURVE_ROSE = "curve_rose"
    """The loss or the gradient norm that is printed rose far above what it had been."""


Kind: TypeAlias = "type[Any] | Mark"
"""A kind of event: a class, or a mark."""


def kind_of(what: object) -> Kind:
    """The class of what a line says, or the mark that it is."""
    return what if isinstance(what, Mark) else type(what)


_PUBLISHED = {
    "CancelledByUser": "ordered_stop",
    "CollectiveFailed": "failed",
    "CollectiveMismatch": "mismatch",
    "CollectiveShape": "passed",
    "DesyncJoined": "joined",
    "DesyncMissing": "lagging",
    "ExceptionRaised": "raised",
    "KernelTaskHung": "stalled",
    "LauncherSignalled": "ended",
    "PeersTerminated": "stopped",
    "PidRoster": "roster",
    "ProcessAborting": "dying",
    "Restarted": "anew",
    "SettingMentioned": "mentions",
    "ThreadStack": "stack",
    "TrainingActivity": "worked",
    "UnclassifiedError": "complaint",
    "WatchdogStuck": "heartbeat",
    "WorldSize": "size",
    "XidReported": "xid",
}
"""Names of events in documents that differ from those of their classes: names in documents do not change."""


def published_name(what: object) -> str:
    """The word for what a line says: `timed_out`, `gpu_full`; for a symptom its own name."""
    if isinstance(what, Mark):
        return str(what.value)
    name = getattr(what, "name", None)
    word = name if isinstance(name, str) and name else type(what).__name__
    word = _PUBLISHED.get(word, word)
    return "".join(f"_{c.lower()}" if c.isupper() and i else c.lower() for i, c in enumerate(word)).replace(
        "-", "_"
    )
