"""JAX and XLA: the coordination service that hears nothing of a task, barriers, rendezvous within a process.

The texts are those of openxla/xla: xla/tsl/distributed_runtime/coordination/coordination_service.cc and
coordination_service_agent.cc, xla/pjrt/distributed/client.h, xla/service/rendezvous.cc.
"""

from __future__ import annotations

from nodedoctor.triage.events.log_pattern import LogPattern, log_pattern, rank_number, symptom_pattern
from nodedoctor.triage.events.store import BarrierMissed, StoreWait
from nodedoctor.triage.events.watchdog import ProcessAborting, TimedOut
from nodedoctor.triage.model import CollectiveCall

_TASK = r"/job:\w{1,64}/replica:\d+/task:(?P<rank>\d{1,7})"

SIGNS: tuple[LogPattern, ...] = (
    symptom_pattern(
        "peer_died",
        "task-lost",
        rf"Task {_TASK} heartbeat timeout",
        "the coordination service no longer hears from it: its process ended or its node is lost",
        personal=True,
    ),
    symptom_pattern(
        "network_socket_interface",
        "rendezvous-failed",
        r"cluster registration failed|Barrier timed out\. (?:Id: \[Init\]|Barrier_id: PjRT_Client_Connect)",
        "not all tasks registered with the coordination service: some never started, died or cannot reach it",
    ),
    symptom_pattern(
        "network_socket_interface",
        "coordinator-unreachable",
        r"UNAVAILABLE: ?failed to connect to all addresses|Failed to connect to remote host:"
        r"|DEADLINE_EXCEEDED.{0,400}CoordinationService/RegisterTask"
        r"|calling /tensorflow\.CoordinationService/RegisterTask",
        "the coordinator's address does not answer: it never started, it ended, or the way to it is blocked",
    ),
    log_pattern(r"DEADLINE_EXCEEDED: GetKeyValue\(\) timed out", lambda _: StoreWait(None, False)),
    log_pattern(rf"^{_TASK}$", lambda found: BarrierMissed((rank_number(found["rank"]),))),
    log_pattern(
        r"Terminating process because the (?:JAX )?\w+ service detected fatal errors",
        lambda _: ProcessAborting("another task died, or the coordination service went away"),
    ),
    log_pattern(
        r"(?:\[rank=(?P<rank>\d{1,7})\].{0,90})?Termination timeout .{0,2000}exceeded",
        lambda _: TimedOut(CollectiveCall(), None, fresh=True),
    ),
)
