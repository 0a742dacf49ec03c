"""Whole nodes that went away: what schedulers, launchers and agents say of them."""

from __future__ import annotations

from nodedoctor.record import record
from nodedoctor.triage.events.log_pattern import LogPattern, log_pattern


@record
class NodeLost:
    """A whole node went away, says a scheduler; `unstarted` is why it did not even start its task."""

    unstarted: str = ""


_LOST = (
    # slurmctld (src/slurmctld/{ping_nodes,job_mgr}.c)
    r"\bJobId=\S+ (?:on failed node|due to failure of node|missing from batch node) (?P<host>[\w.-]+)",
    r"^(?:slurmctld: )?(?:\W*error: )?Nodes? (?P<host>[\w.-]+) not responding(?:, setting DOWN)?$",
    # Ray's control store (src/ray/gcs/gcs_server), and the error of a task
    r"[Tt]he node with (?:node|client) id:? \w+ and (?:ip|address): (?P<host>[\w.:-]+\w).{0,80}marked dead",
    r"\bThe node IP: (?P<host>[\w.:-]+\w), node ID: ",
    # Open MPI and PRRTE, behind `has lost communication with a remote daemon`
    r"^\W*Remote daemon: \S+ on node (?P<host>[\w.-]+)",
    # MPICH's hydra (pm/pmiserv), Torque's mother superior
    r"connection to proxy \d+ at host (?P<host>[\w.-]+) failed",
    r"job killed: node \d+ \((?P<host>[\w.-]+)\) requested job (?:terminate|die), 'EOF'",
    # torchelastic (rendezvous/dynamic_rendezvous.py): a node is its address, a process id and a number
    r"the node\(s\) '(?P<host>[\w.-]+?)(?:_\d+_\d+)?'.{0,400} removed from the rendezvous\b.{0,200}no heartb",
    # Kubernetes (pkg/controller/nodelifecycle)
    r"\b[Nn]ode (?P<host>[\w.-]+) (?:status is now: NodeNotReady|which was running pod \S+ is unresponsive)",
    # ssh's client, of launchers that start the ranks of a node through it
    r"^(?:[\w.-]+: )?Timeout, server (?P<host>[\w.-]+) not responding\.",
    r"^(?:[\w.-]+: )?Connection to (?P<host>[\w.-]+) closed by remote host\.",
)
"""What launchers, agents and schedulers say of a node that does not answer any more."""

SIGNS: tuple[LogPattern, ...] = (
    log_pattern(
        r"DUE TO NODE FAILURE|Node failure on (?P<host>\S+)|\bNODE_FAIL\b",
        lambda _: NodeLost(),
    ),
    *(log_pattern(pattern, lambda _: NodeLost()) for pattern in _LOST),
    log_pattern(  # srun (src/api/step_launch.c)
        r"Task launch for \S+ failed on node (?P<host>[\w.-]+): (?P<why>.{1,80})",
        lambda found: NodeLost(found["why"].strip()),
    ),
    log_pattern(
        r"health check failed|missed too many heartbeats|node was terminated unexpectedly"
        r"|Node is dead|NodeDiedError",
        lambda _: NodeLost(),
    ),
)
