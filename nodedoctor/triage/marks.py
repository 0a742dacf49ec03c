"""Events without fields: each is a mark, whose value is its name in documents."""

from __future__ import annotations

from enum import Enum
from typing import Any, TypeAlias


class Mark(Enum):
    """An event that has no fields."""

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

    RANK_OF_PID = "rank_of_pid"
    """A line that ties this process to a global rank."""
    ACTOR_PID = "actor_pid"
    """The pid line under an ActorDiedError."""
    PEER_HOST = "peer_host"
    """Open MPI's name of the node whose process it lost; the line is below that of the loss."""
    HEARTBEAT_LOST = "heartbeat_lost"
    """A coordinator hears nothing of some tasks any more; lines behind it name them."""
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
    COMMUNICATOR_DESTROYED = "left"
    """A rank took its communicators down: if others still wait, it left early."""
    RAS_PROCESS = "ras_process"
    """A process named in an error: its pid, node and GPU."""
    RAS_DEAD = "ras_dead"
    """A process that RAS cannot reach and calls dead."""
    RAS_RUNNING = "ras_running"
    """A group of communicators that runs and answers."""
    HANG_CONFIRMED = "hang_confirmed"
    """Ray Train's detector asked RAS again and again: no collective of some communicators went on."""
    LAUNCHED_FEWER = "launched_fewer"
    """A rank had launched fewer collectives than the others when nothing went on any more."""

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


Kind: TypeAlias = "type[Any] | Mark"
"""A kind of event: a class, or a mark."""


def kind_of(what: object) -> Kind:
    """The class of what a line says, or the mark that it is."""
    return what if isinstance(what, Mark) else type(what)
